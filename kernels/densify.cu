// densify: cloning, splitting and pruning of Gaussians, and the compaction of their rows, in place. One thread per
// Gaussian, except `gather`, `scatter` (one warp per lane block and slice of the columns) and `clear_padding` (one warp
// per column). Shapes: tables in lane blocks of words, as wide as `widths`; flags and ranks [rows]. Ranks are the
// exclusive sums of the flags. Thresholds are in raw parameters. The host derives them with its own exp and sigmoid, so
// that both backends decide equally to the last bit.
//
// `count_digits`: one pass of a radix select over the mean absolute gradients.
// Threads stride over the Gaussians. Shapes: absolute_norm_sums, views_seen [n]; counts [DIGITS].
// A block counts in shared memory between two barriers, then adds its counts to the global ones.

#include "layout.cuh"
#include "linalg.cuh"
#include "random.cuh"
#include "rows.cuh"

// Ignores NaN, like the twin's `max`.
__device__ inline float largest(float3 v) { return fmaxf(fmaxf(v.x, v.y), v.z); }

// Returns bits that are ascending for descending numbers. Adding 0 unifies the two zeros.
__device__ inline uint32_t descending_bits(float value) {
    const uint32_t bits = __float_as_uint(value + 0.0f);
    return bits >> 31 ? bits : bits ^ 0x7fffffffu;
}

__device__ inline uint32_t column_count(const uint32_t (&widths)[TABLES]) {
    uint32_t count = 0;
#pragma unroll
    for (uint32_t table = 0; table < TABLES; ++table) count += widths[table];
    return count;
}

// Returns the slice's first column of a table whose first column has number `first`. Columns of all tables are dealt to
// the slices round-robin.
__device__ inline uint32_t first_of_slice(uint32_t slice, uint32_t first) {
    return (slice - first) % COMPACT_SLICES;
}

__device__ inline float3 triple(const float* geometry, uint32_t row, uint32_t first) {
    const float* values = geometry + lane_block(row, GEOMETRY_WIDTH) + component(first);
    return {values[0], values[component(1)], values[component(2)]};
}

// A warp's work in `gather` and `scatter`: its lane block of the chunk, and its slice of columns.
struct Place {
    uint32_t block, slice, lane;
};

__device__ inline Place place() {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t warp = thread / WARP;
    return {warp / COMPACT_SLICES, warp % COMPACT_SLICES, thread % WARP};
}

// Returns the factor of gradients near the camera. Twin of `faded` in backend/cpu/stage/densify.rs.
__device__ inline float faded(float depth, float fade_depth) {
    const float share = fminf(depth / fade_depth, 1.0f);
    return share * share;
}

// Returns the sum of (g - mean g)^2 over the pixels, where g is a pixel's gradient of the log-opacity, of a loss that
// is summed over `area` pixels. Twin of `disagreement` in backend/cpu/stage/densify.rs.
__device__ inline float disagreement(const SplatGradient& d, float area) {
    const float sum = d.d_log_opacity * area;
    const float squares = d.statistic_x * area * area;
    return fmaxf(squares - sum * sum / d.statistic_y, 0.0f);
}

extern "C" __global__ void __launch_bounds__(OBSERVE_BLOCK)
    observe(const __grid_constant__ ObserveArgs a) {
    float* __restrict__ gradient_norm_sums = a.gradient_norm_sums;
    uint32_t* __restrict__ views_seen = a.views_seen;
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t splat_index = gaussian < a.gaussians ? a.splat_from_gaussian[gaussian] : UNSEEN;
    if (splat_index == UNSEEN) return;

    const SplatGradient d = load_gradient(a.gradients, splat_index, a.record_width);
    if (a.observed == OBSERVE_DISAGREEMENT) {
        if (d.statistic_y <= 0.0f) return;
        gradient_norm_sums[gaussian] += disagreement(d, 4.0f * a.half_size[0] * a.half_size[1]);
        views_seen[gaussian] += 1;
        return;
    }
    float fade = 1.0f;
    if (a.fade_depth > 0.0f) {
        const float* const centre = a.table + lane_block(gaussian, a.width);
        const float3 mean = {centre[0], centre[component(1)], centre[component(2)]};
        fade = faded(a.axis[0] * mean.x + a.axis[1] * mean.y + a.axis[2] * mean.z + a.axis[3],
                     a.fade_depth);
    }
    const float2 half_size = {fade * a.half_size[0], fade * a.half_size[1]};
    const bool absolute = a.observed == OBSERVE_ABSOLUTE;
    const float x = (absolute ? d.statistic_x : d.d_mean_px[0]) * half_size.x;
    const float y = (absolute ? d.statistic_y : d.d_mean_px[1]) * half_size.y;
    gradient_norm_sums[gaussian] += sqrtf(x * x + y * y);
    if (a.absolute_norm_sums != nullptr) {
        a.absolute_norm_sums[gaussian] +=
            d.statistic_x * half_size.x + d.statistic_y * half_size.y;
    }
    views_seen[gaussian] += 1;
}

// True if a Gaussian is a candidate. A mean absolute gradient of 0 never qualifies.
__device__ inline bool is_candidate(const SurveyArgs& a, uint32_t row) {
    const uint32_t views = a.views_seen[row];
    if (mean_gradient(a.gradient_norm_sums[row], views) >= a.gradient_min) return true;
    if (a.absolute_norm_sums == nullptr) return false;
    const float absolute = mean_gradient(a.absolute_norm_sums[row], views);
    return absolute > 0.0f && absolute >= a.absolute_min;
}

// Returns a random key. The rows with the highest keys are a weighted sample without replacement (Efraimidis and
// Spirakis 2006). Twin of `drawn` in backend/cpu/stage/densify.rs.
__device__ inline float drawn(float weight, uint64_t key, uint32_t row) {
    const double exponential = -log(1.0 - random_uniform(key, row));
    return static_cast<float>(static_cast<double>(weight) / exponential);
}

// Returns a candidate's score: its gradient, or the larger of both gradients relative to their thresholds, scaled by
// both thresholds so that a threshold of 0 does not divide.
__device__ inline float score(const ListArgs& a, uint32_t row) {
    if (a.drawn != 0) return drawn(a.gradient_norm_sums[row], a.random_key, row);
    const uint32_t views = a.views_seen[row];
    const float mean = mean_gradient(a.gradient_norm_sums[row], views);
    if (a.absolute_norm_sums == nullptr) return mean;
    const float absolute = mean_gradient(a.absolute_norm_sums[row], views);
    return fmaxf(__fmul_rn(mean, a.absolute_min), __fmul_rn(absolute, a.gradient_min));
}

// Flags and counts the candidates, if requested.
extern "C" __global__ void __launch_bounds__(DENSIFY_BLOCK)
    survey(const __grid_constant__ SurveyArgs a) {
    const float* __restrict__ geometry = a.geometry;
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    const bool candidate = row < a.n && is_candidate(a, row);
    if (a.flags != nullptr && row < a.n) a.flags[row] = candidate;
    if (a.counts == nullptr) return;

    const bool small =
        candidate &&
        largest(triple(geometry, row, LOG_SCALE)) <= a.clone_log_scale_max;
    const int clones = __syncthreads_count(small);
    const int splits = __syncthreads_count(candidate && !small);
    if (threadIdx.x == 0) {
        if (clones > 0) atomicAdd(&a.counts->clones, clones);
        if (splits > 0) atomicAdd(&a.counts->splits, splits);
    }
}

// Lists the candidates with keys that sort the highest score first.
extern "C" __global__ void __launch_bounds__(DENSIFY_BLOCK)
    list_candidates(const __grid_constant__ ListArgs a) {
    const uint32_t* __restrict__ flags = a.flags;
    const uint32_t* __restrict__ ranks = a.ranks;
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.n || flags[row] == 0) return;
    const uint32_t rank = ranks[row];
    a.keys[rank] = descending_bits(score(a, row));
    a.rows[rank] = row;
}

// Flags the first rows of a list.
extern "C" __global__ void __launch_bounds__(DENSIFY_BLOCK)
    mark_selected(const __grid_constant__ SelectedArgs a) {
    const uint32_t* __restrict__ rows = a.rows;
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.new_gaussians) a.flags[rows[i]] = 1;
}

__device__ inline void set_triple(float* geometry, uint32_t row, uint32_t first, float3 value) {
    float* values = geometry + lane_block(row, GEOMETRY_WIDTH) + component(first);
    values[0] = value.x;
    values[component(1)] = value.y;
    values[component(2)] = value.z;
}

// e^x rounded nearly correctly, like the host's.
__device__ inline float exact_exp(float x) { return static_cast<float>(exp(static_cast<double>(x))); }

__device__ inline float draw(uint64_t key, uint64_t child, uint32_t axis) {
    return static_cast<float>(random_normal(key, child * 3 + axis));
}

// Places two children drawn from the parent's density: the first in the parent's row, the second in `newborn`, which
// holds a copy of the parent. If parents are kept, places the second only.
__device__ inline void place_children(const GrowArgs& a, uint32_t parent, uint32_t newborn) {
    float* geometry = reinterpret_cast<float*>(a.tables[GEOMETRY_TABLE]);
    const float3 mean = triple(geometry, parent, MEAN);
    const float3 log_scale = triple(geometry, parent, LOG_SCALE);
    const float* quat = geometry + lane_block(parent, GEOMETRY_WIDTH) + component(QUAT);
    const Mat3 turn =
        rotation(Quat{quat[0], quat[component(1)], quat[component(2)], quat[component(3)]});
    const float3 scale = {exact_exp(log_scale.x), exact_exp(log_scale.y), exact_exp(log_scale.z)};
    const float3 shrunk = {log_scale.x - a.log_shrink, log_scale.y - a.log_shrink,
                           log_scale.z - a.log_shrink};
    for (uint32_t child = a.parents_stay != 0 ? 1 : 0; child < 2; ++child) {
        const uint64_t number = uint64_t{parent} * 2 + child;
        const float3 offset = {draw(a.key, number, 0) * scale.x, draw(a.key, number, 1) * scale.y,
                               draw(a.key, number, 2) * scale.z};
        const uint32_t row = child == 0 ? parent : newborn;
        set_triple(geometry, row, MEAN, add(mean, mul(turn, offset)));
        set_triple(geometry, row, LOG_SCALE, shrunk);
    }
}

// Clones and splits the flagged rows; new row `rank` is at n + rank.
extern "C" __global__ void __launch_bounds__(DENSIFY_BLOCK)
    grow(const __grid_constant__ GrowArgs a) {
    const uint32_t* __restrict__ flags = a.flags;
    const uint32_t* __restrict__ ranks = a.ranks;
    const float* geometry = reinterpret_cast<const float*>(a.tables[GEOMETRY_TABLE]);
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    const bool chosen = row < a.n && flags[row] != 0;
    const bool clone =
        chosen &&
        largest(triple(geometry, row, LOG_SCALE)) <= a.clone_log_scale_max;
    const int cloned = __syncthreads_count(clone);
    const int split = __syncthreads_count(chosen && !clone);
    if (threadIdx.x == 0) {
        if (cloned > 0) atomicAdd(&a.counts->cloned, cloned);
        if (split > 0) atomicAdd(&a.counts->split, split);
    }
    if (!chosen) return;

    const uint32_t newborn = a.n + ranks[row];
    copy_parameters(a, row, newborn);
    forget_row(a, newborn);
    if (clone) return;
    if (a.parents_stay == 0) forget_row(a, row);
    place_children(a, row, newborn);
}

// Flags the kept rows and counts the others. Comparisons treat NaN like the twin does.
extern "C" __global__ void __launch_bounds__(DENSIFY_BLOCK)
    mark_survivors(const __grid_constant__ SurvivorsArgs a) {
    const float* __restrict__ geometry = a.geometry;
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    bool stays = row < a.rows;
    if (stays) {
        const float logit = geometry[lane_block(row, GEOMETRY_WIDTH) + component(OPACITY_LOGIT)];
        const bool fits =
            a.limits_scale == 0 ||
            largest(triple(geometry, row, LOG_SCALE)) <= a.log_scale_max;
        const bool seen =
            a.views_seen == nullptr || row >= a.observed_rows || a.views_seen[row] > 0;
        stays = logit >= a.opacity_logit_min && fits && seen;
        a.flags[row] = stays;
    }
    const bool hole = row < a.rows && !stays;
    const uint32_t holes = __ballot_sync(FULL_WARP, hole);
    // Count from the first removed row, so that the maximum can start from zero.
    if (hole && (holes & lanes_below()) == 0) {
        atomicMax(&a.counts->rows_after_hole, a.rows - row);
    }
    const int pruned = __syncthreads_count(hole);
    if (threadIdx.x == 0 && pruned > 0) atomicAdd(&a.counts->pruned, pruned);
}

// Copies the kept rows of a chunk to scratch, compacted. They use their final lanes, so that `scatter` copies
// without a shift.
extern "C" __global__ void __launch_bounds__(COMPACT_BLOCK)
    gather(const __grid_constant__ CompactArgs a) {
    const uint32_t* __restrict__ flags = a.flags;
    const uint32_t* __restrict__ ranks = a.ranks;
    uint32_t* __restrict__ scratch = a.scratch;
    const Place at = place();
    const uint32_t row = (a.first_block + at.block) * WARP + at.lane;
    if (at.block >= a.blocks || row >= a.rows || flags[row] == 0) return;

    const uint32_t start = ranks[a.first_block * WARP] / WARP * WARP;
    const uint64_t to = lane_block(ranks[row] - start, column_count(a.widths));
    uint32_t first = 0;
    for (uint32_t table = 0; table < TABLES; first += a.widths[table], ++table) {
        const uint32_t width = a.widths[table];
        const uint32_t* words = a.tables[table] + lane_block(row, width);
        for (uint32_t c = first_of_slice(at.slice, first); c < width; c += COMPACT_SLICES) {
            scratch[to + component(first + c)] = words[component(c)];
        }
    }
}

// Copies a chunk's kept rows from scratch to their destination, which never overtakes rows still to gather.
extern "C" __global__ void __launch_bounds__(COMPACT_BLOCK)
    scatter(const __grid_constant__ CompactArgs a) {
    const uint32_t* __restrict__ ranks = a.ranks;
    const uint32_t* __restrict__ scratch = a.scratch;
    const Place at = place();
    const uint32_t next = (a.first_block + a.blocks) * WARP;
    const uint32_t first = ranks[a.first_block * WARP];
    const uint32_t end = next < a.rows ? ranks[next] : a.survivors;
    const uint32_t start = first / WARP * WARP;
    const uint32_t row = start + at.block * WARP + at.lane;
    if (row < first || row >= end) return;

    const uint64_t from = lane_block(row - start, column_count(a.widths));
    uint32_t behind = 0;
    for (uint32_t table = 0; table < TABLES; behind += a.widths[table], ++table) {
        const uint32_t width = a.widths[table];
        uint32_t* words = a.tables[table] + lane_block(row, width);
        for (uint32_t c = first_of_slice(at.slice, behind); c < width; c += COMPACT_SLICES) {
            words[component(c)] = scratch[from + component(behind + c)];
        }
    }
}

// Zeros the lanes after the last row in its block.
extern "C" __global__ void __launch_bounds__(COMPACT_BLOCK)
    clear_padding(const __grid_constant__ PaddingArgs a) {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t lane = thread % WARP;
    uint32_t column = thread / WARP;
    if (lane < a.rows % WARP) return;
    for (uint32_t table = 0; table < TABLES; ++table) {
        const uint32_t width = a.widths[table];
        if (column < width) {
            a.tables[table][lane_block(a.rows / WARP * WARP + lane, width) + component(column)] = 0;
            return;
        }
        column -= width;
    }
}

extern "C" __global__ void __launch_bounds__(DENSIFY_BLOCK)
    reset_opacity(const __grid_constant__ ResetArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.n) return;
    const uint64_t at = lane_block(row, GEOMETRY_WIDTH) + component(OPACITY_LOGIT);
    a.geometry[at] = fminf(a.geometry[at], a.ceiling_logit);
    a.geometry_second[at] = 0.0f;
    a.geometry_first[lane_block(row, a.first_width) + component(a.first_width - 1)] = 0;
}

// Multiplies opacities, bounded below by the floor; keeps those that were below it.
extern "C" __global__ void __launch_bounds__(DENSIFY_BLOCK)
    decay_opacity(const __grid_constant__ DecayArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.n) return;
    const uint64_t at = lane_block(row, GEOMETRY_WIDTH) + component(OPACITY_LOGIT);
    const float before = a.geometry[at];
    const float opacity = 1.0f / (1.0f + exact_exp(-before));
    const float decayed = fmaxf(a.factor * opacity, a.floor);
    a.geometry[at] = fminf(before, logf(decayed / (1.0f - decayed)));
}

extern "C" __global__ void __launch_bounds__(DIGITS_BLOCK)
    count_digits(const __grid_constant__ DigitsArgs a) {
    __shared__ uint32_t counts[DIGITS];
    const float* __restrict__ absolute_norm_sums = a.absolute_norm_sums;
    const uint32_t* __restrict__ views_seen = a.views_seen;
    for (uint32_t digit = threadIdx.x; digit < DIGITS; digit += blockDim.x) counts[digit] = 0;
    __syncthreads();

    // 64 bits: the last step may exceed 32 bits.
    const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
    for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < a.n; i += stride) {
        // The bits of non-negative floats are ordered like the floats; NaN comes last.
        const float mean = mean_gradient(absolute_norm_sums[i], views_seen[i]);
        const uint32_t bits = __float_as_uint(fabsf(mean));
        if ((bits & a.known) == a.prefix) atomicAdd(counts + (bits >> a.shift & a.digit), 1u);
    }
    __syncthreads();
    for (uint32_t digit = threadIdx.x; digit < DIGITS; digit += blockDim.x) {
        if (counts[digit] > 0) atomicAdd(a.counts + digit, counts[digit]);
    }
}
