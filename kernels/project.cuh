// The kernel `project` as a template over the primitive; `primitive.cuh` lists its requirements.
#pragma once

#include "primitive.cuh"
#include "tiles.cuh"
#include "travel.cuh"

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
