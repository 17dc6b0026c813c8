// Storages of a model's state: full precision, half colours, or compact. Tables are words of 4 bytes, [lane blocks,
// width, 32]; zero words are zero values and moments in all storages. Half colours: SH in half precision, two per word.
// Other values are in single precision. Compact: SH in half precision, two per word; their moments in 8-bit codes, four
// per word, relative to a scale per Gaussian in word 0; the first moments of the geometry in bfloat16, two per word.
// Other values are in single precision.
#pragma once

#include "compact.cuh"
#include "layout.cuh"

// Words of a Gaussian in a table.
template <class Word>
struct Row {
    Word* words;

    __device__ Word& operator[](uint32_t at) const { return words[component(at)]; }
};

template <class Word, class Bits>
__device__ inline Row<Word> row_of(Bits* table, uint64_t gaussian, uint32_t width) {
    return {reinterpret_cast<Word*>(table) + lane_block(gaussian, width)};
}

// Words of a Gaussian in a read-only table.
template <class Word>
struct FixedRow {
    const Word* words;

    template <class Bits>
    __device__ FixedRow(const Bits* table, uint64_t gaussian, uint32_t width)
        : words(reinterpret_cast<const Word*>(table) + lane_block(gaussian, width)) {}

    __device__ Word operator[](uint32_t at) const { return __ldg(words + component(at)); }
};

// SH with their moments, and the number of values per Gaussian.
struct ShTables {
    const uint32_t *values, *first, *second;
    uint32_t width;
};

struct Full {
    // True if quotients of moments are clamped to their bound.
    static constexpr bool HELD = false;
    // Number of SH coefficients per channel that are read at a time.
    static constexpr uint32_t AT_ONCE = 1;

    __device__ static uint32_t sh_words(uint32_t values) { return values; }
    __device__ static uint32_t moment_words(uint32_t values) { return values; }

    // Reads the SH of a Gaussian, some coefficients at a time.
    struct Reader {
        FixedRow<float> values, firsts, seconds;
        uint32_t from;

        __device__ Reader(const ShTables& t, uint64_t gaussian)
            : values(t.values, gaussian, t.width),
              firsts(t.first, gaussian, t.width),
              seconds(t.second, gaussian, t.width) {}

        __device__ float one(uint32_t k) const { return values[k]; }

        template <bool MOMENTS>
        __device__ void load(uint32_t first_value, uint32_t) {
            from = first_value;
        }

        // Value `k` of the loaded ones, and its moments.
        __device__ float value(uint32_t k) const { return values[from + k]; }
        __device__ float first(uint32_t k) const { return firsts[from + k]; }
        __device__ float second(uint32_t k) const { return seconds[from + k]; }
    };
};

struct HalfColors {
    static constexpr bool HELD = false;
    // Whole words of halves.
    static constexpr uint32_t AT_ONCE = 4;

    __device__ static uint32_t sh_words(uint32_t values) { return (values + 1) / 2; }

    struct Reader {
        FixedRow<uint32_t> values;
        FixedRow<float> firsts, seconds;
        uint32_t halves[3 * AT_ONCE / 2];
        uint32_t from;

        __device__ Reader(const ShTables& t, uint64_t gaussian)
            : values(t.values, gaussian, sh_words(t.width)),
              firsts(t.first, gaussian, t.width),
              seconds(t.second, gaussian, t.width) {}

        __device__ float one(uint32_t k) const { return decode_half(values[k / 2], k % 2); }

        template <bool MOMENTS>
        __device__ void load(uint32_t first_value, uint32_t count) {
            from = first_value;
#pragma unroll
            for (uint32_t k = 0; k < 3 * AT_ONCE; k += 2) {
                if (k < count) halves[k / 2] = values[(from + k) / 2];
            }
        }

        __device__ float value(uint32_t k) const { return decode_half(halves[k / 2], k % 2); }
        __device__ float first(uint32_t k) const { return firsts[from + k]; }
        __device__ float second(uint32_t k) const { return seconds[from + k]; }
    };
};

struct Compact {
    static constexpr bool HELD = true;
    // Whole words of codes: 12 values.
    static constexpr uint32_t AT_ONCE = 4;

    __device__ static uint32_t sh_words(uint32_t values) { return (values + 1) / 2; }
    __device__ static uint32_t moment_words(uint32_t values) { return 1 + (values + 3) / 4; }

    struct Reader {
        FixedRow<uint32_t> values, firsts, seconds;
        uint32_t halves[3 * AT_ONCE / 2], first_codes[3 * AT_ONCE / 4], second_codes[3 * AT_ONCE / 4];
        float first_scale, second_scale;

        __device__ Reader(const ShTables& t, uint64_t gaussian)
            : values(t.values, gaussian, sh_words(t.width)),
              firsts(t.first, gaussian, moment_words(t.width)),
              seconds(t.second, gaussian, moment_words(t.width)) {}

        __device__ float one(uint32_t k) const { return decode_half(values[k / 2], k % 2); }

        template <bool MOMENTS>
        __device__ void load(uint32_t from, uint32_t count) {
#pragma unroll
            for (uint32_t k = 0; k < 3 * AT_ONCE; k += 2) {
                if (k < count) halves[k / 2] = values[(from + k) / 2];
            }
            if (!MOMENTS) return;
            first_scale = __uint_as_float(firsts[0]);
            second_scale = __uint_as_float(seconds[0]);
#pragma unroll
            for (uint32_t k = 0; k < 3 * AT_ONCE; k += 4) {
                if (k >= count) continue;
                first_codes[k / 4] = firsts[1 + (from + k) / 4];
                second_codes[k / 4] = seconds[1 + (from + k) / 4];
            }
        }

        __device__ float value(uint32_t k) const { return decode_half(halves[k / 2], k % 2); }
        __device__ float first(uint32_t k) const {
            return decode_first(first_codes[k / 4], k % 4) * first_scale;
        }
        __device__ float second(uint32_t k) const {
            return decode_second(second_codes[k / 4], k % 4) * second_scale;
        }
    };
};
