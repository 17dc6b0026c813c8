// What the warps of `blend` stage in shared memory: splats for their pixels, and what backward notes of
// each pair of a splat and a pixel.
#pragma once

#include "parts.cuh"

// Splats staged by a warp for its pixels.
template <uint32_t N>
struct Rows {
    float4 shapes[N], scales[N];
    float2 tints[N];

    __device__ void put(uint32_t at, const Row& row) {
        shapes[at] = row.shape;
        scales[at] = row.scale;
        tints[at] = row.tint;
    }
    __device__ Row get(uint32_t at) const { return {shapes[at], scales[at], tints[at]}; }
};

// The same with what they give to a surface's maps.
struct FeaturedRows : Rows<WARP> {
    float4 features[WARP];
};

// Splats that a warp works on at a time: half a lane each.
constexpr uint32_t BATCH = 16;
// Splats of a batch whose opacities are computed together.
constexpr uint32_t GROUP = 4;
static_assert(BATCH % GROUP == 0, "a batch has room for whole groups");
// Odd, so that the lanes of the second visit read from different banks.
constexpr uint32_t NOTE_STRIDE = WARP + 1;

// What a warp of the backward pass works with; what it finds besides colours adds its own.
template <class Aux>
struct WarpScratch : Aux::Scratch {
    float4 d_color[WARP];  // of the pixels; of their inverse depths in the last place
    Rows<BATCH> rows;      // their numbers are the splats' slots
    float2 of_pixel[BATCH * NOTE_STRIDE];  // weight of the colour, gradient of the exponent
    uint32_t queue[BATCH + WARP];  // slots
};
