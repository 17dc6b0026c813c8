// Primitives. `project` is a template over them (`project.cuh`). A primitive must provide
//   Footprint      its evaluation at pixels (`footprint.cuh`)
//   Splat          a projected row, with `ellipse.depth`
//   project_row    true if the view sees a row; its splat, and the pixels that it may reach
//   tile_query     data for the selection of tiles: from a splat, and from its record for `bin`
//   store_record   writes the record that the footprint reads
// Requirements of Adam steps are in `adam.cuh`. `gaussian.cuh` is one primitive. Common parts of primitives follow.
#pragma once

#include "footprint.cuh"
#include "layout.cuh"
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

// The query from a record, for `bin`.
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

__device__ inline float3 load_triple(const float* __restrict__ column, uint64_t at, uint32_t first) {
    return {column[at + component(first)], column[at + component(first + 1)],
            column[at + component(first + 2)]};
}

__device__ inline bool is_finite(float3 v) {
    return isfinite(v.x) && isfinite(v.y) && isfinite(v.z);
}
