// Twin of math/transmittance.rs: transmittance of Gaussians along a ray. Same names, same order of arguments; see Rust
// for the equations.
#pragma once

#include "splat.cuh"

// A Gaussian in a form for ray intersection, in four 16-byte quads. The first three hold a row of the whitening and a
// coordinate of the centre each, the last the opacity.
struct RayGaussian {
    float4 x, y, z;
    float opacity;
};

// Infinitely thin Gaussians still have a direction (SCALE_MIN in math/field.rs).
constexpr float RAY_SCALE_MIN = 1e-8f;

constexpr uint32_t RAY_QUADS = RAY_WIDTH / 4;
static_assert(RAY_QUADS == 4, "what a RayGaussian is stored in");

__device__ inline RayGaussian load_ray(const float4* quads) {
    return {quads[0], quads[1], quads[2], quads[3].x};
}

__device__ inline RayGaussian ray_gaussian(const ViewCamera& view, const Shape& shape,
                                           float opacity_logit) {
    const float3 mean_cam = camera_from_world(view, shape.mean_world);
    const Mat3 axes = transpose(mat_mul(camera_rotation(view), rotation(shape.quat)));
    float kept;
    const float3 wide = smoothed(
        float3{expf(shape.log_scale.x), expf(shape.log_scale.y), expf(shape.log_scale.z)},
        shape.smoothing, kept);
    const float3 a = scale(axes.row[0], 1.0f / fmaxf(wide.x, RAY_SCALE_MIN));
    const float3 b = scale(axes.row[1], 1.0f / fmaxf(wide.y, RAY_SCALE_MIN));
    const float3 c = scale(axes.row[2], 1.0f / fmaxf(wide.z, RAY_SCALE_MIN));
    return {{a.x, a.y, a.z, mean_cam.x},
            {b.x, b.y, b.z, mean_cam.y},
            {c.x, c.y, c.z, mean_cam.z},
            sigmoid(opacity_logit) * kept};
}

// A Gaussian along one ray.
struct OnRay {
    float depth, sharpness, peak;
};

__device__ inline float3 whitened(const RayGaussian& g, float3 v) {
    return {g.x.x * v.x + g.x.y * v.y + g.x.z * v.z, g.y.x * v.x + g.y.y * v.y + g.y.z * v.z,
            g.z.x * v.x + g.z.y * v.y + g.z.z * v.z};
}

__device__ inline OnRay on_ray(const RayGaussian& g, float2 slopes) {
    const float depth = g.z.w;
    const float3 from = whitened(g, {slopes.x * depth - g.x.w, slopes.y * depth - g.y.w, 0.0f});
    const float3 along = whitened(g, {slopes.x, slopes.y, 1.0f});
    const float sharpness = dot(along, along);
    const float behind = -dot(from, along) / sharpness;
    const float3 nearest = add(from, scale(along, behind));
    return {depth + behind, sharpness, g.opacity * __expf(-0.5f * dot(nearest, nearest))};
}

__device__ inline bool is_met(const OnRay& r) { return r.peak >= ALPHA_MIN; }

__device__ inline float passed(const OnRay& r) { return 1.0f - fminf(r.peak, ALPHA_MAX); }

__device__ inline float opacity_at(const OnRay& r, float depth) {
    const float offset = depth - r.depth;
    return r.peak * __expf(-0.5f * r.sharpness * offset * offset);
}

__device__ inline float squared_transmittance(const OnRay& r, float depth) {
    const float here = 1.0f - fminf(opacity_at(r, depth), ALPHA_MAX);
    const float all = passed(r);
    return depth <= r.depth ? here : all * __fdividef(all, here);
}

__device__ inline float log_slope(const OnRay& r, float depth) {
    const float opacity = opacity_at(r, depth);
    if (opacity >= ALPHA_MAX) return 0.0f;
    return -0.5f * opacity * r.sharpness * fabsf(depth - r.depth) / (1.0f - opacity);
}

// Returns the derivatives of the log-transmittance at a depth by the opacity there (x) and by that at the peak (y); 0
// for clamped opacities.
__device__ inline float2 log_transmittance_bwd(const OnRay& r, float depth) {
    const float opacity = opacity_at(r, depth);
    const float here = opacity < ALPHA_MAX ? 0.5f / (1.0f - opacity) : 0.0f;
    if (depth <= r.depth) return {-here, 0.0f};
    return {here, r.peak < ALPHA_MAX ? -1.0f / (1.0f - r.peak) : 0.0f};
}

// Gradients of a RayGaussian, in its layout.
struct RayGaussianGradient {
    float4 x, y, z;
    float opacity;
};

// Adds the gradients through the opacity at one of the two depths.
__device__ inline void falloff_bwd(const RayGaussian& g, float2 slopes, float depth, float d_opacity,
                                   RayGaussianGradient& sums) {
    const float behind = depth - g.z.w;
    const float3 offset = {slopes.x * g.z.w - g.x.w + slopes.x * behind,
                           slopes.y * g.z.w - g.y.w + slopes.y * behind, behind};
    const float3 v = whitened(g, offset);
    const float falloff = __expf(-0.5f * dot(v, v));
    sums.opacity += d_opacity * falloff;
    const float3 d = scale(v, d_opacity * g.opacity * falloff);
    sums.x.x -= d.x * offset.x;
    sums.x.y -= d.x * offset.y;
    sums.x.z -= d.x * offset.z;
    sums.y.x -= d.y * offset.x;
    sums.y.y -= d.y * offset.y;
    sums.y.z -= d.y * offset.z;
    sums.z.x -= d.z * offset.x;
    sums.z.y -= d.z * offset.y;
    sums.z.z -= d.z * offset.z;
    sums.x.w += g.x.x * d.x + g.y.x * d.y + g.z.x * d.z;
    sums.y.w += g.x.y * d.x + g.y.y * d.y + g.z.y * d.z;
    sums.z.w += g.x.z * d.x + g.y.z * d.y + g.z.z * d.z;
}

// Returns the gradients of the log-transmittance at a depth, times `d_log`.
__device__ inline RayGaussianGradient log_transmittance_bwd(const RayGaussian& g, const OnRay& met,
                                                            float2 slopes, float depth, float d_log) {
    RayGaussianGradient sums = {};
    const float2 by_opacity = log_transmittance_bwd(met, depth);
    falloff_bwd(g, slopes, depth, d_log * by_opacity.x, sums);
    falloff_bwd(g, slopes, met.depth, d_log * by_opacity.y, sums);
    return sums;
}

// Gradients of the raw parameters.
struct RayGradient {
    float3 d_mean, d_log_scale;
    Quat d_quat;
    float d_opacity_logit;
};

// Twin of `RayGaussian::new_bwd`.
__device__ inline RayGradient ray_gaussian_bwd(const ViewCamera& view, const Shape& shape,
                                               float opacity_logit, const RayGaussianGradient& d) {
    const RayGaussian g = ray_gaussian(view, shape, opacity_logit);
    float kept;
    const float3 wide = smoothed(
        float3{expf(shape.log_scale.x), expf(shape.log_scale.y), expf(shape.log_scale.z)},
        shape.smoothing, kept);
    const float3 d_x = {d.x.x, d.x.y, d.x.z}, d_y = {d.y.x, d.y.y, d.y.z}, d_z = {d.z.x, d.z.y, d.z.z};
    // A scale below the minimum has no gradient.
    const float3 d_log_wide = {
        wide.x > RAY_SCALE_MIN ? -dot(float3{g.x.x, g.x.y, g.x.z}, d_x) : 0.0f,
        wide.y > RAY_SCALE_MIN ? -dot(float3{g.y.x, g.y.y, g.y.z}, d_y) : 0.0f,
        wide.z > RAY_SCALE_MIN ? -dot(float3{g.z.x, g.z.y, g.z.z}, d_z) : 0.0f};
    const float opacity = sigmoid(opacity_logit);
    const Mat3 over = {scale(d_x, 1.0f / fmaxf(wide.x, RAY_SCALE_MIN)),
                       scale(d_y, 1.0f / fmaxf(wide.y, RAY_SCALE_MIN)),
                       scale(d_z, 1.0f / fmaxf(wide.z, RAY_SCALE_MIN))};
    const Mat3 turn = camera_rotation(view);
    RayGradient gradient;
    gradient.d_mean = mul_transposed(turn, float3{d.x.w, d.y.w, d.z.w});
    gradient.d_log_scale = smoothed_bwd(wide, shape.smoothing, d_log_wide, d.opacity * opacity * kept);
    gradient.d_quat = rotation_bwd(shape.quat, mat_mul(transpose(turn), transpose(over)));
    gradient.d_opacity_logit = sigmoid_bwd(opacity, d.opacity * kept);
    return gradient;
}
