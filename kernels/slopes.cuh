// Slopes of depths, or inverse depths, along the axes of the image, and the gradients of the depths. One block per
// square of pixels. It stages the depths of the square and of two pixels around it, then computes the gradients of the
// slopes with one pixel around it, then the gradients of its depths. Each depth is in the slopes of its four
// neighbours, so no atomics are needed.
#pragma once

#include "layout.cuh"
#include "normals.cuh"

// Sides of a block's depths, with two pixels around the square, and of its slopes, with one.
constexpr uint32_t DEPTHS = NORMALS_SIDE + 4;
constexpr uint32_t SLOPES = NORMALS_SIDE + 2;
static_assert(NORMALS_BLOCK == NORMALS_SIDE * NORMALS_SIDE, "one thread per pixel");
static_assert(NORMALS_BLOCK % WARP == 0, "whole warps");

// A block's square in a view.
struct Square {
    int width, height, corner_x, corner_y;
};

__device__ inline Square square_of(const uint32_t (&size)[2]) {
    const uint32_t blocks_wide = (size[0] + NORMALS_SIDE - 1) / NORMALS_SIDE;
    return {static_cast<int>(size[0]), static_cast<int>(size[1]),
            static_cast<int>(blockIdx.x % blocks_wide * NORMALS_SIDE),
            static_cast<int>(blockIdx.x / blocks_wide * NORMALS_SIDE)};
}

__device__ inline bool is_inside(const Square& square, int x, int y) {
    return x >= 0 && y >= 0 && x < square.width && y < square.height;
}

__device__ inline bool has_four_beside(const Square& square, int x, int y) {
    return x > 0 && y > 0 && x + 1 < square.width && y + 1 < square.height;
}

// Depths of a pixel's four neighbours.
struct Beside {
    float left, right, above, below;
};

// Returns the depths around the pixel with slopes in this row and column.
__device__ inline Beside beside_of(const float (&depths)[DEPTHS][DEPTHS], uint32_t row, uint32_t column) {
    return {depths[row + 1][column], depths[row + 1][column + 2], depths[row][column + 1],
            depths[row + 2][column + 1]};
}

// True if a pixel and its neighbours are of one surface.
__device__ inline bool all_smooth(float2 focal_px, float depth, Beside beside) {
    return is_smooth(focal_px.x, depth, beside.left) && is_smooth(focal_px.x, depth, beside.right) &&
           is_smooth(focal_px.y, depth, beside.above) && is_smooth(focal_px.y, depth, beside.below);
}

__device__ inline float2 slopes_of(float2 focal_px, Beside beside) {
    return {slope(focal_px.x, beside.left, beside.right), slope(focal_px.y, beside.above, beside.below)};
}

// Returns x/z and y/z of the ray through a pixel's centre.
__device__ inline float2 pixel_ray(float2 focal_px, float2 centre_px, int x, int y) {
    return {(static_cast<float>(x) + 0.5f - centre_px.x) / focal_px.x,
            (static_cast<float>(y) + 0.5f - centre_px.y) / focal_px.y};
}

// Returns the gradient of the depth at this row and column of the square.
__device__ inline float depth_bwd(float2 focal_px, const float (&depths)[DEPTHS][DEPTHS],
                                  const float2 (&d_slopes)[SLOPES][SLOPES], uint32_t row, uint32_t column) {
    const float depth = depths[row + 2][column + 2];
    float d_depth = 0.0f;
    // A missing slope has a gradient of 0. For the previous pixel, this pixel is the next one.
    const float by_left = d_slopes[row + 1][column].x, by_right = d_slopes[row + 1][column + 2].x;
    const float by_above = d_slopes[row][column + 1].y, by_below = d_slopes[row + 2][column + 1].y;
    if (by_left != 0.0f) d_depth += slope_bwd(focal_px.x, depths[row + 2][column], depth, by_left).y;
    if (by_right != 0.0f) d_depth += slope_bwd(focal_px.x, depth, depths[row + 2][column + 4], by_right).x;
    if (by_above != 0.0f) d_depth += slope_bwd(focal_px.y, depths[row][column + 2], depth, by_above).y;
    if (by_below != 0.0f) d_depth += slope_bwd(focal_px.y, depth, depths[row + 4][column + 2], by_below).x;
    return d_depth;
}

// Adds the sum of a block's threads; contains a barrier for all of them.
__device__ inline void add_block_sum(float of_thread, float (&of_warp)[NORMALS_BLOCK / WARP], double* sum) {
    const float of_lanes = warp_sum(of_thread);
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = of_lanes;
    __syncthreads();  // the writes of all threads and the warps' sums are visible
    if (threadIdx.x != 0) return;
    double of_block = 0.0;
    for (uint32_t warp = 0; warp < NORMALS_BLOCK / WARP; ++warp) of_block += of_warp[warp];
    atomicAdd(sum, of_block);
}
