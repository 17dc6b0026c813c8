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

#include "fast.cuh"

// Rounds to the nearest.
constexpr uint32_t NEAREST = 0x80000000u;

constexpr uint32_t SIGN = 0x80000000u;

// Largest number of 16 bits.
constexpr float HALF_MAX = 65504.0f;

// Largest share of its scale that a code of 8 bits holds.
constexpr float CODE_MAX = 0.9375f;

// A scale is so many times the largest that can come.
constexpr float CODE_MARGIN = 1.0f / CODE_MAX;

// From where the formats' exponents lie to where those of single precision do, and back; of first moments, from
// where those of half precision do.
constexpr float HALF_DOWN = 0x1p-112f;
constexpr float FIRST_DOWN = 0x1p-111f;
constexpr float FIRST_UP = 0.5f;
constexpr float SECOND_DOWN = 0x1p-95f;
constexpr float SECOND_UP = 0x1p95f;

// The next random word of one Gaussian in one step, whose first is all its own. A linear congruence:
// the upper bits are good enough for rounding, and a word costs a multiplication.
__device__ inline uint32_t roll(uint32_t& dice) { return dice = dice * 1664525u + 1013904223u; }

// The bits of `a` where those of `mask` are set, and of `b` elsewhere: one instruction, which the compiler would
// take apart.
__device__ inline uint32_t bits_of_either(uint32_t a, uint32_t b, uint32_t mask) {
    constexpr uint32_t SELECT = 0xe2;  // a where mask, else b
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(out) : "r"(a), "r"(mask), "r"(b), "n"(SELECT));
    return out;
}

// The bits of `sign` and `size`, the upper 31 of which lie below the sign.
__device__ inline uint32_t signed_bits(float sign, uint32_t size) {
    return bits_of_either(__float_as_uint(sign), size, SIGN);
}

// The code of `encode_half` with what it cuts off still below, for those who look at the code alone.
__device__ inline uint32_t half_bits(float value, uint32_t random) {
    const float size = fminf(fabsf(value) * HALF_DOWN, 0x1p-96f);
    return signed_bits(value, (__float_as_uint(size) + (random >> 19)) << 3);
}

// IEEE half precision in the upper 16 bits; what is too large, or no number, becomes infinite.
__device__ inline uint32_t encode_half(float value, uint32_t random) {
    return half_bits(value, random) & 0xffff0000u;
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

// The code of `encode_first` with what it cuts off still below, of a share times `FIRST_DOWN`.
__device__ inline uint32_t first_bits(float lowered, uint32_t random) {
    const float size = fminf(fabsf(lowered), CODE_MAX * FIRST_DOWN);
    return signed_bits(lowered, (__float_as_uint(size) + (random >> 12)) << 4);
}

// A share of at most `CODE_MAX` either way, in the upper 8 bits: sign, 4 bits of exponent and 3 of
// mantissa; down to 2^-15 normal, to 2^-18 at all.
__device__ inline uint32_t encode_first(float share, uint32_t random) {
    return first_bits(share * FIRST_DOWN, random) & 0xff000000u;
}

// The code of byte `at` of a word as a number of half precision, which `FIRST_UP` makes a share. Of the two
// bytes of either half of a word it is made in the same instructions.
__device__ inline float first_code(uint32_t word, uint32_t at) {
    const uint32_t apart = __byte_perm(word, 0, at < 2 ? 0x1404 : 0x3424);
    return decode_half(bits_of_either(apart, apart >> 1 & 0x3f803f80u, 0x80008000u), at % 2);
}

// Of byte `at` of a word.
__device__ inline float decode_first(uint32_t word, uint32_t at) {
    return first_code(word, at) * FIRST_UP;
}

// The code of `encode_second` with what it cuts off still below, of a share times `SECOND_DOWN`, but that 0 has
// the least code, too.
__device__ inline uint32_t second_bits(float lowered, uint32_t random) {
    constexpr uint32_t LEAST = 1u << 20;
    const float size = fminf(lowered, CODE_MAX * SECOND_DOWN);
    return max(__float_as_uint(size) + (random >> 12), LEAST) << 4;
}

// A share from 0 to `CODE_MAX` in the upper 8 bits: 5 bits of exponent and 3 of mantissa; down to
// 2^-31 normal, to 2^-34 at all. Only 0 becomes 0: a quotient by the root of a second moment that was
// rounded away would be far too large.
__device__ inline uint32_t encode_second(float share, uint32_t random) {
    return share > 0.0f ? second_bits(share * SECOND_DOWN, random) & 0xff000000u : 0;
}

// The code of byte `at` of a word as a number that `SECOND_UP` makes a share.
__device__ inline float second_code(uint32_t word, uint32_t at) {
    return __uint_as_float((word >> (8 * at) & 0xffu) << 20);
}

__device__ inline float decode_second(uint32_t word, uint32_t at) {
    return second_code(word, at) * SECOND_UP;
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

// The unit of `held_quotient`.
constexpr float HELD_UNIT = 2.0f * QUOTIENT_MAX;

// m / sqrt(v), held to `QUOTIENT_MAX` either way, in units of `HELD_UNIT`: a sum that saturates at 0 and 1 holds
// it at no cost. A root below 1e-15 counts as that.
__device__ inline float held_quotient(float first, float second) {
    constexpr float SQUARE = HELD_UNIT * HELD_UNIT, LEAST = 1e-30f * SQUARE;
    const float inverse = fast_inverse_root(fmaf(second, SQUARE, LEAST));
    return fast_saturated(first, inverse, 0.5f) - 0.5f;
}
