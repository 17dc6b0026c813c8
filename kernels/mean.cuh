// Statistics that density control compares: means over the views that saw a Gaussian.
#pragma once

#include "layout.cuh"

__device__ inline float mean_gradient(float norm_sum, uint32_t views) {
    return __fdiv_rn(norm_sum, __uint2float_rn(max(views, 1u)));
}
