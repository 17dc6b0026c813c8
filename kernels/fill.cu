// fill: sets 32-bit values; one thread per value.
// Shapes: values [n].

#include "abi.cuh"

extern "C" __global__ void __launch_bounds__(FILL_BLOCK) fill(const __grid_constant__ FillArgs a) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= a.n) return;
    a.values[i] = a.value;
}
