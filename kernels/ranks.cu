// ranks: splats that one rank projects and another draws. They travel as their records; what else
// `project_fwd` leaves of a splat is in two words of its record that who draws it has no use for.
// One thread per splat, or per row. Shapes: splats [capacity, 12], what belongs to them [capacity].

#include "layout.cuh"
#include "splat.cuh"

constexpr uint32_t RECORD_OPACITY = 2;
constexpr uint32_t RECORD_EXPONENT = 3;

// Tiles have numbers below 4,096, and a view of at most 65,535 tiles has no splat that reaches more.
constexpr uint32_t TILE_BITS = 12;
constexpr uint32_t TILE_MASK = (1u << TILE_BITS) - 1;

__device__ inline uint32_t packed_tiles(uint32_t x, uint32_t y, uint32_t byte) {
    return x | y << TILE_BITS | byte << 2 * TILE_BITS;
}

extern "C" __global__ void __launch_bounds__(RANKS_BLOCK)
    pack_splats(const __grid_constant__ PackSplatsArgs a) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.visible) return;
    float* const record = a.splats + uint64_t{i} * RECORD_WIDTH;
    const TileRect t = a.tiles[i];
    const uint32_t count = a.instance_counts[i];
    uint32_t first = 0, rest = 0;
    // One that reaches no tile may have none.
    if (count > 0) {
        first = packed_tiles(t.x0, t.y0, count & 0xff);
        rest = packed_tiles(t.x1 - t.x0 - 1, t.y1 - t.y0 - 1, count >> 8);
    }
    record[RECORD_EXPONENT] = __uint_as_float(first);
    record[RECORD_GAUSSIAN] = __uint_as_float(rest);
}

extern "C" __global__ void __launch_bounds__(RANKS_BLOCK)
    unpack_splats(const __grid_constant__ UnpackSplatsArgs a) {
    const uint32_t i = a.first + blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.end) return;
    float* const record = a.splats + uint64_t{i} * RECORD_WIDTH;
    const uint32_t first = __float_as_uint(record[RECORD_EXPONENT]);
    const uint32_t rest = __float_as_uint(record[RECORD_GAUSSIAN]);
    const uint32_t count = first >> 2 * TILE_BITS | rest >> 2 * TILE_BITS << 8;
    TileRect tiles = {0, 0, 0, 0};
    if (count > 0) {
        const uint32_t x = first & TILE_MASK, y = first >> TILE_BITS & TILE_MASK;
        tiles = {static_cast<uint16_t>(x), static_cast<uint16_t>(y),
                 static_cast<uint16_t>(x + (rest & TILE_MASK) + 1),
                 static_cast<uint16_t>(y + (rest >> TILE_BITS & TILE_MASK) + 1)};
    }
    // As the projection found it, of the same opacity.
    float exponent_min = 0.0f;
    least_exponent(record[RECORD_OPACITY], exponent_min);
    record[RECORD_EXPONENT] = exponent_min;
    a.tiles[i] = tiles;
    a.depth_keys[i] = __float_as_uint(record[RECORD_DEPTH]);
    a.splat_indices[i] = i;
    a.instance_counts[i] = count;
}

extern "C" __global__ void __launch_bounds__(RANKS_BLOCK)
    number_splats(const __grid_constant__ NumberSplatsArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.gaussians) return;
    const uint32_t splat = a.splat_from_gaussian[row];
    if (splat == UNSEEN) return;
    a.splats[uint64_t{splat} * RECORD_WIDTH + RECORD_GAUSSIAN] = __uint_as_float(row);
}
