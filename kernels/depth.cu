// depth_loss: L1 of the inverse depths against the photograph's map, and its gradient.
// One thread per pixel. Shapes: inverse_depths, target, mask and d_inverse_depths [h, w], sum [1].

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
