// Adam on the SH of the thread's Gaussian: in single precision, or with values in 16 bits.
#pragma once

#include <cuda_fp16.h>

#include "compact.cuh"
#include "fast.cuh"
#include "sh.cuh"
#include "state.cuh"

// Adam on one value.

// Consecutive values with their moments.
template <uint32_t N>
struct AdamRow {
    float value[N], first[N], second[N];
};

// Finiteness of a group's new values and second moments.
struct FiniteCheck {
    float zero;     // NaN if any is not finite
    float largest;  // infinite if any is
};

// Updates one value: value -= rate m / (sqrt(v) + epsilon), with the bias-corrected moments. Root and quotient are fast
// approximations; their relative error of 3e-7 equals the rounding of the moments. `SHORT` values will be stored in 16
// bits.
template <bool SHORT, class Args, uint32_t N>
__device__ inline void move(const Args& a, AdamRow<N>& c, uint32_t k, float rate, float d,
                            FiniteCheck& health) {
    c.first[k] = a.beta_1 * c.first[k] + a.one_less_beta_1 * d;
    c.second[k] = a.beta_2 * c.second[k] + a.one_less_beta_2 * d * d;
    const float root = fast_sqrt(c.second[k]);
    c.value[k] -= rate * __fdividef(c.first[k], root * a.inverse_root_correction + a.epsilon);
    if (SHORT && fabsf(c.value[k]) > HALF_MAX) c.value[k] = copysignf(INFINITY, c.value[k]);
    const float size = fabsf(c.value[k]) + c.second[k];
    health.zero += 0.0f * size;
    health.largest = fmaxf(health.largest, size);
}

template <class Args>
__device__ inline void report(const Args& a, uint32_t gaussian, uint32_t group, FiniteCheck health) {
    if (health.zero != 0.0f) report_fault(a.fault, gaussian, group, isinf(health.largest));
}

// Location of the SH that a step moves: a cache line, or the tables.

// Tables of the SH, and the number of values per Gaussian.
struct AdamTables {
    uint32_t *values, *first, *second;
    uint32_t width;
};

// The SH of a row to move.
struct MovedSh {
    AdamTables tables;
    uint32_t row, line;
};

// Only storages with coded moments have a cache.
template <bool CACHED>
__device__ inline MovedSh moved_sh(const AdamArgs& a, uint32_t gaussian) {
    const uint32_t line = CACHED ? line_of(a.cache, gaussian / WARP) : 0;
    if (line == 0) return {{a.sh, a.sh_first, a.sh_second, a.sh_width}, gaussian, 0};
    return {{a.cache.sh, a.cache.sh_first, a.cache.sh_second, a.sh_width},
            row_in_line(line, gaussian),
            line};
}

// Records that a lane block has taken the step; one thread each.
__device__ inline void mark_moved(const AdamArgs& a, uint32_t block, uint32_t line) {
    a.sh_steps[block] = a.lazy.steps + 1;
    if (line > 0) a.cache.is_changed[line - 1] = 1;
}

// Returns a bound of the absolute gradients of a Gaussian's SH from one view.
__device__ inline float largest_gradient(const float (&basis)[SH_MAX_COEFFICIENTS],
                                         float3 d_color) {
    float largest = 0.0f;
#pragma unroll
    for (float b : basis) largest = fmaxf(largest, fabsf(b));
    return largest * fmaxf(fabsf(d_color.x), fmaxf(fabsf(d_color.y), fabsf(d_color.z)));
}

// Stores value `k` in its half of a word, rounded stochastically.
template <uint32_t WORDS>
__device__ inline void put_half(uint32_t (&words)[WORDS], uint32_t k, float value, uint32_t& dice) {
    words[k / 2] = with_half(words[k / 2], k % 2, half_bits(value, roll(dice)));
}

// Moves coefficients with moments in single precision, and checks that all stay finite.
template <bool IS_SHORT>
struct FloatMoves {
    static constexpr bool CACHED = false;
    static constexpr bool SHORT = IS_SHORT;

    FiniteCheck dc = {}, rest = {};

    // Nothing to do: non-finite gradients are visible in the values.
    __device__ void see_gradient(float3) {}

    // Moves coefficient `k` of each channel.
    __device__ void move(const AdamArgs& a, AdamRow<3>& c, uint32_t k, float3 d) {
        const float of_channel[3] = {d.x, d.y, d.z};
#pragma unroll
        for (uint32_t j = 0; j < 3; ++j) {
            ::move<SHORT>(a, c, j, a.rates[k == 0 ? SH_DC : SH_REST], of_channel[j],
                          k == 0 ? dc : rest);
        }
    }

    // Catches up coefficient `k` if `LATE`.
    template <bool LATE>
    __device__ static void catch_up(const CatchUp& late, uint32_t k, AdamRow<3>& c) {
        if constexpr (LATE) {
#pragma unroll
            for (uint32_t j = 0; j < 3; ++j) {
                c.value[j] = caught_up<false>(late, k, c.value[j], c.first[j], c.second[j]);
                c.first[j] *= late.decay_1;
                c.second[j] *= late.decay_2;
            }
        }
    }

    __device__ void report(const AdamArgs& a, uint32_t gaussian) const {
        ::report(a, gaussian, SH_DC, dc);
        ::report(a, gaussian, SH_REST, rest);
    }
};

// SH in full precision, `COEFFICIENTS` per channel at a time.
template <uint32_t COEFFICIENTS>
struct FullSh : FloatMoves<false> {
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

    // Returns the loaded coefficient `i`, number `k` of all, after it has caught up.
    template <bool LATE>
    __device__ AdamRow<3> get(uint32_t i, uint32_t k, const CatchUp& late) const {
        AdamRow<3> one;
        for (uint32_t j = 0; j < 3; ++j) {
            one.value[j] = c.value[3 * i + j];
            one.first[j] = c.first[3 * i + j];
            one.second[j] = c.second[3 * i + j];
        }
        catch_up<LATE>(late, k, one);
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
struct HalfSh : FloatMoves<true> {
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

    template <bool LATE>
    __device__ AdamRow<3> get(uint32_t i, uint32_t coefficient, const CatchUp& late) const {
        AdamRow<3> one;
#pragma unroll
        for (uint32_t j = 0; j < 3; ++j) {
            const uint32_t k = 3 * i + j;
            one.value[j] = decode_half(values[k / 2], k % 2);
            one.first[j] = firsts[k];
            one.second[j] = seconds[k];
        }
        catch_up<LATE>(late, coefficient, one);
        return one;
    }

    __device__ void put(uint32_t i, const AdamRow<3>& one) {
#pragma unroll
        for (uint32_t j = 0; j < 3; ++j) {
            const uint32_t k = 3 * i + j;
            put_half(values, k, one.value[j], dice);
            firsts[k] = one.first[j];
            seconds[k] = one.second[j];
        }
    }

    __device__ void put_late(uint32_t i, const AdamRow<3>& one) { put(i, one); }
    __device__ void store_late(uint32_t from, uint32_t count) const { store(from, count); }
};

// SH in 16 bits with moments in 8 bits; see `adam_sh.cuh` for the other storages.

// The scales are known before the values. A coefficient's gradient is bounded by the largest basis value times the
// largest gradient of a channel; this bound, decayed and summed like the moments, bounds the moments. Therefore a step
// without a gradient changes the scales but no code, except that of a zero second moment.
template <uint32_t COEFFICIENTS>
struct CompactSh {
    static constexpr bool CACHED = true;
    static constexpr bool SHORT = true;
    static constexpr uint32_t AT_ONCE = COEFFICIENTS;
    static constexpr uint32_t HALVES = 3 * AT_ONCE / 2, CODES = 3 * AT_ONCE / 4;
    static_assert(AT_ONCE % 4 == 0, "whole words");

    Row<uint32_t> value, first, second;
    uint32_t values[HALVES], firsts[CODES], seconds[CODES];
    // Scales before and after the step.
    float first_scale, second_scale, next_first_scale, next_second_scale;
    float first_inverse, second_inverse;  // factors from moments to codes
    float first_factor, second_factor;  // factors from codes to decayed moments
    float rate_unit;  // factor of rates: unit of quotients over the second moment's correction
    // NaN if a gradient or a scale is not finite, or a scale of second moments is 2^33 or more.
    float zero;
    // Largest new halves, in pairs; infinite if a value is.
    __half2 largest_halves;
    uint32_t dice;

    __device__ CompactSh(const AdamTables& t, uint32_t gaussian, uint32_t seed)
        : value(row_of<uint32_t>(t.values, gaussian, Compact::sh_words(t.width))),
          first(row_of<uint32_t>(t.first, gaussian, Compact::moment_words(t.width))),
          second(row_of<uint32_t>(t.second, gaussian, Compact::moment_words(t.width))),
          zero(0.0f),
          largest_halves(__float2half2_rn(0.0f)),
          dice(seed) {
        first_scale = __uint_as_float(first[0]);
        second_scale = __uint_as_float(second[0]);
    }

    // The clamped quotient hides NaN, so check the gradients themselves.
    __device__ void see_gradient(float3 d_color) { zero += 0.0f * (d_color.x + d_color.y + d_color.z); }

    // `largest` bounds the absolute gradients of the coefficients.
    __device__ void rescale(const AdamArgs& a, const CatchUp& late, float largest) {
        const float more = CODE_MARGIN * largest;
        next_first_scale = rounded_scale(a.beta_1 * (first_scale * late.decay_1) +
                                         a.one_less_beta_1 * more);
        next_second_scale = rounded_scale(a.beta_2 * (second_scale * late.decay_2) +
                                          a.one_less_beta_2 * more * largest);
        first_inverse = inverse_scale(next_first_scale) * FIRST_DOWN;
        second_inverse = inverse_scale(next_second_scale) * SECOND_DOWN;
        set_factors(a.beta_1 * late.decay_1, a.beta_2 * late.decay_2);
        rate_unit = HELD_UNIT * fast_reciprocal(a.inverse_root_correction);
        zero += 0.0f * (next_first_scale + SECOND_UP * next_second_scale);
    }

    // An overflowing value is visible in its half.
    __device__ void move(const AdamArgs& a, AdamRow<3>& c, uint32_t k, float3 d) {
        const float rate = rate_unit * a.rates[k == 0 ? SH_DC : SH_REST];
        const float of_channel[3] = {d.x, d.y, d.z};
#pragma unroll
        for (uint32_t j = 0; j < 3; ++j) {
            c.first[j] += a.one_less_beta_1 * of_channel[j];
            c.second[j] += a.one_less_beta_2 * of_channel[j] * of_channel[j];
            c.value[j] -= rate * held_quotient(c.first[j], c.second[j]);
        }
    }

    __device__ void report(const AdamArgs& a, uint32_t gaussian) const {
        const bool overflows = __hisinf(__hmax(__low2half(largest_halves), __high2half(largest_halves)));
        if (zero == 0.0f && !overflows) return;
        uint32_t k = 0;
        while (k < a.sh_width && isfinite(decode_half(value[k / 2], k % 2))) ++k;
        const bool infinite = overflows || isinf(next_first_scale);
        report_fault(a.fault, gaussian, k < 3 || k == a.sh_width ? SH_DC : SH_REST, infinite);
    }

    __device__ void set_factors(float decay_1, float decay_2) {
        first_factor = FIRST_UP * first_scale * decay_1;
        second_factor = SECOND_UP * second_scale * decay_2;
    }

    __device__ void decay_scales(const CatchUp& late) {
        set_factors(late.decay_1, late.decay_2);
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

    __device__ void store(uint32_t from, uint32_t count) {
        store_late(from, count);
#pragma unroll
        for (uint32_t w = 0; w < HALVES; ++w) {
            if (2 * w >= count) continue;
            const __half2 halves = *reinterpret_cast<const __half2*>(&values[w]);
            largest_halves = __hmax2(largest_halves, __habs2(halves));
        }
#pragma unroll
        for (uint32_t w = 0; w < CODES; ++w) {
            if (4 * w >= count) continue;
            first[1 + from / 4 + w] = firsts[w];
            second[1 + from / 4 + w] = seconds[w];
        }
    }

    // Moments are decayed, without the new gradient.
    template <bool LATE>
    __device__ AdamRow<3> get(uint32_t i, uint32_t coefficient, const CatchUp& late) const {
        AdamRow<3> one;
#pragma unroll
        for (uint32_t j = 0; j < 3; ++j) {
            const uint32_t k = 3 * i + j;
            one.value[j] = decode_half(values[k / 2], k % 2);
            const float first = first_code(firsts[k / 4], k % 4);
            const float second = second_code(seconds[k / 4], k % 4);
            if (LATE) {
                one.value[j] = caught_up<true>(late, coefficient, one.value[j],
                                               first * (FIRST_UP * first_scale),
                                               second * (SECOND_UP * second_scale));
            }
            one.first[j] = first * first_factor;
            one.second[j] = second * second_factor;
        }
        return one;
    }

    __device__ void put(uint32_t i, const AdamRow<3>& one) {
#pragma unroll
        for (uint32_t j = 0; j < 3; ++j) {
            const uint32_t k = 3 * i + j;
            put_half(values, k, one.value[j], dice);
            const uint32_t of_first = first_bits(one.first[j] * first_inverse, roll(dice));
            firsts[k / 4] = with_byte(firsts[k / 4], k % 4, of_first);
            const uint32_t of_second = second_bits(one.second[j] * second_inverse, roll(dice));
            seconds[k / 4] = with_byte(seconds[k / 4], k % 4, of_second);
        }
    }

    // Moments that only decay keep their codes.
    __device__ void put_late(uint32_t i, const AdamRow<3>& one) {
#pragma unroll
        for (uint32_t j = 0; j < 3; ++j) {
            const uint32_t k = 3 * i + j;
            put_half(values, k, one.value[j], dice);
        }
    }
};
