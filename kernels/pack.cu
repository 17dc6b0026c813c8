// pack: converts rows of a table from single precision to the words of a compact model, and back.
// One thread per row of whole lane blocks. Shapes: floats [lane blocks, values, 32]; words in the layout of
// `state.cuh` for the form. Packing rounds to nearest. Decoded values are packed to codes of the same values.

#include "state.cuh"

struct Firsts {
    __device__ static uint32_t encode(float share) { return encode_first(share, NEAREST); }
    __device__ static float decode(uint32_t word, uint32_t at) { return decode_first(word, at); }
};

struct Seconds {
    __device__ static uint32_t encode(float share) { return encode_second(share, NEAREST); }
    __device__ static float decode(uint32_t word, uint32_t at) { return decode_second(word, at); }
};

// Half precision that keeps NaN.
__device__ inline uint32_t nearest_half(float value) {
    return isnan(value) ? 0x7e000000u : encode_half(value, NEAREST);
}

__device__ inline uint32_t nearest_bfloat(float value) { return encode_bfloat(value, NEAREST); }

template <uint32_t (*ENCODE)(float)>
__device__ inline void pack_pairs(FixedRow<float> values, Row<uint32_t> words, uint32_t count) {
    for (uint32_t k = 0; k < count; k += 2) {
        const uint32_t high = k + 1 < count ? ENCODE(values[k + 1]) : 0;
        words[k / 2] = with_half(with_half(0, 0, ENCODE(values[k])), 1, high);
    }
}

// Returns the squared error of the codes with a scale, relative to the largest value.
template <class Codec>
__device__ inline float misfit(FixedRow<float> values, uint32_t count, float largest, float scale) {
    const float inverse = inverse_scale(scale);
    float sum = 0.0f;
    for (uint32_t k = 0; k < count; ++k) {
        const float share = __fmul_rn(values[k], inverse);
        const float back = __fmul_rn(Codec::decode(Codec::encode(share) >> 24, 0), scale);
        const float error = __fsub_rn(back, values[k]) / largest;
        sum += error * error;
    }
    return sum;
}

// Returns the scale with the least error. Eight candidates give the largest value one of eight mantissas: decoded
// values fit one of the eight exactly.
template <class Codec>
__device__ inline float best_scale(FixedRow<float> values, uint32_t count) {
    float largest = 0.0f;
    for (uint32_t k = 0; k < count; ++k) largest = fmaxf(largest, fabsf(values[k]));
    if (!(largest >= 0x1p-126f) || isinf(largest)) return 0.0f;
    float best = 0.0f, least = INFINITY;
    for (uint32_t mantissa = 8; mantissa < 16; ++mantissa) {
        const float share = static_cast<float>(mantissa) / 16.0f;
        const float scale = rounded_scale(__fdiv_rn(largest, share));
        const float error = misfit<Codec>(values, count, largest, scale);
        if (error < least) {
            least = error;
            best = scale;
        }
    }
    return best;
}

template <class Codec>
__device__ inline void pack_codes(FixedRow<float> values, Row<uint32_t> words, uint32_t count) {
    const float scale = best_scale<Codec>(values, count);
    const float inverse = inverse_scale(scale);
    words[0] = __float_as_uint(scale);
    for (uint32_t first = 0; first < count; first += 4) {
        uint32_t word = 0;
#pragma unroll
        for (uint32_t at = 0; at < 4; ++at) {
            if (first + at >= count) continue;
            word = with_byte(word, at, Codec::encode(__fmul_rn(values[first + at], inverse)));
        }
        words[1 + first / 4] = word;
    }
}

template <class Codec>
__device__ inline void unpack_codes(FixedRow<uint32_t> words, Row<float> values, uint32_t count) {
    const float scale = __uint_as_float(words[0]);
    for (uint32_t k = 0; k < count; ++k) {
        values[k] = Codec::decode(words[1 + k / 4], k % 4) * scale;
    }
}

__device__ inline uint32_t words_of(uint32_t form, uint32_t values) {
    return form == FORM_HALVES || form == FORM_BFLOATS ? Compact::sh_words(values)
                                                       : Compact::moment_words(values);
}

extern "C" __global__ void __launch_bounds__(PACK_BLOCK)
    pack_rows(const __grid_constant__ PackArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.blocks * WARP) return;
    const uint64_t from = uint64_t{a.float_block} * WARP + row;
    const uint64_t to = uint64_t{a.word_block} * WARP + row;
    const FixedRow<float> values(a.floats, from, a.values);
    const Row<uint32_t> words = row_of<uint32_t>(a.words, to, words_of(a.form, a.values));
    switch (a.form) {
        case FORM_HALVES: return pack_pairs<nearest_half>(values, words, a.values);
        case FORM_BFLOATS: return pack_pairs<nearest_bfloat>(values, words, a.values);
        case FORM_FIRSTS: return pack_codes<Firsts>(values, words, a.values);
        case FORM_SECONDS: return pack_codes<Seconds>(values, words, a.values);
    }
}

extern "C" __global__ void __launch_bounds__(PACK_BLOCK)
    unpack_rows(const __grid_constant__ UnpackArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.blocks * WARP) return;
    const uint64_t from = uint64_t{a.word_block} * WARP + row;
    const uint64_t to = uint64_t{a.float_block} * WARP + row;
    const FixedRow<uint32_t> words(a.words, from, words_of(a.form, a.values));
    const Row<float> values = row_of<float>(a.floats, to, a.values);
    switch (a.form) {
        case FORM_HALVES:
            for (uint32_t k = 0; k < a.values; ++k) values[k] = decode_half(words[k / 2], k % 2);
            break;
        case FORM_BFLOATS:
            for (uint32_t k = 0; k < a.values; ++k) values[k] = decode_bfloat(words[k / 2], k % 2);
            break;
        case FORM_FIRSTS: return unpack_codes<Firsts>(words, values, a.values);
        case FORM_SECONDS: return unpack_codes<Seconds>(words, values, a.values);
    }
}
