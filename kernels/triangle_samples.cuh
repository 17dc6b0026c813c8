// Evaluation of a triangle at the samples of a pixel, common to all passes of `blend_triangles.cu`.
#pragma once

#include "fast.cuh"
#include "triangle_footprint.cuh"

// A warp's part and list.
struct PartLists {
    Part part;
    TileRange range;
};

__device__ inline PartLists part_lists(const BlendArgs& a) {
    const uint32_t tile = a.first_tile + blockIdx.x;
    return {part_of(a.size, a.tiles_wide, tile, threadIdx.x / WARP), a.ranges[tile]};
}

// Samples of a pixel and their transmittances.
template <uint32_t N>
struct Samples {
    static constexpr uint32_t COUNT = N * N;
    static constexpr float STEP = 1.0f / N;
    static constexpr float FIRST = 0.5f * STEP - 0.5f;
    // Largest distance of samples from the pixel's centre along x and y.
    static constexpr float REACH = -FIRST;

    float transmittance[COUNT];
    uint32_t open;  // one bit per sample

    __device__ explicit Samples(bool inside) : open(inside ? (1u << COUNT) - 1 : 0) {
#pragma unroll
        for (float& t : transmittance) t = 1.0f;
    }

    __device__ bool is_open(uint32_t sample) const { return (open >> sample & 1) != 0; }

    // Returns the position of a sample relative to the pixel's centre.
    __device__ static float2 offset(uint32_t sample) {
        return {FIRST + STEP * static_cast<float>(sample % N),
                FIRST + STEP * static_cast<float>(sample / N)};
    }
};

// A triangle at a lane's pixel.
struct InPixel {
    float2 from;      // the pixel's centre less the triangle's
    float shares[3];  // at the pixel's centre
};

__device__ inline InPixel in_pixel(const TriangleRow& row, float2 centre_px) {
    InPixel in;
    const float2 centre = row.centre_px();
    in.from = {centre_px.x - centre.x, centre_px.y - centre.y};
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        const float2 slope = row.slope(i);
        in.shares[i] = fmaf(slope.x, in.from.x, slope.y * in.from.y);
    }
    return in;
}

// True if a sample of the pixel may be inside.
template <uint32_t N>
__device__ inline bool may_be_inside(const TriangleRow& row, const InPixel& in) {
    bool inside = true;
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        const float2 slope = row.slope(i);
        // Next to an edge, rounding may move a sample inside.
        inside = inside && fmaf(-Samples<N>::REACH, fabsf(slope.x) + fabsf(slope.y),
                                in.shares[i]) < 1.0f + SHARE_ROUNDING;
    }
    return inside;
}

// A triangle at a sample. Contractions are explicit: all passes must decide equally.
struct InSample {
    float alpha;
    float left;       // 1 less the largest share
    bool nearest[3];  // true for the edge with that share
    bool is_held;     // true if clamped to the largest opacity
    bool is_seen;     // false if the triangle does not change the sample
};

__device__ inline InSample in_sample(const TriangleRow& row, const InPixel& in, float2 offset,
                                     float exponent) {
    float shares[3];
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        const float2 slope = row.slope(i);
        shares[i] = fmaf(slope.x, offset.x, fmaf(slope.y, offset.y, in.shares[i]));
    }
    // Ties go to the first.
    const bool beyond_first = shares[1] > shares[0];
    const float larger = beyond_first ? shares[1] : shares[0];
    const bool third = shares[2] > larger;
    InSample s;
    s.nearest[0] = !third && !beyond_first;
    s.nearest[1] = !third && beyond_first;
    s.nearest[2] = third;
    s.left = 1.0f - (third ? shares[2] : larger);
    const float opacity = fast_exp2(fmaf(exponent, fast_log2(s.left), row.log_opacity()));
    s.is_held = opacity >= TRIANGLE_ALPHA_MAX;
    s.alpha = s.is_held ? TRIANGLE_ALPHA_MAX : opacity;
    // NaN, from the logarithm outside, is not seen.
    s.is_seen = s.left > 0.0f && s.alpha >= ALPHA_MIN;
    return s;
}

// Advances an open sample past a triangle and returns the triangle's weight. The triangle that finishes a sample
// counts: it would show if a solid triangle before it moved away.
template <uint32_t N>
__device__ inline float pass(Samples<N>& samples, uint32_t sample, float alpha) {
    const float before = samples.transmittance[sample];
    const float after = fmaf(-alpha, before, before);
    if (after < TRANSMITTANCE_MIN) samples.open &= ~(1u << sample);
    samples.transmittance[sample] = after;
    return alpha * before;
}
