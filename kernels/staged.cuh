// Data that the warps of `blend` stage in shared memory: splats for their pixels, and the backward pass' notes of pairs
// of a splat and a pixel.
#pragma once

#include "footprint.cuh"

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
