// Common parts of Adam steps: additional gradients of a Gaussian's geometry, the move of the geometry, and the step of
// one view as a template over the primitive.
#pragma once

#include "adam_sh.cuh"
#include "gaussian.cuh"
#include "layout.cuh"
#include "normals.cuh"
#include "primitive.cuh"
#include "random.cuh"
#include "splat.cuh"

// Loads and stores of the thread's Gaussian for Adam, in any storage. A piece is loaded completely before any of it is
// stored, so that enough loads are in flight to saturate the memory.

// Returns the first random word of a Gaussian.
__device__ inline uint32_t rounding_seed(uint64_t key, uint32_t gaussian) {
    return static_cast<uint32_t>(random_bits(key, gaussian) >> 32);
}

// Values of the first table in full precision, `WIDTH` per row.
template <uint32_t WIDTH>
struct FullRow {
    Row<float> value, first, second;

    __device__ FullRow(const AdamArgs& a, uint32_t row)
        : value{a.geometry + lane_block(row, WIDTH)},
          first(row_of<float>(a.geometry_first, row, WIDTH)),
          second{a.geometry_second + lane_block(row, WIDTH)} {}

    __device__ AdamRow<WIDTH> load() const {
        AdamRow<WIDTH> g;
#pragma unroll
        for (uint32_t k = 0; k < WIDTH; ++k) {
            g.value[k] = value[k];
            g.first[k] = first[k];
            g.second[k] = second[k];
        }
        return g;
    }

    __device__ void store(const AdamRow<WIDTH>& g, uint32_t) const {
#pragma unroll
        for (uint32_t k = 0; k < WIDTH; ++k) {
            value[k] = g.value[k];
            first[k] = g.first[k];
            second[k] = g.second[k];
        }
    }
};

using FullGeometry = FullRow<GEOMETRY_WIDTH>;

// Geometry with first moments in 16 bits.
struct CompactGeometry {
    static constexpr uint32_t FIRST_WORDS = (GEOMETRY_WIDTH + 1) / 2;

    Row<float> value, second;
    Row<uint32_t> first;

    __device__ CompactGeometry(const AdamArgs& a, uint32_t gaussian)
        : value{a.geometry + lane_block(gaussian, GEOMETRY_WIDTH)},
          second{a.geometry_second + lane_block(gaussian, GEOMETRY_WIDTH)},
          first(row_of<uint32_t>(a.geometry_first, gaussian, FIRST_WORDS)) {}

    __device__ AdamRow<GEOMETRY_WIDTH> load() const {
        AdamRow<GEOMETRY_WIDTH> g;
        uint32_t words[FIRST_WORDS];
#pragma unroll
        for (uint32_t k = 0; k < FIRST_WORDS; ++k) words[k] = first[k];
#pragma unroll
        for (uint32_t k = 0; k < GEOMETRY_WIDTH; ++k) {
            g.value[k] = value[k];
            g.first[k] = decode_bfloat(words[k / 2], k % 2);
            g.second[k] = second[k];
        }
        return g;
    }

    __device__ void store(const AdamRow<GEOMETRY_WIDTH>& g, uint32_t dice) const {
        uint32_t words[FIRST_WORDS] = {};
#pragma unroll
        for (uint32_t k = 0; k < GEOMETRY_WIDTH; ++k) {
            const uint32_t code = encode_bfloat(g.first[k], roll(dice));
            words[k / 2] = with_half(words[k / 2], k % 2, code);
            value[k] = g.value[k];
            second[k] = g.second[k];
        }
#pragma unroll
        for (uint32_t k = 0; k < FIRST_WORDS; ++k) first[k] = words[k];
    }
};

struct InFull {
    static constexpr bool SHORT = false;
    using Sh = FullSh<4>;
    using Geometry = FullGeometry;
};

struct InHalfColors {
    static constexpr bool SHORT = true;
    using Sh = HalfSh<4>;
    using Geometry = FullGeometry;
};

struct InCompact {
    static constexpr bool SHORT = true;
    using Sh = CompactSh<4>;
    using Geometry = CompactGeometry;
};

// Gradients of the ellipse. The gradient of the log-opacity is also that of the logarithm of the share that a filter
// keeps.
__device__ inline EllipseGradient ellipse_gradient(const SplatGradient& d) {
    return {{d.d_mean_px[0], d.d_mean_px[1]},
            {d.d_conic[0], d.d_conic[1], d.d_conic[2]},
            d.d_log_opacity,
            d.d_depth};
}

// Returns the Gaussian's shape and position from its geometry.
template <bool EXTENDED>
__device__ inline Shape shape_of(const AdamArgs& a, uint32_t gaussian,
                                 const AdamRow<GEOMETRY_WIDTH>& g) {
    const bool smooth = EXTENDED && a.filter_3d != nullptr;
    return {{g.value[0], g.value[1], g.value[2]},
            {g.value[3], g.value[4], g.value[5]},
            {g.value[6], g.value[7], g.value[8], g.value[9]},
            smooth ? a.filter_3d[gaussian] : 0.0f};
}

// Adds the gradients of the mean opacity and of the mean scale (Kheradmand et al. 2024, section 4.4).
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

// Adds `share` of the gradients of the surface terms.
__device__ inline void add_surface(const float* rows, uint32_t gaussian, float share,
                                   float (&d)[GEOMETRY_WIDTH]) {
    const float4* const row =
        reinterpret_cast<const float4*>(rows) + uint64_t{gaussian} * (SURFACE_WIDTH / 4);
    const float4 a = row[0], b = row[1], c = row[2];
    const float more[SURFACE_WIDTH] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w, c.x, c.y, c.z, c.w};
#pragma unroll
    for (uint32_t k = 0; k < GEOMETRY_WIDTH; ++k) d[k] = fmaf(share, more[k], d[k]);
}

// Stores the gradients of the geometry for a bound mesh.
__device__ inline void keep_gradients(float* rows, uint32_t gaussian,
                                      const float (&d)[GEOMETRY_WIDTH]) {
    float4* const row = reinterpret_cast<float4*>(rows) + uint64_t{gaussian} * (SURFACE_WIDTH / 4);
    row[0] = {d[0], d[1], d[2], d[3]};
    row[1] = {d[4], d[5], d[6], d[7]};
    row[2] = {d[8], d[9], d[10], 0.0f};
}

// Adds the gradients through the depth and the normal of a splat's surface features.
__device__ inline void add_features(const ViewArgs& view, uint32_t splat_index, const Shape& shape,
                                    ShapeGradient& d) {
    const float4 d_feature = reinterpret_cast<const float4*>(view.d_features)[splat_index];
    const float3 view_axis = camera_rotation(view.camera).row[2];
    d.d_mean_world = add(d.d_mean_world, scale(view_axis, d_feature.x));
    const Quat d_quat =
        facing_normal_bwd(view.camera, shape, float3{d_feature.y, d_feature.z, 0.0f});
    d.d_quat = {d.d_quat.w + d_quat.w, d.d_quat.x + d_quat.x, d.d_quat.y + d_quat.y,
                d.d_quat.z + d_quat.z};
}

// Decoupled weight decay of a coefficient's three channels.
__device__ inline void decay(AdamRow<3>& coefficient, float kept) {
#pragma unroll
    for (uint32_t channel = 0; channel < 3; ++channel) coefficient.value[channel] *= kept;
}

// Adds random motion to a centre; transparent and large Gaussians move farthest.
__device__ inline void add_noise(const AdamArgs& a, uint32_t gaussian, AdamRow<GEOMETRY_WIDTH>& g,
                             FiniteCheck& health) {
    const float3 offset =
        jitter({g.value[LOG_SCALE], g.value[LOG_SCALE + 1], g.value[LOG_SCALE + 2]},
               {g.value[QUAT], g.value[QUAT + 1], g.value[QUAT + 2], g.value[QUAT + 3]},
               sigmoid(g.value[OPACITY_LOGIT]), standard_normals(a.noise_key, gaussian));
    const float length =
        a.noise_rate * sqrtf(offset.x * offset.x + offset.y * offset.y + offset.z * offset.z);
    const bool too_long = a.noise_longest > 0.0f && length > a.noise_longest;
    const float rate = too_long ? a.noise_rate * (a.noise_longest / length) : a.noise_rate;
    g.value[MEAN] += rate * offset.x;
    g.value[MEAN + 1] += rate * offset.y;
    g.value[MEAN + 2] += rate * offset.z;
#pragma unroll
    for (uint32_t k = MEAN; k < LOG_SCALE; ++k) {
        health.zero += 0.0f * g.value[k];
        health.largest = fmaxf(health.largest, fabsf(g.value[k]));
    }
}

// Returns the learning-rate factor of a centre: (size / unit)^exponent, clamped to 0.1..10, where size is the geometric
// mean of the two largest scales.
__device__ inline float centre_rate_factor(const AdamArgs& a, const AdamRow<GEOMETRY_WIDTH>& g) {
    constexpr float LOG_MOST = 2.30258509f;
    if (a.size_exponent == 0.0f) return 1.0f;
    const float x = g.value[LOG_SCALE], y = g.value[LOG_SCALE + 1], z = g.value[LOG_SCALE + 2];
    const float log_size = 0.5f * (x + y + z - fminf(fminf(x, y), z));
    const float log_factor = fmaf(a.size_exponent, log_size, a.size_offset);
    return expf(fmaxf(fminf(log_factor, LOG_MOST), -LOG_MOST));
}

// Returns the index of the Gaussian's splat in the view; UNSEEN for lanes after the last Gaussian.
__device__ inline uint32_t splat_index_in(const AdamArgs& a, uint32_t view, uint32_t gaussian) {
    return gaussian < a.gaussians ? a.views[view].splat_from_gaussian[gaussian] : UNSEEN;
}

// Limits the standard deviations to a share of the distance from the nearest camera that sees the Gaussian.
__device__ inline void limit_scales(const AdamArgs& a, uint32_t gaussian,
                                    AdamRow<GEOMETRY_WIDTH>& g) {
    constexpr float SQUARE_MIN = 1e-30f;  // keeps the logarithm finite
    float nearest = INFINITY;             // square of the distance
    for (uint32_t v = 0; v < a.view_count; ++v) {
        if (splat_index_in(a, v, gaussian) == UNSEEN) continue;
        const float* const centre = a.views[v].camera.centre_world;
        const float x = g.value[MEAN] - centre[0], y = g.value[MEAN + 1] - centre[1],
                    z = g.value[MEAN + 2] - centre[2];
        nearest = fminf(nearest, fmaxf(x * x + y * y + z * z, SQUARE_MIN));
    }
    const float most = logf(a.scale_limit) + 0.5f * logf(nearest);
#pragma unroll
    for (uint32_t k = LOG_SCALE; k < QUAT; ++k) {
        // Values that are not finite stay, as on the CPU.
        if (g.value[k] > most && isfinite(g.value[k])) g.value[k] = most;
    }
}

// Gradients of a Gaussian's geometry from the views.
struct GeometryGradient {
    ShapeGradient d_shape;
    float d_log_opacity;
    bool seen;  // by a view of the step
};

// Moves the geometry by the views' gradients, additional gradients, and noise.
template <class Storage, bool EXTENDED>
__device__ inline void step_geometry(const AdamArgs& a, uint32_t gaussian,
                                     const typename Storage::Geometry& geometry,
                                     AdamRow<GEOMETRY_WIDTH>& g, const GeometryGradient& gradient,
                                     float surface_share, uint32_t seed) {
    const ShapeGradient& d = gradient.d_shape;
    float d_geometry[GEOMETRY_WIDTH] = {
        d.d_mean_world.x, d.d_mean_world.y, d.d_mean_world.z, d.d_log_scale.x,
        d.d_log_scale.y,  d.d_log_scale.z,  d.d_quat.w,       d.d_quat.x,
        d.d_quat.y,       d.d_quat.z,
        // d ln(opacity) / d logit is 1 - opacity, independent of the filters.
        gradient.d_log_opacity * (1.0f - sigmoid(g.value[OPACITY_LOGIT]))};
    if (EXTENDED && gaussian < a.gaussians) {
        if (a.seen_only == 0 || gradient.d_log_opacity != 0.0f) regularise(a, g, d_geometry);
        if (a.surface != nullptr) add_surface(a.surface, gaussian, surface_share, d_geometry);
        if (a.d_geometry != nullptr) keep_gradients(a.d_geometry, gaussian, d_geometry);
    }
    const float centre_rate = a.rates[0] * centre_rate_factor(a, g);
    FiniteCheck health[4] = {};
#pragma unroll
    for (uint32_t k = 0; k < GEOMETRY_WIDTH; ++k) {
        const uint32_t group = k < LOG_SCALE ? 0 : k < QUAT ? 1 : k < OPACITY_LOGIT ? 2 : 3;
        move<false>(a, g, k, group == 0 ? centre_rate : a.rates[group], d_geometry[k], health[group]);
    }
    if (EXTENDED && a.scale_limit > 0.0f) limit_scales(a, gaussian, g);
    const bool moves_at_random = a.noise_longest == 0.0f || !gradient.seen;
    if (EXTENDED && a.noise_rate != 0.0f && moves_at_random && gaussian < a.gaussians) {
        add_noise(a, gaussian, g, health[0]);
    }
    geometry.store(g, ~seed);
#pragma unroll
    for (uint32_t group = 0; group < 4; ++group) report(a, gaussian, group, health[group]);
}

// Gradients of a row that a view sees as an ellipse.
struct ScreenGradient {
    EllipseGradient d_ellipse;
    float3 d_color;
};

template <class Primitive>
__device__ inline ScreenGradient gradient_of(Primitive, const ViewArgs& view, uint32_t splat_index) {
    if (splat_index == UNSEEN) return {};
    const SplatGradient d = load_gradient(view.gradients, splat_index);
    return {ellipse_gradient(d), float3_of(d.d_color)};
}

// Gradients of a surfel. The tilt is stored in place of the conic.
struct SurfelScreenGradient : ScreenGradient {
    float2 d_along_u, d_along_v;
};

template <class Storage>
__device__ inline SurfelScreenGradient gradient_of(Surfels<Storage>, const ViewArgs& view,
                                                   uint32_t splat_index) {
    if (splat_index == UNSEEN) return {};
    const SplatGradient d = load_gradient(view.gradients, splat_index, SURFEL_RECORD_WIDTH);
    const float4 slopes = reinterpret_cast<const float4*>(
        view.gradients)[uint64_t{splat_index} * SurfelFootprint::QUADS + 3];
    SurfelScreenGradient of_view;
    of_view.d_ellipse = ellipse_gradient(d);
    of_view.d_color = float3_of(d.d_color);
    of_view.d_along_u = {slopes.x, slopes.y};
    of_view.d_along_v = {slopes.z, slopes.w};
    return of_view;
}

// Returns the gradients of a visible Gaussian's shape, except those through its colour.
template <class Storage, bool EXTENDED>
__device__ inline ShapeGradient shape_bwd(Gaussian<Storage, EXTENDED>, const ViewArgs& view,
                                          uint32_t splat_index, const Shape& shape,
                                          const ScreenGradient& d_splat) {
    ShapeGradient d = project_bwd<EXTENDED>(view.camera, shape, d_splat.d_ellipse);
    if (EXTENDED && view.d_features != nullptr) add_features(view, splat_index, shape, d);
    return d;
}

template <class Storage>
__device__ inline ShapeGradient shape_bwd(Surfels<Storage>, const ViewArgs& view,
                                          uint32_t splat_index, const Shape& shape,
                                          const SurfelScreenGradient& d_splat) {
    const EllipseGradient& e = d_splat.d_ellipse;
    ShapeGradient d = project_surfel_bwd(
        view.camera, shape,
        {e.d_mean_px, e.d_depth, d_splat.d_along_u, d_splat.d_along_v, {e.d_conic.xx, e.d_conic.xy}});
    if (view.d_features != nullptr) add_features(view, splat_index, flat(shape), d);
    return d;
}

// For a vertex, which only has a position.
template <class Storage>
__device__ inline ShapeGradient shape_bwd(Vertices<Storage>, const ViewArgs& view, uint32_t,
                                          const Shape& shape, const ScreenGradient& d_splat) {
    ShapeGradient d = {};
    d.d_mean_world = place_vertex_bwd(view.camera, shape.mean_world, d_splat.d_ellipse.d_mean_px,
                                      d_splat.d_ellipse.d_depth);
    return d;
}

// A step of one view, one row of a primitive per thread. The primitive must provide
//   gradient_of       gradients of a visible row, if it is not an ellipse
//   state_of          location of a row's values and moments; its load() returns the values
//   step_appearance   moves other values, and returns their gradient of the centre
//   row_bwd           gradients of the values
//   step_row          moves and stores the values
template <class Primitive>
__device__ inline void step(const AdamArgs& a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row / WARP * WARP >= a.gaussians) return;
    if (row == 0) remember_drift(a.lazy, a.sh_drifts);
    // Lanes after the last row take part: their zeros stay zero.
    const uint32_t splat_index = row < a.gaussians ? a.views[0].splat_from_gaussian[row] : UNSEEN;
    const auto d_splat = gradient_of(Primitive{}, a.views[0], splat_index);
    const auto state = state_of(Primitive{}, a, row);
    const float3 d_mean = step_appearance(Primitive{}, a, row, splat_index != UNSEEN, state, d_splat);
    auto values = state.load();
    const auto d = row_bwd(Primitive{}, a, row, splat_index, values, d_splat, d_mean);
    step_row(Primitive{}, a, row, state, values, d);
}
