// Twin of math/compact.rs: numbers in 16 and 8 bits, rounded at random so that on
// average nothing is lost: up with the probability of what would be cut off.
//
// Each encoder is a float whose exponent is brought down to where single precision itself runs out of
// normal numbers at the same place as the code: then the code, its denormal numbers included, is the
// upper bits of the float, and rounding is the addition of random bits below them. `random` is 32 bits
// of which the upper count; half of the range rounds to the nearest.
#pragma once

#include <cmath>
#include <cstdint>

// Rounds to the nearest.
constexpr uint32_t NEAREST = 0x80000000u;

constexpr uint32_t SIGN = 0x80000000u;

// Largest number of 16 bits.
constexpr float HALF_MAX = 65504.0f;

// Largest share of its scale that a code of 8 bits holds.
constexpr float CODE_MAX = 0.9375f;

// A scale is so many times the largest that can come.
constexpr float CODE_MARGIN = 1.0f / CODE_MAX;

// From where the formats' exponents lie to where those of single precision do, and back.
constexpr float HALF_DOWN = 0x1p-112f;
constexpr float FIRST_DOWN = 0x1p-111f;
constexpr float FIRST_UP = 0x1p111f;
constexpr float SECOND_DOWN = 0x1p-95f;
constexpr float SECOND_UP = 0x1p95f;

// The next random word of one Gaussian in one step, whose first is all its own. A linear congruence:
// the upper bits are good enough for rounding, and a word costs a multiplication.
__device__ inline uint32_t roll(uint32_t& dice) { return dice = dice * 1664525u + 1013904223u; }

// The bits of `sign` and `size`, the upper 31 of which lie below the sign.
__device__ inline uint32_t signed_bits(float sign, uint32_t size) {
    return (__float_as_uint(sign) & SIGN) | (size & ~SIGN);
}

// IEEE half precision in the upper 16 bits; what is too large, or no number, becomes infinite.
__device__ inline uint32_t encode_half(float value, uint32_t random) {
    const float size = fminf(fabsf(value) * HALF_DOWN, 0x1p-96f);
    return signed_bits(value, (__float_as_uint(size) + (random >> 19)) << 3) & 0xffff0000u;
}

// Of the lower half of a word, or the upper.
__device__ inline float decode_half(uint32_t word, uint32_t upper) {
    float value;
    const uint16_t half = static_cast<uint16_t>(upper ? word >> 16 : word);
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

// The upper 16 bits of single precision.
__device__ inline uint32_t encode_bfloat(float value, uint32_t random) {
    const uint32_t bits = __float_as_uint(value);
    return (isnan(value) ? bits : bits + (random >> 16)) & 0xffff0000u;
}

__device__ inline float decode_bfloat(uint32_t word, uint32_t upper) {
    return __uint_as_float(upper ? word & 0xffff0000u : word << 16);
}

// The lower half of a word, or the upper, becomes the upper 16 bits of `code`.
__device__ inline uint32_t with_half(uint32_t word, uint32_t upper, uint32_t code) {
    return __byte_perm(word, code, upper ? 0x7610 : 0x3276);
}

// A share of at most `CODE_MAX` either way, in the upper 8 bits: sign, 4 bits of exponent and 3 of
// mantissa; down to 2^-15 normal, to 2^-18 at all.
__device__ inline uint32_t encode_first(float share, uint32_t random) {
    const float size = fminf(fabsf(share), CODE_MAX) * FIRST_DOWN;
    return signed_bits(share, (__float_as_uint(size) + (random >> 12)) << 4) & 0xff000000u;
}

// Of byte `at` of a word.
__device__ inline float decode_first(uint32_t word, uint32_t at) {
    const int32_t upper = static_cast<int32_t>(word << (24 - 8 * at));
    return __uint_as_float(static_cast<uint32_t>(upper >> 4) & 0x87f00000u) * FIRST_UP;
}

// A share from 0 to `CODE_MAX` in the upper 8 bits: 5 bits of exponent and 3 of mantissa; down to
// 2^-31 normal, to 2^-34 at all. Only 0 becomes 0: a quotient by the root of a second moment that was
// rounded away would be far too large.
__device__ inline uint32_t encode_second(float share, uint32_t random) {
    const float size = fminf(share, CODE_MAX);
    const uint32_t least = min(__float_as_uint(size), 1u) << 20;
    return (max(__float_as_uint(size * SECOND_DOWN) + (random >> 12), least) << 4) & 0xff000000u;
}

__device__ inline float decode_second(uint32_t word, uint32_t at) {
    return __uint_as_float((word >> (8 * at) & 0xffu) << 20) * SECOND_UP;
}

// Byte `at` of a word becomes the upper 8 bits of `code`. Where `at` runs, its loop is to be unrolled:
// of codes that go through a selector in a register, ptxas 13.0 drops all but the sign.
__device__ inline uint32_t with_byte(uint32_t word, uint32_t at, uint32_t code) {
    return __byte_perm(word, code, 0x3210u + ((7 - at) << 4 * at));
}

// A scale to 20 bits, so that its product with a code is exact; what is denormal becomes 0.
__device__ inline float rounded_scale(float scale) {
    const float rounded = __uint_as_float((__float_as_uint(scale) + 8) & ~15u);
    return rounded < 0x1p-126f ? 0.0f : rounded;
}

// 1 / scale; 0 of none.
__device__ inline float inverse_scale(float scale) {
    return scale > 0.0f ? __fdiv_rn(1.0f, scale) : 0.0f;
}

// What no |m| / sqrt(v) of Adam can exceed before bias correction (Cauchy and Schwarz):
// (1 - beta_1) sum of beta_1^i |g_i| against sqrt((1 - beta_2) sum of beta_2^i g_i^2) is at most
// (1 - beta_1) / sqrt((1 - beta_2) (1 - beta_1^2 / beta_2)), which is 7.2703 for 0.9 and 0.999. Moments
// of 8 bits are held to it: rounding must not make a step that no gradients could.
constexpr float QUOTIENT_MAX = 7.2704f;

__device__ inline float clamp_first_moment(float first, float root) {
    const float most = QUOTIENT_MAX * root;
    return fminf(fmaxf(first, -most), most);
}
