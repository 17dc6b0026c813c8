// Twin of math/field.rs: lookup of points in a map of a view. Same names; see Rust for the equations.
#pragma once

#include "splat.cuh"

// Projects a point in camera space to px; false outside the image or behind the near plane.
__device__ inline bool place_px(const ViewCamera& view, float3 point_cam, float2& place) {
    if (!in_front(point_cam.z, view.near)) return false;
    place = {view.focal_px[0] * (point_cam.x / point_cam.z) + view.centre_px[0],
             view.focal_px[1] * (point_cam.y / point_cam.z) + view.centre_px[1]};
    return place.x >= 0.0f && place.x <= static_cast<float>(view.size[0]) && place.y >= 0.0f &&
           place.y <= static_cast<float>(view.size[1]);
}

// Returns `d_point_cam` for a point that was projected.
__device__ inline float3 place_px_bwd(const ViewCamera& view, float3 point_cam, float2 d_place) {
    const float d_x = d_place.x * view.focal_px[0] / point_cam.z;
    const float d_y = d_place.y * view.focal_px[1] / point_cam.z;
    return {d_x, d_y, -(d_x * point_cam.x + d_y * point_cam.y) / point_cam.z};
}

// The four pixels around a position, and its fraction from the first to the last.
struct PixelQuad {
    uint2 low, high;
    float2 share;
};

// One axis of the four pixels.
__device__ inline void cell_along(float place_px, uint32_t size, uint32_t& low, uint32_t& high,
                                  float& share) {
    const float place = place_px - 0.5f;
    const uint32_t last = size - 1;
    low = place > 0.0f ? min(static_cast<uint32_t>(place), last) : 0;
    high = place > 0.0f ? min(low + 1, last) : 0;
    share = place > 0.0f && low < last ? place - static_cast<float>(low) : 0.0f;
}

__device__ inline PixelQuad cell(float2 place_px, const uint32_t* size) {
    PixelQuad c;
    cell_along(place_px.x, size[0], c.low.x, c.high.x, c.share.x);
    cell_along(place_px.y, size[1], c.low.y, c.high.y, c.share.y);
    return c;
}

// Returns one of the four pixels, in row-major order.
__device__ inline uint2 cell_pixel(const PixelQuad& c, uint32_t which) {
    return {which % 2 == 0 ? c.low.x : c.high.x, which / 2 == 0 ? c.low.y : c.high.y};
}

__device__ inline float cell_weight(const PixelQuad& c, uint32_t which) {
    return (which % 2 == 0 ? 1.0f - c.share.x : c.share.x) *
           (which / 2 == 0 ? 1.0f - c.share.y : c.share.y);
}

// Interpolates the values of the four pixels; `slopes` are the slopes along x and y, per px.
__device__ inline float between(const PixelQuad& cell, float4 values, float2& slopes) {
    const float x = cell.share.x, y = cell.share.y;
    const float over = values.y - values.x, under = values.w - values.z;
    const float above = values.x + x * over, below = values.z + x * under;
    slopes = {over + y * (under - over), below - above};
    return above + y * (below - above);
}
