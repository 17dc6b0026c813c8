// normals: surface features of splats, and the comparison of the maps' normals with those of the maps' depths.
//
// `splat_features`: one thread per Gaussian.
// `compare_normals`: one block per square of pixels (`slopes.cuh`). Only the block's sum is added atomically.
//
// Shapes: geometry [lane blocks, 11, 32], splats [visible, record], features [visible, 4], surface and
// d_surface [h, w, 4], medians, d_medians and mask [h, w].

#include "slopes.cuh"

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
