// Rows of a model's tables as words, independent of their content. `Args` has the six tables, [lane blocks, width, 32],
// and their `widths`.
#pragma once

#include "layout.cuh"

// Statistics that density control compares: means over the views that saw a Gaussian.

__device__ inline float mean_gradient(float norm_sum, uint32_t views) {
    return __fdiv_rn(norm_sum, __uint2float_rn(max(views, 1u)));
}

// The six tables: parameters, first and second moments of the geometry, then of the SH.
constexpr uint32_t ROLES = 3;
constexpr uint32_t GEOMETRY_TABLE = 0;

// Zeros the moments of a row.
template <class Args>
__device__ inline void forget_row(const Args& a, uint32_t row) {
#pragma unroll
    for (uint32_t table = 0; table < TABLES; ++table) {
        if (table % ROLES == 0) continue;
        const uint64_t at = lane_block(row, a.widths[table]);
        for (uint32_t c = 0; c < a.widths[table]; ++c) a.tables[table][at + component(c)] = 0;
    }
}

// Copies the parameters of a row.
template <class Args>
__device__ inline void copy_parameters(const Args& a, uint32_t from, uint32_t to) {
#pragma unroll
    for (uint32_t table = 0; table < TABLES; table += ROLES) {
        const uint32_t width = a.widths[table];
        const uint64_t source = lane_block(from, width), destination = lane_block(to, width);
        for (uint32_t c = 0; c < width; ++c) {
            a.tables[table][destination + component(c)] = a.tables[table][source + component(c)];
        }
    }
}
