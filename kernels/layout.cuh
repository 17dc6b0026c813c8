// Layouts of device memory, and warp helpers.
#pragma once

#include "abi.cuh"

constexpr uint32_t WARP = 32;
constexpr uint32_t FULL_WARP = 0xffffffffu;

// Offset of a Gaussian in a column of `width` values in blocks of 32 Gaussians, [ceil(n / 32)][width][32]: a warp reads
// one value of its 32 Gaussians as one line of 128 bytes, and the column can be extended.
__device__ inline uint64_t lane_block(uint64_t gaussian, uint32_t width) {
    return gaussian / WARP * width * WARP + gaussian % WARP;
}

// Offset of value `component` after `lane_block`.
__device__ inline uint64_t component(uint32_t component) { return uint64_t{component} * WARP; }

// Components of the geometry column.
constexpr uint32_t MEAN = 0;
constexpr uint32_t LOG_SCALE = 3;
constexpr uint32_t QUAT = 6;
constexpr uint32_t OPACITY_LOGIT = 10;

// Fields of a splat's record: depth, colour, and the bits of the row's number (for splats of other ranks see
// `travel.cuh`).
constexpr uint32_t RECORD_DEPTH = 7;
constexpr uint32_t RECORD_COLOR = 8;
constexpr uint32_t RECORD_GAUSSIAN = 11;

__device__ inline uint32_t lanes_below() { return (1u << (threadIdx.x % WARP)) - 1; }

__device__ inline uint32_t lanes_up_to() { return FULL_WARP >> (WARP - 1 - threadIdx.x % WARP); }

// Sum over this lane and those below.
__device__ inline uint32_t warp_inclusive_sum(uint32_t value) {
#pragma unroll
    for (uint32_t distance = 1; distance < WARP; distance *= 2) {
        const uint32_t below = __shfl_up_sync(FULL_WARP, value, distance);
        if (threadIdx.x % WARP >= distance) value += below;
    }
    return value;
}

// Compute capability 7.5 has no reductions of whole warps.
__device__ inline uint32_t warp_sum(uint32_t value) {
#if __CUDA_ARCH__ >= 800
    return __reduce_add_sync(FULL_WARP, value);
#else
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(FULL_WARP, value, distance);
    }
    return value;
#endif
}

__device__ inline uint32_t warp_or(uint32_t value) {
#if __CUDA_ARCH__ >= 800
    return __reduce_or_sync(FULL_WARP, value);
#else
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value |= __shfl_xor_sync(FULL_WARP, value, distance);
    }
    return value;
#endif
}

__device__ inline int warp_max(int value) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(FULL_WARP, value);
#else
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value = max(value, __shfl_xor_sync(FULL_WARP, value, distance));
    }
    return value;
#endif
}

__device__ inline uint32_t warp_min(uint32_t value) {
#if __CUDA_ARCH__ >= 800
    return __reduce_min_sync(FULL_WARP, value);
#else
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value = min(value, __shfl_xor_sync(FULL_WARP, value, distance));
    }
    return value;
#endif
}

__device__ inline float warp_sum(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(FULL_WARP, value, distance);
    }
    return value;
}
