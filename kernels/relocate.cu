// relocate: draws Gaussians by opacity, splits their opacity with their copies, and writes the copies: over dead
// Gaussians, or after the last row.
// One thread per Gaussian; in `draw_sources` and `copy_sources` one per copy. In a relocation that is one per Gaussian,
// too; those that are not dead do nothing.
// Shapes: tables in lane blocks of words, as wide as `widths`; sums, counts [n]; sources [copies].
// The kernels run one after another: copies are made after the opacity was split. Dead Gaussians have a weight of 0 and
// are never sources.

#include "random.cuh"
#include "rows.cuh"

__device__ inline double logit_of(const float* geometry, uint32_t row) {
    return geometry[lane_block(row, GEOMETRY_WIDTH) + component(OPACITY_LOGIT)];
}

// Weights of all Gaussians; if dead ones are flagged, their weight is 0.
extern "C" __global__ void __launch_bounds__(RELOCATE_BLOCK)
    weigh(const __grid_constant__ WeighArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.n) return;
    const double logit = logit_of(a.geometry, row);
    const bool dead = a.flags != nullptr && is_dead(logit, a.opacity_min);
    if (a.flags != nullptr) a.flags[row] = dead;
    a.weights[row] = dead ? 0 : draw_weight(logit);
}

extern "C" __global__ void __launch_bounds__(RELOCATE_BLOCK)
    draw_sources(const __grid_constant__ DrawArgs a) {
    const uint64_t* __restrict__ sums = a.sums;
    const uint32_t copy = blockIdx.x * blockDim.x + threadIdx.x;
    if (copy >= a.copies) return;
    uint32_t number = copy;
    if (a.over_the_dead != 0) {
        if (!is_dead(logit_of(a.geometry, copy), a.opacity_min)) {
            a.sources[copy] = NO_SOURCE;
            return;
        }
        // Number of dead Gaussians up to this one, inclusive.
        number = a.sources[copy] - 1;
    }
    const uint64_t place = draw_place(random_bits(a.key, number), sums[a.n - 1]);
    // Search the first sum above the place; the last sum always is.
    uint32_t first = 0, last = a.n - 1;
    while (first < last) {
        const uint32_t middle = first + (last - first) / 2;
        if (sums[middle] > place) {
            last = middle;
        } else {
            first = middle + 1;
        }
    }
    a.sources[copy] = first;
    atomicAdd(a.counts + first, 1u);
}

extern "C" __global__ void __launch_bounds__(RELOCATE_BLOCK)
    split_opacity(const __grid_constant__ SplitOpacityArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.n) return;
    const uint32_t copies = a.counts[row];
    if (copies == 0) return;

    float* values =
        reinterpret_cast<float*>(a.tables[GEOMETRY_TABLE]) + lane_block(row, GEOMETRY_WIDTH);
    const Share share = share_of(values[component(OPACITY_LOGIT)], copies, a.opacity_min);
    values[component(OPACITY_LOGIT)] = static_cast<float>(share.logit);
    for (uint32_t axis = 0; axis < 3; ++axis) {
        float& log_scale = values[component(LOG_SCALE + axis)];
        log_scale = static_cast<float>(log_scale + share.log_growth);
    }
    if (a.forgets != 0) forget_row(a, row);
}

extern "C" __global__ void __launch_bounds__(RELOCATE_BLOCK)
    copy_sources(const __grid_constant__ CopyArgs a) {
    const uint32_t copy = blockIdx.x * blockDim.x + threadIdx.x;
    if (copy >= a.copies) return;
    const uint32_t source = a.sources[copy];
    if (source == NO_SOURCE) return;
    const uint32_t row = a.first + copy;
    copy_parameters(a, source, row);
    if (a.forgets != 0) forget_row(a, row);
}
