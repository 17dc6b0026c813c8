// SH in 16 bits with moments in 8 bits; see `adam_sh.cuh` for the other storages.
#pragma once

#include <cuda_fp16.h>

#include "adam_sh.cuh"

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
