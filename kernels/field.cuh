// Twin of math/field.rs: the density of Gaussians as a field in space, and the surface that it implies (SuGaR: Guedon
// and Lepetit 2024, section 4.1). Same names; see Rust for the equations.
#pragma once

#include "abi.cuh"
#include "linalg.cuh"
#include "splat.cuh"

constexpr float SCALE_MIN = 1e-8f;
constexpr float DISTANCE2_MAX = 1e8f;
constexpr float SPREAD = 1.5f;
constexpr float WEIGHED_THICKNESS_MIN = 1e-6f;
constexpr float WEIGHT_SUM_MIN = 1e-6f;
constexpr float ENTROPY_EPSILON = 1e-10f;
constexpr float DISTANCE_DENSITY_FACTOR = 1.0f / 16.0f;
constexpr float DENSITY_MIN = 1e-16f;
constexpr float ROOT_MIN = 1e-3f;
constexpr float DISTANCE_ERROR_MAX = 100.0f;
constexpr float NEAR_SURFACE = 2.0f;

// Returns one component. Dynamic indexing would move the vector to local memory.
__device__ inline float pick(float3 v, uint32_t axis) {
    return axis == 0 ? v.x : axis == 1 ? v.y : v.z;
}

__device__ inline void add_to(float3& v, uint32_t axis, float value) {
    v.x += axis == 0 ? value : 0.0f;
    v.y += axis == 1 ? value : 0.0f;
    v.z += axis == 2 ? value : 0.0f;
}

__device__ inline float3 times(float3 a, float3 b) { return {a.x * b.x, a.y * b.y, a.z * b.z}; }

// A Gaussian in the form that the field uses.
struct DensityKernel {
    float3 mean_world;
    float3 scale;
    Mat3 axes;  // columns are the Gaussian's axes
    float opacity;
    uint32_t thin;  // index of the axis with the smallest scale
};

// Gradients of a DensityKernel's raw parameters, with its axes in place of its quaternion.
struct DensityKernelGradient {
    float3 d_mean_world;
    float3 d_log_scale;
    Mat3 d_axes;
    float d_opacity_logit;
};

__device__ inline uint32_t thinnest(float3 scale) {
    const uint32_t first = scale.y < scale.x ? 1 : 0;
    return scale.z < pick(scale, first) ? 2 : first;
}

__device__ inline DensityKernel density_kernel_of(float3 mean_world, float3 log_scale, Quat quat, float opacity_logit) {
    const float3 scale = {expf(log_scale.x), expf(log_scale.y), expf(log_scale.z)};
    return {mean_world, scale, rotation(quat), sigmoid(opacity_logit), thinnest(scale)};
}

__device__ inline float thickness(const DensityKernel& kernel) { return pick(kernel.scale, kernel.thin); }

__device__ inline float3 normal_of(const DensityKernel& kernel) {
    return {pick(kernel.axes.row[0], kernel.thin), pick(kernel.axes.row[1], kernel.thin),
            pick(kernel.axes.row[2], kernel.thin)};
}

__device__ inline float3 inverse_scale_of(const DensityKernel& kernel) {
    return {1.0f / fmaxf(kernel.scale.x, SCALE_MIN), 1.0f / fmaxf(kernel.scale.y, SCALE_MIN),
            1.0f / fmaxf(kernel.scale.z, SCALE_MIN)};
}

__device__ inline float3 sample_along(const DensityKernel& kernel, float3 normals) {
    return times(scale(kernel.scale, SPREAD), normals);
}

__device__ inline float3 sample_offset(const DensityKernel& kernel, float3 along) {
    return mul(kernel.axes, along);
}

// Adds a b^T to a matrix.
__device__ inline void add_outer(Mat3& m, float3 a, float3 b) {
    m.row[0] = add(m.row[0], scale(b, a.x));
    m.row[1] = add(m.row[1], scale(b, a.y));
    m.row[2] = add(m.row[2], scale(b, a.z));
}

__device__ inline void sample_bwd(const DensityKernel& kernel, float3 along, float3 d_place, float d_distance,
                                  DensityKernelGradient& d_kernel) {
    d_kernel.d_mean_world = add(d_kernel.d_mean_world, d_place);
    float3 d_along = mul_transposed(kernel.axes, d_place);
    add_to(d_along, kernel.thin, d_distance);
    d_kernel.d_log_scale = add(d_kernel.d_log_scale, times(d_along, along));
    add_outer(d_kernel.d_axes, d_place, along);
}

__device__ inline float density(const DensityKernel& kernel, float3 offset, float3& whitened) {
    whitened = times(mul_transposed(kernel.axes, offset), inverse_scale_of(kernel));
    const float distance2 = dot(whitened, whitened);
    return distance2 <= DISTANCE2_MAX ? kernel.opacity * expf(-0.5f * distance2) : 0.0f;
}

// Returns `d_offset`; adds to the other gradients, except that of the centre.
__device__ inline float3 density_bwd(const DensityKernel& kernel, float3 offset, float3 whitened,
                                     float density, float d_density, DensityKernelGradient& d_kernel) {
    if (density <= 0.0f) return {0.0f, 0.0f, 0.0f};
    const float d_exponent = d_density * density;
    d_kernel.d_opacity_logit += d_exponent * (1.0f - kernel.opacity);
    const float3 d_turned = scale(times(whitened, inverse_scale_of(kernel)), -d_exponent);
    const float3 by_scale = scale(times(whitened, whitened), d_exponent);
    d_kernel.d_log_scale.x += kernel.scale.x > SCALE_MIN ? by_scale.x : 0.0f;
    d_kernel.d_log_scale.y += kernel.scale.y > SCALE_MIN ? by_scale.y : 0.0f;
    d_kernel.d_log_scale.z += kernel.scale.z > SCALE_MIN ? by_scale.z : 0.0f;
    add_outer(d_kernel.d_axes, offset, d_turned);
    return mul(kernel.axes, d_turned);
}

__device__ inline float surface_thickness(float sum, uint32_t count) {
    return fmaxf(sum / static_cast<float>(count), SCALE_MIN);
}

__device__ inline float surface_thickness_bwd(const DensityKernel& kernel, float beta, uint32_t count,
                                              float d_beta) {
    return beta > SCALE_MIN ? d_beta * thickness(kernel) / static_cast<float>(count) : 0.0f;
}

__device__ inline float surface_density(float distance, float beta) {
    const float ratio = distance / beta;
    return ratio * ratio <= DISTANCE2_MAX ? expf(-0.5f * ratio * ratio) : 0.0f;
}

// Returns `d_distance` and `d_beta`.
__device__ inline float2 surface_density_bwd(float distance, float beta, float target,
                                             float d_target) {
    if (target <= 0.0f) return {0.0f, 0.0f};
    const float ratio = distance / beta;
    const float d_distance = -d_target * target * ratio / beta;
    return {d_distance, -d_distance * ratio};
}

__device__ inline float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f; }

__device__ inline float3 aligned(float3 normal, float3 own, float& side) {
    side = sign(dot(normal, own));
    return scale(normal, side);
}

__device__ inline float normal_weight(const DensityKernel& kernel, float3 offset, float density) {
    if (density <= 0.0f) return 0.0f;
    const float thick = fmaxf(thickness(kernel), WEIGHED_THICKNESS_MIN);
    return density * fabsf(dot(offset, normal_of(kernel))) / (thick * thick);
}

__device__ inline float normal_weight_factor(float sum) {
    return 1.0f / fmaxf(sum, WEIGHT_SUM_MIN);
}

__device__ inline void normal_bwd(const DensityKernel& kernel, float3 d_normal, DensityKernelGradient& d_kernel) {
    add_to(d_kernel.d_axes.row[0], kernel.thin, d_normal.x);
    add_to(d_kernel.d_axes.row[1], kernel.thin, d_normal.y);
    add_to(d_kernel.d_axes.row[2], kernel.thin, d_normal.z);
}

__device__ inline float entropy(float opacity_logit) {
    const float o = sigmoid(opacity_logit), rest = sigmoid(-opacity_logit);
    return -o * logf(o + ENTROPY_EPSILON) - rest * logf(rest + ENTROPY_EPSILON);
}

__device__ inline float entropy_bwd(float opacity_logit, float d_entropy) {
    const float o = sigmoid(opacity_logit), rest = sigmoid(-opacity_logit);
    const float sum = o + ENTROPY_EPSILON, rest_sum = rest + ENTROPY_EPSILON;
    const float d_opacity = logf(rest_sum) + rest / rest_sum - logf(sum) - o / sum;
    return d_entropy * d_opacity * o * rest;
}

__device__ inline float distance_root(float density) {
    const float held = fminf(fmaxf(density, DENSITY_MIN), 1.0f);
    return sqrtf(fmaxf(-2.0f * logf(held), 0.0f));
}

__device__ inline float distance(float density, float beta) { return beta * distance_root(density); }

// Returns `d_density` and `d_beta`.
__device__ inline float2 distance_bwd(float density, float beta, float d_distance) {
    const float root = distance_root(density);
    const float steepest = fmaxf(root, ROOT_MIN);
    const float d_density = density > DENSITY_MIN ? -d_distance * beta / (density * steepest) : 0.0f;
    return {d_density, d_distance * root};
}

__device__ inline float distance_error(float distance, float height, float unit) {
    const float error = fabsf(distance - fabsf(height)) / unit;
    return error > DISTANCE_ERROR_MAX ? DISTANCE_ERROR_MAX : error;
}

// Returns `d_distance` and `d_height`.
__device__ inline float2 distance_error_bwd(float distance, float height, float unit,
                                            float d_error) {
    const float difference = distance - fabsf(height);
    if (fabsf(difference) > DISTANCE_ERROR_MAX * unit) return {0.0f, 0.0f};
    const float d_distance = d_error * sign(difference) / unit;
    return {d_distance, -d_distance * sign(height)};
}

__device__ inline float deviation_towards(const DensityKernel& kernel, float3 place_world) {
    const float3 towards = normalize(sub(place_world, kernel.mean_world));
    const float3 stretched = times(kernel.scale, mul_transposed(kernel.axes, towards));
    return sqrtf(dot(stretched, stretched));
}

__device__ inline bool is_near_surface(float height, float deviation) {
    return fabsf(height) < NEAR_SURFACE * deviation;
}

// Lookup of points in a map of a view.

// Projects a point in camera space to px; false outside the image or behind the near plane.
__device__ inline bool place_px(const ViewCamera& view, float3 point_cam, float2& place) {
    if (!in_front(point_cam.z, view.near)) return false;
    place = {view.focal_px[0] * (point_cam.x / point_cam.z) + view.centre_px[0],
             view.focal_px[1] * (point_cam.y / point_cam.z) + view.centre_px[1]};
    return place.x >= 0.0f && place.x <= static_cast<float>(view.size[0]) && place.y >= 0.0f &&
           place.y <= static_cast<float>(view.size[1]);
}

// Returns `d_point_cam` for a point that was projected.
__device__ inline float3 place_px_bwd(const ViewCamera& view, float3 point_cam, float2 d_place) {
    const float d_x = d_place.x * view.focal_px[0] / point_cam.z;
    const float d_y = d_place.y * view.focal_px[1] / point_cam.z;
    return {d_x, d_y, -(d_x * point_cam.x + d_y * point_cam.y) / point_cam.z};
}

// The four pixels around a position, and its fraction from the first to the last.
struct PixelQuad {
    uint2 low, high;
    float2 share;
};

// One axis of the four pixels.
__device__ inline void cell_along(float place_px, uint32_t size, uint32_t& low, uint32_t& high,
                                  float& share) {
    const float place = place_px - 0.5f;
    const uint32_t last = size - 1;
    low = place > 0.0f ? min(static_cast<uint32_t>(place), last) : 0;
    high = place > 0.0f ? min(low + 1, last) : 0;
    share = place > 0.0f && low < last ? place - static_cast<float>(low) : 0.0f;
}

__device__ inline PixelQuad cell(float2 place_px, const uint32_t* size) {
    PixelQuad c;
    cell_along(place_px.x, size[0], c.low.x, c.high.x, c.share.x);
    cell_along(place_px.y, size[1], c.low.y, c.high.y, c.share.y);
    return c;
}

// Returns one of the four pixels, in row-major order.
__device__ inline uint2 cell_pixel(const PixelQuad& c, uint32_t which) {
    return {which % 2 == 0 ? c.low.x : c.high.x, which / 2 == 0 ? c.low.y : c.high.y};
}

__device__ inline float cell_weight(const PixelQuad& c, uint32_t which) {
    return (which % 2 == 0 ? 1.0f - c.share.x : c.share.x) *
           (which / 2 == 0 ? 1.0f - c.share.y : c.share.y);
}

// Interpolates the values of the four pixels; `slopes` are the slopes along x and y, per px.
__device__ inline float between(const PixelQuad& cell, float4 values, float2& slopes) {
    const float x = cell.share.x, y = cell.share.y;
    const float over = values.y - values.x, under = values.w - values.z;
    const float above = values.x + x * over, below = values.z + x * under;
    slopes = {over + y * (under - over), below - above};
    return above + y * (below - above);
}
