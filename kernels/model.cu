// model: chosen rows of the model, so that a sample need not carry all of it to the host.
// One thread per value. Shapes: geometry, sh in lane blocks; rows [count]; sample [count, 11 + 3k],
// the values of a row in the order mean, log scale, quaternion, opacity logit, SH coefficients.

#include "layout.cuh"

extern "C" __global__ void __launch_bounds__(SAMPLE_BLOCK)
    sample_rows(const __grid_constant__ SampleArgs a) {
    const float* __restrict__ geometry = a.geometry;
    const float* __restrict__ sh = a.sh;
    const uint32_t* __restrict__ rows = a.rows;
    float* __restrict__ sample = a.sample;
    const uint32_t width = GEOMETRY_WIDTH + a.sh_width;
    const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i >= uint64_t{a.count} * width) return;

    const uint32_t row = rows[i / width];
    const uint32_t column = static_cast<uint32_t>(i % width);
    sample[i] = column < GEOMETRY_WIDTH
                    ? geometry[lane_block(row, GEOMETRY_WIDTH) + component(column)]
                    : sh[lane_block(row, a.sh_width) + component(column - GEOMETRY_WIDTH)];
}
