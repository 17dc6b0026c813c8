// Transfer of a splat, as its record, from the rank that projects it to the rank that draws it. Two words that the
// drawing rank does not need hold the splat's tiles.
#pragma once

#include "layout.cuh"
#include "splat.cuh"

constexpr uint32_t RECORD_EXPONENT = 3;

// Tile coordinates are below 4,096, and a view of at most 65,535 tiles limits the count of a splat.
constexpr uint32_t TILE_BITS = 12;
constexpr uint32_t TILE_MASK = (1u << TILE_BITS) - 1;

// Packs 12 bits of a column of tiles, 12 of a row, and a byte.
__device__ inline float tile_word(uint32_t x, uint32_t y, uint32_t byte) {
    return __uint_as_float(x | y << TILE_BITS | byte << 2 * TILE_BITS);
}

// Stores the tiles of a splat that reaches `count` of them: first column and row, number of columns and rows less 1,
// and the two bytes of the count. A splat that reaches no tile may have no rectangle.
__device__ inline void put_tiles(float* record, Rect t, uint32_t count) {
    const bool any = count > 0;
    record[RECORD_EXPONENT] = any ? tile_word(t.x0, t.y0, count & 0xff) : 0.0f;
    record[RECORD_GAUSSIAN] = any ? tile_word(t.x1 - t.x0 - 1, t.y1 - t.y0 - 1, count >> 8) : 0.0f;
}

// Returns the number of reached tiles, and their rectangle.
__device__ inline uint32_t take_tiles(const float* record, TileRect& tiles) {
    const uint32_t first = __float_as_uint(record[RECORD_EXPONENT]);
    const uint32_t rest = __float_as_uint(record[RECORD_GAUSSIAN]);
    const uint32_t count = first >> 2 * TILE_BITS | rest >> 2 * TILE_BITS << 8;
    tiles = {0, 0, 0, 0};
    if (count > 0) {
        const uint32_t x = first & TILE_MASK, y = first >> TILE_BITS & TILE_MASK;
        tiles = {static_cast<uint16_t>(x), static_cast<uint16_t>(y),
                 static_cast<uint16_t>(x + (rest & TILE_MASK) + 1),
                 static_cast<uint16_t>(y + (rest >> TILE_BITS & TILE_MASK) + 1)};
    }
    return count;
}
