// blend: front-to-back compositing of the tiles, and pixel gradients back to splats.
//
// Forward: one block per tile, of the view or of a band of its rows, one thread per pixel. Each warp draws its own warp
// tile of 8x4 pixels and never waits for other warps. Each lane tests one of 32 instances against the warp tile, and
// the warp visits those that reach it without divergence: where a splat does not change a pixel, its opacity is 0. For
// the backward pass the kernel stores which instances reached the warp tile, and the pixels' state before every
// BLEND_CHUNK instances. At the end the block lists the chunks of BLEND_CHUNK instances that its pixels reached.
//
// Backward: one block per listed chunk. It has fewer warps than warp tiles; warps take warp tiles of 8x4 pixels as they
// become free, since the work per warp tile differs. A warp gathers BATCH splats that reach its warp tile and visits
// them twice. First, each lane is a pixel and goes front to back from the stored state, with the same functions as the
// forward pass, and stores two numbers per splat: the weight of the colour and the gradient of the exponent. Then each
// lane is half of a splat and sums them over the pixels. Only halves are reduced across lanes. The warp adds its sums
// to the splats' gradients (`SplatGradient`) without waiting for other warps.
//
// Variants are instances of the same templates, so that an unused feature costs nothing: statistics for density
// control, and maps beside the colours (`blend.cuh`). The footprint (`footprint.cuh`) evaluates a splat at a pixel.
//
// Shapes: splats and gradients [visible, record], features and d_features [visible, 4],
// splat_from_instance [instances], ranges [tiles], image and d_image [h, w, 3], blended,
// inverse_depths and d_inverse_depths [h, w], surface and d_surface [h, w, 4], reached [tiles, WARP_TILES],
// chunks [chunks, 2], states [instances / BLEND_CHUNK + 1, WARP_TILES, WARP, 4],
// surface_states the same, depth_states [instances / BLEND_CHUNK + 1, WARP_TILES, WARP],
// hits [instances / WARP + tiles + 1, WARP_TILES].

#include "blend.cuh"
#include "layout.cuh"

static_assert(EllipseFootprint::QUADS * 4 == RECORD_WIDTH, "what the host makes room for");

// Number of resident backward blocks per multiprocessor. The shared memory of desktop GPUs suffices for half.
#if __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900
constexpr uint32_t BWD_RESIDENT = 8;
#elif __CUDA_ARCH__ == 1000
constexpr uint32_t BWD_RESIDENT = 7;
#else
constexpr uint32_t BWD_RESIDENT = 4;
#endif
// Surface features need more registers.
constexpr uint32_t BWD_SURFACE_RESIDENT = BWD_RESIDENT > 4 ? 6 : 3;

extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, FWD_RESIDENT)
    blend_fwd(const __grid_constant__ BlendArgs a) {
    blend_tile<EllipseFootprint, AuxOutput::NOTHING>(a);
}

// Like `blend_fwd`, and counts the splats that changed each pixel; without data for a backward pass.
extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, FWD_RESIDENT)
    blend_counted(const __grid_constant__ BlendArgs a) {
    blend_tile<EllipseFootprint, AuxOutput::COUNTS>(a);
}

// Like `blend_fwd`, with inverse depths.
extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, FWD_RESIDENT)
    blend_fwd_depth(const __grid_constant__ BlendArgs a) {
    blend_tile<EllipseFootprint, AuxOutput::DEPTHS>(a);
}

// Like `blend_fwd`, with surface features and inverse depths.
extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, FWD_RESIDENT)
    blend_fwd_surface(const __grid_constant__ BlendArgs a) {
    blend_tile<EllipseFootprint, AuxOutput::SURFACE>(a);
}

// Backward kernels with their statistics, maps and resident blocks.
#define BLEND_BWD(NAME, STATS, AUX, RESIDENT)                                   \
    extern "C" __global__ void __launch_bounds__(BLEND_BWD_BLOCK, RESIDENT)     \
        NAME(const __grid_constant__ BlendArgs a) {                             \
        blend_chunk_bwd<EllipseFootprint, STATS, AUX>(a);                       \
    }

BLEND_BWD(blend_bwd, NoStats, NoAux, BWD_RESIDENT)
BLEND_BWD(blend_bwd_absolute, AbsoluteStats, NoAux, BWD_RESIDENT)
BLEND_BWD(blend_bwd_squares, SquareStats, NoAux, BWD_RESIDENT)
BLEND_BWD(blend_bwd_depth, NoStats, InverseDepth, BWD_RESIDENT)
BLEND_BWD(blend_bwd_depth_absolute, AbsoluteStats, InverseDepth, BWD_RESIDENT)
BLEND_BWD(blend_bwd_depth_squares, SquareStats, InverseDepth, BWD_RESIDENT)
BLEND_BWD(blend_bwd_surface, NoStats, SurfaceMaps, BWD_SURFACE_RESIDENT)
BLEND_BWD(blend_bwd_surface_absolute, AbsoluteStats, SurfaceMaps, BWD_SURFACE_RESIDENT)
BLEND_BWD(blend_bwd_surface_squares, SquareStats, SurfaceMaps, BWD_SURFACE_RESIDENT)
