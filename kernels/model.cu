// model: chosen rows of the model, so that a sample need not carry all of it to the host.
// One thread per value. Shapes: geometry in lane blocks, sh as `state.cuh` says; rows [count]; sample [count, 11 + 3k],
// the values of a row in the order mean, log scale, quaternion, opacity logit, SH coefficients.

#include "state.cuh"

template <class Storage>
__device__ inline void sample(const SampleArgs& a) {
    const float* __restrict__ geometry = a.geometry;
    const uint32_t* __restrict__ rows = a.rows;
    const uint32_t width = GEOMETRY_WIDTH + a.sh_width;
    const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i >= uint64_t{a.count} * width) return;

    const uint32_t row = rows[i / width];
    const uint32_t column = static_cast<uint32_t>(i % width);
    if (column < GEOMETRY_WIDTH) {
        a.sample[i] = geometry[lane_block(row, GEOMETRY_WIDTH) + component(column)];
        return;
    }
    const typename Storage::Reader sh({a.sh, nullptr, nullptr, a.sh_width}, row);
    a.sample[i] = sh.one(column - GEOMETRY_WIDTH);
}

extern "C" __global__ void __launch_bounds__(SAMPLE_BLOCK)
    sample_rows(const __grid_constant__ SampleArgs a) {
    sample<Full>(a);
}

extern "C" __global__ void __launch_bounds__(SAMPLE_BLOCK)
    sample_rows_compact(const __grid_constant__ SampleArgs a) {
    sample<Compact>(a);
}
