// normal_map: compares the normals of the drawn inverse depths with the photograph's normal map, and computes the
// gradient of the inverse depths.
//
// `compare_normal_map`: one block per square of pixels (`slopes.cuh`). Only the block's sum is added atomically. Slopes
// of inverse depths have the opposite sign of those of depths.
//
// Shapes: inverse_depths, d_inverse_depths and mask [h, w], target [h, w, 3].

#include "slopes.cuh"

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
