// The record of a triangle:
//   0  centre x y; opacity; inverse depth at the centre
//   1  slopes of the shares of the first two edges
//   2  slope of the third; slopes of the inverse depth
//   3  colour at the centre; the face's number in its bits
//   4  slope of the colour along x; x of the cover's centre
//   5  slope of the colour along y; y of the cover's centre
//   6  conic of the cover xx xy yy
// The record of its gradients, in the first 24 floats:
//   0  of the three shares; of the opacity's logarithm
//   1  of the slopes of the first two edges
//   2  of the slope of the third; of the slopes of the inverse depth
//   3  of the colour; of the inverse depth
//   4  of the slope of the colour along x
//   5  of the slope of the colour along y
#pragma once

#include "layout.cuh"
#include "tiles.cuh"
#include "triangle.cuh"

// Data of a record for `bin`.
struct TriangleFootprint {
    static constexpr uint32_t QUADS = TRIANGLE_RECORD_WIDTH / 4;
    static constexpr bool HAS_MEETINGS = false;

    float2 mean_px;
    Sym2 conic;

    __device__ static TriangleFootprint load(const float4* record) {
        const float4 conic = record[6];
        return {{record[4].w, record[5].w}, {conic.x, conic.y, conic.z}};
    }
};

__device__ inline TileQuery tile_query(const TriangleFootprint& splat) {
    TileQuery query = {};
    query.mean_px = splat.mean_px;
    query.conic = splat.conic;
    query.exponent_min = COVER_EXPONENT;
    return query;
}

__device__ inline void store_record(float4* record, const ScreenTriangle& t, const Ellipse& cover,
                                    uint32_t face) {
    record[0] = {t.centre_px.x, t.centre_px.y, t.opacity, t.inverse_depth[0]};
    record[1] = {t.slopes[0].x, t.slopes[0].y, t.slopes[1].x, t.slopes[1].y};
    record[2] = {t.slopes[2].x, t.slopes[2].y, t.inverse_depth[1], t.inverse_depth[2]};
    record[3] = {t.color[0].x, t.color[0].y, t.color[0].z, __uint_as_float(face)};
    record[4] = {t.color[1].x, t.color[1].y, t.color[1].z, cover.mean_px.x};
    record[5] = {t.color[2].x, t.color[2].y, t.color[2].z, cover.mean_px.y};
    record[6] = {cover.conic.xx, cover.conic.xy, cover.conic.yy, 0.0f};
}

__device__ inline TriangleGradient load_triangle_gradient(const float4* record) {
    const float4 a = record[0], b = record[1], c = record[2], d = record[3], e = record[4],
                 f = record[5];
    return {{a.x, a.y, a.z},
            {float2{b.x, b.y}, float2{b.z, b.w}, float2{c.x, c.y}},
            a.w,
            {float3{d.x, d.y, d.z}, float3{e.x, e.y, e.z}, float3{f.x, f.y, f.z}},
            {d.w, c.z, c.w}};
}

// A triangle's row, staged for the pixels of a warp tile.
struct TriangleRow {
    float4 quads[6];  // the first of the record, with the logarithm of the opacity in place of the opacity

    __device__ float2 centre_px() const { return {quads[0].x, quads[0].y}; }
    __device__ float log_opacity() const { return quads[0].z; }
    __device__ uint32_t face() const { return __float_as_uint(quads[3].w); }
    __device__ float2 slope(uint32_t edge) const {
        return edge == 0   ? float2{quads[1].x, quads[1].y}
               : edge == 1 ? float2{quads[1].z, quads[1].w}
                           : float2{quads[2].x, quads[2].y};
    }
    __device__ float3 color(uint32_t k) const {
        const float4 q = quads[3 + k];
        return {q.x, q.y, q.z};
    }
    __device__ float inverse_depth(uint32_t k) const {
        return k == 0 ? quads[0].w : k == 1 ? quads[2].z : quads[2].w;
    }
};

// Rounding error of an edge's share next to the edge, and relative to its largest term.
constexpr float SHARE_ROUNDING = 1e-5f, SUM_ROUNDING = 4e-7f;

// True if a sample of a warp tile may be inside: no edge has the whole warp tile on its outer side. `sample_reach_px`
// is the distance of samples from pixel centres.
__device__ inline bool reaches_warp_tile(const WarpTile& warp_tile, float sample_reach_px,
                                         const float4* record) {
    const float4 place = record[0], first = record[1], second = record[2];
    const float2 half = {0.5f * (warp_tile.high_px.x - warp_tile.low_px.x) + sample_reach_px,
                         0.5f * (warp_tile.high_px.y - warp_tile.low_px.y) + sample_reach_px};
    const float2 middle = {0.5f * (warp_tile.low_px.x + warp_tile.high_px.x) - place.x,
                           0.5f * (warp_tile.low_px.y + warp_tile.high_px.y) - place.y};
    const float2 slopes[3] = {{first.x, first.y}, {first.z, first.w}, {second.x, second.y}};
    bool reaches = true;
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        const float along_x = slopes[i].x * middle.x, along_y = slopes[i].y * middle.y;
        const float nearest = fmaf(-fabsf(slopes[i].x), half.x,
                                   fmaf(-fabsf(slopes[i].y), half.y, along_x + along_y));
        // Next to an edge, rounding may move a sample inside. The error grows with the terms.
        const float rounding =
            fmaf(SUM_ROUNDING, fabsf(along_x) + fabsf(along_y), SHARE_ROUNDING);
        reaches = reaches && nearest < 1.0f + rounding;
    }
    return reaches;
}
