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
// splats' gradients without waiting for others.
//
// Variants are instances of the same templates, so that what they add costs nothing where no one asks
// for it: statistics for density control, and maps drawn beside the colours. `maps.cuh` has them. What a
// splat is in a pixel is the footprint's affair (`footprint.cuh`).
//
// Shapes: splats and gradients [visible, 12], features and d_features [visible, 4],
// splat_from_instance [instances], ranges [tiles], image and d_image [h, w, 3], blended,
// inverse_depths and d_inverse_depths [h, w], surface and d_surface [h, w, 4], reached [tiles, PARTS],
// chunks [chunks, 2], states [instances / BLEND_CHUNK + 1, PARTS, WARP, 4],
// surface_states the same, depth_states [instances / BLEND_CHUNK + 1, PARTS, WARP], hits [instances / WARP + tiles + 1, PARTS].

#include <type_traits>

#include "maps.cuh"
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

// Place of the pixel's state before instance `start`, the first of a chunk but not of its tile. Two
// such instances are BLEND_CHUNK apart or more, so that no two share a place.
__device__ inline uint64_t state_at(uint32_t start, uint32_t part) {
    return (uint64_t{start / BLEND_CHUNK} * PARTS + part) * WARP + threadIdx.x % WARP;
}

// First place of the hits of a tile whose instances begin at `start`: one word per part for every
// WARP of them. Each tile's last may not be full, so that it moves those behind it by one.
__device__ inline uint64_t hits_at(uint32_t start, uint32_t tile) {
    return (uint64_t{start / WARP} + tile) * PARTS;
}

// Opacity of a splat in a pixel that is not finished, and the pixel's transmittance behind it. What
// would take the transmittance below its least finishes the pixel: it turns negative and stays so.
__device__ inline float composite(const PixelAlpha& pixel, float& transmittance) {
    const float alpha = pixel.seen ? pixel.alpha : 0.0f;
    const float after = fmaf(-alpha, transmittance, transmittance);
    const bool contributes = after >= TRANSMITTANCE_MIN;
    transmittance = contributes ? after : -fabsf(transmittance);
    return contributes ? alpha : 0.0f;
}

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
    // Slot of the lane's splat, read a round ahead.
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
        [[maybe_unused]] const uint32_t slot = next;
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
                    reinterpret_cast<const float4*>(a.features)[slot];
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

// A pixel on its way front to back.
template <class Aux>
struct PixelWalk {
    float transmittance;  // negative once finished
    float d_behind;       // gradient of the pixel times the colour of what is not yet passed
    float3 d_color;
    typename Aux::Gradient d_aux;
};

// Passes a splat: the weight of its colour and the gradient of its exponent. With B the colour from
// behind the splat, dC/d_alpha = T c - B / (1 - alpha); no gradient passes an opacity that was clamped.
template <class Aux>
__device__ inline float2 blend_backward_step(const PixelAlpha& pixel, float3 shade, typename Aux::Value value,
                                   PixelWalk<Aux>& walk) {
    const float before = walk.transmittance;
    const float alpha = composite(pixel, walk.transmittance);
    const float d_shade = Aux::dot_gradient(dot(shade, walk.d_color), value, walk.d_aux);
    const float weight = alpha * before;
    walk.d_behind = fmaf(-weight, d_shade, walk.d_behind);
    const float d_alpha = fmaf(before, d_shade, -walk.d_behind * fast_reciprocal(1.0f - alpha));
    return {weight, pixel.unclamped < ALPHA_MAX ? d_alpha * alpha : 0.0f};
}

// The first visit: the lane is a pixel. Opacities do not wait for each other, so that those of a
// GROUP come before the walk past it; a batch ends with whole groups.
template <class Footprint, class Aux>
__device__ inline void accumulate_pixels(WarpScratch<Footprint, Aux>& own, uint32_t count, const Part& part,
                                    PixelWalk<Aux>& walk) {
    const uint32_t lane = threadIdx.x % WARP;
    for (uint32_t first = 0; first < count; first += GROUP) {
        PixelAlpha alphas[GROUP];
        float3 shades[GROUP];
        typename Aux::Value values[GROUP] = {};
        float2 notes[GROUP];
#pragma unroll
        for (uint32_t i = 0; i < GROUP; ++i) {
            const typename Footprint::Row row = own.rows.get(first + i);
            alphas[i] = pixel_alpha(row, part.centre_px);
            shades[i] = row.color();
            values[i] = own.value(first + i);
        }
#pragma unroll
        for (uint32_t i = 0; i < GROUP; ++i) {
            notes[i] = blend_backward_step<Aux>(alphas[i], shades[i], values[i], walk);
        }
#pragma unroll
        for (uint32_t i = 0; i < GROUP; ++i) {
            own.of_pixel[(first + i) * NOTE_STRIDE + lane] = notes[i];
        }
    }
}

// Sums over pixels: the footprint's, of the colour's weights, and what `Stats` and `Aux` sum.
template <class Footprint, class Stats, class Aux>
struct Sums {
    typename Footprint::Moments moments;
    float3 color;
    Stats stats;
    Aux aux;
};

// Half of a lane's splat: two of the part's four rows.
template <class Stats, class Footprint, class Aux>
__device__ inline Sums<Footprint, Stats, Aux> half_of_sums(const WarpScratch<Footprint, Aux>& own,
                                                           uint32_t k, uint32_t half,
                                                           const typename Footprint::Offsets& from) {
    Sums<Footprint, Stats, Aux> m = {};
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
        typename Footprint::Line line(from, 2 * half + i);
#pragma unroll
        for (uint32_t x = 0; x < PART_WIDTH; ++x) {
            const uint32_t pixel = (2 * half + i) * PART_WIDTH + x;
            const float2 note = own.of_pixel[k * NOTE_STRIDE + pixel];
            const float weight = note.x, e = note.y;
            const float4 d = own.d_color[pixel];
            line.add(e, x);
            m.color.x += weight * d.x;
            m.color.y += weight * d.y;
            m.color.z += weight * d.z;
            m.stats.add(e, line.slope_x(from, x), line.slope_y(from, x));
            m.aux.add(weight, d.w, own, pixel);
        }
        m.moments.add(line, from, 2 * half + i);
    }
    return m;
}

// The second visit: the lane is half of a splat.
template <class Stats, class Footprint, class Aux>
__device__ inline void accumulate_splats(const BlendArgs& a, const WarpScratch<Footprint, Aux>& own,
                                         uint32_t count, const Part& part) {
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t k = lane % BATCH;
    const typename Footprint::Shape shape = own.rows.shape(k);
    Sums<Footprint, Stats, Aux> m = half_of_sums<Stats>(own, k, lane / BATCH, {shape, part});
    m.moments.add_halves();
    for (float* sum : {&m.color.x, &m.color.y, &m.color.z}) *sum = both_halves(*sum);
    m.stats.add_halves();
    m.aux.add_halves();
    if (k >= count) return;
    const uint32_t slot = shape.number();
    float4* const record =
        reinterpret_cast<float4*>(a.gradients) + uint64_t{slot} * Footprint::QUADS;
    if (lane < BATCH) {
        m.moments.store_first(record, shape, m.stats.sums().x);
        m.aux.store(a, slot);
    } else {
        m.moments.store_second(record, m.stats.sums().y);
        add_quad(record + Footprint::QUADS - 1,
                 {m.color.x, m.color.y, m.color.z, m.aux.d_inverse_depth()});
    }
}

// One chunk of a tile's list in one part of the tile's pixels, by a warp on its own.
template <class Stats, class Footprint, class Aux>
__device__ inline void blend_part_bwd(const BlendArgs& a, WarpScratch<Footprint, Aux>& own,
                                      uint32_t tile, uint32_t chunk, uint32_t part_in_tile) {
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t reached = a.reached[tile * PARTS + part_in_tile];
    if (reached <= chunk * BLEND_CHUNK) return;
    const uint32_t end = min(reached - chunk * BLEND_CHUNK, BLEND_CHUNK);
    const uint32_t of_tile = a.ranges[tile].start;
    const uint32_t start = of_tile + chunk * BLEND_CHUNK;
    // Each lane keeps the hits of another WARP of instances.
    uint32_t hits_of_round = 0;
    if (lane * WARP < end) {
        const uint32_t round = chunk * (BLEND_CHUNK / WARP) + lane;
        hits_of_round = a.hits[hits_at(of_tile, tile) + uint64_t{round} * PARTS + part_in_tile];
    }
    const uint32_t* __restrict__ slots = a.splat_from_instance + start;
    const Part part = part_of(a.size, a.tiles_wide, tile, part_in_tile);

    PixelWalk<Aux> walk = {};
    walk.transmittance = -1.0f;
    if (part.inside) {
        const uint64_t pixel = uint64_t{part.pixel.y} * a.size[0] + part.pixel.x;
        const uint64_t at = state_at(start, part_in_tile);
        const float* const d = a.d_image + pixel * 3;
        const float* const c = a.image + pixel * 3;
        float4 state = {0.0f, 0.0f, 0.0f, 1.0f};
        if (chunk > 0) state = reinterpret_cast<const float4*>(a.states)[at];
        walk.d_color = {d[0], d[1], d[2]};
        walk.transmittance = state.w;
        walk.d_behind =
            (c[0] - state.x) * d[0] + (c[1] - state.y) * d[1] + (c[2] - state.z) * d[2];
        walk.d_aux = Aux::load(a, {pixel, at, chunk == 0}, walk.d_behind);
    }
    own.put_gradient(walk.d_aux);
    own.d_color[lane] = {walk.d_color.x, walk.d_color.y, walk.d_color.z,
                         Aux::inverse_depth(walk.d_aux)};

    uint32_t queued = 0;
    uint32_t next = slots[min(lane, end - 1)];  // read a round ahead
    for (uint32_t base = 0; base < end; base += WARP) {
        // Fill the queue from 32 instances.
        const uint32_t slot = next;
        next = slots[min(base + lane + WARP, end - 1)];
        const uint32_t hits = __shfl_sync(FULL_WARP, hits_of_round, base / WARP);
        if (hits >> lane & 1) own.queue[queued + __popc(hits & lanes_below())] = slot;
        queued += __popc(hits);
        const bool at_end = base + WARP >= end;
        uint32_t taken = 0;
        while (queued - taken >= BATCH || (at_end && queued > taken)) {
            const uint32_t count = min(queued - taken, BATCH);
            __syncwarp();  // the queue is there
            if (lane < count) {
                const uint32_t of_row = own.queue[taken + lane];
                const float4* const record = splats + uint64_t{of_row} * Footprint::QUADS;
                const Footprint footprint = Footprint::load(record);
                own.rows.put(lane, row_of(footprint, record, of_row));
                own.put(a, lane, of_row, footprint.depth());
            } else if (lane < BATCH) {
                own.rows.put(lane, unseen_row(Footprint{}));
                own.put_unseen(lane);
            }
            __syncwarp();  // the rows are there
            accumulate_pixels(own, count, part, walk);
            __syncwarp();  // the notes are there
            accumulate_splats<Stats>(a, own, count, part);
            taken += count;
        }
        // What is left moves to the front of the queue.
        queued -= taken;
        __syncwarp();  // the queue and the notes have been read
        const uint32_t rest = lane < queued ? own.queue[taken + lane] : 0;
        __syncwarp();  // the rest is in registers
        if (lane < queued) own.queue[lane] = rest;
    }
}

template <class Footprint, class Stats, class Aux>
__device__ inline void blend_chunk_bwd(const BlendArgs& a) {
    __shared__ WarpScratch<Footprint, Aux> scratch[BLEND_BWD_BLOCK / WARP];
    __shared__ uint32_t taken;
    if (blockIdx.x >= *a.chunk_count) return;
    if (threadIdx.x == 0) taken = 0;
    __syncthreads();  // no part is taken yet
    while (true) {
        uint32_t part = 0;
        if (threadIdx.x % WARP == 0) part = atomicAdd(&taken, 1);
        part = __shfl_sync(FULL_WARP, part, 0);
        if (part >= PARTS) return;
        // Read again for every part: to hold them takes registers.
        const uint2 chunk = reinterpret_cast<const uint2*>(a.chunks)[blockIdx.x];
        blend_part_bwd<Stats>(a, scratch[threadIdx.x / WARP], chunk.x, chunk.y, part);
    }
}

// The kernels: what they find besides the gradients of the colours, and blocks on a multiprocessor.
#define BLEND_BWD(NAME, STATS, AUX, RESIDENT)                                   \
    extern "C" __global__ void __launch_bounds__(BLEND_BWD_BLOCK, RESIDENT)     \
        NAME(const __grid_constant__ BlendArgs a) {                             \
        blend_chunk_bwd<EllipseFootprint, STATS, AUX>(a);                       \
    }

BLEND_BWD(blend_bwd, NoStats, NoAux, BWD_RESIDENT)
BLEND_BWD(blend_bwd_absolute, AbsoluteStats, NoAux, BWD_RESIDENT)
BLEND_BWD(blend_bwd_depth, NoStats, InverseDepth, BWD_RESIDENT)
BLEND_BWD(blend_bwd_depth_absolute, AbsoluteStats, InverseDepth, BWD_RESIDENT)
BLEND_BWD(blend_bwd_surface, NoStats, SurfaceMaps, BWD_SURFACE_RESIDENT)
BLEND_BWD(blend_bwd_surface_absolute, AbsoluteStats, SurfaceMaps, BWD_SURFACE_RESIDENT)
