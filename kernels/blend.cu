// blend: front-to-back compositing of the tiles, and pixel gradients back to splats.
//
// Forward: one block per tile, of the view or of a band of its rows, one thread per pixel. Each
// warp draws its own part of 8x4 pixels and never waits for the others: of 32 instances each lane
// tests one against that part, and the warp walks over those that reach it, all lanes through the
// same instructions: what leaves a pixel as it is has an opacity of 0. For the backward pass it
// keeps which instances reached the part, and the pixels' state before every BLEND_CHUNK instances.
// At the end the block lists the chunks of BLEND_CHUNK instances that its pixels got to.
//
// Backward: one block per chunk that is listed. Its warps, fewer than parts, take the parts of 8x4
// pixels as they come free, since parts differ in what there is to do. A warp gathers BATCH splats
// that reach its part and visits them twice: once a lane is a pixel, walks front to back from the
// state kept, deciding by the same functions as forward, and notes two numbers per splat, the weight
// of its colour and the gradient of its exponent; then a lane is half of a splat and adds them up
// over the pixels. So nothing is reduced across lanes but halves, and the warp adds its sums to the
// splats' gradients (`SplatGradient`) without waiting for others.
//
// Variants are instances of the same templates, so that what they add costs nothing where no one asks
// for it: statistics for density control, and maps drawn beside the colours. `maps.cuh` has them. What a
// splat is in a pixel is the footprint's affair (`footprint.cuh`).
//
// Shapes: splats and gradients [visible, record], features and d_features [visible, 4],
// splat_from_instance [instances], ranges [tiles], image and d_image [h, w, 3], blended,
// inverse_depths and d_inverse_depths [h, w], surface and d_surface [h, w, 4], reached [tiles, PARTS],
// chunks [chunks, 2], states [instances / BLEND_CHUNK + 1, PARTS, WARP, 4],
// surface_states the same, depth_states [instances / BLEND_CHUNK + 1, PARTS, WARP],
// hits [instances / WARP + tiles + 1, PARTS].

#include "blend_bwd.cuh"
#include "blend_fwd.cuh"
#include "gradient.cuh"

static_assert(EllipseFootprint::QUADS * 4 == RECORD_WIDTH, "what the host makes room for");

// Blocks of the backward pass that a multiprocessor is to hold. GPUs for desktops have shared memory for half of
// that.
#if __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900
constexpr uint32_t BWD_RESIDENT = 8;
#elif __CUDA_ARCH__ == 1000
constexpr uint32_t BWD_RESIDENT = 7;
#else
constexpr uint32_t BWD_RESIDENT = 4;
#endif
// With a surface's features each thread holds more.
constexpr uint32_t BWD_SURFACE_RESIDENT = BWD_RESIDENT > 4 ? 6 : 3;

extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, FWD_RESIDENT)
    blend_fwd(const __grid_constant__ BlendArgs a) {
    blend_tile<EllipseFootprint, AuxOutput::NOTHING>(a);
}

// The same, and how many splats changed each pixel; no backward pass follows.
extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, FWD_RESIDENT)
    blend_counted(const __grid_constant__ BlendArgs a) {
    blend_tile<EllipseFootprint, AuxOutput::COUNTS>(a);
}

// The same as `blend_fwd`, and inverse depths.
extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, FWD_RESIDENT)
    blend_fwd_depth(const __grid_constant__ BlendArgs a) {
    blend_tile<EllipseFootprint, AuxOutput::DEPTHS>(a);
}

// The same, and a surface's features, inverse depths among them.
extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, FWD_RESIDENT)
    blend_fwd_surface(const __grid_constant__ BlendArgs a) {
    blend_tile<EllipseFootprint, AuxOutput::SURFACE>(a);
}

// The kernels: what they find besides the gradients of the colours, and blocks on a multiprocessor.
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
