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
