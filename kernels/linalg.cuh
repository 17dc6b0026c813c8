// Twin of math/linalg.rs: small vectors and matrices, and their gradients. Same names, same order of arguments; see
// Rust for the equations.
#pragma once

__device__ inline float3 add(float3 a, float3 b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }

__device__ inline float3 sub(float3 a, float3 b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }

__device__ inline float3 scale(float3 a, float s) { return {a.x * s, a.y * s, a.z * s}; }

__device__ inline float dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }

__device__ inline float3 cross(float3 a, float3 b) {
    return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

__device__ inline float3 normalize(float3 a) {
    const float length = sqrtf(dot(a, a));
    return length > 0.0f ? scale(a, 1.0f / length) : a;
}

__device__ inline float3 normalize_bwd(float3 a, float3 d_unit) {
    const float length = sqrtf(dot(a, a));
    if (length <= 0.0f) return d_unit;
    const float3 unit = scale(a, 1.0f / length);
    return scale(sub(d_unit, scale(unit, dot(unit, d_unit))), 1.0f / length);
}

// A 3x3 matrix in rows.
struct Mat3 {
    float3 row[3];
};

__device__ inline float3 mul(const Mat3& m, float3 v) {
    return {dot(m.row[0], v), dot(m.row[1], v), dot(m.row[2], v)};
}

__device__ inline float3 mul_transposed(const Mat3& m, float3 v) {
    return add(add(scale(m.row[0], v.x), scale(m.row[1], v.y)), scale(m.row[2], v.z));
}

__device__ inline Mat3 mat_mul(const Mat3& a, const Mat3& b) {
    return {mul_transposed(b, a.row[0]), mul_transposed(b, a.row[1]), mul_transposed(b, a.row[2])};
}

__device__ inline Mat3 transpose(const Mat3& m) {
    return {float3{m.row[0].x, m.row[1].x, m.row[2].x}, float3{m.row[0].y, m.row[1].y, m.row[2].y},
            float3{m.row[0].z, m.row[1].z, m.row[2].z}};
}

// A quaternion (w, x, y, z).
struct Quat {
    float w, x, y, z;
};

// Normalises a quaternion; a zero quaternion gives the identity, with an `inverse_length` of 0.
__device__ inline Quat normalized_quat(Quat q, float& inverse_length) {
    const float squared = q.w * q.w + q.x * q.x + q.y * q.y + q.z * q.z;
    if (squared <= 0.0f) {
        inverse_length = 0.0f;
        return {1.0f, 0.0f, 0.0f, 0.0f};
    }
    inverse_length = 1.0f / sqrtf(squared);
    return {q.w * inverse_length, q.x * inverse_length, q.y * inverse_length, q.z * inverse_length};
}

__device__ inline Mat3 rotation(Quat quat) {
    float inverse_length;
    const Quat q = normalized_quat(quat, inverse_length);
    return {
        float3{1.0f - 2.0f * (q.y * q.y + q.z * q.z), 2.0f * (q.x * q.y - q.w * q.z),
               2.0f * (q.x * q.z + q.w * q.y)},
        float3{2.0f * (q.x * q.y + q.w * q.z), 1.0f - 2.0f * (q.x * q.x + q.z * q.z),
               2.0f * (q.y * q.z - q.w * q.x)},
        float3{2.0f * (q.x * q.z - q.w * q.y), 2.0f * (q.y * q.z + q.w * q.x),
               1.0f - 2.0f * (q.x * q.x + q.y * q.y)},
    };
}

__device__ inline Quat rotation_bwd(Quat quat, const Mat3& d_m) {
    float inverse_length;
    const Quat q = normalized_quat(quat, inverse_length);
    const float3 a = d_m.row[0], b = d_m.row[1], c = d_m.row[2];
    const Quat d = {
        2.0f * (q.x * (c.y - b.z) + q.y * (a.z - c.x) + q.z * (b.x - a.y)),
        2.0f * (q.w * (c.y - b.z) + q.y * (a.y + b.x) + q.z * (a.z + c.x)) - 4.0f * q.x * (b.y + c.z),
        2.0f * (q.w * (a.z - c.x) + q.x * (a.y + b.x) + q.z * (b.z + c.y)) - 4.0f * q.y * (a.x + c.z),
        2.0f * (q.w * (b.x - a.y) + q.x * (a.z + c.x) + q.y * (b.z + c.y)) - 4.0f * q.z * (a.x + b.y),
    };
    const float along = q.w * d.w + q.x * d.x + q.y * d.y + q.z * d.z;
    return {(d.w - q.w * along) * inverse_length, (d.x - q.x * along) * inverse_length,
            (d.y - q.y * along) * inverse_length, (d.z - q.z * along) * inverse_length};
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ inline float sigmoid_bwd(float y, float d_y) { return d_y * y * (1.0f - y); }
