// weights: each Gaussian's blend weight, summed over the pixels of the views: the gradient of its colour
// where that of every pixel is 1.
// One thread per splat. Shapes: splats, gradients [visible, record], weights [n].

#include "gradient.cuh"
#include "layout.cuh"

// Makes all splats white: colours held at 0 would take no gradient.
extern "C" __global__ void __launch_bounds__(WEIGHTS_BLOCK)
    whiten(const __grid_constant__ WhitenArgs a) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.visible) return;
    float* const color = a.splats + uint64_t{i} * a.record_width + RECORD_COLOR;
    color[0] = color[1] = color[2] = 1.0f;
}

extern "C" __global__ void __launch_bounds__(WEIGHTS_BLOCK)
    add_weights(const __grid_constant__ AddWeightsArgs a) {
    const float* __restrict__ splats = a.splats;
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.visible) return;
    const uint64_t record = uint64_t{i} * a.record_width;
    const uint32_t gaussian = __float_as_uint(splats[record + RECORD_GAUSSIAN]);
    // Each Gaussian has at most one splat in a view: nobody else writes this.
    a.weights[gaussian] += load_gradient(a.gradients, i, a.record_width).d_color[0];
}
