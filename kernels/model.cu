// model: gathers chosen rows of the model, so that a sample does not require a copy of the whole model.
// One thread per value of one table. Shapes: table in the layout of `state.cuh` for its form; rows [count]; sample
// [count, values of all tables], with the values of a row in schema order.

#include "state.cuh"

extern "C" __global__ void __launch_bounds__(SAMPLE_BLOCK)
    sample_rows(const __grid_constant__ SampleArgs a) {
    const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i >= uint64_t{a.count} * a.values) return;

    const uint64_t row = i / a.values;
    const uint32_t k = static_cast<uint32_t>(i % a.values);
    const FixedRow<uint32_t> words(a.table, a.rows[row], a.words);
    float value;
    switch (a.form) {
        case FORM_HALVES: value = decode_half(words[k / 2], k % 2); break;
        case FORM_BFLOATS: value = decode_bfloat(words[k / 2], k % 2); break;
        default: value = __uint_as_float(words[k]);
    }
    a.sample[row * a.row_values + a.first + k] = value;
}
