// Twin of crates/mesh/src/random.rs: numbers addressed by (key of the stream, index).
#pragma once

#include "abi.cuh"

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
