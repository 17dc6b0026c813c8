// Flat Gaussians intersected by rays (2D Gaussian splatting, Huang et al. 2024) as a primitive of `primitive.cuh`.
// Their colours are those of Gaussians.
#pragma once

#include "gaussian.cuh"
#include "surfel_footprint.cuh"

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
