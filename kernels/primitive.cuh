// What is projected. `project` is a template over it (`project.cuh`); of a primitive it asks for
//   Footprint      what pixels meet of it (`footprint.cuh`)
//   Splat          a row as a view sees it, and its `ellipse.depth`
//   project_row    whether the view sees a row, its splat, and the pixels that it may reach
//   tile_query     what decides which tiles these are: of a splat, and of its record for `bin`
//   store_record   writes what the footprint reads
// What a step of Adam asks for stands in `adam.cuh`.
#pragma once

#include "fault.cuh"
#include "footprint.cuh"
#include "lazy_adam.cuh"
#include "sh.cuh"
#include "state.cuh"
#include "tiles.cuh"

// An ellipse of one opacity and one colour.
struct EllipseSplat {
    Ellipse ellipse;
    float opacity;
    float exponent_min;
    float3 color;
};

__device__ inline TileQuery tile_query(const EllipseSplat& splat) {
    TileQuery query = {};
    query.mean_px = splat.ellipse.mean_px;
    query.conic = splat.ellipse.conic;
    query.exponent_min = splat.exponent_min;
    return query;
}

// The same of its record, for `bin`.
__device__ inline TileQuery tile_query(const EllipseFootprint& splat) {
    TileQuery query = {};
    query.mean_px = {splat.place.x, splat.place.y};
    query.conic = {splat.form.x, splat.form.y, splat.form.z};
    query.exponent_min = splat.place.w;
    return query;
}

__device__ inline void store_record(float4* record, const EllipseSplat& splat, uint32_t row) {
    const Ellipse& e = splat.ellipse;
    record[0] = {e.mean_px.x, e.mean_px.y, splat.opacity, splat.exponent_min};
    record[1] = {e.conic.xx, e.conic.xy, e.conic.yy, e.depth};
    record[2] = {fmaxf(splat.color.x, 0.0f), fmaxf(splat.color.y, 0.0f),
                 fmaxf(splat.color.z, 0.0f), __uint_as_float(row)};
}

// 3D Gaussians (EWA splatting, Zwicker et al. 2001). What is `EXTENDED` draws with the filters of the
// model and of the view.
template <class Storage, bool EXTENDED>
struct Gaussian {
    using Footprint = EllipseFootprint;
    using Splat = EllipseSplat;
    static constexpr bool IS_EXTENDED = EXTENDED;
};

__device__ inline float3 load_triple(const float* __restrict__ column, uint64_t at, uint32_t first) {
    return {column[at + component(first)], column[at + component(first + 1)],
            column[at + component(first + 2)]};
}

__device__ inline ShTables sh_tables(const ProjectArgs& a) {
    return {a.sh, a.sh_first, a.sh_second, a.sh_width};
}

// 0.5 + sum over k of basis_k(direction) sh_k, before it is held above 0. Where the coefficients are
// `LATE` they are taken as they will be once they have caught up.
template <class Storage, bool LATE>
__device__ inline float3 raw_color(const ProjectArgs& a, uint64_t gaussian, uint32_t age,
                                   float3 mean_world) {
    constexpr uint32_t AT_ONCE = Storage::AT_ONCE;
    const float* centre = a.camera.centre_world;
    const float3 direction = normalize(sub(mean_world, float3{centre[0], centre[1], centre[2]}));
    float basis[SH_MAX_COEFFICIENTS];
    sh_basis(a.sh_degree, direction, basis);
    typename Storage::Reader sh(sh_tables(a), gaussian);
    const CatchUp late = LATE ? catch_up_of(a.lazy, age) : CatchUp{};
    const uint32_t coefficients = (a.sh_degree + 1) * (a.sh_degree + 1);
    float3 color = {0.5f, 0.5f, 0.5f};
#pragma unroll
    for (uint32_t from = 0; from < SH_MAX_COEFFICIENTS; from += AT_ONCE) {
        if (from >= coefficients) continue;
        sh.template load<LATE>(3 * from, 3 * (coefficients - from));
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; ++i) {
            if (from + i >= coefficients) continue;
            float c[3];
#pragma unroll
            for (uint32_t j = 0; j < 3; ++j) {
                const uint32_t k = 3 * i + j;
                c[j] = LATE ? caught_up<Storage::HELD>(late, from + i, sh.value(k), sh.first(k),
                                                       sh.second(k))
                            : sh.value(k);
            }
            color = add(color, scale(float3{c[0], c[1], c[2]}, basis[from + i]));
        }
    }
    return color;
}

__device__ inline bool is_finite(float3 v) {
    return isfinite(v.x) && isfinite(v.y) && isfinite(v.z);
}

// Says which coefficient is not finite; of finite ones whose sum is not, the constant one.
template <class Storage>
__device__ inline void report_color(const ProjectArgs& a, uint32_t gaussian, float3 color) {
    constexpr uint32_t SH_DC = 4, SH_REST = 5;
    const typename Storage::Reader sh(sh_tables(a), gaussian);
    for (uint32_t k = 0; k < a.sh_width; ++k) {
        const float value = sh.one(k);
        if (isfinite(value)) continue;
        report_fault(a.fault, gaussian, k < 3 ? SH_DC : SH_REST, isinf(value));
        return;
    }
    report_fault(a.fault, gaussian, SH_DC, isinf(color.x) || isinf(color.y) || isinf(color.z));
}

template <class Storage, bool EXTENDED>
__device__ inline bool project_row(Gaussian<Storage, EXTENDED>, const ProjectArgs& a,
                                   uint32_t gaussian, EllipseSplat& splat, Rect& pixels) {
    const float* __restrict__ geometry = a.geometry;
    const uint64_t at = lane_block(gaussian, GEOMETRY_WIDTH);
    bool visible = false;
    Shape shape;
    shape.mean_world = load_triple(geometry, at, MEAN);
    if (in_front(camera_from_world(a.camera, shape.mean_world).z, a.camera.near)) {
        const float logit = geometry[at + component(OPACITY_LOGIT)];
        splat.opacity = sigmoid(logit);
        shape.log_scale = load_triple(geometry, at, LOG_SCALE);
        shape.quat = {geometry[at + component(QUAT)], geometry[at + component(QUAT + 1)],
                      geometry[at + component(QUAT + 2)], geometry[at + component(QUAT + 3)]};
        if (EXTENDED) shape.smoothing = a.filter_3d == nullptr ? 0.0f : a.filter_3d[gaussian];
        // An infinite logit or -infinity as a log-scale would give a splat; `step` reports them.
        visible = isfinite(logit) && is_finite(shape.log_scale) &&
                  ellipse<EXTENDED>(a.camera, chain<EXTENDED>(a.camera, shape), splat.ellipse);
        if (EXTENDED && visible) splat.opacity *= splat.ellipse.kept;
        visible = visible &&
                  bounds(splat.ellipse, splat.opacity, a.camera.size, pixels, splat.exponent_min);
    }
    if (visible) {
        const uint32_t age = a.lazy.steps - a.sh_steps[gaussian / WARP];
        splat.color = age > 0 ? raw_color<Storage, true>(a, gaussian, age, shape.mean_world)
                              : raw_color<Storage, false>(a, gaussian, age, shape.mean_world);
        // It would spread to every Gaussian after it, and `step` does not visit what is unseen.
        visible = is_finite(splat.color);
        if (!visible) report_color<Storage>(a, gaussian, splat.color);
    }
    return visible;
}
