// bin: which splats each tile draws, front to back.
// After the splats are sorted by depth, a sum over their instance counts in that order gives each
// one's first instance. `instances_*` (one thread per splat, then one per candidate) writes the
// instances, a stable sort by tile keeps them front to back, and `ranges_*` (one thread per instance)
// finds where each tile's begin. Keys of 16 bits serve up to 65,535 tiles; the key behind the last
// tile marks places that no instance took. A barrier between the lanes of a warp publishes what they
// share.

#include "tiles.cuh"

// Splats of consecutive places that threads of one warp take: the 32 bytes of a memory transaction.
constexpr uint32_t NEIGHBOURS = 8;

// Place, front to back, of the thread's splat. Splats in front are the largest: so that not a few
// warps get all of these, neighbours in depth go to other blocks, and each warp of a block has some
// from every quarter of the depths.
__device__ inline uint32_t spread_place() {
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t group = lane / NEIGHBOURS * (BIN_BLOCK / WARP) + warp;
    return (group * gridDim.x + blockIdx.x) * NEIGHBOURS + lane % NEIGHBOURS;
}

// Where a splat's instances go.
struct alignas(16) Destination {
    uint32_t slot;   // of the splat
    uint32_t first;  // its first instance
    uint32_t count;  // its number of instances
};

template <typename Key>
__device__ inline void instances(const InstancesArgs& a, Key* keys) {
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    const uint32_t* __restrict__ slots = a.slots;
    const uint32_t* __restrict__ firsts = a.firsts;
    const uint32_t* __restrict__ counts = a.instance_counts;
    const TileRect* __restrict__ tiles = a.tiles;
    uint32_t* const splat_from_instance = a.splat_from_instance;
    __shared__ Destination destinations[BIN_BLOCK];
    const uint32_t i = spread_place();
    TileQuery own = {};
    Destination to = {};
    if (i < a.visible) {
        to.slot = slots[i];
        to.first = firsts[i];
        to.count = counts[to.slot];
        if (to.count > 0) {
            const float4 place = splats[uint64_t{to.slot} * 3];
            const float4 form = splats[uint64_t{to.slot} * 3 + 1];
            const TileRect rect = tiles[to.slot];
            own.mean_px = {place.x, place.y};
            own.exponent_min = place.w;
            own.conic = {form.x, form.y, form.z};
            own.tiles = {rect.x0, rect.y0, rect.x1, rect.y1};
        }
    }
    destinations[threadIdx.x] = to;
    __syncwarp();  // destinations are there
    const Destination* const of_warp = destinations + threadIdx.x / WARP * WARP;
    // The test is compiled twice and might round differently here and where tiles were counted: no
    // more are written than were counted, and places left over are marked.
    const uint32_t found = for_each_tile<BIN_BLOCK>(
        a.camera, own, [&](uint32_t owner, uint32_t rank, uint32_t x, uint32_t y) {
            const Destination d = of_warp[owner];
            if (rank >= d.count) return;
            keys[uint64_t{d.first} + rank] = static_cast<Key>(y * a.camera.tiles[0] + x);
            splat_from_instance[uint64_t{d.first} + rank] = d.slot;
        });
    for (uint32_t rank = found; rank < to.count; ++rank) {
        keys[uint64_t{to.first} + rank] =
            static_cast<Key>(a.camera.tiles[0] * a.camera.tiles[1]);
        splat_from_instance[uint64_t{to.first} + rank] = to.slot;
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
