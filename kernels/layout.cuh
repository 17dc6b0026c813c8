// The model's columns in blocks of 32 lanes: element (row, column) of a table of some width.
#pragma once

#include "abi.cuh"

__device__ inline size_t element(uint32_t row, uint32_t width, uint32_t column) {
    return (static_cast<size_t>(row / LANES) * width + column) * LANES + row % LANES;
}

__device__ inline float3 geometry_triple(const float* geometry, uint32_t row, uint32_t column) {
    const float* first = geometry + element(row, GEOMETRY_WIDTH, column);
    return {first[0], first[LANES], first[2 * LANES]};
}
