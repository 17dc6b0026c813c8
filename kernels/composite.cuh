// Common parts of both passes of `blend`: addresses of states and hits, and the step past a splat.
#pragma once

#include "footprint.cuh"
#include "parts.cuh"

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
