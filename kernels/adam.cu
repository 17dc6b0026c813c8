// adam: the projection's backward pass fused with Adam (Kingma and Ba 2015), one thread per Gaussian.
// Parameter gradients live in registers only. Gaussians that the view does not see move on by their
// momentum, as in dense Adam. Moments are stored before bias correction.
// Shapes: geometry [lane blocks, 11, 32], sh [lane blocks, 3 k, 32], each with its two moments;
// splats and gradients [visible, 12].

#include "layout.cuh"
#include "sh.cuh"
#include "splat.cuh"

// A column with its moments, and where the thread's Gaussian lies in it.
struct Column {
    float* __restrict__ values;
    float* __restrict__ first;
    float* __restrict__ second;
    uint64_t at;
};

// What is known of a group's new values and second moments.
struct Health {
    float zero;     // NaN as soon as one is not finite
    float largest;  // infinite where one is
};

// One value: value -= rate m / (sqrt(v) + epsilon), with the bias-corrected moments.
__device__ inline void apply(const AdamArgs& a, const Column& c, uint32_t k, float rate, float d,
                             Health& health) {
    const uint64_t at = c.at + component(k);
    const float first = a.beta_1 * c.first[at] + a.one_less_beta_1 * d;
    const float second = a.beta_2 * c.second[at] + a.one_less_beta_2 * d * d;
    const float root = sqrtf(second) * a.inverse_root_correction;
    const float value = c.values[at] - rate * first / (root + a.epsilon);
    c.first[at] = first;
    c.second[at] = second;
    c.values[at] = value;
    const float size = fabsf(value) + second;
    health.zero += 0.0f * size;
    health.largest = fmaxf(health.largest, size);
}

// Keeps the first Gaussian that is no longer finite, the group of its parameters, and in the last bit
// whether there is an infinity.
__device__ inline void report(const AdamArgs& a, uint32_t gaussian, uint32_t group, Health health) {
    if (health.zero == 0.0f) return;
    const unsigned long long place =
        static_cast<unsigned long long>(gaussian) * FAULT_GROUPS + group;
    atomicMin(reinterpret_cast<unsigned long long*>(a.fault),
              2 * place + (isinf(health.largest) ? 1 : 0));
}

// Colours: moves the coefficients and returns the gradient of the viewing direction.
__device__ inline float3 step_color(const AdamArgs& a, uint32_t gaussian, const Column& c,
                                    float3 direction, float3 d_color) {
    float basis[SH_MAX_COEFFICIENTS], d_basis[SH_MAX_COEFFICIENTS];
    sh_basis(a.sh_degree, direction, basis);
    Health dc = {}, rest = {};
#pragma unroll
    for (uint32_t k = 0; k < SH_MAX_COEFFICIENTS; ++k) {
        d_basis[k] = 0.0f;
        if (3 * k >= a.sh_width) continue;
        Health& health = k == 0 ? dc : rest;
        const float rate = k == 0 ? a.rates[4] : a.rates[5];
        const float* __restrict__ values = c.values + c.at;
        d_basis[k] = values[component(3 * k)] * d_color.x + values[component(3 * k + 1)] * d_color.y +
                     values[component(3 * k + 2)] * d_color.z;
        apply(a, c, 3 * k, rate, basis[k] * d_color.x, health);
        apply(a, c, 3 * k + 1, rate, basis[k] * d_color.y, health);
        apply(a, c, 3 * k + 2, rate, basis[k] * d_color.z, health);
    }
    report(a, gaussian, 4, dc);
    report(a, gaussian, 5, rest);
    return sh_basis_bwd(a.sh_degree, direction, d_basis);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK) adam(const __grid_constant__ AdamArgs a) {
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    if (gaussian >= a.gaussians) return;
    const Column geometry = {a.geometry, a.geometry_first, a.geometry_second,
                             lane_block(gaussian, GEOMETRY_WIDTH)};
    const Column sh = {a.sh, a.sh_first, a.sh_second, lane_block(gaussian, a.sh_width)};
    const uint32_t slot = a.splat_from_gaussian[gaussian];

    float opacity = 0.0f, d_opacity = 0.0f;
    float2 d_mean_px = {0.0f, 0.0f};
    Sym2 d_conic = {0.0f, 0.0f, 0.0f};
    float3 d_color = {0.0f, 0.0f, 0.0f};
    if (slot != UNSEEN) {
        const float4* const record = reinterpret_cast<const float4*>(a.gradients) + uint64_t{slot} * 3;
        const float4* const splat = reinterpret_cast<const float4*>(a.splats) + uint64_t{slot} * 3;
        const float4 place = record[0], form = record[1], shade = record[2], color = splat[2];
        d_mean_px = {place.x, place.y};
        d_opacity = place.z;
        d_conic = {form.x, form.y, form.z};
        // A channel that was held at 0 takes no gradient.
        d_color = {color.x > 0.0f ? shade.x : 0.0f, color.y > 0.0f ? shade.y : 0.0f,
                   color.z > 0.0f ? shade.z : 0.0f};
        opacity = splat[0].z;
    }
    const float* const g = geometry.values + geometry.at;
    const Shape shape = {
        {g[component(0)], g[component(1)], g[component(2)]},
        {g[component(3)], g[component(4)], g[component(5)]},
        {g[component(6)], g[component(7)], g[component(8)], g[component(9)]},
    };
    const float* const centre = a.camera.centre_world;
    const float3 offset = sub(shape.mean_world, float3{centre[0], centre[1], centre[2]});
    const float3 d_direction = step_color(a, gaussian, sh, normalize(offset), d_color);

    ShapeGradient d = {};
    if (slot != UNSEEN) {
        d = project_bwd(a.camera, shape, d_mean_px, d_conic);
        d.d_mean_world = add(d.d_mean_world, normalize_bwd(offset, d_direction));
    }
    Health means = {}, log_scales = {}, quats = {}, opacities = {};
    apply(a, geometry, MEAN, a.rates[0], d.d_mean_world.x, means);
    apply(a, geometry, MEAN + 1, a.rates[0], d.d_mean_world.y, means);
    apply(a, geometry, MEAN + 2, a.rates[0], d.d_mean_world.z, means);
    report(a, gaussian, 0, means);
    apply(a, geometry, LOG_SCALE, a.rates[1], d.d_log_scale.x, log_scales);
    apply(a, geometry, LOG_SCALE + 1, a.rates[1], d.d_log_scale.y, log_scales);
    apply(a, geometry, LOG_SCALE + 2, a.rates[1], d.d_log_scale.z, log_scales);
    report(a, gaussian, 1, log_scales);
    apply(a, geometry, QUAT, a.rates[2], d.d_quat.w, quats);
    apply(a, geometry, QUAT + 1, a.rates[2], d.d_quat.x, quats);
    apply(a, geometry, QUAT + 2, a.rates[2], d.d_quat.y, quats);
    apply(a, geometry, QUAT + 3, a.rates[2], d.d_quat.z, quats);
    report(a, gaussian, 2, quats);
    apply(a, geometry, OPACITY_LOGIT, a.rates[3], sigmoid_bwd(opacity, d_opacity), opacities);
    report(a, gaussian, 3, opacities);
}
