// How colours that were left behind catch up: exact lazy Adam.
//
// Without a gradient, step t multiplies the moments by beta_1 and beta_2 and moves the value by
// -rate_t m_t / (sqrt(v_t) + epsilon). With r = beta_1 / sqrt(beta_2), after `age` such steps
//     m = beta_1^age m_0,   v = beta_2^age v_0,   value = value_0 - travel[age] m_0 / sqrt(v_0),
// where travel[age] is the sum over the steps of r^j times the bias-corrected rate of step j, which
// the host knows (backend/cuda/model/lazy_adam.rs). r^127 is 2e-6: what was left behind for longer has
// moved by what the first 127 steps gave it, which the model remembers by the step it was left at.
// Epsilon counts once instead of in every step, and beside the root before bias correction: the results
// are those of dense Adam up to rounding where sqrt(v_0) is far above 1e-15.
#pragma once

#include "compact.cuh"
#include "fast.cuh"
#include "layout.cuh"

// What `age` steps without a gradient do.
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
        // Only a lane block that is new can be older than what is remembered, and its moments are zero.
        const float* const drift = drifts + 2 * ((m.steps - age) % DRIFT_STEPS);
        late.drift_dc = drift[0];
        late.drift_rest = drift[1];
    }
    return late;
}

// Remembers how far what was left at one step has moved, before the coming step ends the tables' reach.
// No lane block that is there was left at the step whose place it takes.
__device__ inline void remember_drift(const LazyAdam& m, float* drifts) {
    constexpr uint32_t LAST = MOMENTUM_STEPS - 1;
    // A primitive may have nothing that is left behind.
    if (drifts == nullptr || m.steps < LAST) return;
    float* const drift = drifts + 2 * ((m.steps - LAST) % DRIFT_STEPS);
    drift[0] = m.drift_dc[LAST];
    drift[1] = m.drift_rest[LAST];
}

// Coefficient `k` of a channel moves on. The quotient of moments in 8 bits is `HELD`.
template <bool HELD>
__device__ inline float caught_up(const CatchUp& late, uint32_t k, float value, float first,
                                  float second) {
    constexpr float EPSILON = 1e-15f;  // beside which the root of what is denormal is nothing
    const float drift = k == 0 ? late.drift_dc : late.drift_rest;
    if (HELD) return value - HELD_UNIT * drift * held_quotient(first, second);
    return value - drift * __fdividef(first, fast_sqrt(second) + EPSILON);
}
