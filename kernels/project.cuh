// The kernel `project` as a template over the primitive; `primitive.cuh` lists its requirements.
#pragma once

#include "layout.cuh"
#include "primitive.cuh"
#include "splat.cuh"
#include "tiles.cuh"

// Transfer of a splat, as its record, from the rank that projects it to the rank that draws it. Two words that the
// drawing rank does not need hold the splat's tiles.

constexpr uint32_t RECORD_EXPONENT = 3;

// Tile coordinates are below 4,096, and a view of at most 65,535 tiles limits the count of a splat.
constexpr uint32_t TILE_BITS = 12;
constexpr uint32_t TILE_MASK = (1u << TILE_BITS) - 1;

// Packs 12 bits of a column of tiles, 12 of a row, and a byte.
__device__ inline float tile_word(uint32_t x, uint32_t y, uint32_t byte) {
    return __uint_as_float(x | y << TILE_BITS | byte << 2 * TILE_BITS);
}

// Stores the tiles of a splat that reaches `count` of them: first column and row, number of columns and rows less 1,
// and the two bytes of the count. A splat that reaches no tile may have no rectangle.
__device__ inline void put_tiles(float* record, Rect t, uint32_t count) {
    const bool any = count > 0;
    record[RECORD_EXPONENT] = any ? tile_word(t.x0, t.y0, count & 0xff) : 0.0f;
    record[RECORD_GAUSSIAN] = any ? tile_word(t.x1 - t.x0 - 1, t.y1 - t.y0 - 1, count >> 8) : 0.0f;
}

// Returns the number of reached tiles, and their rectangle.
__device__ inline uint32_t take_tiles(const float* record, TileRect& tiles) {
    const uint32_t first = __float_as_uint(record[RECORD_EXPONENT]);
    const uint32_t rest = __float_as_uint(record[RECORD_GAUSSIAN]);
    const uint32_t count = first >> 2 * TILE_BITS | rest >> 2 * TILE_BITS << 8;
    tiles = {0, 0, 0, 0};
    if (count > 0) {
        const uint32_t x = first & TILE_MASK, y = first >> TILE_BITS & TILE_MASK;
        tiles = {static_cast<uint16_t>(x), static_cast<uint16_t>(y),
                 static_cast<uint16_t>(x + (rest & TILE_MASK) + 1),
                 static_cast<uint16_t>(y + (rest >> TILE_BITS & TILE_MASK) + 1)};
    }
    return count;
}

// The kernel `project`.

constexpr uint32_t PROJECT_WARPS = PROJECT_BLOCK / WARP;

// Returns the index of the thread's splat in the list, and adds the block's totals to the counts.
template <class Args>
__device__ inline uint32_t append(const Args& a, bool visible, uint32_t instances) {
    __shared__ uint32_t first_of_warp[PROJECT_WARPS];
    __shared__ unsigned long long block_instances;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t mask = __ballot_sync(FULL_WARP, visible);
    const uint32_t sum = warp_sum(instances);
    if (threadIdx.x == 0) block_instances = 0;
    if (lane == 0) first_of_warp[warp] = __popc(mask);
    __syncthreads();  // counts are there
    if (lane == 0 && sum > 0) atomicAdd(&block_instances, static_cast<unsigned long long>(sum));
    __syncthreads();  // the block's instances are added up
    if (threadIdx.x == 0) {
        uint32_t total = 0;
        for (uint32_t w = 0; w < PROJECT_WARPS; ++w) {
            const uint32_t count = first_of_warp[w];
            first_of_warp[w] = total;
            total += count;
        }
        const uint32_t first = total > 0 ? atomicAdd(&a.counts->visible, total) : 0;
        for (uint32_t w = 0; w < PROJECT_WARPS; ++w) first_of_warp[w] += first;
        if (block_instances > 0) {
            atomicAdd(reinterpret_cast<unsigned long long*>(&a.counts->instances), block_instances);
        }
    }
    __syncthreads();  // places are there
    return first_of_warp[warp] + __popc(mask & lanes_below());
}

// One row of a primitive per thread.
template <class Primitive>
__device__ inline void project(const ProjectArgs& a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    bool visible = false;
    typename Primitive::Splat splat;
    Rect pixels;
    TileQuery query = {};
    if (row < a.gaussians) {
        visible = project_row(Primitive{}, a, row, splat, pixels);
        if (!visible) a.splat_from_gaussian[row] = UNSEEN;
    }
    if (visible) {
        query = tile_query(splat);
        query.tiles = tiles_of(pixels);
    }
    const uint32_t instances =
        for_each_row<PROJECT_BLOCK>(a.camera, query, [](const TileRow&, uint32_t) {});
    const uint32_t splat_index = append(a, visible, instances);
    if (!visible || splat_index >= a.capacity) return;

    a.splat_from_gaussian[row] = splat_index;
    constexpr uint32_t QUADS = Primitive::Footprint::QUADS;
    float4* const record = reinterpret_cast<float4*>(a.splats) + uint64_t{splat_index} * QUADS;
    store_record(record, splat, row);
    if (a.tiles == nullptr) {
        put_tiles(reinterpret_cast<float*>(record), query.tiles, instances);
        return;
    }
    a.tiles[splat_index] = {query.tiles.x0, query.tiles.y0, query.tiles.x1, query.tiles.y1};
    // Depths are positive: their bits are ordered like the depths.
    a.depth_keys[splat_index] = __float_as_uint(splat.ellipse.depth);
    a.splat_indices[splat_index] = splat_index;
    a.instance_counts[splat_index] = instances;
}
