// Twin of math/appearance.rs: affine maps of colours, and bilateral grids of them (Wang et al. 2024). Same names; see
// Rust for the equations.
#pragma once

#include "abi.cuh"

constexpr uint32_t CELLS_X = GRID_X - 1, CELLS_Y = GRID_Y - 1, CELLS_LUMA = GRID_LUMA - 1;
constexpr uint32_t GRID_WIDTH = GRID_X * GRID_Y * GRID_LUMA * AFFINE_WIDTH;

// A 3x4 matrix in rows, as in tables.
struct Affine {
    float4 row[3];
};

__device__ inline float along(float4 row, float3 rgb) {
    return row.x * rgb.x + row.y * rgb.y + row.z * rgb.z + row.w;
}

__device__ inline float3 affine(const Affine& m, float3 rgb) {
    return {along(m.row[0], rgb), along(m.row[1], rgb), along(m.row[2], rgb)};
}

__device__ inline float3 affine_bwd(const Affine& m, float3 d_out) {
    return {m.row[0].x * d_out.x + m.row[1].x * d_out.y + m.row[2].x * d_out.z,
            m.row[0].y * d_out.x + m.row[1].y * d_out.y + m.row[2].y * d_out.z,
            m.row[0].z * d_out.x + m.row[1].z * d_out.y + m.row[2].z * d_out.z};
}

struct Between {
    uint32_t corner;
    float fraction;
};

// An image is at most 65,535 px wide, so products fit into 32 bits, and the numbers into a float's 24 bits.
__device__ inline Between place_of_pixel(uint32_t pixel, uint32_t side, uint32_t corners) {
    const uint32_t scaled = (2 * pixel + 1) * (corners - 1), whole = 2 * side;
    return {scaled / whole, static_cast<float>(scaled % whole) / static_cast<float>(whole)};
}

// Returns the first pixel that is not before a corner.
__device__ inline uint32_t first_pixel(uint32_t corner, uint32_t side, uint32_t corners) {
    return (2 * side * corner + corners - 2) / (corners - 1) / 2;
}

__device__ inline Between place_of_luma(float3 rgb, bool& is_free) {
    const float luma = 0.299f * rgb.x + 0.587f * rgb.y + 0.114f * rgb.z;
    const float scaled = fminf(fmaxf(luma, 0.0f), 1.0f) * static_cast<float>(CELLS_LUMA);
    const uint32_t corner = min(static_cast<uint32_t>(scaled), CELLS_LUMA - 1);
    is_free = luma > 0.0f && luma < 1.0f;
    return {corner, scaled - static_cast<float>(corner)};
}

struct Place {
    Between x, y, luma;
    bool is_free;
};

__device__ inline Place place_of(uint32_t x, uint32_t y, const uint32_t (&size)[2], float3 rgb) {
    Place p;
    p.x = place_of_pixel(x, size[0], GRID_X);
    p.y = place_of_pixel(y, size[1], GRID_Y);
    p.luma = place_of_luma(rgb, p.is_free);
    return p;
}

__device__ inline float4 scaled_sum(float4 sum, float weight, float4 value) {
    return {sum.x + weight * value.x, sum.y + weight * value.y, sum.z + weight * value.z,
            sum.w + weight * value.w};
}

// Returns the map at the luma corners before (side 0) or after (side 1).
__device__ inline Affine plane(const float* __restrict__ grid, const Place& p, uint32_t side) {
    Affine m = {};
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t dx = i % 2, dy = i / 2;
        const float weight = (dx == 1 ? p.x.fraction : 1.0f - p.x.fraction) *
                             (dy == 1 ? p.y.fraction : 1.0f - p.y.fraction);
        const uint32_t corner =
            ((p.luma.corner + side) * GRID_Y + p.y.corner + dy) * GRID_X + p.x.corner + dx;
        const float4* const map = reinterpret_cast<const float4*>(grid + corner * AFFINE_WIDTH);
#pragma unroll
        for (uint32_t row = 0; row < 3; ++row) m.row[row] = scaled_sum(m.row[row], weight, map[row]);
    }
    return m;
}

// Returns the map of a pixel and its slope along luma.
__device__ inline Affine slice(const float* __restrict__ grid, const Place& p, Affine& slope) {
    Affine map = plane(grid, p, 0);
    const Affine high = plane(grid, p, 1);
    const float cells = static_cast<float>(CELLS_LUMA);
#pragma unroll
    for (uint32_t row = 0; row < 3; ++row) {
        const float4 difference = scaled_sum(high.row[row], -1.0f, map.row[row]);
        map.row[row] = scaled_sum(map.row[row], p.luma.fraction, difference);
        slope.row[row] = scaled_sum({0.0f, 0.0f, 0.0f, 0.0f}, cells, difference);
    }
    return map;
}

__device__ inline float3 slice_bwd(const float* __restrict__ grid, const Place& p, float3 rgb,
                                   float3 d_out) {
    Affine slope;
    const Affine map = slice(grid, p, slope);
    float3 d_rgb = affine_bwd(map, d_out);
    if (p.is_free) {
        const float3 moved = affine(slope, rgb);
        const float d_luma = moved.x * d_out.x + moved.y * d_out.y + moved.z * d_out.z;
        d_rgb.x += 0.299f * d_luma;
        d_rgb.y += 0.587f * d_luma;
        d_rgb.z += 0.114f * d_luma;
    }
    return d_rgb;
}

// Returns the contribution of neighbours along one axis to the gradient of the total variation.
__device__ inline float variation_along(const float* __restrict__ grid, uint32_t k, uint32_t stride,
                                        uint32_t corners) {
    const uint32_t at = k / stride % corners;
    const float value = grid[k];
    float differences = 0.0f;
    if (at > 0) differences += value - grid[k - stride];
    if (at + 1 < corners) differences += value - grid[k + stride];
    const uint32_t pairs = GRID_WIDTH / corners * (corners - 1);
    return 2.0f / static_cast<float>(pairs) * differences;
}

__device__ inline float total_variation_bwd(const float* __restrict__ grid, uint32_t k) {
    return variation_along(grid, k, AFFINE_WIDTH, GRID_X) +
           variation_along(grid, k, GRID_X * AFFINE_WIDTH, GRID_Y) +
           variation_along(grid, k, GRID_Y * GRID_X * AFFINE_WIDTH, GRID_LUMA);
}
