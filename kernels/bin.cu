// bin: lists the splats of each tile, front to back.
// After the splats are sorted by depth, a prefix sum over their instance counts in that order gives each splat's first
// instance. `instances_*` (one thread per splat, then per row of tiles, then per instance) writes the instances, a
// stable sort by tile keeps them front to back, and `ranges_*` (one thread per instance) finds the start of each tile.
// 16-bit keys serve up to 65,535 tiles; the key after the last tile marks unused instances. Barriers between the lanes
// of a warp publish shared data.
// publishes what they share.
//
// A view may be listed in bands of rows of tiles. `count_rows` (one thread per splat, then per row of tiles) counts the
// instances in a band by splat and by row; with these, `band_instances_*` does for a band what `instances_*` does for
// the whole view. Tiles keep their numbers.
//
// The listed records may be those of any footprint (`footprint.cuh`).

#include "gaussian.cuh"
#include "tiles.cuh"
#include "triangle_footprint.cuh"

// Number of consecutive splats that neighbouring threads take: the 32 bytes of a memory transaction. Surfels that face
// the camera fill the image and are neighbours in depth, so a warp takes one of them.
template <class Footprint>
constexpr uint32_t NEIGHBOURS = Footprint::HAS_MEETINGS ? 1 : 8;

// Returns the front-to-back index of the thread's splat. Splats in front are the largest. To balance the warps,
// neighbours in depth go to different blocks, and each warp of a block has some from every quarter of the depths.
template <class Footprint>
__device__ inline uint32_t interleaved_index() {
    constexpr uint32_t N = NEIGHBOURS<Footprint>;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t group = lane / N * (BIN_BLOCK / WARP) + warp;
    return (group * gridDim.x + blockIdx.x) * N + lane % N;
}

// Returns the tile query of a record of this footprint.
template <class Footprint>
__device__ inline TileQuery query_of(const float4* __restrict__ splats,
                                     const TileRect* __restrict__ tiles, uint32_t splat_index) {
    TileQuery query =
        tile_query(Footprint::load(splats + uint64_t{splat_index} * uint64_t{Footprint::QUADS}));
    const TileRect rect = tiles[splat_index];
    query.tiles = {rect.x0, rect.y0, rect.x1, rect.y1};
    return query;
}

// Destination of a splat's instances.
struct alignas(16) Destination {
    uint32_t splat_index;
    uint32_t first;  // its first instance
    uint32_t count;  // its number of instances
};

// Instances of one splat in one row of tiles. The warp writes 32 instances at a time, across splats. The code is
// compiled twice and may round differently here and where tiles were counted: not more instances are written than were
// counted, and unused ones are marked.
struct alignas(16) Run {
    uint32_t splat_index;
    uint32_t shift;      // instance of a tile minus the tile's number in the warp
    uint32_t end;        // after the splat's last instance
    uint32_t key_shift;  // key of a tile minus the tile's number in the warp
};

template <class Footprint, typename Key, typename Rows>
__device__ inline void instances(const InstancesArgs& a, Key* keys, Rows listed) {
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    const uint32_t* __restrict__ splat_indices = a.splat_indices;
    const uint32_t* __restrict__ firsts = a.firsts;
    const uint32_t* __restrict__ counts = a.instance_counts;
    const TileRect* __restrict__ tiles = a.tiles;
    uint32_t* const splat_from_instance = a.splat_from_instance;
    __shared__ Destination destinations[BIN_BLOCK];
    __shared__ Run runs_of_block[BIN_BLOCK];
    const uint32_t i = interleaved_index<Footprint>();
    TileQuery own = {};
    Destination to = {};
    if (i < a.visible) {
        to.splat_index = splat_indices[i];
        to.first = firsts[i];
        to.count = counts[to.splat_index];
        if (to.count > 0) {
            own = query_of<Footprint>(splats, tiles, to.splat_index);
        }
    }
    destinations[threadIdx.x] = to;
    __syncwarp();  // destinations are there
    const uint32_t lane = threadIdx.x % WARP;
    const Destination* const of_warp = destinations + (threadIdx.x - lane);
    Run* const runs = runs_of_block + (threadIdx.x - lane);
    const uint32_t found = for_each_row<BIN_BLOCK>(
        a.camera, own, [&](const TileRow& row, uint32_t total) {
            const Destination d = of_warp[row.owner];
            const uint32_t filled = __ballot_sync(FULL_WARP, row.width > 0);
            if (row.width > 0) {
                const uint32_t key = row.y * a.camera.tiles[0] + row.x;
                runs[__popc(filled & lanes_below())] = {d.splat_index, d.first + row.rank - row.begin,
                                                        d.first + d.count, key - row.begin};
            }
            __syncwarp();  // runs are there
            const uint32_t begin = row.width > 0 ? row.begin : UINT32_MAX;
            const auto write = [&](const Run& run, uint32_t tile) {
                const uint32_t instance = run.shift + tile;
                if (tile < total && instance < run.end) {
                    keys[instance] = static_cast<Key>(run.key_shift + tile);
                    splat_from_instance[instance] = run.splat_index;
                }
            };
            uint32_t begun = 0;
            if (total < WARP * WARP) {
                for (uint32_t base = 0; base < total; base += WARP) {
                    const Run run = runs[run_at(begin, base, begun)];
                    write(run, base + lane);
                }
            } else {
                // For a splat that fills the image, go row by row: that is faster than a search for each tile's row.
                for (uint32_t rows = filled; rows != 0; rows &= rows - 1) {
                    const int from = __ffs(rows) - 1;
                    const uint32_t row_begin = __shfl_sync(FULL_WARP, row.begin, from);
                    const uint32_t row_end = row_begin + __shfl_sync(FULL_WARP, row.width, from);
                    const Run run = runs[begun++];
#pragma unroll 1
                    for (uint32_t tile = row_begin + lane; tile < row_end; tile += WARP) {
                        write(run, tile);
                    }
                }
            }
            __syncwarp();  // runs are read
        },
        listed);
    for (uint32_t rank = found; rank < to.count; ++rank) {
        keys[uint64_t{to.first} + rank] =
            static_cast<Key>(a.camera.tiles[0] * a.camera.tiles[1]);
        splat_from_instance[uint64_t{to.first} + rank] = to.splat_index;
    }
}

// Kernels of a footprint.
#define INSTANCES(FOOTPRINT, SUFFIX)                                                               \
    extern "C" __global__ void __launch_bounds__(BIN_BLOCK)                                        \
        instances_16##SUFFIX(const __grid_constant__ InstancesArgs a) {                            \
        instances<FOOTPRINT>(a, reinterpret_cast<uint16_t*>(a.keys), AllRows{});                   \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(BIN_BLOCK)                                        \
        instances_32##SUFFIX(const __grid_constant__ InstancesArgs a) {                            \
        instances<FOOTPRINT>(a, reinterpret_cast<uint32_t*>(a.keys), AllRows{});                   \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(BIN_BLOCK)                                        \
        band_instances_16##SUFFIX(const __grid_constant__ InstancesArgs a) {                       \
        instances<FOOTPRINT>(a, reinterpret_cast<uint16_t*>(a.keys),                               \
                             BandRows{a.band_first, a.band_end});                                  \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(BIN_BLOCK)                                        \
        band_instances_32##SUFFIX(const __grid_constant__ InstancesArgs a) {                       \
        instances<FOOTPRINT>(a, reinterpret_cast<uint32_t*>(a.keys),                               \
                             BandRows{a.band_first, a.band_end});                                  \
    }

INSTANCES(EllipseFootprint, )
INSTANCES(SurfelFootprint, _surfels)
INSTANCES(TriangleFootprint, _triangles)

// A block sums its splats' instances by row before it adds the sums to the global ones. Choosing bands and counting
// by splat within a band share this code, so both agree.
template <class Footprint>
__device__ inline void count_rows_of(const CountRowsArgs& a) {
    __shared__ uint32_t of_row[TILE_ROWS_MAX];
    for (uint32_t row = threadIdx.x; row < a.camera.tiles[1]; row += BIN_BLOCK) of_row[row] = 0;
    __syncthreads();  // counts are zero
    const uint32_t splat_index = blockIdx.x * blockDim.x + threadIdx.x;
    TileQuery own = {};
    if (splat_index < a.visible) {
        own = query_of<Footprint>(reinterpret_cast<const float4*>(a.splats), a.tiles, splat_index);
    }
    const uint32_t count = for_each_row<BIN_BLOCK>(
        a.camera, own,
        [&](const TileRow& row, uint32_t) {
            if (row.width > 0) atomicAdd(&of_row[row.y], row.width);
        },
        BandRows{a.band_first, a.band_end});
    if (splat_index < a.visible && a.instance_counts) a.instance_counts[splat_index] = count;
    __syncthreads();  // all are counted
    if (!a.rows) return;
    for (uint32_t row = threadIdx.x; row < a.camera.tiles[1]; row += BIN_BLOCK) {
        if (of_row[row] == 0) continue;
        atomicAdd(reinterpret_cast<unsigned long long*>(a.rows) + row,
                  static_cast<unsigned long long>(of_row[row]));
    }
}

extern "C" __global__ void __launch_bounds__(BIN_BLOCK)
    count_rows(const __grid_constant__ CountRowsArgs a) {
    count_rows_of<EllipseFootprint>(a);
}

extern "C" __global__ void __launch_bounds__(BIN_BLOCK)
    count_rows_surfels(const __grid_constant__ CountRowsArgs a) {
    count_rows_of<SurfelFootprint>(a);
}

extern "C" __global__ void __launch_bounds__(BIN_BLOCK)
    count_rows_triangles(const __grid_constant__ CountRowsArgs a) {
    count_rows_of<TriangleFootprint>(a);
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
