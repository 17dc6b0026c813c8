// project: projects primitives to splats with colours. One thread per row (`project.cuh`). The splats of visible rows
// are appended to a compact list. Within a block of threads, the list is in row order; between blocks, it is in order
// of arrival. Shapes: geometry [lane blocks, 11, 32], sh and its moments in the layouts of `state.cuh`, splats and
// their data [capacity]. Splats beyond the capacity are counted but not written, and the host draws the view again.
//
// `unpack_splats`: takes splats that another rank has projected. One thread per splat.

#include "gaussian.cuh"
#include "layout.cuh"
#include "project.cuh"
#include "splat.cuh"

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    project_fwd(const __grid_constant__ ProjectArgs a) {
    project<Gaussian<Full, false>>(a);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    project_fwd_half(const __grid_constant__ ProjectArgs a) {
    project<Gaussian<HalfColors, false>>(a);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    project_fwd_compact(const __grid_constant__ ProjectArgs a) {
    project<Gaussian<Compact, false>>(a);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    project_fwd_extended(const __grid_constant__ ProjectArgs a) {
    project<Gaussian<Full, true>>(a);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    project_fwd_extended_half(const __grid_constant__ ProjectArgs a) {
    project<Gaussian<HalfColors, true>>(a);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    project_fwd_extended_compact(const __grid_constant__ ProjectArgs a) {
    project<Gaussian<Compact, true>>(a);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    project_surfels(const __grid_constant__ ProjectArgs a) {
    project<Surfels<Full>>(a);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    project_surfels_half(const __grid_constant__ ProjectArgs a) {
    project<Surfels<HalfColors>>(a);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    project_surfels_compact(const __grid_constant__ ProjectArgs a) {
    project<Surfels<Compact>>(a);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    expect_rows(const __grid_constant__ ProjectArgs a) {
    expect<false>(a);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    expect_rows_extended(const __grid_constant__ ProjectArgs a) {
    expect<true>(a);
}

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
