// Twin of math/normals.rs: normals of Gaussians, of drawn maps, and of drawn depths. Same names, same order of
// arguments; see Rust for the equations.
#pragma once

#include "splat.cuh"

__device__ inline uint32_t shortest_axis(float3 log_scale) {
    const uint32_t first = log_scale.y < log_scale.x ? 1 : 0;
    const float least = first == 1 ? log_scale.y : log_scale.x;
    return log_scale.z < least ? 2 : first;
}

// Returns the unit vector of an axis.
__device__ inline float3 along_axis(uint32_t axis) {
    return {axis == 0 ? 1.0f : 0.0f, axis == 1 ? 1.0f : 0.0f, axis == 2 ? 1.0f : 0.0f};
}

// Returns the shape with scales that make the third axis the shortest.
__device__ inline Shape flat(const Shape& shape) {
    return {shape.mean_world, {1.0f, 1.0f, 0.0f}, shape.quat, shape.smoothing};
}

__device__ inline float3 axis_cam(const ViewCamera& view, const Shape& shape, float& sign) {
    const float3 axis_world = mul(rotation(shape.quat), along_axis(shortest_axis(shape.log_scale)));
    const float3 axis = mul(camera_rotation(view), axis_world);
    sign = dot(axis, camera_from_world(view, shape.mean_world)) > 0.0f ? -1.0f : 1.0f;
    return axis;
}

__device__ inline float3 facing_normal(const ViewCamera& view, const Shape& shape) {
    float sign;
    const float3 axis = axis_cam(view, shape, sign);
    return scale(axis, sign);
}

__device__ inline Quat facing_normal_bwd(const ViewCamera& view, const Shape& shape,
                                         float3 d_normal) {
    float sign;
    axis_cam(view, shape, sign);
    const float3 d_axis = mul_transposed(camera_rotation(view), scale(d_normal, sign));
    const float3 axis = along_axis(shortest_axis(shape.log_scale));
    const Mat3 d_rotation = {scale(axis, d_axis.x), scale(axis, d_axis.y), scale(axis, d_axis.z)};
    return rotation_bwd(shape.quat, d_rotation);
}

__device__ inline float3 blended_normal(float2 xy) {
    return {xy.x, xy.y, -sqrtf(1.0f - fminf(xy.x * xy.x + xy.y * xy.y, 1.0f))};
}

__device__ inline float2 blended_normal_bwd(float2 xy, float3 d_normal) {
    const float squared = 1.0f - (xy.x * xy.x + xy.y * xy.y);
    const float through_z = squared > 0.0f ? d_normal.z / sqrtf(squared) : 0.0f;
    return {d_normal.x + xy.x * through_z, d_normal.y + xy.y * through_z};
}

// True if there is a slope between these depths.
__device__ inline bool has_slope(float before, float behind) { return before + behind > 0.0f; }

__device__ inline float slope(float focal_px, float before, float behind) {
    return focal_px * (behind - before) / (before + behind);
}

__device__ inline float2 slope_bwd(float focal_px, float before, float behind, float d_slope) {
    const float sum = before + behind;
    const float d = 2.0f * focal_px * d_slope / sum;
    return {-d * (behind / sum), d * (before / sum)};
}

// True if two neighbouring depths are of one surface; false if one is 0.
__device__ inline bool is_smooth(float focal_px, float depth, float beside) {
    const float nearer = fminf(depth, beside);
    return nearer > 0.0f && focal_px * fabsf(beside - depth) <= STEP_MAX * nearer;
}

__device__ inline float3 upright(float2 slopes, float2 ray) {
    return {slopes.x, slopes.y, -(1.0f + slopes.x * ray.x + slopes.y * ray.y)};
}

__device__ inline float3 surface_normal(float2 slopes, float2 ray) {
    return normalize(upright(slopes, ray));
}

__device__ inline float2 surface_normal_bwd(float2 slopes, float2 ray, float3 d_normal) {
    const float3 d = normalize_bwd(upright(slopes, ray), d_normal);
    return {d.x - ray.x * d.z, d.y - ray.y * d.z};
}

// Decodes the unit normal of a map; false if there is none.
__device__ inline bool mapped_normal(const int8_t* stored, float3& normal) {
    const float3 vector = {static_cast<float>(stored[0]), static_cast<float>(stored[1]),
                           static_cast<float>(stored[2])};
    if (dot(vector, vector) < STORED_SQUARE_MIN) return false;
    normal = normalize(vector);
    return true;
}
