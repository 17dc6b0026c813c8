// bin: which splats each tile draws, front to back.
// After the splats are sorted by depth: `ordered_counts` (one thread per splat) puts their instance
// counts into that order, a sum over them gives each splat's first instance, `instances_*` (one
// thread per splat, whole warps for large ones) writes the instances, a stable sort by tile keeps
// them front to back, and `ranges_*` (one thread per instance) finds where each tile's begin. Keys of
// 16 bits serve up to 65,535 tiles; the key behind the last tile marks places that no instance took.

#include "tiles.cuh"

extern "C" __global__ void __launch_bounds__(BIN_BLOCK)
    ordered_counts(const __grid_constant__ OrderedCountsArgs a) {
    const uint32_t* __restrict__ slots = a.slots;
    const uint32_t* __restrict__ counts = a.instance_counts;
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.visible) a.ordered[i] = counts[slots[i]];
}

template <typename Key>
__device__ inline void instances(const InstancesArgs& a, Key* keys) {
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    const uint32_t* __restrict__ slots = a.slots;
    const uint32_t* __restrict__ firsts = a.firsts;
    const uint32_t* __restrict__ counts = a.instance_counts;
    const TileRect* __restrict__ tiles = a.tiles;
    uint32_t* const splat_from_instance = a.splat_from_instance;
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    TileQuery own = {};
    if (i < a.visible) {
        own.slot = slots[i];
        own.first = firsts[i];
        own.count = counts[own.slot];
        if (own.count > 0) {
            const float4 place = splats[uint64_t{own.slot} * 3];
            const float4 form = splats[uint64_t{own.slot} * 3 + 1];
            const TileRect rect = tiles[own.slot];
            own.mean_px = {place.x, place.y};
            own.exponent_min = place.w;
            own.conic = {form.x, form.y, form.z};
            own.tiles = {rect.x0, rect.y0, rect.x1, rect.y1};
        }
    }
    // The test is compiled twice and might round differently here and where tiles were counted: no
    // more are written than were counted, and places left over are marked.
    const uint32_t found = for_each_tile(
        a.camera, own, [&](const TileQuery& q, uint32_t rank, uint32_t x, uint32_t y) {
            if (rank >= q.count) return;
            keys[uint64_t{q.first} + rank] = static_cast<Key>(y * a.camera.tiles[0] + x);
            splat_from_instance[uint64_t{q.first} + rank] = q.slot;
        });
    for (uint32_t rank = found; rank < own.count; ++rank) {
        keys[uint64_t{own.first} + rank] =
            static_cast<Key>(a.camera.tiles[0] * a.camera.tiles[1]);
        splat_from_instance[uint64_t{own.first} + rank] = own.slot;
    }
}

extern "C" __global__ void __launch_bounds__(BIN_BLOCK)
    instances_16(const __grid_constant__ InstancesArgs a) {
    instances(a, reinterpret_cast<uint16_t*>(a.keys));
}

extern "C" __global__ void __launch_bounds__(BIN_BLOCK)
    instances_32(const __grid_constant__ InstancesArgs a) {
    instances(a, reinterpret_cast<uint32_t*>(a.keys));
}

// Tiles without instances keep the empty range that the host wrote.
template <typename Key>
__device__ inline void ranges(const RangesArgs& a, const Key* __restrict__ keys) {
    const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i >= a.instances) return;
    const uint32_t tile = keys[i];
    if (tile >= a.tiles) return;
    const uint32_t at = static_cast<uint32_t>(i);
    if (i == 0 || keys[i - 1] != tile) a.ranges[tile].start = at;
    if (i + 1 == a.instances || keys[i + 1] != tile) a.ranges[tile].end = at + 1;
}

extern "C" __global__ void __launch_bounds__(BIN_BLOCK)
    ranges_16(const __grid_constant__ RangesArgs a) {
    ranges(a, reinterpret_cast<const uint16_t*>(a.keys));
}

extern "C" __global__ void __launch_bounds__(BIN_BLOCK)
    ranges_32(const __grid_constant__ RangesArgs a) {
    ranges(a, reinterpret_cast<const uint32_t*>(a.keys));
}
