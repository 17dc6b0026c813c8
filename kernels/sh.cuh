// Twin of math/sh.rs: real spherical harmonics up to degree 3.
#pragma once

#include <cstdint>

// 1 / (2 sqrt(pi)).
constexpr float SH_C0 = 0.28209479177387814f;
// sqrt(3 / 4pi).
constexpr float SH_C1 = 0.4886025119029199f;
// sqrt(15 / 4pi), sqrt(5 / 16pi), sqrt(15 / 16pi).
constexpr float SH_C2_0 = 1.0925484305920792f;
constexpr float SH_C2_1 = 0.31539156525252005f;
constexpr float SH_C2_2 = 0.5462742152960396f;
// sqrt(35 / 32pi), sqrt(105 / 4pi), sqrt(21 / 32pi), sqrt(7 / 16pi), sqrt(105 / 16pi).
constexpr float SH_C3_0 = 0.5900435899266435f;
constexpr float SH_C3_1 = 2.890611442640554f;
constexpr float SH_C3_2 = 0.4570457994644658f;
constexpr float SH_C3_3 = 0.3731763325901154f;
constexpr float SH_C3_4 = 1.445305721320277f;

// Coefficients per channel at degree 3.
constexpr int SH_MAX_COEFFICIENTS = 16;

// Computes the basis functions in the unit direction `dir`; zero above `degree`.
__device__ inline void sh_basis(uint32_t degree, float3 dir, float (&b)[SH_MAX_COEFFICIENTS]) {
    const float x = dir.x, y = dir.y, z = dir.z;
    b[0] = SH_C0;
#pragma unroll
    for (int k = 1; k < SH_MAX_COEFFICIENTS; ++k) b[k] = 0.0f;
    if (degree < 1) return;
    b[1] = -SH_C1 * y;
    b[2] = SH_C1 * z;
    b[3] = -SH_C1 * x;
    if (degree < 2) return;
    const float xx = x * x, yy = y * y, zz = z * z;
    b[4] = SH_C2_0 * x * y;
    b[5] = -SH_C2_0 * y * z;
    b[6] = SH_C2_1 * (2.0f * zz - xx - yy);
    b[7] = -SH_C2_0 * x * z;
    b[8] = SH_C2_2 * (xx - yy);
    if (degree < 3) return;
    b[9] = -SH_C3_0 * y * (3.0f * xx - yy);
    b[10] = SH_C3_1 * x * y * z;
    b[11] = -SH_C3_2 * y * (4.0f * zz - xx - yy);
    b[12] = SH_C3_3 * z * (2.0f * zz - 3.0f * xx - 3.0f * yy);
    b[13] = -SH_C3_2 * x * (4.0f * zz - xx - yy);
    b[14] = SH_C3_4 * z * (xx - yy);
    b[15] = -SH_C3_0 * x * (xx - 3.0f * yy);
}

// Returns the gradient of basis function `k` by the direction, whose components are taken as independent. `k` is a
// compile-time constant, so that only its own terms remain.
__device__ inline float3 sh_gradient(uint32_t k, float3 dir) {
    const float x = dir.x, y = dir.y, z = dir.z;
    const float xx = x * x, yy = y * y, zz = z * z, xy = x * y, yz = y * z, xz = x * z;
    switch (k) {
        case 1: return {0.0f, -SH_C1, 0.0f};
        case 2: return {0.0f, 0.0f, SH_C1};
        case 3: return {-SH_C1, 0.0f, 0.0f};
        case 4: return {SH_C2_0 * y, SH_C2_0 * x, 0.0f};
        case 5: return {0.0f, -SH_C2_0 * z, -SH_C2_0 * y};
        case 6: return {-SH_C2_1 * 2.0f * x, -SH_C2_1 * 2.0f * y, SH_C2_1 * 4.0f * z};
        case 7: return {-SH_C2_0 * z, 0.0f, -SH_C2_0 * x};
        case 8: return {SH_C2_2 * 2.0f * x, -SH_C2_2 * 2.0f * y, 0.0f};
        case 9: return {-SH_C3_0 * 6.0f * xy, -SH_C3_0 * 3.0f * (xx - yy), 0.0f};
        case 10: return {SH_C3_1 * yz, SH_C3_1 * xz, SH_C3_1 * xy};
        case 11:
            return {SH_C3_2 * 2.0f * xy, -SH_C3_2 * (4.0f * zz - xx - 3.0f * yy),
                    -SH_C3_2 * 8.0f * yz};
        case 12:
            return {-SH_C3_3 * 6.0f * xz, -SH_C3_3 * 6.0f * yz,
                    SH_C3_3 * (6.0f * zz - 3.0f * xx - 3.0f * yy)};
        case 13:
            return {-SH_C3_2 * (4.0f * zz - 3.0f * xx - yy), SH_C3_2 * 2.0f * xy,
                    -SH_C3_2 * 8.0f * xz};
        case 14: return {SH_C3_4 * 2.0f * xz, -SH_C3_4 * 2.0f * yz, SH_C3_4 * (xx - yy)};
        case 15: return {-SH_C3_0 * 3.0f * (xx - yy), SH_C3_0 * 6.0f * xy, 0.0f};
        default: return {0.0f, 0.0f, 0.0f};
    }
}

// Returns the number of coefficients per channel up to a degree.
__device__ inline uint32_t sh_coefficients(uint32_t degree) { return (degree + 1) * (degree + 1); }

// Returns `d_dir` of `sh_basis`.
__device__ inline float3 sh_basis_bwd(uint32_t degree, float3 dir,
                                      const float (&d_b)[SH_MAX_COEFFICIENTS]) {
    float3 d = {0.0f, 0.0f, 0.0f};
#pragma unroll
    for (uint32_t k = 1; k < SH_MAX_COEFFICIENTS; ++k) {
        if (k >= sh_coefficients(degree)) continue;
        const float3 gradient = sh_gradient(k, dir);
        d.x = fmaf(gradient.x, d_b[k], d.x);
        d.y = fmaf(gradient.y, d_b[k], d.y);
        d.z = fmaf(gradient.z, d_b[k], d.z);
    }
    return d;
}
