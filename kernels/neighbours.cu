// neighbours: the nearest centres of each Gaussian's centre, exactly; and the nearest entries of a palette for rows.
//
// Rows are ordered so that each leaf of a tree is 32 consecutive rows. The order is halved repeatedly, each segment
// across the widest side of its bounds, so that the depth of the tree and the size of the boxes do not depend on the
// distribution of the centres. 32 leaves share a box, 32 of these share another, and so on. Each warp then searches the
// tree for the 32 centres of one leaf together, since their neighbours are similar. A candidate is one key: the bits of
// its squared distance above its row. The least key is the nearest; ties go to the lower row. Twins of `key` and
// `CentreBounds` in backend/cpu/stage/neighbours.rs. Shapes: table [lane blocks, width, 32], row_from_place [n], placed
// [leaves, 32, 4], boxes [boxes, 2, 4], near [n, count]. Centres that are not finite come last in the order and are NaN
// in `placed`.
//
// Palettes: nearest-neighbour search of rows, for two-level k-means of SOG palettes. A row's numbers are in registers.
// `near_entries`: one thread per row and cell, which compares the row with all centres of the cell. Threads are ordered
// by cell, so that a warp reads the same centre at a time. The threads of a row combine their results by an atomic
// maximum of inverted keys, which selects the nearest centre, and the first of equal ones. `near_cells`: one thread per
// row, which keeps the nearest centres sorted.
// Shapes: rows [n, width], centers [centres, width], starts [cells + 1], cells [n, per_row], order
// [n x per_row], nearest [n].

#include "layout.cuh"

constexpr uint32_t NEAREST_WARPS = NEAREST_BLOCK / WARP;

// Greater than all candidates, even at infinite distances, and less than those of NaN with either sign.
constexpr uint64_t FARTHER = uint64_t{0x7f800001u} << 32;
constexpr uint64_t NOTHING = ~uint64_t{0};

__device__ inline bool is_finite(float3 p) {
    return isfinite(p.x) && isfinite(p.y) && isfinite(p.z);
}

// A row's centre is first among its `width` values.
__device__ inline float3 mean_of(const float* __restrict__ table, uint32_t width, uint32_t row) {
    const float* mean = table + lane_block(row, width);
    return {mean[0], mean[component(1)], mean[component(2)]};
}

// Maps a coordinate to 32 bits of equal order, and back. The bits of a finite coordinate are never all ones.
__device__ inline uint32_t ordered(float coordinate) {
    const uint32_t bits = __float_as_uint(coordinate);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ inline float coordinate(uint32_t ordered) {
    return __uint_as_float(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}

// The intrinsics round each operation separately, like the twin.
__device__ inline uint64_t candidate(float x, float y, float z, uint32_t row) {
    const float distance =
        __fadd_rn(__fadd_rn(__fmul_rn(x, x), __fmul_rn(y, y)), __fmul_rn(z, z));
    return uint64_t{__float_as_uint(distance)} << 32 | row;
}

// Minimum over the warp.
__device__ inline uint64_t warp_least(uint64_t value) {
    const uint32_t upper = static_cast<uint32_t>(value >> 32);
    const uint32_t least = warp_min(upper);
    const uint32_t lower = warp_min(upper == least ? static_cast<uint32_t>(value) : 0xffffffffu);
    return uint64_t{least} << 32 | lower;
}

__device__ inline uint64_t warp_greatest(uint64_t value) { return ~warp_least(~value); }

// Bounds of a leaf or of a group of boxes; empty if there is no least row.
struct Box {
    float3 low, high;
    uint32_t least_row;

    __device__ static Box load(const float4* __restrict__ boxes, uint32_t at) {
        const float4 low = boxes[2 * uint64_t{at}];
        const float4 high = boxes[2 * uint64_t{at} + 1];
        return {{low.x, low.y, low.z}, {high.x, high.y, high.z}, __float_as_uint(low.w)};
    }
};

// Returns the gap between two intervals; 0 if they overlap.
__device__ inline float gap(float low, float high, float other_low, float other_high) {
    return fmaxf(fmaxf(__fsub_rn(low, other_high), __fsub_rn(other_low, high)), 0.0f);
}

// Returns a lower bound of the candidates in `b` for any centre between `low` and `high`. The bound holds because
// rounded subtraction, squaring and summation are monotonic.
__device__ inline uint64_t least_candidate(const Box& b, float3 low, float3 high) {
    if (b.least_row == NO_ROW) return NOTHING;
    return candidate(gap(b.low.x, b.high.x, low.x, high.x), gap(b.low.y, b.high.y, low.y, high.y),
                     gap(b.low.z, b.high.z, low.z, high.z), b.least_row);
}

// Stores the union of the lanes' boxes. Lanes without a row are empty.
__device__ inline void store_joined(float4* boxes, uint32_t at, const Box& lane) {
    const bool there = lane.least_row != NO_ROW;
    const float lows[3] = {lane.low.x, lane.low.y, lane.low.z};
    const float highs[3] = {lane.high.x, lane.high.y, lane.high.z};
    float low[3], high[3];
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
        low[axis] = coordinate(warp_min(there ? ordered(lows[axis]) : 0xffffffffu));
        high[axis] = coordinate(~warp_min(there ? ~ordered(highs[axis]) : 0xffffffffu));
    }
    const uint32_t least_row = warp_min(lane.least_row);
    if (threadIdx.x % WARP != 0) return;
    boxes[2 * uint64_t{at}] = {low[0], low[1], low[2], __uint_as_float(least_row)};
    boxes[2 * uint64_t{at} + 1] = {high[0], high[1], high[2], 0.0f};
}

// The nearest candidates so far, ascending.
template <uint32_t MOST>
struct Nearest {
    uint64_t candidates[MOST];

    __device__ explicit Nearest(uint64_t none) {
#pragma unroll
        for (uint32_t i = 0; i < MOST; ++i) candidates[i] = none;
    }

    __device__ uint64_t last() const { return candidates[MOST - 1]; }

    // Drops the last one.
    __device__ void add(uint64_t candidate) {
#pragma unroll
        for (uint32_t i = MOST - 1; i > 0; --i) {
            const uint64_t before = candidates[i - 1];
            if (candidate < candidates[i]) candidates[i] = candidate < before ? before : candidate;
        }
        if (candidate < candidates[0]) candidates[0] = candidate;
    }
};

// One warp per leaf, one centre per lane. `pending` holds, for every level on the way down, the lower bound of each box
// of the current group, one per lane. `shown` is the current leaf: the first barrier publishes it, the second waits for
// all reads.
template <uint32_t MOST>
__device__ inline void search(const NearestArgs& a) {
    __shared__ uint64_t pending_of[NEAREST_WARPS][TREE_LEVELS][WARP];
    __shared__ float4 shown_of[NEAREST_WARPS][WARP];
    const float4* __restrict__ placed = reinterpret_cast<const float4*>(a.placed);
    const float4* __restrict__ boxes = reinterpret_cast<const float4*>(a.boxes);
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t own_leaf = blockIdx.x * NEAREST_WARPS + threadIdx.x / WARP;
    if (own_leaf >= a.boxes_of[0]) return;  // uniform in the warp
    uint64_t(&pending)[TREE_LEVELS][WARP] = pending_of[threadIdx.x / WARP];
    float4(&shown)[WARP] = shown_of[threadIdx.x / WARP];

    const float4 own = placed[uint64_t{own_leaf} * WARP + lane];
    const float3 centre = {own.x, own.y, own.z};
    const uint32_t own_row = __float_as_uint(own.w);
    // A lane without a centre accepts nothing and does not delay the others.
    const bool searches = is_finite(centre);
    Nearest<MOST> nearest(searches ? FARTHER : 0);

    const auto search_box = [&](uint32_t leaf) {
        shown[lane] = placed[uint64_t{leaf} * WARP + lane];
        __syncwarp();
#pragma unroll 2
        for (uint32_t i = 0; i < WARP; ++i) {
            const float4 other = shown[i];
            const uint64_t found =
                candidate(__fsub_rn(other.x, centre.x), __fsub_rn(other.y, centre.y),
                          __fsub_rn(other.z, centre.z), __float_as_uint(other.w));
            if (found < nearest.last()) nearest.add(found);
        }
        __syncwarp();
    };

    const Box all = Box::load(boxes, own_leaf);
    if (all.least_row != NO_ROW) {
        search_box(own_leaf);
        uint64_t bound = warp_greatest(nearest.last());
        uint32_t level = a.levels - 1, group = 0;
        const auto enter = [&] {
            const uint32_t box = group * WARP + lane;
            pending[level][lane] =
                box < a.boxes_of[level]
                    ? least_candidate(Box::load(boxes, a.first_box[level] + box), all.low, all.high)
                    : NOTHING;
        };
        enter();
        while (true) {
            const uint64_t mine = pending[level][lane];
            const uint64_t least = warp_least(mine);
            if (least >= bound) {
                // The rest of the group has no candidate either.
                if (level + 1 == a.levels) break;
                ++level;
                group /= WARP;
                continue;
            }
            // Boxes have different least rows.
            const uint32_t chosen = __ffs(__ballot_sync(FULL_WARP, mine == least)) - 1;
            if (lane == chosen) pending[level][lane] = NOTHING;
            const uint32_t box = group * WARP + chosen;
            if (level == 0 && box == own_leaf) continue;
            // The box of all centres reaches farther than that of one.
            const Box there = Box::load(boxes, a.first_box[level] + box);
            const bool wanted = least_candidate(there, centre, centre) < nearest.last();
            if (!__any_sync(FULL_WARP, wanted)) continue;
            if (level == 0) {
                search_box(box);
                bound = warp_greatest(nearest.last());
            } else {
                --level;
                group = box;
                enter();
            }
        }
    }

    if (own_row == NO_ROW) return;
    uint32_t* list = a.near + uint64_t{own_row} * a.count;
#pragma unroll
    for (uint32_t i = 0; i < MOST; ++i) {
        const uint64_t found = nearest.candidates[i];
        const bool there = searches && found < FARTHER;
        if (i < a.count) list[i] = there ? static_cast<uint32_t>(found) : own_row;
    }
}

extern "C" __global__ void __launch_bounds__(NEIGHBOURS_BLOCK)
    number_rows(const __grid_constant__ SplitArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < a.n) a.row_from_place[row] = row;
}

// One thread per row. Segments consist of whole warps.
extern "C" __global__ void __launch_bounds__(NEIGHBOURS_BLOCK)
    measure_segments(const __grid_constant__ SplitArgs a) {
    const uint32_t place = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t lane = threadIdx.x % WARP;
    float3 centre = {NAN, NAN, NAN};
    if (place < a.n) centre = mean_of(a.table, a.width, a.row_from_place[place]);
    const bool there = is_finite(centre);
    const float coordinates[3] = {centre.x, centre.y, centre.z};
    uint32_t mine = 0xffffffffu;
#pragma unroll
    for (uint32_t axis = 0; axis < 3; ++axis) {
        const uint32_t at = ordered(coordinates[axis]);
        const uint32_t low = warp_min(there ? at : 0xffffffffu);
        const uint32_t high = warp_min(there ? ~at : 0xffffffffu);
        if (lane == 2 * axis) mine = low;
        if (lane == 2 * axis + 1) mine = high;
    }
    // A warp without a finite centre contributes nothing.
    if (mine == 0xffffffffu) return;
    const uint64_t segment = place >> a.segment_shift;
    atomicMin(a.extents + segment * EXTENT_WIDTH + lane, mine);
}

// One thread per row. Centres that are not finite come last.
extern "C" __global__ void __launch_bounds__(NEIGHBOURS_BLOCK)
    split_keys(const __grid_constant__ SplitArgs a) {
    const uint32_t place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= a.n) return;
    const uint32_t segment = place >> a.segment_shift;
    const uint32_t* __restrict__ extent = a.extents + uint64_t{segment} * EXTENT_WIDTH;
    const float3 centre = mean_of(a.table, a.width, a.row_from_place[place]);
    const uint32_t last = (1u << a.along_bits) - 1;
    uint32_t along = last;
    if (is_finite(centre)) {
        const float coordinates[3] = {centre.x, centre.y, centre.z};
        float widest = 0.0f, share = 0.0f;
#pragma unroll
        for (int axis = 0; axis < 3; ++axis) {
            // Halve first: the whole side may overflow.
            const float low = 0.5f * coordinate(extent[2 * axis]);
            const float side = 0.5f * coordinate(~extent[2 * axis + 1]) - low;
            if (side > widest) {
                widest = side;
                share = (0.5f * coordinates[axis] - low) / side;
            }
        }
        along = min(static_cast<uint32_t>(share * static_cast<float>(last)), last - 1);
    }
    a.keys[place] = segment << a.along_bits | along;
}

// One thread per row, one warp per leaf.
extern "C" __global__ void __launch_bounds__(NEIGHBOURS_BLOCK)
    place_centres(const __grid_constant__ PlaceArgs a) {
    const uint32_t place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place / WARP * WARP >= a.n) return;  // uniform in the warp
    const uint32_t row = place < a.n ? a.row_from_place[place] : NO_ROW;
    float3 centre = {NAN, NAN, NAN};
    if (row != NO_ROW) centre = mean_of(a.table, a.width, row);
    const bool there = is_finite(centre);
    if (!there) centre = {NAN, NAN, NAN};
    reinterpret_cast<float4*>(a.placed)[place] = {centre.x, centre.y, centre.z,
                                                  __uint_as_float(row)};
    store_joined(reinterpret_cast<float4*>(a.boxes), place / WARP,
                 {centre, centre, there ? row : NO_ROW});
}

// One thread per box of the level below, one warp per box. The levels do not overlap.
extern "C" __global__ void __launch_bounds__(NEIGHBOURS_BLOCK)
    join_boxes(const __grid_constant__ JoinArgs a) {
    float4* boxes = reinterpret_cast<float4*>(a.boxes);
    const uint32_t below = blockIdx.x * blockDim.x + threadIdx.x;
    if (below / WARP * WARP >= a.below) return;  // uniform in the warp
    Box lane = {{NAN, NAN, NAN}, {NAN, NAN, NAN}, NO_ROW};
    if (below < a.below) lane = Box::load(boxes, a.first_below + below);
    store_joined(boxes, a.first + below / WARP, lane);
}

extern "C" __global__ void __launch_bounds__(NEAREST_BLOCK)
    nearest_16(const __grid_constant__ NearestArgs a) {
    search<16>(a);
}

extern "C" __global__ void __launch_bounds__(NEAREST_BLOCK)
    nearest_32(const __grid_constant__ NearestArgs a) {
    search<32>(a);
}

// A row as float4s.
template <uint32_t QUADS>
struct Row {
    float4 quads[QUADS];

    __device__ static Row load(const float* __restrict__ rows, uint64_t row) {
        Row loaded;
        const float4* const first = reinterpret_cast<const float4*>(rows) + row * QUADS;
#pragma unroll
        for (uint32_t i = 0; i < QUADS; ++i) loaded.quads[i] = first[i];
        return loaded;
    }

    __device__ float squared_distance(const float* __restrict__ centers, uint64_t center) const {
        const float4* const other = reinterpret_cast<const float4*>(centers) + center * QUADS;
        float4 sums = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (uint32_t i = 0; i < QUADS; ++i) {
            const float4 b = __ldg(other + i);
            const float4 d = {quads[i].x - b.x, quads[i].y - b.y, quads[i].z - b.z,
                              quads[i].w - b.w};
            sums.x = fmaf(d.x, d.x, sums.x);
            sums.y = fmaf(d.y, d.y, sums.y);
            sums.z = fmaf(d.z, d.z, sums.z);
            sums.w = fmaf(d.w, d.w, sums.w);
        }
        return (sums.x + sums.y) + (sums.z + sums.w);
    }
};

template <uint32_t QUADS>
__device__ inline void find_entries(const NearEntriesArgs& a, uint32_t thread) {
    const uint32_t* __restrict__ cells = a.cells;
    const uint32_t* __restrict__ starts = a.starts;
    const uint32_t* __restrict__ order = a.order;
    const uint32_t place = order[thread];
    const uint32_t number = place / a.per_row;
    const auto row = Row<QUADS>::load(a.rows, number);
    const uint32_t cell = cells[place];
    const uint32_t end = starts[cell + 1];
    float least = __int_as_float(0x7f800000);
    uint32_t nearest = 0;
    for (uint32_t center = starts[cell]; center < end; ++center) {
        const float distance = row.squared_distance(a.centers, center);
        if (distance < least) {
            least = distance;
            nearest = center;
        }
    }
    // The bits of non-negative floats are ordered like the floats.
    const unsigned long long found =
        (static_cast<unsigned long long>(__float_as_uint(least)) << 32) | nearest;
    atomicMax(reinterpret_cast<unsigned long long*>(a.nearest) + number, ~found);
}

extern "C" __global__ void __launch_bounds__(PALETTE_BLOCK)
    near_entries(const __grid_constant__ NearEntriesArgs a) {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= a.count) return;
    switch (a.width) {
        case 8: return find_entries<2>(a, thread);
        case 16: return find_entries<4>(a, thread);
        case 24: return find_entries<6>(a, thread);
        default: return find_entries<12>(a, thread);
    }
}

template <uint32_t QUADS>
__device__ inline void find_cells(const NearCellsArgs& a, uint32_t number) {
    const auto row = Row<QUADS>::load(a.rows, number);
    float distances[PALETTE_CELLS];
    uint32_t found[PALETTE_CELLS];
#pragma unroll
    for (uint32_t k = 0; k < PALETTE_CELLS; ++k) {
        distances[k] = __int_as_float(0x7f800000);
        found[k] = 0;
    }
    for (uint32_t cell = 0; cell < a.cell_count; ++cell) {
        float distance = row.squared_distance(a.centers, cell);
        uint32_t moved = cell;
        // Insert after those that are as near, and shift the farther ones.
#pragma unroll
        for (uint32_t k = 0; k < PALETTE_CELLS; ++k) {
            if (distance < distances[k]) {
                const float other_distance = distances[k];
                const uint32_t other = found[k];
                distances[k] = distance;
                found[k] = moved;
                distance = other_distance;
                moved = other;
            }
        }
    }
#pragma unroll
    for (uint32_t k = 0; k < PALETTE_CELLS; ++k) {
        if (k < a.per_row) a.cells[uint64_t{number} * a.per_row + k] = found[k];
    }
}

extern "C" __global__ void __launch_bounds__(PALETTE_BLOCK)
    near_cells(const __grid_constant__ NearCellsArgs a) {
    const uint32_t number = blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= a.count) return;
    switch (a.width) {
        case 8: return find_cells<2>(a, number);
        case 16: return find_cells<4>(a, number);
        case 24: return find_cells<6>(a, number);
        default: return find_cells<12>(a, number);
    }
}
