// loss: (1 - lambda) L1 + lambda (1 - SSIM) against the photograph, and the image's gradient.
//
// One block per LOSS_SIDE x LOSS_SIDE pixels, one colour channel after the other. Nothing per pixel
// is kept in memory between forward and backward: the gradient of a pixel depends on the SSIM of the
// 11x11 windows around it, whose moments the block computes for its pixels and a rim of 5, from
// pixels with a rim of 10. All sums are separable: along rows, then along columns. A thread slides
// over RUN neighbours, so that a value is read once for up to 11 sums.
// Shapes: image and d_image [h, w, 3], target [h, w, 3] in 8 bits, mask [h, w].

#include "layout.cuh"

constexpr int RADIUS = LOSS_TAPS / 2;
constexpr int SIDE = LOSS_SIDE;
constexpr int INNER = SIDE + 2 * RADIUS;  // windows
constexpr int OUTER = SIDE + 4 * RADIUS;  // pixels that the windows see
constexpr int RUN = 4;
static_assert(INNER % RUN == 0, "runs fill the rows of windows");
constexpr int RUN_OUT = 2;
static_assert(SIDE % RUN_OUT == 0, "runs fill the rows of pixels");
// Odd strides: lanes on neighbouring rows read from different banks.
constexpr int OUTER_STRIDE = OUTER + 1;
constexpr int INNER_STRIDE = INNER + 1;
constexpr int SIDE_STRIDE = SIDE + 1;

// C1 = 0.01^2 and C2 = 0.03^2 (Wang et al. 2004).
constexpr float SSIM_C1 = 1e-4f;
constexpr float SSIM_C2 = 9e-4f;

struct LossShared {
    float x[OUTER][OUTER_STRIDE];
    float y[OUTER][OUTER_STRIDE];
    union {
        float rows[5][OUTER][INNER_STRIDE];  // sums along rows: x, y, xx, yy, xy
        float d_rows[3][INNER][SIDE_STRIDE];
    };
    float d_moments[3][INNER][INNER_STRIDE];
    float taps[LOSS_TAPS];
    double block_sums[3][LOSS_BLOCK / WARP];
};
static_assert(sizeof(LossShared) <= LOSS_SHARED_BYTES, "asked for at launch");

// Both images at a pixel; 0 outside the image and where the mask excludes it.
__device__ inline float2 values_at(const LossArgs& a, int px, int py, uint32_t channel) {
    const float* __restrict__ image = a.image;
    const uint8_t* __restrict__ target = a.target;
    const uint8_t* __restrict__ mask = a.mask;
    if (px < 0 || py < 0 || px >= static_cast<int>(a.size[0]) || py >= static_cast<int>(a.size[1])) {
        return {0.0f, 0.0f};
    }
    const uint64_t pixel = static_cast<uint64_t>(py) * a.size[0] + px;
    if (mask && mask[pixel] == 0) return {0.0f, 0.0f};
    float x = image[pixel * 3 + channel];
    // What is no number stays so, as on the CPU; fminf and fmaxf would hide it.
    if (a.clamp) x = x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x;
    return {x, target[pixel * 3 + channel] * (1.0f / 255.0f)};
}

__device__ inline void load(LossShared& s, const LossArgs& a, int2 corner, uint32_t channel) {
    for (int i = threadIdx.x; i < OUTER * OUTER; i += LOSS_BLOCK) {
        const int row = i / OUTER, column = i % OUTER;
        const float2 v = values_at(a, corner.x + column - 2 * RADIUS, corner.y + row - 2 * RADIUS,
                                   channel);
        s.x[row][column] = v.x;
        s.y[row][column] = v.y;
    }
}

__device__ inline void sum_rows(LossShared& s) {
    constexpr int RUNS = INNER / RUN;
    for (int task = threadIdx.x; task < OUTER * RUNS; task += LOSS_BLOCK) {
        const int row = task % OUTER, first = task / OUTER * RUN;
        float m[5][RUN] = {};
#pragma unroll
        for (int i = 0; i < RUN + LOSS_TAPS - 1; ++i) {
            const float x = s.x[row][first + i], y = s.y[row][first + i];
            const float xx = x * x, yy = y * y, xy = x * y;
#pragma unroll
            for (int k = 0; k < RUN; ++k) {
                if (i - k < 0 || i - k >= LOSS_TAPS) continue;
                const float tap = s.taps[i - k];
                m[0][k] += tap * x;
                m[1][k] += tap * y;
                m[2][k] += tap * xx;
                m[3][k] += tap * yy;
                m[4][k] += tap * xy;
            }
        }
#pragma unroll
        for (int q = 0; q < 5; ++q) {
#pragma unroll
            for (int k = 0; k < RUN; ++k) s.rows[q][row][first + k] = m[q][k];
        }
    }
}

// SSIM of a window from its moments, and its gradient by E[x], E[x^2] and E[xy] times `d_s`.
__device__ inline float similarity_bwd(float x, float y, float xx, float yy, float xy, float d_s,
                                       float3& d) {
    const float a1 = 2.0f * x * y + SSIM_C1;
    const float a2 = 2.0f * (xy - x * y) + SSIM_C2;
    const float b1 = x * x + y * y + SSIM_C1;
    const float b2 = (xx - x * x) + (yy - y * y) + SSIM_C2;
    const float inverse = 1.0f / (b1 * b2);
    const float s = a1 * a2 * inverse;
    const float d_variance = -s / b2;
    const float d_covariance = 2.0f * a1 * inverse;
    const float d_mean = 2.0f * y * a2 * inverse - 2.0f * x * s / b1;
    d = {(d_mean - 2.0f * x * d_variance - y * d_covariance) * d_s, d_variance * d_s,
         d_covariance * d_s};
    return s;
}

// Finishes the windows' moments along columns, and leaves their gradients. Returns the sum of the
// similarities of the windows that belong to this block.
__device__ inline float similarities(LossShared& s, const LossArgs& a, int2 corner) {
    constexpr int RUNS = INNER / RUN;
    const int margin = static_cast<int>(a.margin);
    float sum = 0.0f;
    for (int task = threadIdx.x; task < INNER * RUNS; task += LOSS_BLOCK) {
        const int column = task % INNER, first = task / INNER * RUN;
        float m[5][RUN] = {};
#pragma unroll
        for (int i = 0; i < RUN + LOSS_TAPS - 1; ++i) {
            float v[5];
#pragma unroll
            for (int q = 0; q < 5; ++q) v[q] = s.rows[q][first + i][column];
#pragma unroll
            for (int k = 0; k < RUN; ++k) {
                if (i - k < 0 || i - k >= LOSS_TAPS) continue;
                const float tap = s.taps[i - k];
#pragma unroll
                for (int q = 0; q < 5; ++q) m[q][k] += tap * v[q];
            }
        }
        const int px = corner.x + column - RADIUS;
#pragma unroll
        for (int k = 0; k < RUN; ++k) {
            const int row = first + k, py = corner.y + row - RADIUS;
            float3 d = {0.0f, 0.0f, 0.0f};
            // Only windows that lie wholly inside the image count.
            if (px >= margin && py >= margin && px < static_cast<int>(a.size[0]) - margin &&
                py < static_cast<int>(a.size[1]) - margin) {
                const float similarity =
                    similarity_bwd(m[0][k], m[1][k], m[2][k], m[3][k], m[4][k], a.d_similarity, d);
                const bool own = column >= RADIUS && column < RADIUS + SIDE && row >= RADIUS &&
                                 row < RADIUS + SIDE;
                if (own) sum += similarity;
            }
            s.d_moments[0][row][column] = d.x;
            s.d_moments[1][row][column] = d.y;
            s.d_moments[2][row][column] = d.z;
        }
    }
    return sum;
}

// The adjoint of the row sums: the window is symmetric, so that it is the same sum.
__device__ inline void spread_rows(LossShared& s) {
    constexpr int RUNS = SIDE / RUN_OUT;
    for (int task = threadIdx.x; task < INNER * RUNS; task += LOSS_BLOCK) {
        const int row = task % INNER, first = task / INNER * RUN_OUT;
#pragma unroll
        for (int q = 0; q < 3; ++q) {
            float d[RUN_OUT] = {};
#pragma unroll
            for (int i = 0; i < RUN_OUT + LOSS_TAPS - 1; ++i) {
                const float v = s.d_moments[q][row][first + i];
#pragma unroll
                for (int k = 0; k < RUN_OUT; ++k) {
                    if (i - k >= 0 && i - k < LOSS_TAPS) d[k] += s.taps[i - k] * v;
                }
            }
#pragma unroll
            for (int k = 0; k < RUN_OUT; ++k) s.d_rows[q][row][first + k] = d[k];
        }
    }
}

// Gradient of the pixels: of L1, and of the moments of all windows that see the pixel.
__device__ inline void spread_columns(LossShared& s, const LossArgs& a, int2 corner,
                                      uint32_t channel) {
    constexpr int RUNS = SIDE / RUN_OUT;
    const uint8_t* __restrict__ mask = a.mask;
    for (int task = threadIdx.x; task < SIDE * RUNS; task += LOSS_BLOCK) {
        const int column = task % SIDE, first = task / SIDE * RUN_OUT;
        float d[3][RUN_OUT] = {};
#pragma unroll
        for (int i = 0; i < RUN_OUT + LOSS_TAPS - 1; ++i) {
            float v[3];
#pragma unroll
            for (int q = 0; q < 3; ++q) v[q] = s.d_rows[q][first + i][column];
#pragma unroll
            for (int k = 0; k < RUN_OUT; ++k) {
                if (i - k < 0 || i - k >= LOSS_TAPS) continue;
                const float tap = s.taps[i - k];
#pragma unroll
                for (int q = 0; q < 3; ++q) d[q][k] += tap * v[q];
            }
        }
        const int px = corner.x + column;
        if (px >= static_cast<int>(a.size[0])) continue;
#pragma unroll
        for (int k = 0; k < RUN_OUT; ++k) {
            const int row = first + k, py = corner.y + row;
            if (py >= static_cast<int>(a.size[1])) continue;
            const uint64_t pixel = static_cast<uint64_t>(py) * a.size[0] + px;
            const float x = s.x[row + 2 * RADIUS][column + 2 * RADIUS];
            const float y = s.y[row + 2 * RADIUS][column + 2 * RADIUS];
            float d_x = d[0][k] + 2.0f * x * d[1][k] + y * d[2][k];
            d_x += x > y ? a.d_l1 : (x < y ? -a.d_l1 : 0.0f);
            // The image passed through the mask, and so does its gradient.
            if (mask && mask[pixel] == 0) d_x = 0.0f;
            a.d_image[pixel * 3 + channel] = d_x;
        }
    }
}

// Sums of |x - y| and (x - y)^2 over the block's pixels.
__device__ inline float2 differences(const LossShared& s) {
    float2 sum = {0.0f, 0.0f};
    for (int i = threadIdx.x; i < SIDE * SIDE; i += LOSS_BLOCK) {
        const int row = i / SIDE + 2 * RADIUS, column = i % SIDE + 2 * RADIUS;
        const float difference = s.x[row][column] - s.y[row][column];
        sum.x += fabsf(difference);
        sum.y += difference * difference;
    }
    return sum;
}

// Adds the block's sums to those of the image.
__device__ inline void add_sums(LossShared& s, const LossArgs& a, float l1, float squared,
                                float similarity) {
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const float sums[3] = {warp_sum(l1), warp_sum(squared), warp_sum(similarity)};
    if (lane == 0) {
        for (int q = 0; q < 3; ++q) s.block_sums[q][warp] = sums[q];
    }
    __syncthreads();  // the warps' sums are there
    if (threadIdx.x < 3) {
        double total = 0.0;
        for (uint32_t w = 0; w < LOSS_BLOCK / WARP; ++w) total += s.block_sums[threadIdx.x][w];
        atomicAdd(&a.sums->absolute + threadIdx.x, total);
    }
}

extern "C" __global__ void __launch_bounds__(LOSS_BLOCK) loss(const __grid_constant__ LossArgs a) {
    extern __shared__ double shared[];
    LossShared& s = *reinterpret_cast<LossShared*>(shared);
    const uint32_t blocks_wide = (a.size[0] + SIDE - 1) / SIDE;
    const int2 corner = {static_cast<int>(blockIdx.x % blocks_wide * SIDE),
                         static_cast<int>(blockIdx.x / blocks_wide * SIDE)};
    if (threadIdx.x < LOSS_TAPS) s.taps[threadIdx.x] = a.taps[threadIdx.x];

    float l1 = 0.0f, squared = 0.0f, similarity = 0.0f;
    for (uint32_t channel = 0; channel < 3; ++channel) {
        load(s, a, corner, channel);
        __syncthreads();  // the pixels are there
        const float2 difference = differences(s);
        l1 += difference.x;
        squared += difference.y;
        sum_rows(s);
        __syncthreads();  // the sums along rows are there
        similarity += similarities(s, a, corner);
        __syncthreads();  // the windows' gradients are there, and the row sums are free
        if (a.d_image) {
            spread_rows(s);
            __syncthreads();  // they are spread along rows
            spread_columns(s, a, corner, channel);
            __syncthreads();  // the pixels are free
        }
    }
    add_sums(s, a, l1, squared, similarity);
}
