// Hardware approximations with an error of 2 units in the last place; denormal numbers count as 0.
#pragma once

__device__ inline float fast_reciprocal(float x) {
    float out;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

__device__ inline float fast_exp2(float x) {
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

__device__ inline float fast_log2(float x) {
    float out;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

__device__ inline float fast_sqrt(float x) {
    float out;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

__device__ inline float fast_inverse_root(float x) {
    float out;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

// x y + z, clamped to 0..1, rounded once; NaN becomes 0.
__device__ inline float fast_saturated(float x, float y, float z) {
    float out;
    asm("fma.rn.ftz.sat.f32 %0, %1, %2, %3;" : "=f"(out) : "f"(x), "f"(y), "f"(z));
    return out;
}
