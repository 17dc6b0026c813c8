// reorder: sorts rows by their centres along the Z-curve, a few columns at a time, in place.
// One thread per Gaussian. Shapes: tables in lane blocks of 4-byte words; a single column [n] is a table of width 1;
// row_from_place [n]; scratch [columns, n].
// A column is completely in scratch before it is written: the two kernels of a pass run one after another.

#include "layout.cuh"

// Number of cells along an axis on each side of the centre, and the last cell.
constexpr float CELLS_A_SIDE = 512.0f;
constexpr int LAST_CELL = 1023;

// Returns the cell of an offset in half sides; -1 if not finite. The intrinsics round each operation separately, like
// the twin.
__device__ inline int cell(float offset) {
    if (!isfinite(offset)) return -1;
    const float contracted = __fdiv_rn(offset, __fadd_rn(1.0f, fabsf(offset)));
    const float place = __fmul_rn(__fadd_rn(contracted, 1.0f), CELLS_A_SIDE);
    return min(max(__float2int_rd(place), 0), LAST_CELL);
}

// Inserts two zeros before each of ten bits.
__device__ inline uint32_t spread(uint32_t bits) {
    bits = (bits | bits << 16) & 0x030000ffu;
    bits = (bits | bits << 8) & 0x0300f00fu;
    bits = (bits | bits << 4) & 0x030c30c3u;
    return (bits | bits << 2) & 0x09249249u;
}

// Twin of math::morton::Cube::key.
__device__ inline uint32_t morton_key(float3 point, const float (&centre)[3], float half_side) {
    const int x = cell(__fdiv_rn(__fsub_rn(point.x, centre[0]), half_side));
    const int y = cell(__fdiv_rn(__fsub_rn(point.y, centre[1]), half_side));
    const int z = cell(__fdiv_rn(__fsub_rn(point.z, centre[2]), half_side));
    return min(x, min(y, z)) < 0 ? 0 : spread(x) | spread(y) << 1 | spread(z) << 2;
}

extern "C" __global__ void __launch_bounds__(REORDER_BLOCK)
    morton_keys(const __grid_constant__ MortonArgs a) {
    const float* __restrict__ table = a.table;
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.n) return;
    const float* mean = table + lane_block(row, a.width);
    const float3 point = {mean[0], mean[component(1)], mean[component(2)]};
    a.keys[row] = morton_key(point, a.centre, a.half_side);
    a.rows[row] = row;
}

// Copies a column in row order. From a table in host memory, a warp then reads 128 bytes at a time; in another order
// each row would cross the bus separately.
extern "C" __global__ void __launch_bounds__(REORDER_BLOCK)
    fetch_column(const __grid_constant__ ColumnsArgs a) {
    const uint32_t* __restrict__ table = reinterpret_cast<const uint32_t*>(a.table);
    uint32_t* __restrict__ scratch = reinterpret_cast<uint32_t*>(a.scratch);
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < a.n) scratch[row] = table[lane_block(row, a.width) + component(a.first)];
}

// Copies columns to scratch in the new order.
extern "C" __global__ void __launch_bounds__(REORDER_BLOCK)
    gather_columns(const __grid_constant__ ColumnsArgs a) {
    const uint32_t* __restrict__ table = reinterpret_cast<const uint32_t*>(a.table);
    const uint32_t* __restrict__ row_from_place = a.row_from_place;
    uint32_t* __restrict__ scratch = reinterpret_cast<uint32_t*>(a.scratch);
    const uint32_t place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= a.n) return;
    const uint64_t from = lane_block(row_from_place[place], a.width) + component(a.first);
#pragma unroll 4
    for (uint32_t column = 0; column < a.columns; ++column) {
        scratch[uint64_t{column} * a.n + place] = table[from + component(column)];
    }
}

// Copies columns from scratch back.
extern "C" __global__ void __launch_bounds__(REORDER_BLOCK)
    return_columns(const __grid_constant__ ColumnsArgs a) {
    const uint32_t* __restrict__ scratch = reinterpret_cast<const uint32_t*>(a.scratch);
    uint32_t* __restrict__ table = reinterpret_cast<uint32_t*>(a.table);
    const uint32_t place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= a.n) return;
    const uint64_t to = lane_block(place, a.width) + component(a.first);
#pragma unroll 4
    for (uint32_t column = 0; column < a.columns; ++column) {
        table[to + component(column)] = scratch[uint64_t{column} * a.n + place];
    }
}
