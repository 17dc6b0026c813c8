// Location of the SH that a step moves: a cache line, or the tables.
#pragma once

#include "cache.cuh"

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
