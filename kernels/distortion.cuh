// Twin of math/distortion.rs: spread of a pixel's splats along its ray. Same names, same order of arguments; see Rust
// for the equations.
#pragma once

#include "abi.cuh"

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
