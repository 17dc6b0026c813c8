// Primitives of `primitive.cuh` whose rows are Gaussians: ellipses (EWA splatting, Zwicker et al. 2001), surfels, and
// vertices.
#pragma once

#include "primitive.cuh"
#include "sh.cuh"
#include "state.cuh"
#include "surfel_footprint.cuh"
#include "triangle.cuh"

// `EXTENDED` applies the filters of the model and of the view.
template <class Storage, bool EXTENDED>
struct Gaussian {
    static constexpr bool IS_EXTENDED = EXTENDED;

    using Footprint = EllipseFootprint;
    using Splat = EllipseSplat;
};

// The SH of a row: in a cache line, or in the tables.
struct ShRow {
    ShTables tables;
    uint64_t row;
};

template <class Storage>
__device__ inline ShRow sh_row(const ProjectArgs& a, uint32_t gaussian) {
    // Only compact storage has a cache.
    const uint32_t line = Storage::HELD ? line_of(a.cache, gaussian / WARP) : 0;
    if (Storage::HELD) note_seen(a.cache, gaussian / WARP, line);
    if (line == 0) return {{a.sh, a.sh_first, a.sh_second, a.sh_width}, gaussian};
    return {{a.cache.sh, a.cache.sh_first, a.cache.sh_second, a.sh_width},
            row_in_line(line, gaussian)};
}

// Returns 0.5 + sum over k of basis_k(direction) sh_k, before clamping. `LATE` coefficients are used as they will be
// after they have caught up.
template <class Storage, bool LATE>
__device__ inline float3 raw_color(const ProjectArgs& a, const ShRow& at, uint32_t age,
                                   float3 mean_world) {
    constexpr uint32_t AT_ONCE = Storage::AT_ONCE;
    const float* centre = a.camera.centre_world;
    const float3 direction = normalize(sub(mean_world, float3{centre[0], centre[1], centre[2]}));
    float basis[SH_MAX_COEFFICIENTS];
    sh_basis(a.sh_degree, direction, basis);
    typename Storage::Reader sh(at.tables, at.row);
    const CatchUp late = LATE ? catch_up_of(a.lazy, a.sh_drifts, age) : CatchUp{};
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

// Reports the coefficient that is not finite; if only the sum is not, the constant one.
template <class Storage>
__device__ inline void report_color(const ProjectArgs& a, const ShRow& at, uint32_t gaussian,
                                    float3 color) {
    const typename Storage::Reader sh(at.tables, at.row);
    for (uint32_t k = 0; k < a.sh_width; ++k) {
        const float value = sh.one(k);
        if (isfinite(value)) continue;
        report_fault(a.fault, gaussian, k < 3 ? SH_DC : SH_REST, isinf(value));
        return;
    }
    report_fault(a.fault, gaussian, SH_DC, isinf(color.x) || isinf(color.y) || isinf(color.z));
}

// Returns the colour of a visible row before clamping. False if it is not finite: it would spread to every later
// Gaussian, and `step` does not check invisible rows.
template <class Storage>
__device__ inline bool project_color(const ProjectArgs& a, uint32_t gaussian, float3 mean_world,
                                     float3& color) {
    const uint32_t age = a.lazy.steps - a.sh_steps[gaussian / WARP];
    const ShRow at = sh_row<Storage>(a, gaussian);
    color = age > 0 ? raw_color<Storage, true>(a, at, age, mean_world)
                    : raw_color<Storage, false>(a, at, age, mean_world);
    if (is_finite(color)) return true;
    report_color<Storage>(a, at, gaussian, color);
    return false;
}

// Projects a row without its colour; false if the view does not see it.
template <bool EXTENDED>
__device__ inline bool project_shape(const ProjectArgs& a, uint32_t gaussian, Shape& shape,
                                     EllipseSplat& splat, Rect& pixels) {
    const float* __restrict__ geometry = a.geometry;
    const uint64_t at = lane_block(gaussian, GEOMETRY_WIDTH);
    bool visible = false;
    shape.mean_world = load_triple(geometry, at, MEAN);
    if (is_in_view(a.camera, camera_from_world(a.camera, shape.mean_world))) {
        const float logit = geometry[at + component(OPACITY_LOGIT)];
        splat.opacity = sigmoid(logit);
        shape.log_scale = load_triple(geometry, at, LOG_SCALE);
        shape.quat = {geometry[at + component(QUAT)], geometry[at + component(QUAT + 1)],
                      geometry[at + component(QUAT + 2)], geometry[at + component(QUAT + 3)]};
        if (EXTENDED) shape.smoothing = a.filter_3d == nullptr ? 0.0f : a.filter_3d[gaussian];
        // An infinite logit or a log-scale of -infinity would give a splat; `step` reports them.
        visible = isfinite(logit) && is_finite(shape.log_scale) &&
                  ellipse<EXTENDED>(a.camera, chain<EXTENDED>(a.camera, shape), splat.ellipse);
        if (EXTENDED && visible) splat.opacity *= splat.ellipse.kept;
        visible = visible &&
                  bounds(splat.ellipse, splat.opacity, a.camera.size, pixels, splat.exponent_min);
    }
    return visible;
}

template <class Storage, bool EXTENDED>
__device__ inline bool project_row(Gaussian<Storage, EXTENDED>, const ProjectArgs& a,
                                   uint32_t gaussian, EllipseSplat& splat, Rect& pixels) {
    Shape shape;
    return project_shape<EXTENDED>(a, gaussian, shape, splat, pixels) &&
           project_color<Storage>(a, gaussian, shape.mean_world, splat.color);
}

// Records the lane blocks that the next step sees; one row per thread.
template <bool EXTENDED>
__device__ inline void expect(const ProjectArgs& a) {
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    Shape shape;
    EllipseSplat splat;
    Rect pixels;
    const bool seen =
        gaussian < a.gaussians && project_shape<EXTENDED>(a, gaussian, shape, splat, pixels);
    if (!__any_sync(FULL_WARP, seen) || gaussian % WARP != 0) return;
    expect_block(a.cache, gaussian / WARP);
}

// Surfels: flat Gaussians intersected by rays (2D Gaussian splatting, Huang et al. 2024). Their colours are those of
// Gaussians.

// A projected row, and the ellipse that covers it.
struct SurfelSplat {
    Surfel surfel;
    Ellipse ellipse;
    float opacity;
    float exponent_min;
    float3 color;
};

// The third scale is ignored.
template <class Storage>
struct Surfels : Gaussian<Storage, true> {
    using Footprint = SurfelFootprint;
    using Splat = SurfelSplat;
};

__device__ inline TileQuery query_of_cover(const Ellipse& cover, float exponent_min) {
    TileQuery query = {};
    query.mean_px = cover.mean_px;
    query.conic = cover.conic;
    query.exponent_min = exponent_min;
    return query;
}

__device__ inline TileQuery tile_query(const SurfelSplat& splat) {
    return query_of_cover(splat.ellipse, splat.exponent_min);
}

// The query from a record, for `bin`.
__device__ inline TileQuery tile_query(const SurfelFootprint& splat) {
    Ellipse e;
    // It was covered at projection. If rounding makes it fail here, the surfel may reach all of its candidates.
    if (!cover(splat.surfel(), splat.place.w, e)) e = {};
    return query_of_cover(e, splat.place.w);
}

__device__ inline void store_record(float4* record, const SurfelSplat& splat, uint32_t row) {
    const Surfel& s = splat.surfel;
    record[0] = {s.mean_px.x, s.mean_px.y, splat.opacity, splat.exponent_min};
    record[1] = {s.tilt.x, s.tilt.y, 0.0f, s.depth};
    record[2] = {fmaxf(splat.color.x, 0.0f), fmaxf(splat.color.y, 0.0f),
                 fmaxf(splat.color.z, 0.0f), __uint_as_float(row)};
    record[3] = {s.along_u.x, s.along_u.y, s.along_v.x, s.along_v.y};
}

template <class Storage>
__device__ inline bool project_row(Surfels<Storage>, const ProjectArgs& a, uint32_t row,
                                   SurfelSplat& splat, Rect& pixels) {
    const float* __restrict__ geometry = a.geometry;
    const uint64_t at = lane_block(row, GEOMETRY_WIDTH);
    Shape shape;
    shape.mean_world = load_triple(geometry, at, MEAN);
    if (!in_front(camera_from_world(a.camera, shape.mean_world).z, a.camera.near)) return false;
    const float logit = geometry[at + component(OPACITY_LOGIT)];
    splat.opacity = sigmoid(logit);
    shape.log_scale = load_triple(geometry, at, LOG_SCALE);
    shape.quat = {geometry[at + component(QUAT)], geometry[at + component(QUAT + 1)],
                  geometry[at + component(QUAT + 2)], geometry[at + component(QUAT + 3)]};
    shape.smoothing = 0.0f;
    // An infinite logit or a log-scale of -infinity would give a splat; `step` reports them.
    if (!isfinite(logit) || !is_finite(shape.log_scale)) return false;
    if (!project_surfel(a.camera, shape, splat.surfel)) return false;
    if (!least_exponent(splat.opacity, splat.exponent_min)) return false;
    if (!cover(splat.surfel, splat.exponent_min, splat.ellipse)) return false;
    if (!bounds(splat.ellipse, splat.opacity, a.camera.size, pixels, splat.exponent_min)) {
        return false;
    }
    return project_color<Storage>(a, row, shape.mean_world, splat.color);
}

// Vertices of triangles: rows of Gaussians whose scales are the sizes of their triangles. Their record is
//   0  position x y, px; inverse depth, 0 if the view does not see the vertex; opacity
//   1  colour, at least 0
// Their gradients are in records of ellipses: the inverse depth's is in place of the depth's, and the opacity's, times
// 1 - sigmoid(logit), is that of the logit.

// Vertices as a primitive of Adam steps.
template <class Storage>
struct Vertices : Gaussian<Storage, true> {};

constexpr uint32_t VERTEX_QUADS = VERTEX_WIDTH / 4;

__device__ inline Vertex load_seen_vertex(const float* vertices, uint32_t row) {
    const float4* const record = reinterpret_cast<const float4*>(vertices) + uint64_t{row} * VERTEX_QUADS;
    const float4 place = record[0], color = record[1];
    return {{place.x, place.y}, place.z, place.w, {color.x, color.y, color.z}};
}

// Loads a vertex without its colour.
__device__ inline Vertex load_vertex_place(const float* vertices, uint32_t row) {
    const float4 place = reinterpret_cast<const float4*>(vertices)[uint64_t{row} * VERTEX_QUADS];
    return {{place.x, place.y}, place.z, place.w, {0.0f, 0.0f, 0.0f}};
}

// Twin of math/splat/triangle.rs.
__device__ inline float3 place_vertex_bwd(const ViewCamera& view, float3 world, float2 d_px,
                                          float d_inverse_depth) {
    const float3 cam = camera_from_world(view, world);
    const float inverse_depth = 1.0f / cam.z;
    const float d_x = d_px.x * view.focal_px[0], d_y = d_px.y * view.focal_px[1];
    const float d_inverse = d_x * cam.x + d_y * cam.y + d_inverse_depth;
    return mul_transposed(camera_rotation(view),
                          float3{d_x * inverse_depth, d_y * inverse_depth,
                                 -d_inverse * inverse_depth * inverse_depth});
}
