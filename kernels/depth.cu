// depth: losses of the drawn inverse depths, and their gradients. One thread per pixel.
//
// `depth_loss`: L1 against the photograph's map. Shapes: inverse_depths, target, mask and d_inverse_depths [h, w],
// sum [1].
//
// `measure_distortion`: spread of each pixel's splats along its ray, and the gradients of the maps that define it.
// Shapes: inverse_depths, inverse_squares, their gradients and mask [h, w], surface and d_surface [h, w, 4], sum [1].

#include "abi.cuh"
#include "layout.cuh"

static_assert(DEPTH_LOSS_BLOCK % WARP == 0, "whole warps");

extern "C" __global__ void __launch_bounds__(DEPTH_LOSS_BLOCK)
    depth_loss(const __grid_constant__ DepthLossArgs a) {
    __shared__ float of_warp[DEPTH_LOSS_BLOCK / WARP];
    const uint32_t pixel = blockIdx.x * blockDim.x + threadIdx.x;
    float error = 0.0f;
    if (pixel < a.pixels) {
        const float expected = fmaf(static_cast<float>(a.target[pixel]), a.scale, a.offset);
        // Masked pixels have no error.
        const bool counts = a.mask == nullptr || a.mask[pixel] != 0;
        if (counts) error = a.inverse_depths[pixel] - expected;
        const float slope = error > 0.0f ? a.d_error : -a.d_error;
        a.d_inverse_depths[pixel] = error != 0.0f ? slope : 0.0f;
    }
    const float of_lanes = warp_sum(fabsf(error));
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = of_lanes;
    __syncthreads();  // all warps have added
    if (threadIdx.x != 0) return;
    double sum = 0.0;
    for (uint32_t warp = 0; warp < DEPTH_LOSS_BLOCK / WARP; ++warp) sum += of_warp[warp];
    atomicAdd(a.sum, sum);
}

// Twin of math/distortion.rs: spread of a pixel's splats along its ray. Same names, same order of arguments; see Rust
// for the equations.

// Slope of the mapped depth by the inverse depth, negated.
constexpr float FALL = static_cast<float>(double{DISTORTION_FAR} * double{DISTORTION_NEAR} /
                                          (double{DISTORTION_FAR} - double{DISTORTION_NEAR}));

// Sums over the splats of a pixel's ray.
struct RaySums {
    float opacity, inverse_depth, inverse_square;
};

__device__ inline float distortion(const RaySums& sums) {
    return FALL * FALL *
           (sums.opacity * sums.inverse_square - sums.inverse_depth * sums.inverse_depth);
}

__device__ inline RaySums distortion_bwd(const RaySums& sums, float d_distortion) {
    const float d = FALL * FALL * d_distortion;
    return {d * sums.inverse_square, -(d * (sums.inverse_depth + sums.inverse_depth)), d * sums.opacity};
}

static_assert(DISTORTION_BLOCK % WARP == 0, "whole warps");

extern "C" __global__ void __launch_bounds__(DISTORTION_BLOCK)
    measure_distortion(const __grid_constant__ DistortionArgs a) {
    __shared__ float of_warp[DISTORTION_BLOCK / WARP];
    const uint32_t pixel = blockIdx.x * blockDim.x + threadIdx.x;
    float found = 0.0f;
    if (pixel < a.pixels) {
        const uint64_t opacity = uint64_t{pixel} * 4 + 3;
        const bool counts = a.mask == nullptr || a.mask[pixel] != 0;
        RaySums d = {0.0f, 0.0f, 0.0f};
        if (counts) {
            const RaySums sums = {a.surface[opacity], a.inverse_depths[pixel], a.inverse_squares[pixel]};
            found = distortion(sums);
            d = distortion_bwd(sums, a.d_mean);
        }
        a.d_inverse_depths[pixel] += d.inverse_depth;
        a.d_inverse_squares[pixel] = d.inverse_square;
        // The opacity is 1 less the transmittance.
        a.d_surface[opacity] -= d.opacity;
    }
    const float of_lanes = warp_sum(found);
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = of_lanes;
    __syncthreads();  // all warps have added
    if (threadIdx.x != 0) return;
    double sum = 0.0;
    for (uint32_t warp = 0; warp < DISTORTION_BLOCK / WARP; ++warp) sum += of_warp[warp];
    atomicAdd(a.sum, sum);
}
