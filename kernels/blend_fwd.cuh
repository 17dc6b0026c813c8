// The forward pass of `blend`: a tile's splats to its pixels, front to back. `blend.cu` explains how warps share the
// work.
#pragma once

#include <type_traits>

#include "composite.cuh"

static_assert(BLEND_BLOCK == PARTS * WARP, "one thread per pixel of a tile");

// Number of resident blocks per multiprocessor, which hide each other's latencies. On compute capability 9.0 these are
// half of the 64 possible warps; more would spill registers and be slower.
constexpr uint32_t FWD_RESIDENT = 4;

// Maps of a forward pass beside the colours; SURFACE includes inverse depths if requested.
enum class AuxOutput { NOTHING, COUNTS, DEPTHS, SURFACE };

__device__ inline void add_scaled(float4& sum, float weight, float4 value) {
    sum.x = fmaf(weight, value.x, sum.x);
    sum.y = fmaf(weight, value.y, sum.y);
    sum.z = fmaf(weight, value.z, sum.z);
    sum.w = fmaf(weight, value.w, sum.w);
}

// Lists the chunks that the tile's pixels reached, in any order of tiles. All threads of the block must take part. Each
// kernel has its own instance, since kernels that share memory by name have equal layouts.
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
    [[maybe_unused]] float median_depth = 0.0f, inverse_square = 0.0f;
    uint32_t base = range.start;
    // Index of the lane's splat, read one round ahead.
    uint32_t next =
        range.start < range.end ? splat_from_instance[min(base + lane, range.end - 1)] : 0;
    for (; base < range.end && __any_sync(FULL_WARP, transmittance > 0.0f); base += WARP) {
        const uint32_t position = base - range.start;
        if (states && position % BLEND_CHUNK == 0 && position > 0) {
            states[state_at(base, warp)] = {color.x, color.y, color.z, transmittance};
            if constexpr (depths) a.depth_states[state_at(base, warp)] = inverse_depth;
            if constexpr (surface) {
                reinterpret_cast<float4*>(a.surface_states)[state_at(base, warp)] = features;
                // The features of a surface include inverse depths.
                if (Footprint::HAS_MEETINGS && a.inverse_squares) {
                    a.depth_states[state_at(base, warp)] = inverse_square;
                }
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
            // The number of a row is not used here.
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
            const typename Footprint::Pixel in = pixel_alpha(row, part.centre_px);
            const float alpha = composite(in, transmittance);
            const float weight = alpha * before;
            const float3 shade = row.color();
            color.x = fmaf(weight, shade.x, color.x);
            color.y = fmaf(weight, shade.y, color.y);
            color.z = fmaf(weight, shade.z, color.z);
            if constexpr (depths) inverse_depth = fmaf(weight, in_pixel(row.number(), in), inverse_depth);
            if constexpr (surface) {
                const float4 here = in_pixel(own.features[at], in);
                add_scaled(features, weight, here);
                if (Footprint::HAS_MEETINGS) {
                    inverse_square = fmaf(weight * here.w, here.w, inverse_square);
                }
                // A finished pixel has a negative transmittance.
                if (Footprint::HAS_MEETINGS && before > 0.5f && fabsf(transmittance) <= 0.5f &&
                    alpha > 0.0f) {
                    median_depth = here.x;
                }
            }
            if (counts && alpha > 0.0f) ++blended;
        }
        __syncwarp();  // all lanes have read them
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
        if (Footprint::HAS_MEETINGS && a.median_depths) a.median_depths[pixel] = median_depth;
        if (Footprint::HAS_MEETINGS && a.inverse_squares) a.inverse_squares[pixel] = inverse_square;
    }
}
