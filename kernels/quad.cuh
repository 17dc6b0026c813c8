// Operations on four floats.
#pragma once

// Atomically adds four floats to a record in device memory.
__device__ inline void add_quad(float4* at, float4 value) {
#if __CUDA_ARCH__ >= 900
    atomicAdd(at, value);
#else
    float* const out = reinterpret_cast<float*>(at);
    if (value.x != 0.0f) atomicAdd(out, value.x);
    if (value.y != 0.0f) atomicAdd(out + 1, value.y);
    if (value.z != 0.0f) atomicAdd(out + 2, value.z);
    if (value.w != 0.0f) atomicAdd(out + 3, value.w);
#endif
}
