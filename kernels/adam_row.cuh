// Loads and stores of the thread's Gaussian for Adam, in any storage. A piece is loaded completely before any of it is
// stored, so that enough loads are in flight to saturate the memory.
#pragma once

#include "adam_sh_compact.cuh"
#include "random.cuh"

// Returns the first random word of a Gaussian.
__device__ inline uint32_t rounding_seed(uint64_t key, uint32_t gaussian) {
    return static_cast<uint32_t>(random_bits(key, gaussian) >> 32);
}

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

// Geometry with first moments in 16 bits.
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
    using Geometry = FullGeometry;
};

struct InHalfColors {
    static constexpr bool SHORT = true;
    using Sh = HalfSh<4>;
    using Geometry = FullGeometry;
};

struct InCompact {
    static constexpr bool SHORT = true;
    using Sh = CompactSh<4>;
    using Geometry = CompactGeometry;
};
