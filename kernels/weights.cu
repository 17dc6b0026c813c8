// weights: each Gaussian's blend weight, summed over the pixels of the views. It is the gradient of the Gaussian's
// colour if the gradient of every pixel is 1.
// One thread per splat, or per Gaussian. Shapes: splats, gradients [visible, record], the rest [n].

#include "gradient.cuh"
#include "layout.cuh"

// Makes all splats white: colours clamped to 0 would have no gradient.
extern "C" __global__ void __launch_bounds__(WEIGHTS_BLOCK)
    whiten(const __grid_constant__ WhitenArgs a) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.visible) return;
    float* const color = a.splats + uint64_t{i} * a.record_width + RECORD_COLOR;
    color[0] = color[1] = color[2] = 1.0f;
}

extern "C" __global__ void __launch_bounds__(WEIGHTS_BLOCK)
    add_weights(const __grid_constant__ AddWeightsArgs a) {
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t splat_index = gaussian < a.gaussians ? a.splat_from_gaussian[gaussian] : UNSEEN;
    if (splat_index == UNSEEN) return;
    a.weights[gaussian] += load_gradient(a.gradients, splat_index, a.record_width).d_color[0];
}
