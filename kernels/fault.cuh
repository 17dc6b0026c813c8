// Reports of parameters that are not finite.
#pragma once

#include "layout.cuh"

// Groups of parameters: constant and other coefficients of the colours.
constexpr uint32_t SH_DC = 4, SH_REST = 5;

// Records the first Gaussian that is not finite, the group of its parameters, and in the last bit whether the value is
// infinite.
__device__ inline void report_fault(uint64_t* fault, uint32_t gaussian, uint32_t group,
                                    bool infinite) {
    const unsigned long long place =
        static_cast<unsigned long long>(gaussian) * FAULT_GROUPS + group;
    atomicMin(reinterpret_cast<unsigned long long*>(fault), 2 * place + (infinite ? 1 : 0));
}
