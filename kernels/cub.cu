// cub: sort and prefix sum of the CUB library, as C functions.
// The caller owns all memory. If `temp` is null, a function only sets `temp_bytes`.
// All functions return a cudaError_t. With 32-bit counts CUB computes offsets in 32 bits.

#include <cstdint>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <thrust/iterator/permutation_iterator.h>

namespace {

// Stable sort by the bits [begin_bit, end_bit) of the keys. `half` is 1 if the result is in the alternate buffers and 0
// if it is in the first ones.
template <typename Key>
int sort_pairs(void* temp, size_t* temp_bytes, Key* const keys[2], uint32_t* const values[2],
               uint32_t n, int begin_bit, int end_bit, int* half, cudaStream_t stream) {
    cub::DoubleBuffer<Key> key_buffers(keys[0], keys[1]);
    cub::DoubleBuffer<uint32_t> value_buffers(values[0], values[1]);
    const cudaError_t error = cub::DeviceRadixSort::SortPairs(
        temp, *temp_bytes, key_buffers, value_buffers, n, begin_bit, end_bit, stream);
    if (error == cudaSuccess && key_buffers.selector != value_buffers.selector) {
        return cudaErrorUnknown;
    }
    *half = key_buffers.selector;
    return error;
}

}  // namespace

extern "C" {

int splat_sort_u32_u32(void* temp, size_t* temp_bytes, uint32_t* const keys[2],
                       uint32_t* const values[2], uint32_t n, int begin_bit, int end_bit,
                       int* half, cudaStream_t stream) {
    return sort_pairs(temp, temp_bytes, keys, values, n, begin_bit, end_bit, half, stream);
}

int splat_sort_u16_u32(void* temp, size_t* temp_bytes, uint16_t* const keys[2],
                       uint32_t* const values[2], uint32_t n, int begin_bit, int end_bit,
                       int* half, cudaStream_t stream) {
    return sort_pairs(temp, temp_bytes, keys, values, n, begin_bit, end_bit, half, stream);
}

// Inclusive prefix sum, in place.
int splat_inclusive_sum_u32(void* temp, size_t* temp_bytes, uint32_t* values, uint32_t n,
                            cudaStream_t stream) {
    return cub::DeviceScan::InclusiveSum(temp, *temp_bytes, values, values, n, stream);
}

int splat_inclusive_sum_u64(void* temp, size_t* temp_bytes, uint64_t* values, uint32_t n,
                            cudaStream_t stream) {
    return cub::DeviceScan::InclusiveSum(temp, *temp_bytes, values, values, n, stream);
}

int splat_exclusive_sum_u32(void* temp, size_t* temp_bytes, const uint32_t* in, uint32_t* out,
                            uint32_t n, cudaStream_t stream) {
    return cub::DeviceScan::ExclusiveSum(temp, *temp_bytes, in, out, n, stream);
}

// Exclusive prefix sum of in[order[0]], in[order[1]], ...
int splat_exclusive_sum_ordered_u32(void* temp, size_t* temp_bytes, const uint32_t* in,
                                    const uint32_t* order, uint32_t* out, uint32_t n,
                                    cudaStream_t stream) {
    const auto ordered = thrust::make_permutation_iterator(in, order);
    return cub::DeviceScan::ExclusiveSum(temp, *temp_bytes, ordered, out, n, stream);
}

const char* splat_error_text(int error) {
    return cudaGetErrorString(static_cast<cudaError_t>(error));
}

}  // extern "C"
