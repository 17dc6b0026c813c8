// adam: the projection's backward pass fused with Adam (Kingma and Ba 2015), one thread per Gaussian,
// one warp per lane block.
// Parameter gradients live in registers only. Geometry moves in every step, by its momentum where the
// view does not see it, as in dense Adam. The colours of a lane block of which the view sees nothing
// are left behind: `lazy_adam.cuh` says how they catch up, to the same values. Moments are stored
// before bias correction.
// Shapes: geometry [lane blocks, 11, 32] and sh with their moments as `state.cuh` says; splats and
// gradients [visible, 12], d_features [visible, 4]; surface [n, 12].

#include "fault.cuh"
#include "adam_row.cuh"
#include "noise.cuh"
#include "normals.cuh"
#include "sh.cuh"
#include "splat.cuh"

// What is known of a group's new values and second moments.
struct FiniteCheck {
    float zero;     // NaN as soon as one is not finite
    float largest;  // infinite where one is
};

// One value: value -= rate m / (sqrt(v) + epsilon), with the bias-corrected moments. Root and quotient
// are the fast ones, whose relative error of 3e-7 is that of the moments' own rounding. Where it is
// `SHORT`, the value is going to be kept in 16 bits and its moments were in 8.
template <bool SHORT, uint32_t N>
__device__ inline void move(const AdamArgs& a, AdamRow<N>& c, uint32_t k, float rate, float d,
                            FiniteCheck& health) {
    c.first[k] = a.beta_1 * c.first[k] + a.one_less_beta_1 * d;
    c.second[k] = a.beta_2 * c.second[k] + a.one_less_beta_2 * d * d;
    const float root = fast_sqrt(c.second[k]);
    const float first = SHORT ? clamp_first_moment(c.first[k], root) : c.first[k];
    c.value[k] -= rate * __fdividef(first, root * a.inverse_root_correction + a.epsilon);
    if (SHORT && fabsf(c.value[k]) > HALF_MAX) c.value[k] = copysignf(INFINITY, c.value[k]);
    const float size = fabsf(c.value[k]) + c.second[k];
    health.zero += 0.0f * size;
    health.largest = fmaxf(health.largest, size);
}

__device__ inline void report(const AdamArgs& a, uint32_t gaussian, uint32_t group, FiniteCheck health) {
    if (health.zero != 0.0f) report_fault(a.fault, gaussian, group, isinf(health.largest));
}

// Colours: moves the coefficients and returns the gradient of the viewing direction.
template <class Sh>
__device__ inline float3 step_color(const AdamArgs& a, uint32_t gaussian, Sh sh, uint32_t age,
                                    float3 direction, float3 d_color) {
    float basis[SH_MAX_COEFFICIENTS], d_basis[SH_MAX_COEFFICIENTS] = {};
    sh_basis(a.sh_degree, direction, basis);
    const CatchUp late = catch_up_of(a.lazy, age);
    sh.rescale(a, late, basis, d_color);
    FiniteCheck dc = {}, rest = {};
#pragma unroll
    for (uint32_t from = 0; from < SH_MAX_COEFFICIENTS; from += Sh::AT_ONCE) {
        if (3 * from >= a.sh_width) continue;
        const uint32_t count = min(3 * Sh::AT_ONCE, a.sh_width - 3 * from);
        sh.load(3 * from, count);
#pragma unroll
        for (uint32_t i = 0; i < Sh::AT_ONCE; ++i) {
            if (3 * i >= count) continue;
            const uint32_t k = from + i;
            const float d[3] = {basis[k] * d_color.x, basis[k] * d_color.y, basis[k] * d_color.z};
            AdamRow<3> c = sh.get(i);
            if (age > 0) {
                for (uint32_t j = 0; j < 3; ++j) {
                    catch_up<Sh::SHORT>(late, k, c.value[j], c.first[j], c.second[j]);
                }
            }
            d_basis[k] = c.value[0] * d_color.x + c.value[1] * d_color.y + c.value[2] * d_color.z;
            for (uint32_t j = 0; j < 3; ++j) {
                move<Sh::SHORT>(a, c, j, k == 0 ? a.rates[4] : a.rates[5], d[j],
                                k == 0 ? dc : rest);
            }
            sh.put(i, c);
        }
        sh.store(3 * from, count);
    }
    sh.store_scales();
    report(a, gaussian, 4, dc);
    report(a, gaussian, 5, rest);
    return sh_basis_bwd(a.sh_degree, direction, d_basis);
}

// Gradient of a Gaussian's splat. Where it is `EXTENDED` the opacity has gone through the filters, and
// its gradient still has to; otherwise nothing but the first two of the ellipse is there.
struct SplatGradient {
    EllipseGradient d_ellipse;
    float3 d_color;
    float d_opacity_logit;
};

template <bool EXTENDED>
__device__ inline SplatGradient gradient_of(const AdamArgs& a, uint32_t slot) {
    if (slot == UNSEEN) return {};
    if (EXTENDED && a.splats == nullptr) {
        const float4* const settled =
            reinterpret_cast<const float4*>(a.gradients) + uint64_t{slot} * 3;
        const float4 place = settled[0], form = settled[1], shade = settled[2];
        return {{{place.x, place.y}, {form.x, form.y, form.z}, place.z, shade.w},
                {shade.x, shade.y, shade.z},
                0.0f};
    }
    const float4* const record = reinterpret_cast<const float4*>(a.gradients) + uint64_t{slot} * 3;
    const float4* const splat = reinterpret_cast<const float4*>(a.splats) + uint64_t{slot} * 3;
    const float4 place = record[0], form = record[1], shade = record[2], color = splat[2];
    EllipseGradient d_ellipse = {{place.x, place.y}, {form.x, form.y, form.z}, 0.0f, 0.0f};
    if (EXTENDED) {
        const float depth = splat[1].w;
        d_ellipse.d_log_kept = splat[0].z * place.z;
        d_ellipse.d_depth = -shade.w / (depth * depth);
    }
    // A channel that was held at 0 takes no gradient.
    return {d_ellipse,
            {color.x > 0.0f ? shade.x : 0.0f, color.y > 0.0f ? shade.y : 0.0f,
             color.z > 0.0f ? shade.z : 0.0f},
            EXTENDED ? 0.0f : sigmoid_bwd(splat[0].z, place.z)};
}

// One thread per splat: what `gradient_of` makes of its gradients where it is `EXTENDED`, so that the
// splat can go.
extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    fold_into_gradients(const __grid_constant__ FoldArgs a) {
    const uint32_t slot = blockIdx.x * blockDim.x + threadIdx.x;
    if (slot >= a.visible) return;
    const float4* const splat = reinterpret_cast<const float4*>(a.splats) + uint64_t{slot} * 3;
    float4* const record = reinterpret_cast<float4*>(a.gradients) + uint64_t{slot} * 3;
    const float opacity = splat[0].z, depth = splat[1].w;
    const float4 color = splat[2];
    float4 shade = record[2];
    record[0].z *= opacity;
    if (!(color.x > 0.0f)) shade.x = 0.0f;
    if (!(color.y > 0.0f)) shade.y = 0.0f;
    if (!(color.z > 0.0f)) shade.z = 0.0f;
    shade.w = -shade.w / (depth * depth);
    record[2] = shade;
}

// Adds the gradients of the mean opacity and of the mean scale (Kheradmand et al. 2024, section 4.4),
// both of raw parameters.
__device__ inline void regularise(const AdamArgs& a, const AdamRow<GEOMETRY_WIDTH>& g,
                                  float (&d)[GEOMETRY_WIDTH]) {
    if (a.d_opacity != 0.0f) {
        d[OPACITY_LOGIT] += sigmoid_bwd(sigmoid(g.value[OPACITY_LOGIT]), a.d_opacity);
    }
    if (a.d_scale != 0.0f) {
#pragma unroll
        for (uint32_t k = LOG_SCALE; k < QUAT; ++k) d[k] += a.d_scale * expf(g.value[k]);
    }
}

// Adds what the terms of surfaces say.
__device__ inline void add_surface(const float* rows, uint32_t gaussian,
                                   float (&d)[GEOMETRY_WIDTH]) {
    const float4* const row =
        reinterpret_cast<const float4*>(rows) + uint64_t{gaussian} * (SURFACE_WIDTH / 4);
    const float4 a = row[0], b = row[1], c = row[2];
    const float more[SURFACE_WIDTH] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w, c.x, c.y, c.z, c.w};
#pragma unroll
    for (uint32_t k = 0; k < GEOMETRY_WIDTH; ++k) d[k] += more[k];
}

// Adds what comes of the depth and the normal that a splat gives to maps of a surface.
__device__ inline void add_features(const AdamArgs& a, uint32_t slot, const Shape& shape,
                                    ShapeGradient& d) {
    const float4 d_feature = reinterpret_cast<const float4*>(a.d_features)[slot];
    const float3 view_axis = camera_rotation(a.camera).row[2];
    d.d_mean_world = add(d.d_mean_world, scale(view_axis, d_feature.x));
    const Quat d_quat =
        facing_normal_bwd(a.camera, shape, float3{d_feature.y, d_feature.z, 0.0f});
    d.d_quat = {d.d_quat.w + d_quat.w, d.d_quat.x + d_quat.x, d.d_quat.y + d_quat.y,
                d.d_quat.z + d_quat.z};
}

// Moves a centre at random, as far as the Gaussian is transparent and large.
__device__ inline void add_noise(const AdamArgs& a, uint32_t gaussian, AdamRow<GEOMETRY_WIDTH>& g,
                             FiniteCheck& health) {
    const float3 offset =
        jitter({g.value[LOG_SCALE], g.value[LOG_SCALE + 1], g.value[LOG_SCALE + 2]},
               {g.value[QUAT], g.value[QUAT + 1], g.value[QUAT + 2], g.value[QUAT + 3]},
               sigmoid(g.value[OPACITY_LOGIT]), standard_normals(a.noise_key, gaussian));
    g.value[MEAN] += a.noise_rate * offset.x;
    g.value[MEAN + 1] += a.noise_rate * offset.y;
    g.value[MEAN + 2] += a.noise_rate * offset.z;
#pragma unroll
    for (uint32_t k = MEAN; k < LOG_SCALE; ++k) {
        health.zero += 0.0f * g.value[k];
        health.largest = fmaxf(health.largest, fabsf(g.value[k]));
    }
}

template <class Storage, bool EXTENDED>
__device__ inline void step(const AdamArgs& a) {
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t block = gaussian / WARP;
    if (block * WARP >= a.gaussians) return;
    // Lanes behind the last Gaussian go along: their zeros stay zero.
    const uint32_t slot = gaussian < a.gaussians ? a.splat_from_gaussian[gaussian] : UNSEEN;
    const bool seen = slot != UNSEEN;
    const SplatGradient d_splat = gradient_of<EXTENDED>(a, slot);

    const typename Storage::Geometry geometry(a, gaussian);
    const uint32_t seed = Storage::SHORT ? rounding_seed(a.key, gaussian) : 0;
    float3 d_mean_by_color = {0.0f, 0.0f, 0.0f};
    if (__any_sync(FULL_WARP, seen)) {
        const Row<float>& mean = geometry.value;
        const float* const centre = a.camera.centre_world;
        const float3 offset = {mean[MEAN] - centre[0], mean[MEAN + 1] - centre[1],
                               mean[MEAN + 2] - centre[2]};
        const typename Storage::Sh sh({a.sh, a.sh_first, a.sh_second, a.sh_width}, gaussian, seed);
        const uint32_t age = a.lazy.steps - a.sh_steps[block];
        const float3 d_direction =
            step_color(a, gaussian, sh, age, normalize(offset), d_splat.d_color);
        if (seen) d_mean_by_color = normalize_bwd(offset, d_direction);
        __syncwarp();  // everyone has read the age
        if (gaussian % WARP == 0) a.sh_steps[block] = a.lazy.steps + 1;
    }

    AdamRow<GEOMETRY_WIDTH> g = geometry.load();
    ShapeGradient d = {};
    if (seen) {
        const bool smooth = EXTENDED && a.filter_3d != nullptr;
        const Shape shape = {{g.value[0], g.value[1], g.value[2]},
                             {g.value[3], g.value[4], g.value[5]},
                             {g.value[6], g.value[7], g.value[8], g.value[9]},
                             smooth ? a.filter_3d[gaussian] : 0.0f};
        d = project_bwd<EXTENDED>(a.camera, shape, d_splat.d_ellipse);
        d.d_mean_world = add(d.d_mean_world, d_mean_by_color);
        if (EXTENDED && a.d_features != nullptr) add_features(a, slot, shape, d);
    }
    float d_geometry[GEOMETRY_WIDTH] = {
        d.d_mean_world.x, d.d_mean_world.y, d.d_mean_world.z, d.d_log_scale.x,
        d.d_log_scale.y,  d.d_log_scale.z,  d.d_quat.w,       d.d_quat.x,
        d.d_quat.y,       d.d_quat.z,       d_splat.d_opacity_logit};
    if (EXTENDED && gaussian < a.gaussians) {
        // d ln(opacity) / d logit is 1 - opacity, whatever the filters leave of it.
        d_geometry[OPACITY_LOGIT] =
            d_splat.d_ellipse.d_log_kept * (1.0f - sigmoid(g.value[OPACITY_LOGIT]));
        regularise(a, g, d_geometry);
        if (a.surface != nullptr) add_surface(a.surface, gaussian, d_geometry);
    }
    FiniteCheck health[4] = {};
#pragma unroll
    for (uint32_t k = 0; k < GEOMETRY_WIDTH; ++k) {
        const uint32_t group = k < LOG_SCALE ? 0 : k < QUAT ? 1 : k < OPACITY_LOGIT ? 2 : 3;
        move<false>(a, g, k, a.rates[group], d_geometry[k], health[group]);
    }
    if (EXTENDED && a.noise_rate != 0.0f && gaussian < a.gaussians) {
        add_noise(a, gaussian, g, health[0]);
    }
    geometry.store(g, ~seed);
#pragma unroll
    for (uint32_t group = 0; group < 4; ++group) report(a, gaussian, group, health[group]);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam(const __grid_constant__ AdamArgs a) {
    step<InFull, false>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_compact(const __grid_constant__ AdamArgs a) {
    step<InCompact, false>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_extended(const __grid_constant__ AdamArgs a) {
    step<InFull, true>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_extended_compact(const __grid_constant__ AdamArgs a) {
    step<InCompact, true>(a);
}

// Brings the colours of every lane block up to date; one warp each.
template <class Sh>
__device__ inline void catch_up_block(const CatchUpArgs& a) {
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t block = gaussian / WARP;
    if (block >= a.lane_blocks) return;
    const uint32_t age = a.lazy.steps - a.sh_steps[block];
    if (age == 0) return;
    const uint32_t seed = Sh::SHORT ? rounding_seed(a.key, gaussian) : 0;
    Sh sh({a.sh, a.sh_first, a.sh_second, a.sh_width}, gaussian, seed);
    const CatchUp late = catch_up_of(a.lazy, age);
    sh.decay_scales(late);
    for (uint32_t from = 0; 3 * from < a.sh_width; from += Sh::AT_ONCE) {
        const uint32_t count = min(3 * Sh::AT_ONCE, a.sh_width - 3 * from);
        sh.load(3 * from, count);
#pragma unroll
        for (uint32_t i = 0; i < Sh::AT_ONCE; ++i) {
            if (3 * i >= count) continue;
            AdamRow<3> c = sh.get(i);
            for (uint32_t j = 0; j < 3; ++j) {
                catch_up<Sh::SHORT>(late, from + i, c.value[j], c.first[j], c.second[j]);
            }
            sh.put_late(i, c);
        }
        sh.store_late(3 * from, count);
    }
    sh.store_scales();
    __syncwarp();  // everyone has read the age
    if (gaussian % WARP == 0) a.sh_steps[block] = a.lazy.steps;
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    catch_up_all(const __grid_constant__ CatchUpArgs a) {
    catch_up_block<FullSh<1>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    catch_up_all_compact(const __grid_constant__ CatchUpArgs a) {
    catch_up_block<CompactSh<4>>(a);
}
