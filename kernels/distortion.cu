// distortion: spread of each pixel's splats along its ray, and the gradients of the maps that define it. One thread per
// pixel. Shapes: inverse_depths, inverse_squares, their gradients and mask [h, w], surface and d_surface [h, w, 4],
// sum [1].

#include "distortion.cuh"
#include "layout.cuh"

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
