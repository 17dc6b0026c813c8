// The record of a splat's gradients, `SplatGradient` of abi.cuh, as 16-byte quads.
#pragma once

#include <cstddef>

#include "abi.cuh"

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
