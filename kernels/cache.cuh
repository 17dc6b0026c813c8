// Colours that lie in the host's memory, where the device has taken them into a line of its own: whoever
// reads or moves them looks there first. A line holds a lane block of SH with both moments.
//
// While a step draws its view, `expect` and `fill_lines` bring what the next one sees into lines, on another
// stream. They leave alone what the coming step uses (`used_in`, which projecting sets), and what it found
// without a line (`missed_in`), which it moves where it lies. So no row is touched by both.
#pragma once

#include "layout.cuh"

// Line + 1 of a lane block, or 0.
__device__ inline uint32_t line_of(const ColorCache& c, uint32_t block) {
    return c.line_of_block == nullptr ? 0 : c.line_of_block[block];
}

// Says that the coming step sees a lane block, where a step is to come. Lanes that do so write the same.
__device__ inline void note_seen(const ColorCache& c, uint32_t block, uint32_t line) {
    if (c.line_of_block == nullptr || c.step == 0) return;
    if (line > 0) {
        c.used_in[line - 1] = c.step;
    } else {
        c.missed_in[block] = c.step;
    }
}

// A row of the tables of the lines.
__device__ inline uint32_t row_in_line(uint32_t line, uint32_t row) {
    return (line - 1) * WARP + row % WARP;
}

// Says that the next step will see a lane block; one thread each.
__device__ inline void expect_block(const ColorCache& c, uint32_t block) {
    const uint32_t line = line_of(c, block);
    if (line > 0) {
        c.used_in[line - 1] = c.step + 1;
    } else if (c.missed_in[block] != c.step) {
        const uint32_t number = atomicAdd(&c.counts[0], 1u);
        if (number < c.lines) c.wanted[number] = block;
    }
}
