// Adam on one value.
#pragma once

#include "compact.cuh"
#include "fast.cuh"
#include "fault.cuh"

// Consecutive values with their moments.
template <uint32_t N>
struct AdamRow {
    float value[N], first[N], second[N];
};

// Finiteness of a group's new values and second moments.
struct FiniteCheck {
    float zero;     // NaN if any is not finite
    float largest;  // infinite if any is
};

// Updates one value: value -= rate m / (sqrt(v) + epsilon), with the bias-corrected moments. Root and quotient are fast
// approximations; their relative error of 3e-7 equals the rounding of the moments. `SHORT` values will be stored in 16
// bits.
template <bool SHORT, class Args, uint32_t N>
__device__ inline void move(const Args& a, AdamRow<N>& c, uint32_t k, float rate, float d,
                            FiniteCheck& health) {
    c.first[k] = a.beta_1 * c.first[k] + a.one_less_beta_1 * d;
    c.second[k] = a.beta_2 * c.second[k] + a.one_less_beta_2 * d * d;
    const float root = fast_sqrt(c.second[k]);
    c.value[k] -= rate * __fdividef(c.first[k], root * a.inverse_root_correction + a.epsilon);
    if (SHORT && fabsf(c.value[k]) > HALF_MAX) c.value[k] = copysignf(INFINITY, c.value[k]);
    const float size = fabsf(c.value[k]) + c.second[k];
    health.zero += 0.0f * size;
    health.largest = fmaxf(health.largest, size);
}

template <class Args>
__device__ inline void report(const Args& a, uint32_t gaussian, uint32_t group, FiniteCheck health) {
    if (health.zero != 0.0f) report_fault(a.fault, gaussian, group, isinf(health.largest));
}
