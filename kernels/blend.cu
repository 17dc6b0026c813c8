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
// Shapes: splats and gradients [visible, 12], features and d_features [visible, 4],
// splat_from_instance [instances], ranges [tiles], image and d_image [h, w, 3], blended,
// inverse_depths and d_inverse_depths [h, w], surface and d_surface [h, w, 4], reached [tiles, PARTS],
// chunks [chunks, 2], states [instances / BLEND_CHUNK + 1, PARTS, WARP, 4],
// surface_states the same, depth_states [instances / BLEND_CHUNK + 1, PARTS, WARP],
// hits [instances / WARP + tiles + 1, PARTS].

#include <type_traits>

#include "blend_bwd.cuh"
#include "gradient.cuh"

static_assert(BLEND_BLOCK == PARTS * WARP, "one thread per pixel of a tile");
static_assert(EllipseFootprint::QUADS * 4 == RECORD_WIDTH, "what the host makes room for");

// Blocks that a multiprocessor is to hold, so that the warps hide each other's latencies; registers
// are given out accordingly: on compute capability 9.0 half of the 64 warps that fit, since more of
// them spill registers and are slower. GPUs for desktops have shared memory for half of that backward.
constexpr uint32_t FWD_RESIDENT = 4;
#if __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900
constexpr uint32_t BWD_RESIDENT = 8;
#elif __CUDA_ARCH__ == 1000
constexpr uint32_t BWD_RESIDENT = 7;
#else
constexpr uint32_t BWD_RESIDENT = 4;
#endif
// With a surface's features each thread holds more.
constexpr uint32_t BWD_SURFACE_RESIDENT = BWD_RESIDENT > 4 ? 6 : 3;

// What a forward pass draws beside the colours; with a surface, inverse depths where they are wanted.
enum class AuxOutput { NOTHING, COUNTS, DEPTHS, SURFACE };

__device__ inline void add_scaled(float4& sum, float weight, float4 value) {
    sum.x = fmaf(weight, value.x, sum.x);
    sum.y = fmaf(weight, value.y, sum.y);
    sum.z = fmaf(weight, value.z, sum.z);
    sum.w = fmaf(weight, value.w, sum.w);
}

// Adds the chunks that the tile's pixels got to, in any order of the tiles. All threads of the block
// take part. Each kernel has its own, since kernels that share memory by name are laid out alike.
template <AuxOutput AUX>
__device__ inline void list_chunks(const BlendArgs& a, uint32_t tile, uint32_t reached) {
    __shared__ uint32_t reached_by[PARTS];
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (lane == 0) {
        reached_by[warp] = reached;
        a.reached[tile * PARTS + warp] = reached;
    }
    __syncthreads();  // all warps are through
    if (warp != 0) return;
    const uint32_t most = warp_max(static_cast<int>(reached_by[lane % PARTS]));
    const uint32_t count = (most + BLEND_CHUNK - 1) / BLEND_CHUNK;
    uint32_t first = 0;
    if (lane == 0 && count > 0) first = atomicAdd(a.chunk_count, count);
    first = __shfl_sync(FULL_WARP, first, 0);
    uint2* const chunks = reinterpret_cast<uint2*>(a.chunks);
    for (uint32_t chunk = lane; chunk < count; chunk += WARP) chunks[first + chunk] = {tile, chunk};
}

template <class Footprint, AuxOutput AUX>
__device__ inline void blend_tile(const BlendArgs& a) {
    constexpr bool counts = AUX == AuxOutput::COUNTS, depths = AUX == AuxOutput::DEPTHS;
    constexpr bool surface = AUX == AuxOutput::SURFACE;
    using Staged = std::conditional_t<surface, FeaturedRows<Footprint>,
                                      typename Footprint::template Rows<WARP>>;
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    const uint32_t* __restrict__ splat_from_instance = a.splat_from_instance;
    __shared__ Staged rows[PARTS];

    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t tile = a.first_tile + blockIdx.x;
    Staged& own = rows[warp];
    const TileRange range = a.ranges[tile];
    const Part part = part_of(a.size, a.tiles_wide, tile, warp);
    float4* const states = reinterpret_cast<float4*>(a.states);
    uint32_t* const own_hits = a.hits ? a.hits + hits_at(range.start, tile) + warp : nullptr;

    float transmittance = part.inside ? 1.0f : -1.0f;
    float3 color = {0.0f, 0.0f, 0.0f};
    float inverse_depth = 0.0f;
    float4 features = {0.0f, 0.0f, 0.0f, 0.0f};
    uint32_t blended = 0;
    uint32_t base = range.start;
    // Index of the lane's splat, read a round ahead.
    uint32_t next =
        range.start < range.end ? splat_from_instance[min(base + lane, range.end - 1)] : 0;
    for (; base < range.end && __any_sync(FULL_WARP, transmittance > 0.0f); base += WARP) {
        const uint32_t position = base - range.start;
        if (states && position % BLEND_CHUNK == 0 && position > 0) {
            states[state_at(base, warp)] = {color.x, color.y, color.z, transmittance};
            if constexpr (depths) a.depth_states[state_at(base, warp)] = inverse_depth;
            if constexpr (surface) {
                reinterpret_cast<float4*>(a.surface_states)[state_at(base, warp)] = features;
            }
        }
        const uint32_t instance = base + lane;
        const float4* const record = splats + uint64_t{next} * Footprint::QUADS;
        [[maybe_unused]] const uint32_t splat_index = next;
        next = splat_from_instance[min(instance + WARP, range.end - 1)];
        const Footprint footprint = Footprint::load(record);
        const bool hit = reaches_part(part, footprint) && instance < range.end;
        const uint32_t hits = __ballot_sync(FULL_WARP, hit);
        if (own_hits && lane == 0) own_hits[position / WARP * PARTS] = hits;
        if (hit) {
            // The number of a row has no use here.
            const uint32_t number = depths ? __float_as_uint(__frcp_rn(footprint.depth())) : 0;
            own.put(__popc(hits & lanes_below()), row_of(footprint, record, number));
            if constexpr (surface) {
                own.features[__popc(hits & lanes_below())] =
                    reinterpret_cast<const float4*>(a.features)[splat_index];
            }
        }
        __syncwarp();  // the rows are there
        const uint32_t count = __popc(hits);
#pragma unroll 4
        for (uint32_t at = 0; at < count; ++at) {
            const typename Footprint::Row row = own.get(at);
            const float before = transmittance;
            const float alpha = composite(pixel_alpha(row, part.centre_px), transmittance);
            const float weight = alpha * before;
            const float3 shade = row.color();
            color.x = fmaf(weight, shade.x, color.x);
            color.y = fmaf(weight, shade.y, color.y);
            color.z = fmaf(weight, shade.z, color.z);
            if constexpr (depths) inverse_depth = fmaf(weight, row.number(), inverse_depth);
            if constexpr (surface) add_scaled(features, weight, own.features[at]);
            if (counts && alpha > 0.0f) ++blended;
        }
        __syncwarp();  // everyone has read them
    }
    if (!counts && a.reached) list_chunks<AUX>(a, tile, min(base, range.end) - range.start);
    if (!part.inside) return;
    const uint64_t pixel = uint64_t{part.pixel.y} * a.size[0] + part.pixel.x;
    const float through = fabsf(transmittance);
    a.image[pixel * 3] = color.x + through * a.background[0];
    a.image[pixel * 3 + 1] = color.y + through * a.background[1];
    a.image[pixel * 3 + 2] = color.z + through * a.background[2];
    if (counts) a.blended[pixel] = blended;
    if constexpr (depths) a.inverse_depths[pixel] = inverse_depth;
    if constexpr (surface) {
        reinterpret_cast<float4*>(a.surface)[pixel] = {features.x, features.y, features.z,
                                                       1.0f - through};
        if (a.inverse_depths) a.inverse_depths[pixel] = features.w;
    }
}

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
