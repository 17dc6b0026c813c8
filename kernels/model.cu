// model: rows of the model on their way to the host, to compact storage, and to the cache of colours in host memory.
// Shapes: tables in the layout of `state.cuh` for their form.
//
// `sample_rows`: gathers chosen rows, so that a sample does not require a copy of the whole model. One thread per value
// of one table. Shapes: rows [count]; sample [count, values of all tables], with the values of a row in schema order.
//
// `pack_rows` and `unpack_rows`: convert rows of a table from single precision to the words of a compact model, and
// back. One thread per row of whole lane blocks. Shapes: floats [lane blocks, values, 32]. Packing rounds to nearest.
// Decoded values are packed to codes of the same values.
//
// `fill_lines` and `write_lines_back`: fill and empty the lines of cached colours; one warp per line. Shapes: as
// `ColorCache` says.

#include "state.cuh"

extern "C" __global__ void __launch_bounds__(SAMPLE_BLOCK)
    sample_rows(const __grid_constant__ SampleArgs a) {
    const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i >= uint64_t{a.count} * a.values) return;

    const uint64_t row = i / a.values;
    const uint32_t k = static_cast<uint32_t>(i % a.values);
    const FixedRow<uint32_t> words(a.table, a.rows[row], a.words);
    float value;
    switch (a.form) {
        case FORM_HALVES: value = decode_half(words[k / 2], k % 2); break;
        case FORM_BFLOATS: value = decode_bfloat(words[k / 2], k % 2); break;
        default: value = __uint_as_float(words[k]);
    }
    a.sample[row * a.row_values + a.first + k] = value;
}

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

// Number of words in flight per lane, enough to saturate the bus with few warps.
constexpr uint32_t AT_ONCE = 8;

// Copies a lane block with `words` words per row.
__device__ inline void copy_block(uint32_t* to, const uint32_t* from, uint32_t words) {
    for (uint32_t first = 0; first < words; first += AT_ONCE) {
        uint32_t held[AT_ONCE];
#pragma unroll
        for (uint32_t w = 0; w < AT_ONCE; ++w) {
            if (first + w < words) held[w] = from[component(first + w)];
        }
#pragma unroll
        for (uint32_t w = 0; w < AT_ONCE; ++w) {
            if (first + w < words) to[component(first + w)] = held[w];
        }
    }
}

// Offsets of the lane's words in a line and in its lane block.
struct LineRows {
    uint64_t line_sh, line_moments, block_sh, block_moments;
};

__device__ inline LineRows rows_of(const CacheArgs& a, uint32_t line, uint32_t block) {
    const uint32_t lane = threadIdx.x % WARP;
    const uint64_t in_line = uint64_t{line} * WARP + lane, in_block = uint64_t{block} * WARP + lane;
    return {lane_block(in_line, a.sh_words), lane_block(in_line, a.moment_words),
            lane_block(in_block, a.sh_words), lane_block(in_block, a.moment_words)};
}

// Empties a line; writes changed lines to the host.
__device__ inline void write_back(const CacheArgs& a, uint32_t line, uint32_t block) {
    if (a.cache.is_changed[line] != 0) {
        const LineRows at = rows_of(a, line, block);
        copy_block(a.sh + at.block_sh, a.cache.sh + at.line_sh, a.sh_words);
        copy_block(a.sh_first + at.block_moments, a.cache.sh_first + at.line_moments, a.moment_words);
        copy_block(a.sh_second + at.block_moments, a.cache.sh_second + at.line_moments,
                   a.moment_words);
    }
    __syncwarp();  // all lanes have read `is_changed`
    if (threadIdx.x % WARP != 0) return;
    a.cache.line_of_block[block] = 0;
    a.cache.block_of_line[line] = 0;
    a.cache.is_changed[line] = 0;
}

__device__ inline void fill(const CacheArgs& a, uint32_t line, uint32_t block) {
    const LineRows at = rows_of(a, line, block);
    copy_block(a.cache.sh + at.line_sh, a.sh + at.block_sh, a.sh_words);
    copy_block(a.cache.sh_first + at.line_moments, a.sh_first + at.block_moments, a.moment_words);
    copy_block(a.cache.sh_second + at.line_moments, a.sh_second + at.block_moments, a.moment_words);
    if (threadIdx.x % WARP != 0) return;
    a.cache.block_of_line[line] = block + 1;
    a.cache.line_of_block[block] = line + 1;
    a.cache.used_in[line] = a.cache.step + 1;
}

extern "C" __global__ void __launch_bounds__(CACHE_BLOCK)
    fill_lines(const __grid_constant__ CacheArgs a) {
    const ColorCache& c = a.cache;
    const uint32_t wanted = min(c.counts[0], c.lines), warps = gridDim.x * blockDim.x / WARP;
    uint32_t line = (blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    for (; line < c.lines; line += warps) {
        if (c.used_in[line] >= c.step) continue;
        uint32_t number = 0;
        if (threadIdx.x % WARP == 0) number = atomicAdd(&c.counts[1], 1u);
        number = __shfl_sync(FULL_WARP, number, 0);
        if (number >= wanted) return;
        const uint32_t before = c.block_of_line[line];
        if (before > 0) write_back(a, line, before - 1);
        __syncwarp();  // the line is empty
        fill(a, line, c.wanted[number]);
    }
}

extern "C" __global__ void __launch_bounds__(CACHE_BLOCK)
    write_lines_back(const __grid_constant__ CacheArgs a) {
    const uint32_t line = (blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (line >= a.cache.lines) return;
    const uint32_t block = a.cache.block_of_line[line];
    if (block > 0) write_back(a, line, block - 1);
}
