// Twin of math/transmittance.rs: how much light passes Gaussians along a ray. Same names, same order of
// arguments; the equations stand in Rust.
#pragma once

#include "filter.cuh"
#include "splat.cuh"

// As the rays of a view meet it: four steps of 16 bytes. The first three hold a row of the whitening and an
// axis of the centre each, the last the opacity.
struct RayGaussian {
    float4 x, y, z;
    float opacity;
};

constexpr uint32_t RAY_QUADS = RAY_WIDTH / 4;
static_assert(RAY_QUADS == 4, "what a RayGaussian is stored in");

__device__ inline RayGaussian load_ray(const float4* quads) {
    return {quads[0], quads[1], quads[2], quads[3].x};
}

__device__ inline RayGaussian ray_gaussian(const ViewCamera& view, const Shape& shape,
                                           float opacity_logit) {
    // Gaussians that are infinitely thin have a direction all the same (SCALE_MIN in math/field.rs).
    constexpr float SCALE_MIN = 1e-8f;
    const float3 mean_cam = camera_from_world(view, shape.mean_world);
    const Mat3 axes = transpose(mat_mul(camera_rotation(view), rotation(shape.quat)));
    float kept;
    const float3 wide = smoothed(
        float3{expf(shape.log_scale.x), expf(shape.log_scale.y), expf(shape.log_scale.z)},
        shape.smoothing, kept);
    const float3 a = scale(axes.row[0], 1.0f / fmaxf(wide.x, SCALE_MIN));
    const float3 b = scale(axes.row[1], 1.0f / fmaxf(wide.y, SCALE_MIN));
    const float3 c = scale(axes.row[2], 1.0f / fmaxf(wide.z, SCALE_MIN));
    return {{a.x, a.y, a.z, mean_cam.x},
            {b.x, b.y, b.z, mean_cam.y},
            {c.x, c.y, c.z, mean_cam.z},
            sigmoid(opacity_logit) * kept};
}

// Along one ray.
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
