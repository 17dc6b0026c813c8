// cache: fills and empties the lines of colours cached from host memory; one warp per line.
// Shapes: as `ColorCache` says.

#include "cache.cuh"

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
