// Twin of math/compact.rs: numbers in 16 and 8 bits with stochastic rounding, which is unbiased: the probability of
// rounding up is the part that is cut off.
//
// Each encoder scales a float so that single precision becomes denormal where the code does. The code, including its
// denormal numbers, is then the upper bits of the float, and rounding is the addition of random bits below. The upper
// bits of the 32 of `random` count; half of the range rounds to nearest.
#pragma once

#include <cmath>
#include <cstdint>

#include "fast.cuh"

// Rounds to nearest.
constexpr uint32_t NEAREST = 0x80000000u;

constexpr uint32_t SIGN = 0x80000000u;

// Largest number in 16 bits.
constexpr float HALF_MAX = 65504.0f;

// Largest share of the scale that an 8-bit code holds.
constexpr float CODE_MAX = 0.9375f;

// Factor between a scale and the largest possible value.
constexpr float CODE_MARGIN = 1.0f / CODE_MAX;

// Factors from the formats' exponents to those of single precision, and back; for first moments, from those of half
// precision.
constexpr float HALF_DOWN = 0x1p-112f;
constexpr float FIRST_DOWN = 0x1p-111f;
constexpr float FIRST_UP = 0.5f;
constexpr float SECOND_DOWN = 0x1p-95f;
constexpr float SECOND_UP = 0x1p95f;

// Returns the next random word of one Gaussian in one step. A linear congruential generator: the upper bits suffice for
// rounding, and a word costs one multiplication.
__device__ inline uint32_t roll(uint32_t& dice) { return dice = dice * 1664525u + 1013904223u; }

// Returns the bits of `a` where `mask` is set, else of `b`, in one instruction that the compiler would not find.
__device__ inline uint32_t bits_of_either(uint32_t a, uint32_t b, uint32_t mask) {
    constexpr uint32_t SELECT = 0xe2;  // a where mask, else b
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(out) : "r"(a), "r"(mask), "r"(b), "n"(SELECT));
    return out;
}

// Combines the sign bit of `sign` with the other bits of `size`.
__device__ inline uint32_t signed_bits(float sign, uint32_t size) {
    return bits_of_either(__float_as_uint(sign), size, SIGN);
}

// Returns the code of `encode_half` with the cut-off bits below, for callers that only read the code.
__device__ inline uint32_t half_bits(float value, uint32_t random) {
    const float size = fminf(fabsf(value) * HALF_DOWN, 0x1p-96f);
    return signed_bits(value, (__float_as_uint(size) + (random >> 19)) << 3);
}

// Encodes IEEE half precision in the upper 16 bits; overflow and NaN become infinite.
__device__ inline uint32_t encode_half(float value, uint32_t random) {
    return half_bits(value, random) & 0xffff0000u;
}

// Decodes the lower or upper half of a word.
__device__ inline float decode_half(uint32_t word, uint32_t upper) {
    float value;
    const uint16_t half = static_cast<uint16_t>(upper ? word >> 16 : word);
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

// Encodes the upper 16 bits of single precision.
__device__ inline uint32_t encode_bfloat(float value, uint32_t random) {
    const uint32_t bits = __float_as_uint(value);
    return (isnan(value) ? bits : bits + (random >> 16)) & 0xffff0000u;
}

__device__ inline float decode_bfloat(uint32_t word, uint32_t upper) {
    return __uint_as_float(upper ? word & 0xffff0000u : word << 16);
}

// Replaces the lower or upper half of a word by the upper 16 bits of `code`.
__device__ inline uint32_t with_half(uint32_t word, uint32_t upper, uint32_t code) {
    return __byte_perm(word, code, upper ? 0x7610 : 0x3276);
}

// Returns the code of `encode_first` with the cut-off bits below, for a share times `FIRST_DOWN`.
__device__ inline uint32_t first_bits(float lowered, uint32_t random) {
    const float size = fminf(fabsf(lowered), CODE_MAX * FIRST_DOWN);
    return signed_bits(lowered, (__float_as_uint(size) + (random >> 12)) << 4);
}

// Encodes a share in +-`CODE_MAX` in the upper 8 bits: sign, 4 exponent bits and 3 mantissa bits; normal down to 2^-15,
// denormal to 2^-18.
__device__ inline uint32_t encode_first(float share, uint32_t random) {
    return first_bits(share * FIRST_DOWN, random) & 0xff000000u;
}

// Returns the code of byte `at` of a word as a half-precision number, which `FIRST_UP` scales to a share. Both bytes of
// a half are converted by the same instructions.
__device__ inline float first_code(uint32_t word, uint32_t at) {
    const uint32_t apart = __byte_perm(word, 0, at < 2 ? 0x1404 : 0x3424);
    return decode_half(bits_of_either(apart, apart >> 1 & 0x3f803f80u, 0x80008000u), at % 2);
}

// Decodes byte `at` of a word.
__device__ inline float decode_first(uint32_t word, uint32_t at) {
    return first_code(word, at) * FIRST_UP;
}

// Returns the code of `encode_second` with the cut-off bits below, for a share times `SECOND_DOWN`. Unlike there, 0
// becomes the least code.
__device__ inline uint32_t second_bits(float lowered, uint32_t random) {
    constexpr uint32_t LEAST = 1u << 20;
    const float size = fminf(lowered, CODE_MAX * SECOND_DOWN);
    return max(__float_as_uint(size) + (random >> 12), LEAST) << 4;
}

// Encodes a share in 0..`CODE_MAX` in the upper 8 bits: 5 exponent bits and 3 mantissa bits; normal down to 2^-31,
// denormal to 2^-34. Only 0 becomes 0: a division by the root of a second moment that was rounded to 0 would overshoot.
__device__ inline uint32_t encode_second(float share, uint32_t random) {
    return share > 0.0f ? second_bits(share * SECOND_DOWN, random) & 0xff000000u : 0;
}

// Returns the code of byte `at` of a word as a number that `SECOND_UP` scales to a share.
__device__ inline float second_code(uint32_t word, uint32_t at) {
    return __uint_as_float((word >> (8 * at) & 0xffu) << 20);
}

__device__ inline float decode_second(uint32_t word, uint32_t at) {
    return second_code(word, at) * SECOND_UP;
}

// Replaces byte `at` of a word by the upper 8 bits of `code`. Loops over `at` must be unrolled: with a selector in a
// register, ptxas 13.0 drops all bits of the code but the sign.
__device__ inline uint32_t with_byte(uint32_t word, uint32_t at, uint32_t code) {
    return __byte_perm(word, code, 0x3210u + ((7 - at) << 4 * at));
}

// Rounds a scale to 20 bits, so that its product with a code is exact; denormal scales become 0.
__device__ inline float rounded_scale(float scale) {
    const float rounded = __uint_as_float((__float_as_uint(scale) + 8) & ~15u);
    return rounded < 0x1p-126f ? 0.0f : rounded;
}

// Returns 1 / scale; 0 for 0.
__device__ inline float inverse_scale(float scale) {
    return scale > 0.0f ? __fdiv_rn(1.0f, scale) : 0.0f;
}

// Bound of |m| / sqrt(v) of Adam before bias correction (Cauchy and Schwarz):
// (1 - beta_1) sum of beta_1^i |g_i| against sqrt((1 - beta_2) sum of beta_2^i g_i^2) is at most
// (1 - beta_1) / sqrt((1 - beta_2) (1 - beta_1^2 / beta_2)), which is 7.2703 for 0.9 and 0.999. Quotients of 8-bit
// moments are clamped to the bound, so that rounding causes no step that gradients could not.
constexpr float QUOTIENT_MAX = 7.2704f;

// Unit of `held_quotient`.
constexpr float HELD_UNIT = 2.0f * QUOTIENT_MAX;

// Returns m / sqrt(v), clamped to +-`QUOTIENT_MAX`, in units of `HELD_UNIT`: saturation to 0..1 clamps for free. Roots
// below 1e-15 count as 1e-15.
__device__ inline float held_quotient(float first, float second) {
    constexpr float SQUARE = HELD_UNIT * HELD_UNIT, LEAST = 1e-30f * SQUARE;
    const float inverse = fast_inverse_root(fmaf(second, SQUARE, LEAST));
    return fast_saturated(first, inverse, 0.5f) - 0.5f;
}
