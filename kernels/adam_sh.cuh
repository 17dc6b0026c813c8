// Adam on the SH of the thread's Gaussian: in single precision, or with values in 16 bits.
#pragma once

#include "adam_value.cuh"
#include "lazy_adam.cuh"
#include "moved_sh.cuh"
#include "sh.cuh"
#include "state.cuh"

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
