// The thread's Gaussian on its way through Adam's registers, from either storage and back. All of a
// piece is loaded before any of it is stored, so that enough loads are under way to fill the memory's
// pipe.
#pragma once

#include "lazy_adam.cuh"
#include "moved_sh.cuh"
#include "random.cuh"
#include "sh.cuh"
#include "state.cuh"

// The first random word of a Gaussian.
__device__ inline uint32_t rounding_seed(uint64_t key, uint32_t gaussian) {
    return static_cast<uint32_t>(random_bits(key, gaussian) >> 32);
}

// Bound of the absolute gradients of a Gaussian's SH that one view gives.
__device__ inline float largest_gradient(const float (&basis)[SH_MAX_COEFFICIENTS],
                                         float3 d_color) {
    float largest = 0.0f;
#pragma unroll
    for (float b : basis) largest = fmaxf(largest, fabsf(b));
    return largest * fmaxf(fabsf(d_color.x), fmaxf(fabsf(d_color.y), fabsf(d_color.z)));
}

// Neighbouring values with their moments.
template <uint32_t N>
struct AdamRow {
    float value[N], first[N], second[N];
};

// SH in full precision, `COEFFICIENTS` per channel at a time.
template <uint32_t COEFFICIENTS>
struct FullSh {
    static constexpr bool CACHED = false;
    static constexpr bool SHORT = false;
    static constexpr uint32_t AT_ONCE = COEFFICIENTS;

    Row<float> value, first, second;
    AdamRow<3 * AT_ONCE> c;

    __device__ FullSh(const AdamTables& t, uint32_t gaussian, uint32_t)
        : value(row_of<float>(t.values, gaussian, t.width)),
          first(row_of<float>(t.first, gaussian, t.width)),
          second(row_of<float>(t.second, gaussian, t.width)) {}

    __device__ void rescale(const AdamArgs&, const CatchUp&, float) {}
    __device__ void decay_scales(const CatchUp&) {}
    __device__ void store_scales() const {}

    __device__ void load(uint32_t from, uint32_t count) {
#pragma unroll
        for (uint32_t k = 0; k < 3 * AT_ONCE; ++k) {
            if (k >= count) continue;
            c.value[k] = value[from + k];
            c.first[k] = first[from + k];
            c.second[k] = second[from + k];
        }
    }

    __device__ void store(uint32_t from, uint32_t count) const {
#pragma unroll
        for (uint32_t k = 0; k < 3 * AT_ONCE; ++k) {
            if (k >= count) continue;
            value[from + k] = c.value[k];
            first[from + k] = c.first[k];
            second[from + k] = c.second[k];
        }
    }

    // Coefficient `i` of those loaded.
    __device__ AdamRow<3> get(uint32_t i) const {
        AdamRow<3> one;
        for (uint32_t j = 0; j < 3; ++j) {
            one.value[j] = c.value[3 * i + j];
            one.first[j] = c.first[3 * i + j];
            one.second[j] = c.second[3 * i + j];
        }
        return one;
    }

    __device__ void put(uint32_t i, const AdamRow<3>& one) {
        for (uint32_t j = 0; j < 3; ++j) {
            c.value[3 * i + j] = one.value[j];
            c.first[3 * i + j] = one.first[j];
            c.second[3 * i + j] = one.second[j];
        }
    }

    __device__ void put_late(uint32_t i, const AdamRow<3>& one) { put(i, one); }
    __device__ void store_late(uint32_t from, uint32_t count) const { store(from, count); }
};

// SH in 16 bits with moments in single precision.
template <uint32_t COEFFICIENTS>
struct HalfSh {
    static constexpr bool CACHED = false;
    static constexpr bool SHORT = true;
    static constexpr uint32_t AT_ONCE = COEFFICIENTS;
    static constexpr uint32_t VALUES = 3 * AT_ONCE, HALVES = VALUES / 2;
    static_assert(AT_ONCE % 2 == 0, "whole words");

    Row<uint32_t> value;
    Row<float> first, second;
    uint32_t values[HALVES];
    float firsts[VALUES], seconds[VALUES];
    uint32_t dice;

    __device__ HalfSh(const AdamTables& t, uint32_t gaussian, uint32_t seed)
        : value(row_of<uint32_t>(t.values, gaussian, HalfColors::sh_words(t.width))),
          first(row_of<float>(t.first, gaussian, t.width)),
          second(row_of<float>(t.second, gaussian, t.width)),
          dice(seed) {}

    __device__ void rescale(const AdamArgs&, const CatchUp&, float) {}
    __device__ void decay_scales(const CatchUp&) {}
    __device__ void store_scales() const {}

    __device__ void load(uint32_t from, uint32_t count) {
#pragma unroll
        for (uint32_t w = 0; w < HALVES; ++w) {
            if (2 * w < count) values[w] = value[from / 2 + w];
        }
#pragma unroll
        for (uint32_t k = 0; k < VALUES; ++k) {
            if (k >= count) continue;
            firsts[k] = first[from + k];
            seconds[k] = second[from + k];
        }
    }

    __device__ void store(uint32_t from, uint32_t count) const {
#pragma unroll
        for (uint32_t w = 0; w < HALVES; ++w) {
            if (2 * w < count) value[from / 2 + w] = values[w];
        }
#pragma unroll
        for (uint32_t k = 0; k < VALUES; ++k) {
            if (k >= count) continue;
            first[from + k] = firsts[k];
            second[from + k] = seconds[k];
        }
    }

    __device__ AdamRow<3> get(uint32_t i) const {
        AdamRow<3> one;
#pragma unroll
        for (uint32_t j = 0; j < 3; ++j) {
            const uint32_t k = 3 * i + j;
            one.value[j] = decode_half(values[k / 2], k % 2);
            one.first[j] = firsts[k];
            one.second[j] = seconds[k];
        }
        return one;
    }

    __device__ void put(uint32_t i, const AdamRow<3>& one) {
#pragma unroll
        for (uint32_t j = 0; j < 3; ++j) {
            const uint32_t k = 3 * i + j;
            const uint32_t half = encode_half(one.value[j], roll(dice));
            values[k / 2] = with_half(values[k / 2], k % 2, half);
            firsts[k] = one.first[j];
            seconds[k] = one.second[j];
        }
    }

    __device__ void put_late(uint32_t i, const AdamRow<3>& one) { put(i, one); }
    __device__ void store_late(uint32_t from, uint32_t count) const { store(from, count); }
};

// SH in 16 bits with moments in 8. The scales are known before the values are: no gradient of a
// coefficient exceeds the largest basis times the largest gradient of a channel, and what bounds the
// gradients bounds the moments, being decayed and added up as they are. So a step without a gradient
// changes the scales and no code.
template <uint32_t COEFFICIENTS>
struct CompactSh {
    static constexpr bool CACHED = true;
    static constexpr bool SHORT = true;
    static constexpr uint32_t AT_ONCE = COEFFICIENTS;
    static constexpr uint32_t HALVES = 3 * AT_ONCE / 2, CODES = 3 * AT_ONCE / 4;
    static_assert(AT_ONCE % 4 == 0, "whole words");

    Row<uint32_t> value, first, second;
    uint32_t values[HALVES], firsts[CODES], seconds[CODES];
    // As they were, and as they will be.
    float first_scale, second_scale, next_first_scale, next_second_scale;
    float first_inverse, second_inverse;
    uint32_t dice;

    __device__ CompactSh(const AdamTables& t, uint32_t gaussian, uint32_t seed)
        : value(row_of<uint32_t>(t.values, gaussian, Compact::sh_words(t.width))),
          first(row_of<uint32_t>(t.first, gaussian, Compact::moment_words(t.width))),
          second(row_of<uint32_t>(t.second, gaussian, Compact::moment_words(t.width))),
          dice(seed) {
        first_scale = __uint_as_float(first[0]);
        second_scale = __uint_as_float(second[0]);
    }

    // `largest` bounds the absolute gradients of the coefficients.
    __device__ void rescale(const AdamArgs& a, const CatchUp& late, float largest) {
        const float more = CODE_MARGIN * largest;
        next_first_scale = rounded_scale(a.beta_1 * (first_scale * late.decay_1) +
                                         a.one_less_beta_1 * more);
        next_second_scale = rounded_scale(a.beta_2 * (second_scale * late.decay_2) +
                                          a.one_less_beta_2 * more * largest);
        first_inverse = inverse_scale(next_first_scale);
        second_inverse = inverse_scale(next_second_scale);
    }

    __device__ void decay_scales(const CatchUp& late) {
        next_first_scale = rounded_scale(first_scale * late.decay_1);
        next_second_scale = rounded_scale(second_scale * late.decay_2);
    }

    __device__ void store_scales() const {
        first[0] = __float_as_uint(next_first_scale);
        second[0] = __float_as_uint(next_second_scale);
    }

    __device__ void load(uint32_t from, uint32_t count) {
#pragma unroll
        for (uint32_t w = 0; w < HALVES; ++w) {
            if (2 * w < count) values[w] = value[from / 2 + w];
        }
#pragma unroll
        for (uint32_t w = 0; w < CODES; ++w) {
            if (4 * w >= count) continue;
            firsts[w] = first[1 + from / 4 + w];
            seconds[w] = second[1 + from / 4 + w];
        }
    }

    __device__ void store_late(uint32_t from, uint32_t count) const {
#pragma unroll
        for (uint32_t w = 0; w < HALVES; ++w) {
            if (2 * w < count) value[from / 2 + w] = values[w];
        }
    }

    __device__ void store(uint32_t from, uint32_t count) const {
        store_late(from, count);
#pragma unroll
        for (uint32_t w = 0; w < CODES; ++w) {
            if (4 * w >= count) continue;
            first[1 + from / 4 + w] = firsts[w];
            second[1 + from / 4 + w] = seconds[w];
        }
    }

    __device__ AdamRow<3> get(uint32_t i) const {
        AdamRow<3> one;
#pragma unroll
        for (uint32_t j = 0; j < 3; ++j) {
            const uint32_t k = 3 * i + j;
            one.value[j] = decode_half(values[k / 2], k % 2);
            one.first[j] = decode_first(firsts[k / 4], k % 4) * first_scale;
            one.second[j] = decode_second(seconds[k / 4], k % 4) * second_scale;
        }
        return one;
    }

    // One random word rounds a value and its first moment: by bits that have little in common.
    __device__ void put(uint32_t i, const AdamRow<3>& one) {
#pragma unroll
        for (uint32_t j = 0; j < 3; ++j) {
            const uint32_t k = 3 * i + j;
            const uint32_t random = roll(dice);
            const uint32_t half = encode_half(one.value[j], random << 13);
            values[k / 2] = with_half(values[k / 2], k % 2, half);
            const uint32_t of_first = encode_first(one.first[j] * first_inverse, random);
            firsts[k / 4] = with_byte(firsts[k / 4], k % 4, of_first);
            const uint32_t of_second = encode_second(one.second[j] * second_inverse, roll(dice));
            seconds[k / 4] = with_byte(seconds[k / 4], k % 4, of_second);
        }
    }

    // Moments that only decay keep their codes.
    __device__ void put_late(uint32_t i, const AdamRow<3>& one) {
#pragma unroll
        for (uint32_t j = 0; j < 3; ++j) {
            const uint32_t k = 3 * i + j;
            const uint32_t half = encode_half(one.value[j], roll(dice));
            values[k / 2] = with_half(values[k / 2], k % 2, half);
        }
    }
};

// Values of the first table in full precision, `WIDTH` per row.
template <uint32_t WIDTH>
struct FullRow {
    Row<float> value, first, second;

    __device__ FullRow(const AdamArgs& a, uint32_t row)
        : value{a.geometry + lane_block(row, WIDTH)},
          first(row_of<float>(a.geometry_first, row, WIDTH)),
          second{a.geometry_second + lane_block(row, WIDTH)} {}

    __device__ AdamRow<WIDTH> load() const {
        AdamRow<WIDTH> g;
#pragma unroll
        for (uint32_t k = 0; k < WIDTH; ++k) {
            g.value[k] = value[k];
            g.first[k] = first[k];
            g.second[k] = second[k];
        }
        return g;
    }

    __device__ void store(const AdamRow<WIDTH>& g, uint32_t) const {
#pragma unroll
        for (uint32_t k = 0; k < WIDTH; ++k) {
            value[k] = g.value[k];
            first[k] = g.first[k];
            second[k] = g.second[k];
        }
    }
};

using FullGeometry = FullRow<GEOMETRY_WIDTH>;

// First moments in 16 bits.
struct CompactGeometry {
    static constexpr uint32_t FIRST_WORDS = (GEOMETRY_WIDTH + 1) / 2;

    Row<float> value, second;
    Row<uint32_t> first;

    __device__ CompactGeometry(const AdamArgs& a, uint32_t gaussian)
        : value{a.geometry + lane_block(gaussian, GEOMETRY_WIDTH)},
          second{a.geometry_second + lane_block(gaussian, GEOMETRY_WIDTH)},
          first(row_of<uint32_t>(a.geometry_first, gaussian, FIRST_WORDS)) {}

    __device__ AdamRow<GEOMETRY_WIDTH> load() const {
        AdamRow<GEOMETRY_WIDTH> g;
        uint32_t words[FIRST_WORDS];
#pragma unroll
        for (uint32_t k = 0; k < FIRST_WORDS; ++k) words[k] = first[k];
#pragma unroll
        for (uint32_t k = 0; k < GEOMETRY_WIDTH; ++k) {
            g.value[k] = value[k];
            g.first[k] = decode_bfloat(words[k / 2], k % 2);
            g.second[k] = second[k];
        }
        return g;
    }

    __device__ void store(const AdamRow<GEOMETRY_WIDTH>& g, uint32_t dice) const {
        uint32_t words[FIRST_WORDS] = {};
#pragma unroll
        for (uint32_t k = 0; k < GEOMETRY_WIDTH; ++k) {
            const uint32_t code = encode_bfloat(g.first[k], roll(dice));
            words[k / 2] = with_half(words[k / 2], k % 2, code);
            value[k] = g.value[k];
            second[k] = g.second[k];
        }
#pragma unroll
        for (uint32_t k = 0; k < FIRST_WORDS; ++k) first[k] = words[k];
    }
};

struct InFull {
    static constexpr bool SHORT = false;
    using Sh = FullSh<4>;
    using ShOfViews = FullSh<4>;
    using Geometry = FullGeometry;
};

struct InHalfColors {
    static constexpr bool SHORT = true;
    using Sh = HalfSh<4>;
    using ShOfViews = HalfSh<4>;
    using Geometry = FullGeometry;
};

struct InCompact {
    static constexpr bool SHORT = true;
    using Sh = CompactSh<8>;
    using ShOfViews = CompactSh<4>;
    using Geometry = CompactGeometry;
};
