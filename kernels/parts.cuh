// Twin of math/blend.rs's opacity of a splat in a pixel, and the parts of a tile that warps draw.
#pragma once

#include "layout.cuh"
#include "splat.cuh"

constexpr uint32_t PART_WIDTH = 8;
constexpr uint32_t PART_HEIGHT = 4;
constexpr uint32_t PARTS = BLEND_BLOCK / WARP;
static_assert(BLEND_BLOCK == TILE * TILE, "one thread per pixel of a tile");
static_assert(PART_WIDTH * PART_HEIGHT == WARP, "one lane per pixel of a part");
static_assert(TILE % PART_WIDTH == 0 && TILE % PART_HEIGHT == 0, "parts fill the tile");

// A warp's part of a tile, and the lane's pixel in it.
struct Part {
    uint2 corner_px;
    uint2 pixel;
    bool inside;
    float2 centre_px;  // of the pixel
    float2 low_px, high_px;  // first and last pixel centre inside the image
};

__device__ inline Part part_of(const uint32_t* size, uint32_t tiles_wide, uint32_t tile) {
    constexpr uint32_t ACROSS = TILE / PART_WIDTH;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    Part p;
    p.corner_px = {tile % tiles_wide * TILE + warp % ACROSS * PART_WIDTH,
                   tile / tiles_wide * TILE + warp / ACROSS * PART_HEIGHT};
    p.pixel = {p.corner_px.x + lane % PART_WIDTH, p.corner_px.y + lane / PART_WIDTH};
    p.inside = p.pixel.x < size[0] && p.pixel.y < size[1];
    p.centre_px = {p.pixel.x + 0.5f, p.pixel.y + 0.5f};
    p.low_px = {p.corner_px.x + 0.5f, p.corner_px.y + 0.5f};
    p.high_px = {min(p.corner_px.x + PART_WIDTH, size[0]) - 0.5f,
                 min(p.corner_px.y + PART_HEIGHT, size[1]) - 0.5f};
    return p;
}

__device__ inline bool reaches_part(const Part& part, float4 place, float4 form) {
    const float2 low = {part.low_px.x - place.x, part.low_px.y - place.y};
    const float2 high = {part.high_px.x - place.x, part.high_px.y - place.y};
    return reaches({form.x, form.y, form.z}, place.w, low, high);
}

// Opacity of a splat in a pixel, 0 where it leaves it untouched. The exponential is the fast one:
// between -5.6 and 0 its relative error is below 1e-6.
__device__ inline float alpha_at(float4 place, float4 form, float2 centre_px) {
    const float power =
        exponent({form.x, form.y, form.z}, centre_px.x - place.x, centre_px.y - place.y);
    if (power > 0.0f) return 0.0f;
    const float alpha = fminf(place.z * __expf(power), ALPHA_MAX);
    return alpha >= ALPHA_MIN ? alpha : 0.0f;
}
