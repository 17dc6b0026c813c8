// project: projects primitives to splats with colours. One thread per row (`project.cuh`). The splats of visible rows
// are appended to a compact list. Within a block of threads, the list is in row order; between blocks, it is in order
// of arrival. Shapes: geometry [lane blocks, 11, 32], sh and its moments in the layouts of `state.cuh`, splats and
// their data [capacity]. Splats beyond the capacity are counted but not written, and the host draws the view again.

#include "project.cuh"
#include "surfels.cuh"

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
