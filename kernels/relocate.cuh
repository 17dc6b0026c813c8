// Twin of math/relocate.rs: drawing of Gaussians, and the split of their opacity with copies. In double precision, so
// that both backends draw equally.
#pragma once

#include "random.cuh"

// Largest number of Gaussians that share one opacity.
constexpr uint32_t SHARES_MAX = 51;

// Largest opacity in computations: 1 minus the epsilon of single precision.
constexpr double OPACITY_MAX = 1.0 - 1.0 / 8388608.0;

__device__ inline double exact_opacity(double logit) { return 1.0 / (1.0 + exp(-logit)); }

// NaN is dead.
__device__ inline bool is_dead(double logit, double opacity_min) {
    return !(exact_opacity(logit) > opacity_min);
}

// The opacity in 65,536ths.
__device__ inline uint64_t draw_weight(double logit) {
    const double opacity = exact_opacity(logit);
    return opacity > 0.0 ? static_cast<uint64_t>(opacity * 65536.0) : 0;
}

// Returns a random number below `total`, which is not 0.
__device__ inline uint64_t draw_place(uint64_t bits, uint64_t total) {
    return __umul64hi(bits, total);
}

// Opacity logit and change of log-scale of each Gaussian after a split.
struct Share {
    double logit, log_growth;
};

__device__ inline Share share_of(double logit, uint32_t copies, double opacity_min) {
    const uint32_t shares = min(copies, SHARES_MAX - 1) + 1;
    const double n = shares;
    const double whole = fmin(exact_opacity(logit), OPACITY_MAX);
    const double part = -expm1(log1p(-whole) / n);
    double term = -1.0, sum = 0.0;
    for (uint32_t i = 1; i <= shares; ++i) {
        const double k = i;
        term *= -part * ((n - k + 1.0) / k);
        sum += term / sqrt(k);
    }
    const double held = fmin(fmax(part, opacity_min), OPACITY_MAX);
    return {log(held / (1.0 - held)), log(whole / sum)};
}
