// blend, for surfels: instances of the templates that `blend.cu` has for ellipses. The forward pass with surface maps
// also finds median depths.
// Shapes: as in `blend.cu`; median_depths and inverse_squares [h, w].

#include "blend.cuh"
#include "surfel_footprint.cuh"

// Maps of the backward pass of `blend` for splats whose depth differs from pixel to pixel: those of `SurfaceMaps`, and
// squared inverse depths if drawn.

struct RayMaps {
    using Value = SurfaceMaps::Value;
    struct Gradient {
        float4 maps;
        float square;  // of the squared inverse depths
    };

    struct Scratch : SurfaceMaps::Scratch {
        float d_squares[WARP];

        __device__ void put_gradient(Gradient d) {
            d_maps[threadIdx.x % WARP] = d.maps;
            d_squares[threadIdx.x % WARP] = d.square;
        }
    };

    __device__ static Gradient load(const BlendArgs& a, const PixelStart& start, float& d_behind) {
        Gradient d = {SurfaceMaps::load(a, start, d_behind), 0.0f};
        if (a.d_inverse_squares) {
            const float before = start.first ? 0.0f : a.depth_states[start.state];
            d.square = a.d_inverse_squares[start.pixel];
            d_behind += (a.inverse_squares[start.pixel] - before) * d.square;
        }
        return d;
    }
    __device__ static float inverse_depth(Gradient d) { return d.maps.w; }
    __device__ static float dot_gradient(float of_color, Value value, Gradient d) {
        return fmaf(value.w * value.w, d.square, dot(value, d.maps) + of_color);
    }

    SurfaceMaps sums;

    template <class Meeting>
    __device__ float add(MapNote note, const Scratch& own, const Meeting& met) {
        const float inverse_depth = own.features[note.splat].w * met.inverse_share();
        note.d = fmaf(2.0f * inverse_depth, own.d_squares[note.pixel], note.d);
        return sums.add(note, own, met);
    }
    __device__ void add_halves() { sums.add_halves(); }
    __device__ float d_depth(Value value) const { return sums.d_depth(value); }
    __device__ void store(const BlendArgs& a, uint32_t splat_index) const {
        sums.store(a, splat_index);
    }
};

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
