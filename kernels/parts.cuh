// Parts of a tile, one per warp.
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

// A warp's part of a tile, and the lane's pixel.
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

// Number of splats that a warp processes at a time, two lanes each.
constexpr uint32_t BATCH = 16;

// Adds the values of the two lanes of a splat.
__device__ inline float both_halves(float value) {
    return value + __shfl_xor_sync(FULL_WARP, value, BATCH);
}
