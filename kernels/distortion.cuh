// Twin of math/distortion.rs: how far apart along its ray lies what a pixel is blended of. Same names,
// same order of arguments; the equations stand in Rust.
#pragma once

#include "abi.cuh"

// How fast a mapped depth falls with the inverse depth.
constexpr float FALL = static_cast<float>(double{DISTORTION_FAR} * double{DISTORTION_NEAR} /
                                          (double{DISTORTION_FAR} - double{DISTORTION_NEAR}));

// What a pixel's ray is blended of, added up.
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
