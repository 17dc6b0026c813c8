// Common parts of both passes of `blend`: addresses of states and hits, and the step past a splat.
#pragma once

#include "footprint.cuh"
#include "parts.cuh"

// Data that the warps of `blend` stage in shared memory: splats for their pixels, and the backward pass' notes of pairs
// of a splat and a pixel.

// Splats staged by a warp, with surface features.
template <class Footprint>
struct FeaturedRows : Footprint::template Rows<WARP> {
    float4 features[WARP];
};

// Number of splats of a batch whose opacities are computed together.
constexpr uint32_t GROUP = 4;
static_assert(BATCH % GROUP == 0, "a batch has room for whole groups");

// Scratch of a warp in the backward pass; maps add their own.
template <class Footprint, class Aux>
struct WarpScratch : Aux::Scratch {
    float4 d_color[WARP];  // of the pixels; the last component is of their inverse depths
    typename Footprint::template Rows<BATCH> rows;  // their numbers are splat indices
    typename Footprint::Notes notes[BATCH];
    uint32_t queue[BATCH + WARP];  // splat indices
};

// Returns the address of the pixel's state before instance `start`, the first of a chunk but not of its tile. Such
// instances are at least BLEND_CHUNK apart, so addresses are unique.
__device__ inline uint64_t state_at(uint32_t start, uint32_t part) {
    return (uint64_t{start / BLEND_CHUNK} * PARTS + part) * WARP + threadIdx.x % WARP;
}

// Returns the first address of the hits of a tile whose instances begin at `start`: one word per part for every WARP of
// instances. The last one of each tile may be partial, which shifts later tiles by one.
__device__ inline uint64_t hits_at(uint32_t start, uint32_t tile) {
    return (uint64_t{start / WARP} + tile) * PARTS;
}

// Returns the opacity of a splat at an open pixel, and updates the transmittance. A splat that takes the transmittance
// below its minimum finishes the pixel: it becomes negative for good.
__device__ inline float composite(const PixelAlpha& pixel, float& transmittance) {
    const float alpha = pixel.seen ? pixel.alpha : 0.0f;
    const float after = fmaf(-alpha, transmittance, transmittance);
    const bool contributes = after >= TRANSMITTANCE_MIN;
    transmittance = contributes ? after : -fabsf(transmittance);
    return contributes ? alpha : 0.0f;
}
