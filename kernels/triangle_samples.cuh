// A triangle in the samples of a pixel, as all passes of `blend_triangles.cu` see it.
#pragma once

#include "fast.cuh"
#include "triangle_footprint.cuh"

// What a warp draws.
struct PartLists {
    Part part;
    TileRange range;
};

__device__ inline PartLists part_lists(const BlendArgs& a) {
    const uint32_t tile = a.first_tile + blockIdx.x;
    return {part_of(a.size, a.tiles_wide, tile, threadIdx.x / WARP), a.ranges[tile]};
}

// Samples of a pixel, the shares of a triangle in them, and what is left of the light.
template <uint32_t N>
struct Samples {
    static constexpr uint32_t COUNT = N * N;
    static constexpr float STEP = 1.0f / N;
    static constexpr float FIRST = 0.5f * STEP - 0.5f;
    // How far samples are from the pixel's centre along x and y.
    static constexpr float REACH = -FIRST;

    float transmittance[COUNT];
    uint32_t open;  // a bit each

    __device__ explicit Samples(bool inside) : open(inside ? (1u << COUNT) - 1 : 0) {
#pragma unroll
        for (float& t : transmittance) t = 1.0f;
    }

    __device__ bool is_open(uint32_t sample) const { return (open >> sample & 1) != 0; }

    // Place of a sample from the pixel's centre.
    __device__ static float2 offset(uint32_t sample) {
        return {FIRST + STEP * static_cast<float>(sample % N),
                FIRST + STEP * static_cast<float>(sample / N)};
    }
};

// A triangle in a lane's pixel.
struct InPixel {
    float2 from;      // the pixel's centre less the triangle's
    float shares[3];  // there
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

// Whether some sample of the pixel may be inside.
template <uint32_t N>
__device__ inline bool may_be_inside(const TriangleRow& row, const InPixel& in) {
    bool inside = true;
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        const float2 slope = row.slope(i);
        // Next to an edge a sample may be inside by another rounding.
        inside = inside && fmaf(-Samples<N>::REACH, fabsf(slope.x) + fabsf(slope.y),
                                in.shares[i]) < 1.0f + SHARE_ROUNDING;
    }
    return inside;
}

// What a triangle is in a sample. Contractions are spelt out: all passes have to decide alike.
struct InSample {
    float alpha;
    float left;       // 1 less the largest share
    bool nearest[3];  // whose share that is
    bool is_held;     // at the largest opacity
    bool is_seen;     // false where it leaves the sample as it is
};

__device__ inline InSample in_sample(const TriangleRow& row, const InPixel& in, float2 offset,
                                     float exponent) {
    float shares[3];
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        const float2 slope = row.slope(i);
        shares[i] = fmaf(slope.x, offset.x, fmaf(slope.y, offset.y, in.shares[i]));
    }
    // Of equal ones the first.
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
    // Written so that NaN, of a logarithm of what is outside, is not seen.
    s.is_seen = s.left > 0.0f && s.alpha >= ALPHA_MIN;
    return s;
}

// Passes a triangle in an open sample; gives the weight that it has there. The one that finishes a sample counts, too:
// if a solid triangle before it moved away, the sample would show this one.
template <uint32_t N>
__device__ inline float pass(Samples<N>& samples, uint32_t sample, float alpha) {
    const float before = samples.transmittance[sample];
    const float after = fmaf(-alpha, before, before);
    if (after < TRANSMITTANCE_MIN) samples.open &= ~(1u << sample);
    samples.transmittance[sample] = after;
    return alpha * before;
}
