// Storages of a model's state: full precision, half colours, or compact. Tables are words of 4 bytes, [lane blocks,
// width, 32]; zero words are zero values and moments in all storages. Half colours: SH in half precision, two per word.
// Other values are in single precision. Compact: SH in half precision, two per word; their moments in 8-bit codes, four
// per word, relative to a scale per Gaussian in word 0; the first moments of the geometry in bfloat16, two per word.
// Other values are in single precision.
//
// After the storages: the cache of colours in host memory, reports of parameters that are not finite, and exact lazy
// Adam.
#pragma once

#include "compact.cuh"
#include "fast.cuh"
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

// Cache lines on the device for colours in host memory: readers and writers must look there first. A line holds a lane
// block of SH with both moments.
//
// While a step draws its view, `expect` and `fill_lines` load the next view's colours into lines on another stream.
// They skip lines that the current step uses (`used_in`, set by projection) and blocks that it found without a line
// (`missed_in`), which it moves in place. So no row is accessed by both.

// Returns 1 + the line of a lane block, or 0 if it has none.
__device__ inline uint32_t line_of(const ColorCache& c, uint32_t block) {
    return c.line_of_block == nullptr ? 0 : c.line_of_block[block];
}

// Records that the current step sees a lane block. Concurrent lanes write equal values.
__device__ inline void note_seen(const ColorCache& c, uint32_t block, uint32_t line) {
    if (c.line_of_block == nullptr || c.step == 0) return;
    if (line > 0) {
        c.used_in[line - 1] = c.step;
    } else {
        c.missed_in[block] = c.step;
    }
}

// Returns a row of the tables of the lines.
__device__ inline uint32_t row_in_line(uint32_t line, uint32_t row) {
    return (line - 1) * WARP + row % WARP;
}

// Records that the next step will see a lane block; one thread each.
__device__ inline void expect_block(const ColorCache& c, uint32_t block) {
    const uint32_t line = line_of(c, block);
    if (line > 0) {
        c.used_in[line - 1] = c.step + 1;
    } else if (c.missed_in[block] != c.step) {
        const uint32_t number = atomicAdd(&c.counts[0], 1u);
        if (number < c.lines) c.wanted[number] = block;
    }
}

// Reports of parameters that are not finite.

// Groups of parameters: constant and other coefficients of the colours.
constexpr uint32_t SH_DC = 4, SH_REST = 5;

// Records the first Gaussian that is not finite, the group of its parameters, and in the last bit whether the value is
// infinite.
__device__ inline void report_fault(uint64_t* fault, uint32_t gaussian, uint32_t group,
                                    bool infinite) {
    const unsigned long long place =
        static_cast<unsigned long long>(gaussian) * FAULT_GROUPS + group;
    atomicMin(reinterpret_cast<unsigned long long*>(fault), 2 * place + (infinite ? 1 : 0));
}

// Exact lazy Adam: how deferred colours catch up.
//
// Without a gradient, step t multiplies the moments by beta_1 and beta_2 and moves the value by
// -rate_t m_t / (sqrt(v_t) + epsilon). With r = beta_1 / sqrt(beta_2), after `age` such steps
//     m = beta_1^age m_0,   v = beta_2^age v_0,   value = value_0 - travel[age] m_0 / sqrt(v_0),
// where travel[age] is the sum over the steps of r^j times the bias-corrected rate of step j, which the host computes
// (backend/cuda/model/lazy_adam.rs). r^127 is 2e-6: colours that were deferred for longer have moved by the first 127
// steps only, which the model stores by the step of deferral.
// Epsilon is applied once instead of in every step, and beside the root before bias correction. Results equal those of
// dense Adam up to rounding if sqrt(v_0) is far above 1e-15.

// Effect of `age` steps without a gradient.
struct CatchUp {
    float decay_1, decay_2;
    float drift_dc, drift_rest;
};

__device__ inline CatchUp catch_up_of(const LazyAdam& m, const float* drifts, uint32_t age) {
    const float steps = static_cast<float>(age);
    CatchUp late = {exp2f(m.log2_beta_1 * steps), exp2f(m.log2_beta_2 * steps), 0.0f, 0.0f};
    if (age < MOMENTUM_STEPS) {
        late.drift_dc = m.drift_dc[age];
        late.drift_rest = m.drift_rest[age];
    } else {
        // Only a new lane block can be older than the stored steps, and its moments are zero.
        const float* const drift = drifts + 2 * ((m.steps - age) % DRIFT_STEPS);
        late.drift_dc = drift[0];
        late.drift_rest = drift[1];
    }
    return late;
}

// Stores the drift of colours deferred at one step, before the step leaves the range of the tables. No existing lane
// block was deferred at the step that is overwritten.
__device__ inline void remember_drift(const LazyAdam& m, float* drifts) {
    constexpr uint32_t LAST = MOMENTUM_STEPS - 1;
    // A primitive may have no deferred values.
    if (drifts == nullptr || m.steps < LAST) return;
    float* const drift = drifts + 2 * ((m.steps - LAST) % DRIFT_STEPS);
    drift[0] = m.drift_dc[LAST];
    drift[1] = m.drift_rest[LAST];
}

// Catches up coefficient `k` of a channel. `HELD` clamps the quotient of 8-bit moments.
template <bool HELD>
__device__ inline float caught_up(const CatchUp& late, uint32_t k, float value, float first,
                                  float second) {
    constexpr float EPSILON = 1e-15f;  // dominates the root of a denormal moment
    const float drift = k == 0 ? late.drift_dc : late.drift_rest;
    if (HELD) return value - HELD_UNIT * drift * held_quotient(first, second);
    return value - drift * __fdividef(first, fast_sqrt(second) + EPSILON);
}
