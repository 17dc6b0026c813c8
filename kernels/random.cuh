// Twin of crates/mesh/src/random.rs: numbers addressed by (key of the stream, index).
#pragma once

#include "abi.cuh"
#include "linalg.cuh"

__device__ inline uint64_t mix(uint64_t word) {
    word += 0x9e3779b97f4a7c15ull;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
    return word ^ (word >> 31);
}

__device__ inline uint64_t random_bits(uint64_t key, uint64_t index) {
    return mix(key ^ mix(index));
}

__device__ inline double random_uniform(uint64_t key, uint64_t index) {
    return static_cast<double>(random_bits(key, index) >> 11) * (1.0 / 9007199254740992.0);
}

// cospi removes whole turns exactly, where cos would need a table in local memory. The difference is the rounding of
// 2 pi u: below 1e-15.
__device__ inline double random_normal(uint64_t key, uint64_t index) {
    const double radius = sqrt(-2.0 * log(1.0 - random_uniform(key, 2 * index)));
    return radius * cospi(2.0 * random_uniform(key, 2 * index + 1));
}

// Twin of math/relocate.rs: random motion of nearly transparent Gaussians (Kheradmand et al. 2024, section 4.1).

// Returns two independent standard normal numbers from 64 random bits. sincospi removes whole turns exactly.
__device__ inline float2 normal_pair(uint64_t bits) {
    constexpr float UNIT = 1.0f / 4294967296.0f;
    // Never 0, whose logarithm is infinite.
    const float first = (static_cast<float>(static_cast<uint32_t>(bits >> 32)) + 0.5f) * UNIT;
    const float second = static_cast<float>(static_cast<uint32_t>(bits)) * UNIT;
    const float radius = sqrtf(-2.0f * logf(first));
    float sine, cosine;
    sincospif(2.0f * second, &sine, &cosine);
    return {radius * cosine, radius * sine};
}

__device__ inline float3 standard_normals(uint64_t key, uint64_t index) {
    const float2 first = normal_pair(random_bits(key, 2 * index));
    const float2 second = normal_pair(random_bits(key, 2 * index + 1));
    return {first.x, first.y, second.x};
}

// Returns the motion of a Gaussian of this shape and opacity, in units of the motion's rate.
__device__ inline float3 jitter(float3 log_scale, Quat quat, float opacity, float3 normals) {
    const float gate = sigmoid(-100.0f * (opacity - 0.005f));
    const Mat3 turn = rotation(quat);
    const float3 along = mul_transposed(turn, normals);
    const float3 s = {expf(log_scale.x), expf(log_scale.y), expf(log_scale.z)};
    return scale(mul(turn, float3{s.x * s.x * along.x, s.y * s.y * along.y, s.z * s.z * along.z}),
                 gate);
}

// Twin of math/relocate.rs: drawing of Gaussians, and the split of their opacity with copies. In double precision, so
// that both backends draw equally.

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
