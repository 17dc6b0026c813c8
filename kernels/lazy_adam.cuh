// Exact lazy Adam: how deferred colours catch up.
//
// Without a gradient, step t multiplies the moments by beta_1 and beta_2 and moves the value by
// -rate_t m_t / (sqrt(v_t) + epsilon). With r = beta_1 / sqrt(beta_2), after `age` such steps
//     m = beta_1^age m_0,   v = beta_2^age v_0,   value = value_0 - travel[age] m_0 / sqrt(v_0),
// where travel[age] is the sum over the steps of r^j times the bias-corrected rate of step j, which the host computes
// (backend/cuda/model/lazy_adam.rs). r^127 is 2e-6: colours that were deferred for longer have moved by the first 127
// steps only, which the model stores by the step of deferral.
// Epsilon is applied once instead of in every step, and beside the root before bias correction. Results equal those of
// dense Adam up to rounding if sqrt(v_0) is far above 1e-15.
#pragma once

#include "compact.cuh"
#include "fast.cuh"
#include "layout.cuh"

// Effect of `age` steps without a gradient.
struct CatchUp {
    float decay_1, decay_2;
    float drift_dc, drift_rest;
};

__device__ inline CatchUp catch_up_of(const LazyAdam& m, const float* drifts, uint32_t age) {
    const float steps = static_cast<float>(age);
    CatchUp late = {exp2f(m.log2_beta_1 * steps), exp2f(m.log2_beta_2 * steps), 0.0f, 0.0f};
    if (age < MOMENTUM_STEPS) {
        late.drift_dc = m.drift_dc[age];
        late.drift_rest = m.drift_rest[age];
    } else {
        // Only a new lane block can be older than the stored steps, and its moments are zero.
        const float* const drift = drifts + 2 * ((m.steps - age) % DRIFT_STEPS);
        late.drift_dc = drift[0];
        late.drift_rest = drift[1];
    }
    return late;
}

// Stores the drift of colours deferred at one step, before the step leaves the range of the tables. No existing lane
// block was deferred at the step that is overwritten.
__device__ inline void remember_drift(const LazyAdam& m, float* drifts) {
    constexpr uint32_t LAST = MOMENTUM_STEPS - 1;
    // A primitive may have no deferred values.
    if (drifts == nullptr || m.steps < LAST) return;
    float* const drift = drifts + 2 * ((m.steps - LAST) % DRIFT_STEPS);
    drift[0] = m.drift_dc[LAST];
    drift[1] = m.drift_rest[LAST];
}

// Catches up coefficient `k` of a channel. `HELD` clamps the quotient of 8-bit moments.
template <bool HELD>
__device__ inline float caught_up(const CatchUp& late, uint32_t k, float value, float first,
                                  float second) {
    constexpr float EPSILON = 1e-15f;  // dominates the root of a denormal moment
    const float drift = k == 0 ? late.drift_dc : late.drift_rest;
    if (HELD) return value - HELD_UNIT * drift * held_quotient(first, second);
    return value - drift * __fdividef(first, fast_sqrt(second) + EPSILON);
}
