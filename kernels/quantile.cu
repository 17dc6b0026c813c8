// quantile: one pass of a radix select over the mean absolute gradients.
// Threads stride over the Gaussians. Shapes: absolute_norm_sums, views_seen [n]; counts [DIGITS].
// A block counts in shared memory between two barriers, then adds its counts to the global ones.

#include "rows.cuh"

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
