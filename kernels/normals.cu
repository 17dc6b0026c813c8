// normals: surface features of splats, and the comparison of normals of drawn depths with those of the drawn maps or of
// the photograph.
//
// `splat_features`: one thread per Gaussian.
// `compare_normals`: compares the normals of the maps' depths with the maps' normals, and computes the gradients of the
// maps.
// `compare_normal_map`: compares the normals of the inverse depths with the photograph's normal map, and computes the
// gradient of the inverse depths. Slopes of inverse depths have the opposite sign of those of depths.
//
// Both comparisons have one block per square of pixels. It stages the depths of the square and of two pixels around it,
// then computes the gradients of the slopes of these depths along the axes of the image, with one pixel around the
// square, then the gradients of its depths. Each depth is in the slopes of its four neighbours, so no atomics are
// needed; only the block's sum is added atomically.
//
// Shapes: geometry [lane blocks, 11, 32], splats [visible, record], features [visible, 4], surface and
// d_surface [h, w, 4], medians, d_medians, inverse_depths, d_inverse_depths and mask [h, w], target [h, w, 3].

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

__device__ inline float3 triple_at(const float* __restrict__ column, uint64_t at, uint32_t first) {
    return {column[at + component(first)], column[at + component(first + 1)],
            column[at + component(first + 2)]};
}

extern "C" __global__ void __launch_bounds__(FEATURES_BLOCK)
    splat_features(const __grid_constant__ FeaturesArgs a) {
    const float* __restrict__ geometry = a.geometry;
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    if (gaussian >= a.gaussians) return;
    const uint32_t splat_index = a.splat_from_gaussian[gaussian];
    if (splat_index == UNSEEN) return;
    const uint64_t at = lane_block(gaussian, GEOMETRY_WIDTH);
    const Shape shape = {triple_at(geometry, at, MEAN), triple_at(geometry, at, LOG_SCALE),
                         {geometry[at + component(QUAT)], geometry[at + component(QUAT + 1)],
                          geometry[at + component(QUAT + 2)], geometry[at + component(QUAT + 3)]},
                         0.0f};
    const bool is_surfel = a.record_width == SURFEL_RECORD_WIDTH;
    const float3 normal = facing_normal(a.camera, is_surfel ? flat(shape) : shape);
    const float* const record = a.splats + uint64_t{splat_index} * a.record_width;
    const float depth = record[RECORD_DEPTH];
    reinterpret_cast<float4*>(a.features)[splat_index] = {depth, normal.x, normal.y, __frcp_rn(depth)};
}

// Returns the depth of a pixel; 0 if only opaque pixels count and it does not.
__device__ inline float shown_depth(const NormalsArgs& a, uint64_t pixel, float4 map) {
    if (a.opaque == 0) return map.x;
    const uint8_t* __restrict__ mask = a.mask;
    const bool excluded = mask != nullptr && mask[pixel] == 0;
    if (excluded || map.w < OPAQUE_MIN) return 0.0f;
    const float* __restrict__ medians = a.medians;
    return medians != nullptr ? medians[pixel] : map.x / map.w;
}

// Returns x and y of the normal of a pixel that has a depth.
__device__ inline float2 shown_normal(const NormalsArgs& a, float4 map) {
    const float over = a.opaque != 0 ? map.w : 1.0f;
    return {map.y / over, map.z / over};
}

// Error of a pixel and its gradients.
struct PixelNormals {
    float disagreement;
    float2 d_slopes, d_normal;
};

// `map` holds the drawn values of the pixel, `depth` the depth to compare.
__device__ inline PixelNormals pixel_normals(const NormalsArgs& a, const Square& square, int x, int y,
                                             float4 map, float depth, Beside beside) {
    const float2 focal_px = {a.focal_px[0], a.focal_px[1]};
    const bool counts = has_four_beside(square, x, y) && has_slope(beside.left, beside.right) &&
                        has_slope(beside.above, beside.below) &&
                        (a.opaque == 0 || all_smooth(focal_px, depth, beside));
    if (!counts) return {a.opaque != 0 ? 0.0f : 1.0f, {0.0f, 0.0f}, {0.0f, 0.0f}};
    const float2 slopes = slopes_of(focal_px, beside);
    const float2 ray = pixel_ray(focal_px, {a.centre_px[0], a.centre_px[1]}, x, y);
    const float2 xy = shown_normal(a, map);
    const float3 drawn = blended_normal(xy), expected = surface_normal(slopes, ray);
    return {1.0f - dot(drawn, expected), surface_normal_bwd(slopes, ray, scale(drawn, -a.d_mean)),
            blended_normal_bwd(xy, scale(expected, -a.d_mean))};
}

extern "C" __global__ void __launch_bounds__(NORMALS_BLOCK)
    compare_normals(const __grid_constant__ NormalsArgs a) {
    __shared__ float depths[DEPTHS][DEPTHS];
    __shared__ float2 d_slopes[SLOPES][SLOPES];
    __shared__ float2 d_normals[NORMALS_SIDE][NORMALS_SIDE];
    __shared__ float of_warp[NORMALS_BLOCK / WARP];
    const float4* __restrict__ surface = reinterpret_cast<const float4*>(a.surface);
    const Square square = square_of(a.size);

    for (uint32_t i = threadIdx.x; i < DEPTHS * DEPTHS; i += NORMALS_BLOCK) {
        const uint32_t row = i / DEPTHS, column = i % DEPTHS;
        const int x = square.corner_x + static_cast<int>(column) - 2;
        const int y = square.corner_y + static_cast<int>(row) - 2;
        const uint64_t pixel = uint64_t(y) * square.width + x;
        depths[row][column] = is_inside(square, x, y) ? shown_depth(a, pixel, surface[pixel]) : 0.0f;
    }
    __syncthreads();  // the depths are staged

    float sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < SLOPES * SLOPES; i += NORMALS_BLOCK) {
        const uint32_t row = i / SLOPES, column = i % SLOPES;
        const int x = square.corner_x + static_cast<int>(column) - 1;
        const int y = square.corner_y + static_cast<int>(row) - 1;
        PixelNormals pixel = {};
        if (is_inside(square, x, y)) {
            pixel = pixel_normals(a, square, x, y, surface[uint64_t(y) * square.width + x],
                                  depths[row + 1][column + 1], beside_of(depths, row, column));
        }
        d_slopes[row][column] = pixel.d_slopes;
        // Pixels around the square belong to other blocks.
        if (row > 0 && column > 0 && row <= NORMALS_SIDE && column <= NORMALS_SIDE) {
            d_normals[row - 1][column - 1] = pixel.d_normal;
            sum += pixel.disagreement;
        }
    }
    add_block_sum(sum, of_warp, a.sum);

    const uint32_t row = threadIdx.x / NORMALS_SIDE, column = threadIdx.x % NORMALS_SIDE;
    const int x = square.corner_x + static_cast<int>(column), y = square.corner_y + static_cast<int>(row);
    if (!is_inside(square, x, y)) return;
    const float depth = depths[row + 2][column + 2];
    const float d_depth = depth_bwd({a.focal_px[0], a.focal_px[1]}, depths, d_slopes, row, column);
    const float2 d_normal = d_normals[row][column];
    const uint64_t own = uint64_t(y) * square.width + x;
    float4 d_map = {d_depth, d_normal.x, d_normal.y, 0.0f};
    if (a.medians != nullptr) {
        a.d_medians[own] = d_depth;
        d_map.x = 0.0f;
    }
    if (a.opaque != 0 && depth > 0.0f) {
        // Gradient through the division by the opacity, which is 1 less the transmittance.
        const float4 map = surface[own];
        const float2 xy = shown_normal(a, map);
        d_map = {d_map.x / map.w, d_map.y / map.w, d_map.z / map.w, 0.0f};
        d_map.w = d_map.x * depth + d_map.y * xy.x + d_map.z * xy.y;
    }
    reinterpret_cast<float4*>(a.d_surface)[own] = d_map;
}

// Returns the inverse depth of a pixel; 0 if masked.
__device__ inline float shown_inverse(const NormalMapArgs& a, uint64_t pixel) {
    const uint8_t* __restrict__ mask = a.mask;
    const bool excluded = mask != nullptr && mask[pixel] == 0;
    return excluded ? 0.0f : a.inverse_depths[pixel];
}

// Error of a pixel and its gradient.
struct MappedPixel {
    float disagreement;
    float2 d_slopes;
};

__device__ inline MappedPixel mapped_pixel(const NormalMapArgs& a, const Square& square, int x, int y,
                                           float inverse, Beside beside) {
    const float2 focal_px = {a.focal_px[0], a.focal_px[1]};
    const uint64_t pixel = uint64_t(y) * square.width + x;
    float3 expected;
    // A step in depth is one in inverse depth.
    const bool counts = has_four_beside(square, x, y) && all_smooth(focal_px, inverse, beside) &&
                        mapped_normal(a.target + pixel * 3, expected);
    if (!counts) return {0.0f, {0.0f, 0.0f}};
    const float2 turned = slopes_of(focal_px, beside);
    const float2 slopes = {-turned.x, -turned.y};
    const float2 ray = pixel_ray(focal_px, {a.centre_px[0], a.centre_px[1]}, x, y);
    const float2 d_slopes = surface_normal_bwd(slopes, ray, scale(expected, -a.d_mean));
    return {1.0f - dot(surface_normal(slopes, ray), expected), {-d_slopes.x, -d_slopes.y}};
}

extern "C" __global__ void __launch_bounds__(NORMALS_BLOCK)
    compare_normal_map(const __grid_constant__ NormalMapArgs a) {
    __shared__ float inverses[DEPTHS][DEPTHS];
    __shared__ float2 d_slopes[SLOPES][SLOPES];
    __shared__ float of_warp[NORMALS_BLOCK / WARP];
    const Square square = square_of(a.size);

    for (uint32_t i = threadIdx.x; i < DEPTHS * DEPTHS; i += NORMALS_BLOCK) {
        const uint32_t row = i / DEPTHS, column = i % DEPTHS;
        const int x = square.corner_x + static_cast<int>(column) - 2;
        const int y = square.corner_y + static_cast<int>(row) - 2;
        const uint64_t pixel = uint64_t(y) * square.width + x;
        inverses[row][column] = is_inside(square, x, y) ? shown_inverse(a, pixel) : 0.0f;
    }
    __syncthreads();  // the inverse depths are staged

    float sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < SLOPES * SLOPES; i += NORMALS_BLOCK) {
        const uint32_t row = i / SLOPES, column = i % SLOPES;
        const int x = square.corner_x + static_cast<int>(column) - 1;
        const int y = square.corner_y + static_cast<int>(row) - 1;
        const MappedPixel pixel = mapped_pixel(a, square, x, y, inverses[row + 1][column + 1],
                                               beside_of(inverses, row, column));
        d_slopes[row][column] = pixel.d_slopes;
        // Pixels around the square belong to other blocks.
        if (row > 0 && column > 0 && row <= NORMALS_SIDE && column <= NORMALS_SIDE) {
            sum += pixel.disagreement;
        }
    }
    add_block_sum(sum, of_warp, a.sum);

    const uint32_t row = threadIdx.x / NORMALS_SIDE, column = threadIdx.x % NORMALS_SIDE;
    const int x = square.corner_x + static_cast<int>(column), y = square.corner_y + static_cast<int>(row);
    if (!is_inside(square, x, y)) return;
    a.d_inverse_depths[uint64_t(y) * square.width + x] +=
        depth_bwd({a.focal_px[0], a.focal_px[1]}, inverses, d_slopes, row, column);
}
