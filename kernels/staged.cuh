// What the warps of `blend` stage in shared memory: splats for their pixels, and what backward notes of
// each pair of a splat and a pixel.
#pragma once

#include "footprint.cuh"

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
