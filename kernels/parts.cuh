// Twin of math/blend.rs's opacity of a splat in a pixel, and the parts of a tile that warps draw.
#pragma once

#include "fast.cuh"
#include "layout.cuh"
#include "splat.cuh"

constexpr uint32_t PART_WIDTH = 8;
constexpr uint32_t PART_HEIGHT = 4;
constexpr uint32_t PARTS = TILE * TILE / WARP;
static_assert(PARTS == BLEND_PARTS, "what the host makes room for");
static_assert(PART_WIDTH * PART_HEIGHT == WARP, "one lane per pixel of a part");
static_assert(TILE % PART_WIDTH == 0 && TILE % PART_HEIGHT == 0, "parts fill the tile");

// A warp's part of a tile, and the lane's pixel in it.
struct Part {
    uint2 pixel;
    bool inside;
    float2 centre_px;  // of the pixel
    float2 low_px, high_px;  // first and last pixel centre inside the image
};

__device__ inline Part part_of(const uint32_t* size, uint32_t tiles_wide, uint32_t tile,
                               uint32_t part) {
    constexpr uint32_t ACROSS = TILE / PART_WIDTH;
    const uint32_t lane = threadIdx.x % WARP;
    Part p;
    const uint2 corner_px = {tile % tiles_wide * TILE + part % ACROSS * PART_WIDTH,
                             tile / tiles_wide * TILE + part / ACROSS * PART_HEIGHT};
    p.pixel = {corner_px.x + lane % PART_WIDTH, corner_px.y + lane / PART_WIDTH};
    p.inside = p.pixel.x < size[0] && p.pixel.y < size[1];
    p.centre_px = {p.pixel.x + 0.5f, p.pixel.y + 0.5f};
    p.low_px = {corner_px.x + 0.5f, corner_px.y + 0.5f};
    p.high_px = {min(corner_px.x + PART_WIDTH, size[0]) - 0.5f,
                 min(corner_px.y + PART_HEIGHT, size[1]) - 0.5f};
    return p;
}

// The highest exponent on the edge at distance `offset` along one axis, the other coordinate
// (relative to the centre) being free in low..high. An error of the place where the exponent is
// highest does not change it to the first order.
__device__ inline float peak_on_edge(float conic_along, float conic_cross, float conic_other,
                                     float offset, float low, float high) {
    const float cross = conic_cross * offset;
    const float other = fminf(fmaxf(-cross * fast_reciprocal(conic_other), low), high);
    return -0.5f * (conic_along * offset * offset + conic_other * other * other) - cross * other;
}

// Whether the splat reaches its least exponent at some point between the pixel centres of a part.
//
// The exponent is concave: where the centre lies outside, its maximum is on one of the two edges
// that face the centre (Radl et al. 2024). A line through the centre, where the centre's coordinate
// lies inside, holds points of the rectangle as well, so that it may be asked like an edge.
__device__ inline bool reaches_part(const Part& part, float4 place, float4 form) {
    const float2 low = {part.low_px.x - place.x, part.low_px.y - place.y};
    const float2 high = {part.high_px.x - place.x, part.high_px.y - place.y};
    const float x = fminf(fmaxf(0.0f, low.x), high.x);
    const float y = fminf(fmaxf(0.0f, low.y), high.y);
    const float by_x = peak_on_edge(form.x, form.y, form.z, x, low.y, high.y);
    const float by_y = peak_on_edge(form.z, form.y, form.x, y, low.x, high.x);
    return fmaxf(by_x, by_y) >= place.w;
}

constexpr float LOG2_E = 1.44269504f;
constexpr float LN_2 = 0.693147181f;

// A splat as a pixel meets it. Its exponent is one of 2 and has the logarithm of the opacity added,
// so that an opacity in a pixel is one exponential.
struct Row {
    float4 shape;  // centre x y; xx and xy of the exponent per px^2
    float4 scale;  // yy; log2 of the opacity; a number in its bits; red
    float2 tint;   // green, blue
};

__device__ inline Row row_of(float4 place, float4 form, float4 color, uint32_t number) {
    constexpr float HALF = -0.5f * LOG2_E;
    return {{place.x, place.y, HALF * form.x, -LOG2_E * form.y},
            {HALF * form.z, fast_log2(place.z), __uint_as_float(number), color.x},
            {color.y, color.z}};
}

// A row that leaves every pixel as it is.
__device__ inline Row unseen_row() {
    return {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, -1e30f, 0.0f, 0.0f}, {0.0f, 0.0f}};
}

// The power of 2 that a splat's opacity in a pixel is. Contractions are spelt out: both passes have
// to decide alike about a splat and a pixel.
__device__ inline float opacity_power(float4 shape, float4 scale, float2 centre_px) {
    const float dx = centre_px.x - shape.x, dy = centre_px.y - shape.y;
    return fmaf(dx, fmaf(shape.z, dx, shape.w * dy), fmaf(scale.x * dy, dy, scale.y));
}

// Opacity of a splat in a pixel.
struct PixelAlpha {
    float unclamped;
    float alpha;
    bool seen;  // not to be left out
};

__device__ inline PixelAlpha pixel_alpha(float4 shape, float4 scale, float2 centre_px) {
    const float power = opacity_power(shape, scale, centre_px);
    const float unclamped = fast_exp2(power);
    return {unclamped, fminf(unclamped, ALPHA_MAX), power <= scale.y && unclamped >= ALPHA_MIN};
}
