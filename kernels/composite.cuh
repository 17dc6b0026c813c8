// What both passes of `blend` share: where states and hits lie, and the step past a splat.
#pragma once

#include "footprint.cuh"
#include "parts.cuh"

// What the warps of `blend` stage in shared memory: splats for their pixels, and what backward notes of
// each pair of a splat and a pixel.

// Splats staged by a warp for its pixels, with what they give to a surface's maps.
template <class Footprint>
struct FeaturedRows : Footprint::template Rows<WARP> {
    float4 features[WARP];
};

// Splats of a batch whose opacities are computed together.
constexpr uint32_t GROUP = 4;
static_assert(BATCH % GROUP == 0, "a batch has room for whole groups");

// What a warp of the backward pass works with; what it finds besides colours adds its own.
template <class Footprint, class Aux>
struct WarpScratch : Aux::Scratch {
    float4 d_color[WARP];  // of the pixels; of their inverse depths in the last place
    typename Footprint::template Rows<BATCH> rows;  // their numbers are splat indices
    typename Footprint::Notes notes[BATCH];
    uint32_t queue[BATCH + WARP];  // splat indices
};

// Place of the pixel's state before instance `start`, the first of a chunk but not of its tile. Two
// such instances are BLEND_CHUNK apart or more, so that no two share a place.
__device__ inline uint64_t state_at(uint32_t start, uint32_t part) {
    return (uint64_t{start / BLEND_CHUNK} * PARTS + part) * WARP + threadIdx.x % WARP;
}

// First place of the hits of a tile whose instances begin at `start`: one word per part for every
// WARP of them. Each tile's last may not be full, so that it moves those behind it by one.
__device__ inline uint64_t hits_at(uint32_t start, uint32_t tile) {
    return (uint64_t{start / WARP} + tile) * PARTS;
}

// Opacity of a splat in a pixel that is not finished, and the pixel's transmittance behind it. What
// would take the transmittance below its least finishes the pixel: it turns negative and stays so.
__device__ inline float composite(const PixelAlpha& pixel, float& transmittance) {
    const float alpha = pixel.seen ? pixel.alpha : 0.0f;
    const float after = fmaf(-alpha, transmittance, transmittance);
    const bool contributes = after >= TRANSMITTANCE_MIN;
    transmittance = contributes ? after : -fabsf(transmittance);
    return contributes ? alpha : 0.0f;
}
