// palette: nearest-neighbour search of rows, for two-level k-means of SOG palettes. A row's numbers are in registers.
// `near_entries`: one thread per row and cell, which compares the row with all centres of the cell. Threads are ordered
// by cell, so that a warp reads the same centre at a time. The threads of a row combine their results by an atomic
// maximum of inverted keys, which selects the nearest centre, and the first of equal ones. `near_cells`: one thread per
// row, which keeps the nearest centres sorted.
// Shapes: rows [n, width], centers [centres, width], starts [cells + 1], cells [n, per_row], order
// [n x per_row], nearest [n].

#include "layout.cuh"

// A row as float4s.
template <uint32_t QUADS>
struct Row {
    float4 quads[QUADS];

    __device__ static Row load(const float* __restrict__ rows, uint64_t row) {
        Row loaded;
        const float4* const first = reinterpret_cast<const float4*>(rows) + row * QUADS;
#pragma unroll
        for (uint32_t i = 0; i < QUADS; ++i) loaded.quads[i] = first[i];
        return loaded;
    }

    __device__ float squared_distance(const float* __restrict__ centers, uint64_t center) const {
        const float4* const other = reinterpret_cast<const float4*>(centers) + center * QUADS;
        float4 sums = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (uint32_t i = 0; i < QUADS; ++i) {
            const float4 b = __ldg(other + i);
            const float4 d = {quads[i].x - b.x, quads[i].y - b.y, quads[i].z - b.z,
                              quads[i].w - b.w};
            sums.x = fmaf(d.x, d.x, sums.x);
            sums.y = fmaf(d.y, d.y, sums.y);
            sums.z = fmaf(d.z, d.z, sums.z);
            sums.w = fmaf(d.w, d.w, sums.w);
        }
        return (sums.x + sums.y) + (sums.z + sums.w);
    }
};

template <uint32_t QUADS>
__device__ inline void find_entries(const NearEntriesArgs& a, uint32_t thread) {
    const uint32_t* __restrict__ cells = a.cells;
    const uint32_t* __restrict__ starts = a.starts;
    const uint32_t* __restrict__ order = a.order;
    const uint32_t place = order[thread];
    const uint32_t number = place / a.per_row;
    const auto row = Row<QUADS>::load(a.rows, number);
    const uint32_t cell = cells[place];
    const uint32_t end = starts[cell + 1];
    float least = __int_as_float(0x7f800000);
    uint32_t nearest = 0;
    for (uint32_t center = starts[cell]; center < end; ++center) {
        const float distance = row.squared_distance(a.centers, center);
        if (distance < least) {
            least = distance;
            nearest = center;
        }
    }
    // The bits of non-negative floats are ordered like the floats.
    const unsigned long long found =
        (static_cast<unsigned long long>(__float_as_uint(least)) << 32) | nearest;
    atomicMax(reinterpret_cast<unsigned long long*>(a.nearest) + number, ~found);
}

extern "C" __global__ void __launch_bounds__(PALETTE_BLOCK)
    near_entries(const __grid_constant__ NearEntriesArgs a) {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= a.count) return;
    switch (a.width) {
        case 8: return find_entries<2>(a, thread);
        case 16: return find_entries<4>(a, thread);
        case 24: return find_entries<6>(a, thread);
        default: return find_entries<12>(a, thread);
    }
}

template <uint32_t QUADS>
__device__ inline void find_cells(const NearCellsArgs& a, uint32_t number) {
    const auto row = Row<QUADS>::load(a.rows, number);
    float distances[PALETTE_CELLS];
    uint32_t found[PALETTE_CELLS];
#pragma unroll
    for (uint32_t k = 0; k < PALETTE_CELLS; ++k) {
        distances[k] = __int_as_float(0x7f800000);
        found[k] = 0;
    }
    for (uint32_t cell = 0; cell < a.cell_count; ++cell) {
        float distance = row.squared_distance(a.centers, cell);
        uint32_t moved = cell;
        // Insert after those that are as near, and shift the farther ones.
#pragma unroll
        for (uint32_t k = 0; k < PALETTE_CELLS; ++k) {
            if (distance < distances[k]) {
                const float other_distance = distances[k];
                const uint32_t other = found[k];
                distances[k] = distance;
                found[k] = moved;
                distance = other_distance;
                moved = other;
            }
        }
    }
#pragma unroll
    for (uint32_t k = 0; k < PALETTE_CELLS; ++k) {
        if (k < a.per_row) a.cells[uint64_t{number} * a.per_row + k] = found[k];
    }
}

extern "C" __global__ void __launch_bounds__(PALETTE_BLOCK)
    near_cells(const __grid_constant__ NearCellsArgs a) {
    const uint32_t number = blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= a.count) return;
    switch (a.width) {
        case 8: return find_cells<2>(a, number);
        case 16: return find_cells<4>(a, number);
        case 24: return find_cells<6>(a, number);
        default: return find_cells<12>(a, number);
    }
}
