// blend, of triangles: a tile's triangles to its pixels, front to back, and pixel gradients back to triangles. A
// pixel is the mean of N x N samples, which live in the registers of its lane: no map has more than a value a pixel,
// however many samples it is the mean of. A warp draws a part of a tile, as in `blend.cu`.
// The backward pass goes front to back twice: first for the light that arrives in each sample, then for the
// gradients. Both times and in the forward pass the same function decides about a triangle and a sample.
// Shapes: as in `blend.cu`; face_weights [faces].

#include "triangle_footprint.cuh"

static_assert(BLEND_BLOCK == PARTS * WARP, "one thread per pixel of a tile");

// Samples of a pixel, the shares of a triangle in them, and what is left of the light.
template <uint32_t N>
struct Samples {
    static constexpr uint32_t COUNT = N * N;
    static constexpr float STEP = 1.0f / N;
    static constexpr float FIRST = 0.5f * STEP - 0.5f;

    float transmittance[COUNT];
    uint32_t open;  // a bit each

    __device__ explicit Samples(bool inside) : open(inside ? (1u << COUNT) - 1 : 0) {
#pragma unroll
        for (float& t : transmittance) t = 1.0f;
    }

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
__device__ inline bool may_be_inside(const TriangleRow& row, const InPixel& in) {
    bool inside = true;
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        const float2 slope = row.slope(i);
        inside = inside && in.shares[i] - 0.5f * (fabsf(slope.x) + fabsf(slope.y)) < 1.0f;
    }
    return inside;
}

// What a triangle is in a sample. Contractions are spelt out: all passes have to decide alike.
struct InSample {
    float alpha;  // 0 where it leaves the sample as it is
    float left;   // 1 less the largest share
    uint32_t edge;
    bool is_held;  // at the largest opacity
};

__device__ inline InSample in_sample(const TriangleRow& row, const InPixel& in, float2 offset,
                                     float exponent) {
    float share = fmaf(row.slope(0).x, offset.x, fmaf(row.slope(0).y, offset.y, in.shares[0]));
    uint32_t edge = 0;
#pragma unroll
    for (uint32_t i = 1; i < 3; ++i) {
        const float2 slope = row.slope(i);
        const float other = fmaf(slope.x, offset.x, fmaf(slope.y, offset.y, in.shares[i]));
        if (other > share) {
            share = other;
            edge = i;
        }
    }
    InSample s;
    s.left = 1.0f - share;
    s.edge = edge;
    const float opacity = fast_exp2(fmaf(exponent, fast_log2(s.left), row.log_opacity()));
    s.is_held = opacity >= TRIANGLE_ALPHA_MAX;
    const float alpha = s.is_held ? TRIANGLE_ALPHA_MAX : opacity;
    // Written so that NaN, of a logarithm of what is outside, is not seen.
    s.alpha = s.left > 0.0f && alpha >= ALPHA_MIN ? alpha : 0.0f;
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

// What a warp draws.
struct PartLists {
    Part part;
    TileRange range;
};

__device__ inline PartLists part_lists(const BlendArgs& a) {
    const uint32_t tile = a.first_tile + blockIdx.x;
    return {part_of(a.size, a.tiles_wide, tile, threadIdx.x / WARP), a.ranges[tile]};
}

// Calls `visit(row, splat_index)` on all lanes for each triangle of the part, front to back, while some lane says
// that it goes on.
template <class GoesOn, class Visit>
__device__ inline void for_each_triangle(const BlendArgs& a, const PartLists& lists,
                                         TriangleRow* own, uint32_t* numbers, GoesOn goes_on,
                                         Visit visit) {
    const uint32_t lane = threadIdx.x % WARP;
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    const TileRange range = lists.range;
    for (uint32_t base = range.start; base < range.end && __any_sync(FULL_WARP, goes_on());
         base += WARP) {
        const uint32_t instance = base + lane;
        const uint32_t splat_index = a.splat_from_instance[min(instance, range.end - 1)];
        const float4* const record = splats + uint64_t{splat_index} * TriangleFootprint::QUADS;
        const bool hit = instance < range.end && reaches_part(lists.part, record);
        const uint32_t hits = __ballot_sync(FULL_WARP, hit);
        if (hit) {
            const uint32_t at = __popc(hits & lanes_below());
            TriangleRow& row = own[at];
#pragma unroll
            for (uint32_t quad = 0; quad < 6; ++quad) row.quads[quad] = record[quad];
            row.quads[0].z = fast_log2(row.quads[0].z);
            numbers[at] = splat_index;
        }
        __syncwarp();  // the rows are there
        const uint32_t count = __popc(hits);
        for (uint32_t at = 0; at < count; ++at) visit(own[at], numbers[at]);
        __syncwarp();  // everyone has read them
    }
}

// Raises the largest weight of a face.
__device__ inline void raise_weight(const BlendArgs& a, uint32_t face, float weight) {
    const int most = warp_max(__float_as_int(weight));
    if (threadIdx.x % WARP != 0 || most <= 0) return;
    int* const at = reinterpret_cast<int*>(a.face_weights) + face;
    if (*at < most) atomicMax(at, most);
}

template <uint32_t N>
__device__ inline void blend_fwd(const BlendArgs& a) {
    __shared__ TriangleRow rows[PARTS][WARP];
    __shared__ uint32_t numbers[PARTS][WARP];
    const uint32_t warp = threadIdx.x / WARP;
    const PartLists lists = part_lists(a);
    const Part& part = lists.part;
    Samples<N> samples(part.inside);
    float3 color = {0.0f, 0.0f, 0.0f};
    float inverse_depth = 0.0f;
    for_each_triangle(
        a, lists, rows[warp], numbers[warp], [&] { return samples.open != 0; },
        [&](const TriangleRow& row, uint32_t) {
            const InPixel in = in_pixel(row, part.centre_px);
            float weight = 0.0f, along_x = 0.0f, along_y = 0.0f;
            if (samples.open != 0 && may_be_inside(row, in)) {
#pragma unroll
                for (uint32_t s = 0; s < Samples<N>::COUNT; ++s) {
                    const float2 offset = Samples<N>::offset(s);
                    const InSample at = in_sample(row, in, offset, a.window_exponent);
                    if (at.alpha == 0.0f || (samples.open >> s & 1) == 0) continue;
                    const float w = pass(samples, s, at.alpha);
                    weight += w;
                    along_x = fmaf(w, offset.x, along_x);
                    along_y = fmaf(w, offset.y, along_y);
                }
                along_x = fmaf(weight, in.from.x, along_x);
                along_y = fmaf(weight, in.from.y, along_y);
                color = add(color, add(scale(row.color(0), weight),
                                       add(scale(row.color(1), along_x),
                                           scale(row.color(2), along_y))));
                inverse_depth += weight * row.inverse_depth(0) + along_x * row.inverse_depth(1) +
                                 along_y * row.inverse_depth(2);
            }
        });
    if (!part.inside) return;
    constexpr float SHARE = 1.0f / Samples<N>::COUNT;
    float through = 0.0f;
#pragma unroll
    for (uint32_t s = 0; s < Samples<N>::COUNT; ++s) through += samples.transmittance[s];
    const uint64_t pixel = uint64_t{part.pixel.y} * a.size[0] + part.pixel.x;
    a.image[pixel * 3] = SHARE * (color.x + through * a.background[0]);
    a.image[pixel * 3 + 1] = SHARE * (color.y + through * a.background[1]);
    a.image[pixel * 3 + 2] = SHARE * (color.z + through * a.background[2]);
    if (a.inverse_depths != nullptr) a.inverse_depths[pixel] = SHARE * inverse_depth;
}

// Gradients of a triangle's record, in their order.
constexpr uint32_t D_SHARES = 0, D_LOG_OPACITY = 3, D_SLOPES = 4, D_INVERSE_SLOPES = 10, D_COLOR = 12,
                   D_INVERSE = 15, D_COLOR_X = 16, D_COLOR_Y = 20, D_VALUES = 24;

// Of twice HALF values the sums over pairs of lanes: each of two lanes that are HALF apart keeps one half of the
// values. Arrays of a size that is known stay in registers.
template <uint32_t HALF>
__device__ inline float sum_of_lane(const float (&values)[2 * HALF]) {
    const bool upper = (threadIdx.x & HALF) != 0;
    float kept[HALF];
#pragma unroll
    for (uint32_t i = 0; i < HALF; ++i) {
        const float sent = upper ? values[i] : values[i + HALF];
        kept[i] = (upper ? values[i + HALF] : values[i]) + __shfl_xor_sync(FULL_WARP, sent, HALF);
    }
    if constexpr (HALF == 1) {
        return kept[0];
    } else {
        return sum_of_lane<HALF / 2>(kept);
    }
}

// Adds the values of all lanes to a record: lane i has the sum of value i.
__device__ inline void add_record(float* record, const float (&values)[WARP]) {
    const uint32_t lane = threadIdx.x % WARP;
    const float sum = sum_of_lane<WARP / 2>(values);
    if (lane < D_VALUES && sum != 0.0f) atomicAdd(record + lane, sum);
}

// A pixel's gradients, of the mean over its samples.
struct PixelGradient {
    float3 d_color;
    float d_inverse_depth;
};

// What a triangle's colour and inverse depth in a sample are worth: a linear function of the sample's place.
struct Worth {
    float here, along_x, along_y;

    __device__ Worth(const TriangleRow& row, const InPixel& in, const PixelGradient& d) {
        along_x = fmaf(d.d_inverse_depth, row.inverse_depth(1), dot(row.color(1), d.d_color));
        along_y = fmaf(d.d_inverse_depth, row.inverse_depth(2), dot(row.color(2), d.d_color));
        here = fmaf(d.d_inverse_depth, row.inverse_depth(0), dot(row.color(0), d.d_color)) +
               in.from.x * along_x + in.from.y * along_y;
    }

    __device__ float at(float2 offset) const {
        return fmaf(along_x, offset.x, fmaf(along_y, offset.y, here));
    }
};

// How the opacity of a triangle falls off from its middle to its edges.
struct FallOff {
    float exponent;
    float strip_px;

    __device__ explicit FallOff(const BlendArgs& a)
        : exponent(a.window_exponent), strip_px(a.strip_px) {}

    // What the opacity grows by with what is left to the edge; next to the edge the mean over a strip.
    __device__ float slope(const TriangleRow& row, const InSample& at) const {
        const float2 m = row.slope(at.edge);
        const float strip = fminf(strip_px * sqrtf(dot(m, m)), 1.0f);
        if (at.left < strip) {
            const float there = fast_exp2(fmaf(exponent, fast_log2(strip), row.log_opacity()));
            return fminf(there, TRIANGLE_ALPHA_MAX) * fast_reciprocal(strip);
        }
        return at.is_held ? 0.0f : at.alpha * exponent * fast_reciprocal(at.left);
    }
};

// Adds what a triangle gets of a lane's samples; gives its largest weight in one.
template <uint32_t N>
__device__ inline float add_samples(const TriangleRow& row, const InPixel& in,
                                   const PixelGradient& d, const FallOff& fall_off,
                                   Samples<N>& samples, float (&behind)[N * N],
                                   float (&values)[WARP]) {
    const Worth worth(row, in, d);
    float weight = 0.0f, along_x = 0.0f, along_y = 0.0f, most = 0.0f;
#pragma unroll
    for (uint32_t s = 0; s < Samples<N>::COUNT; ++s) {
        const float2 offset = Samples<N>::offset(s);
        const InSample at = in_sample(row, in, offset, fall_off.exponent);
        if (at.alpha == 0.0f || (samples.open >> s & 1) == 0) continue;
        const float before = samples.transmittance[s];
        const float w = pass(samples, s, at.alpha);
        const float shade = worth.at(offset);
        behind[s] = fmaf(-w, shade, behind[s]);
        const float d_alpha =
            fmaf(before, shade, -behind[s] * fast_reciprocal(1.0f - at.alpha));
        weight += w;
        along_x = fmaf(w, offset.x, along_x);
        along_y = fmaf(w, offset.y, along_y);
        most = fmaxf(most, w);
        const float d_share = -d_alpha * fall_off.slope(row, at);
        const float x = in.from.x + offset.x, y = in.from.y + offset.y;
        if (!at.is_held) values[D_LOG_OPACITY] += d_alpha * at.alpha;
#pragma unroll
        for (uint32_t edge = 0; edge < 3; ++edge) {
            const float own = at.edge == edge ? d_share : 0.0f;
            values[D_SHARES + edge] += own;
            values[D_SLOPES + 2 * edge] = fmaf(own, x, values[D_SLOPES + 2 * edge]);
            values[D_SLOPES + 2 * edge + 1] = fmaf(own, y, values[D_SLOPES + 2 * edge + 1]);
        }
    }
    along_x = fmaf(weight, in.from.x, along_x);
    along_y = fmaf(weight, in.from.y, along_y);
    const float d_color[3] = {d.d_color.x, d.d_color.y, d.d_color.z};
#pragma unroll
    for (uint32_t c = 0; c < 3; ++c) {
        values[D_COLOR + c] = weight * d_color[c];
        values[D_COLOR_X + c] = along_x * d_color[c];
        values[D_COLOR_Y + c] = along_y * d_color[c];
    }
    values[D_INVERSE] = weight * d.d_inverse_depth;
    values[D_INVERSE_SLOPES] = along_x * d.d_inverse_depth;
    values[D_INVERSE_SLOPES + 1] = along_y * d.d_inverse_depth;
    return most;
}

template <uint32_t N>
__device__ inline void blend_bwd(const BlendArgs& a) {
    __shared__ TriangleRow rows[PARTS][WARP];
    __shared__ uint32_t numbers[PARTS][WARP];
    const uint32_t warp = threadIdx.x / WARP;
    const PartLists lists = part_lists(a);
    const Part& part = lists.part;
    constexpr float SHARE = 1.0f / Samples<N>::COUNT;
    const FallOff fall_off(a);
    PixelGradient d = {};
    if (part.inside) {
        const uint64_t pixel = uint64_t{part.pixel.y} * a.size[0] + part.pixel.x;
        d.d_color = {SHARE * a.d_image[pixel * 3], SHARE * a.d_image[pixel * 3 + 1],
                     SHARE * a.d_image[pixel * 3 + 2]};
        if (a.d_inverse_depths != nullptr) d.d_inverse_depth = SHARE * a.d_inverse_depths[pixel];
    }
    // Of each sample what its light is worth: of all that it is blended of, and then of what is behind.
    float behind[N * N] = {};
    {
        Samples<N> samples(part.inside);
        for_each_triangle(
            a, lists, rows[warp], numbers[warp], [&] { return samples.open != 0; },
            [&](const TriangleRow& row, uint32_t) {
                const InPixel in = in_pixel(row, part.centre_px);
                if (samples.open == 0 || !may_be_inside(row, in)) return;
                const Worth worth(row, in, d);
#pragma unroll
                for (uint32_t s = 0; s < Samples<N>::COUNT; ++s) {
                    const float2 offset = Samples<N>::offset(s);
                    const InSample at = in_sample(row, in, offset, a.window_exponent);
                    if (at.alpha == 0.0f || (samples.open >> s & 1) == 0) continue;
                    behind[s] = fmaf(pass(samples, s, at.alpha), worth.at(offset), behind[s]);
                }
            });
        const float of_background =
            dot(d.d_color, float3{a.background[0], a.background[1], a.background[2]});
#pragma unroll
        for (uint32_t s = 0; s < Samples<N>::COUNT; ++s) {
            behind[s] = fmaf(samples.transmittance[s], of_background, behind[s]);
        }
    }
    Samples<N> samples(part.inside);
    for_each_triangle(
        a, lists, rows[warp], numbers[warp], [&] { return samples.open != 0; },
        [&](const TriangleRow& row, uint32_t splat_index) {
            const InPixel in = in_pixel(row, part.centre_px);
            const bool concerned = samples.open != 0 && may_be_inside(row, in);
            if (!__any_sync(FULL_WARP, concerned)) return;
            float values[WARP] = {}, most = 0.0f;
            if (concerned) {
                most = add_samples(row, in, d, fall_off, samples, behind, values);
            }
            if (a.face_weights != nullptr) raise_weight(a, row.face(), most);
            add_record(a.gradients + uint64_t{splat_index} * TRIANGLE_RECORD_WIDTH, values);
        });
}

// Blocks that a multiprocessor is to hold: samples take registers.
#define BLEND_TRIANGLES(N, FWD_RESIDENT, BWD_RESIDENT)                                             \
    extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, FWD_RESIDENT)                        \
        blend_fwd_triangles_##N(const __grid_constant__ BlendArgs a) {                             \
        blend_fwd<N>(a);                                                                           \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, BWD_RESIDENT)                        \
        blend_bwd_triangles_##N(const __grid_constant__ BlendArgs a) {                             \
        blend_bwd<N>(a);                                                                           \
    }

BLEND_TRIANGLES(1, 4, 2)
BLEND_TRIANGLES(2, 4, 2)
BLEND_TRIANGLES(3, 3, 2)
BLEND_TRIANGLES(4, 3, 2)
