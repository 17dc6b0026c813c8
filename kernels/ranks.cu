// ranks: splats that one rank projects and another draws, in the form of `travel.cuh`.
// One thread per splat. Shapes: splats [capacity, 12], their data [capacity].

#include "layout.cuh"
#include "splat.cuh"
#include "travel.cuh"

constexpr uint32_t RECORD_OPACITY = 2;

extern "C" __global__ void __launch_bounds__(RANKS_BLOCK)
    unpack_splats(const __grid_constant__ UnpackSplatsArgs a) {
    const uint32_t i = a.first + blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.end) return;
    float* const record = a.splats + uint64_t{i} * RECORD_WIDTH;
    TileRect tiles;
    const uint32_t count = take_tiles(record, tiles);
    // Recomputed from the same opacity as in the projection.
    float exponent_min = 0.0f;
    least_exponent(record[RECORD_OPACITY], exponent_min);
    record[RECORD_EXPONENT] = exponent_min;
    a.tiles[i] = tiles;
    a.depth_keys[i] = __float_as_uint(record[RECORD_DEPTH]);
    a.splat_indices[i] = i;
    a.instance_counts[i] = count;
}
