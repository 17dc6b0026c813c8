// Cache lines on the device for colours in host memory: readers and writers must look there first. A line holds a lane
// block of SH with both moments.
//
// While a step draws its view, `expect` and `fill_lines` load the next view's colours into lines on another stream.
// They skip lines that the current step uses (`used_in`, set by projection) and blocks that it found without a line
// (`missed_in`), which it moves in place. So no row is accessed by both.
#pragma once

#include "layout.cuh"

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
