// Layouts of device memory, and warp helpers.
#pragma once

#include <cstddef>

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
// `project.cuh`).
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

// Atomically adds four floats to a record in device memory.
__device__ inline void add_quad(float4* at, float4 value) {
#if __CUDA_ARCH__ >= 900
    atomicAdd(at, value);
#else
    float* const out = reinterpret_cast<float*>(at);
    if (value.x != 0.0f) atomicAdd(out, value.x);
    if (value.y != 0.0f) atomicAdd(out + 1, value.y);
    if (value.z != 0.0f) atomicAdd(out + 2, value.z);
    if (value.w != 0.0f) atomicAdd(out + 3, value.w);
#endif
}

// The record of a splat's gradients, `SplatGradient` of abi.cuh, as 16-byte quads.

static_assert(sizeof(SplatGradient) == RECORD_WIDTH * sizeof(float), "a record");
static_assert(offsetof(SplatGradient, d_conic) == sizeof(float4), "the second quad");
static_assert(offsetof(SplatGradient, d_color) == 2 * sizeof(float4), "the third quad");

// Loads the fields that records of any width begin with.
__device__ inline SplatGradient load_gradient(const float* records, uint32_t splat_index,
                                              uint32_t width = RECORD_WIDTH) {
    const float4* const quads =
        reinterpret_cast<const float4*>(records) + uint64_t{splat_index} * (width / 4);
    const float4 a = quads[0], b = quads[1], c = quads[2];
    return {{a.x, a.y}, a.z, a.w, {b.x, b.y, b.z}, b.w, {c.x, c.y, c.z}, c.w};
}

__device__ inline float3 float3_of(const float (&values)[3]) {
    return {values[0], values[1], values[2]};
}
