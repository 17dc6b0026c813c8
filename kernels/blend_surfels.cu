// blend, for surfels: instances of the templates that `blend.cu` has for ellipses. The forward pass with surface maps
// also finds median depths.
// Shapes: as in `blend.cu`; median_depths and inverse_squares [h, w].

#include "blend_bwd.cuh"
#include "blend_fwd.cuh"
#include "ray_maps.cuh"
#include "surfel_footprint.cuh"

static_assert(SurfelFootprint::QUADS * 4 == SURFEL_RECORD_WIDTH, "what the host makes room for");

// Number of resident blocks, limited by registers or shared memory.
#if __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000
constexpr uint32_t BWD_RESIDENT = 6;
constexpr uint32_t BWD_SURFACE_RESIDENT = 5;
#else
constexpr uint32_t BWD_RESIDENT = 3;
constexpr uint32_t BWD_SURFACE_RESIDENT = 2;
#endif

extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, FWD_RESIDENT)
    blend_fwd_surfels(const __grid_constant__ BlendArgs a) {
    blend_tile<SurfelFootprint, AuxOutput::NOTHING>(a);
}

extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, FWD_RESIDENT)
    blend_counted_surfels(const __grid_constant__ BlendArgs a) {
    blend_tile<SurfelFootprint, AuxOutput::COUNTS>(a);
}

extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, FWD_RESIDENT)
    blend_fwd_depth_surfels(const __grid_constant__ BlendArgs a) {
    blend_tile<SurfelFootprint, AuxOutput::DEPTHS>(a);
}

extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, FWD_RESIDENT)
    blend_fwd_surface_surfels(const __grid_constant__ BlendArgs a) {
    blend_tile<SurfelFootprint, AuxOutput::SURFACE>(a);
}

#define BLEND_BWD(NAME, STATS, AUX, RESIDENT)                                   \
    extern "C" __global__ void __launch_bounds__(BLEND_BWD_BLOCK, RESIDENT)     \
        NAME(const __grid_constant__ BlendArgs a) {                             \
        blend_chunk_bwd<SurfelFootprint, STATS, AUX>(a);                        \
    }

BLEND_BWD(blend_bwd_surfels, NoStats, NoAux, BWD_RESIDENT)
BLEND_BWD(blend_bwd_absolute_surfels, AbsoluteStats, NoAux, BWD_RESIDENT)
BLEND_BWD(blend_bwd_squares_surfels, SquareStats, NoAux, BWD_RESIDENT)
BLEND_BWD(blend_bwd_depth_surfels, NoStats, InverseDepth, BWD_RESIDENT)
BLEND_BWD(blend_bwd_depth_absolute_surfels, AbsoluteStats, InverseDepth, BWD_RESIDENT)
BLEND_BWD(blend_bwd_depth_squares_surfels, SquareStats, InverseDepth, BWD_RESIDENT)
BLEND_BWD(blend_bwd_surface_surfels, NoStats, RayMaps, BWD_SURFACE_RESIDENT)
BLEND_BWD(blend_bwd_surface_absolute_surfels, AbsoluteStats, RayMaps, BWD_SURFACE_RESIDENT)
BLEND_BWD(blend_bwd_surface_squares_surfels, SquareStats, RayMaps, BWD_SURFACE_RESIDENT)
