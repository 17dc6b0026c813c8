// blend, for triangles: triangles to pixels front to back, and pixel gradients back to triangles. A pixel is the mean
// of N x N samples, which are kept in its lane's registers; maps have one value per pixel for any N. Each warp draws a
// part of a tile, as in `blend.cu`.
// With one sample per pixel, whose colour is in the image, the backward pass goes front to back once
// (`triangle_pixels_bwd.cuh`). With more, it goes twice: first for the colours of the samples, then for the gradients.
// Every pass evaluates a triangle at a sample with the same function.
// Shapes: as in `blend.cu`; face_weights [faces].

#include "triangle_pixels_bwd.cuh"

static_assert(BLEND_BLOCK == PARTS * WARP, "one thread per pixel of a tile");

// Triangles staged by a warp.
struct Staged {
    TriangleRow rows[WARP];
    uint32_t splat_indices[WARP];
};

// Calls `visit(at)` on all lanes for each triangle of the part, front to back, while `goes_on` is true for some lane.
// `at` is the index of the staged triangle. `prepare(at)` runs on one lane after it has staged a triangle.
template <uint32_t N, class GoesOn, class Prepare, class Visit>
__device__ inline void for_each_triangle(const BlendArgs& a, const PartLists& lists, Staged& own,
                                         GoesOn goes_on, Prepare prepare, Visit visit) {
    const uint32_t lane = threadIdx.x % WARP;
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    const TileRange range = lists.range;
    for (uint32_t base = range.start; base < range.end && __any_sync(FULL_WARP, goes_on());
         base += WARP) {
        const uint32_t instance = base + lane;
        const uint32_t splat_index = a.splat_from_instance[min(instance, range.end - 1)];
        const float4* const record = splats + uint64_t{splat_index} * TriangleFootprint::QUADS;
        const bool hit =
            instance < range.end && reaches_part(lists.part, Samples<N>::REACH, record);
        const uint32_t hits = __ballot_sync(FULL_WARP, hit);
        if (hit) {
            const uint32_t at = __popc(hits & lanes_below());
            TriangleRow& row = own.rows[at];
#pragma unroll
            for (uint32_t quad = 0; quad < 6; ++quad) row.quads[quad] = record[quad];
            row.quads[0].z = fast_log2(row.quads[0].z);
            own.splat_indices[at] = splat_index;
            prepare(at);
        }
        __syncwarp();  // the rows are there
        const uint32_t count = __popc(hits);
        for (uint32_t at = 0; at < count; ++at) visit(at);
        __syncwarp();  // all lanes have read them
    }
}

// Raises the largest weight of a face to the maximum over all lanes.
__device__ inline void raise_weight(const BlendArgs& a, uint32_t face, float weight) {
    const int most = warp_max(__float_as_int(weight));
    if (threadIdx.x % WARP == 0 && most > 0) raise_face_weight(a, face, __int_as_float(most));
}

template <uint32_t N>
__device__ inline void blend_fwd(const BlendArgs& a) {
    __shared__ Staged staged[PARTS];
    Staged& own = staged[threadIdx.x / WARP];
    const PartLists lists = part_lists(a);
    const Part& part = lists.part;
    Samples<N> samples(part.inside);
    float3 color = {0.0f, 0.0f, 0.0f};
    float inverse_depth = 0.0f;
    for_each_triangle<N>(
        a, lists, own, [&] { return samples.open != 0; }, [](uint32_t) {},
        [&](uint32_t at) {
            const TriangleRow& row = own.rows[at];
            const InPixel in = in_pixel(row, part.centre_px);
            float weight = 0.0f, along_x = 0.0f, along_y = 0.0f;
            if (samples.open != 0 && may_be_inside<N>(row, in)) {
#pragma unroll
                for (uint32_t line = 0; line < N; ++line) {
                    float of_line = 0.0f;
#pragma unroll
                    for (uint32_t s = line * N; s < line * N + N; ++s) {
                        const float2 offset = Samples<N>::offset(s);
                        const InSample at = in_sample(row, in, offset, a.window_exponent);
                        if (!at.is_seen || !samples.is_open(s)) continue;
                        const float w = pass(samples, s, at.alpha);
                        of_line += w;
                        along_x = fmaf(w, offset.x, along_x);
                    }
                    weight += of_line;
                    along_y = fmaf(of_line, Samples<N>::offset(line * N).y, along_y);
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

// Number of lanes whose values a warp sums at a time.
constexpr uint32_t SUMMED_LANES = 16;
// Stride between lanes in floats, so that 16-byte stores of 8 lanes use different banks.
constexpr uint32_t SUMS_STRIDE = D_VALUES + 4;

// Adds the values of these lanes to a record; lane i sums value i. Through shared memory, since shuffles would take
// more instructions.
__device__ inline void add_record(float* record, const float (&values)[D_VALUES], uint32_t lanes,
                                  float4* sums) {
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t all = __popc(lanes), own_place = __popc(lanes & lanes_below());
    const bool has_values = (lanes >> lane & 1) != 0;
    const float* const column = reinterpret_cast<const float*>(sums) + lane;
    float sum = 0.0f;
    for (uint32_t first = 0; first < all; first += SUMMED_LANES) {
        const uint32_t place = own_place - first;
        if (has_values && place < SUMMED_LANES) {
            float4* const own = sums + place * (SUMS_STRIDE / 4);
#pragma unroll
            for (uint32_t quad = 0; quad < D_VALUES / 4; ++quad) {
                own[quad] = {values[4 * quad], values[4 * quad + 1], values[4 * quad + 2],
                             values[4 * quad + 3]};
            }
        }
        __syncwarp();  // the values are there
        const uint32_t count = min(all - first, SUMMED_LANES);
        if (lane < D_VALUES) {
            for (uint32_t i = 0; i < count; ++i) sum += column[i * SUMS_STRIDE];
        }
        __syncwarp();  // all lanes have read them
    }
    if (lane < D_VALUES && sum != 0.0f) atomicAdd(record + lane, sum);
}

// Adds a triangle's gradients from a lane's samples to `values`; returns the largest weight in a sample. The fall-off
// is in registers: its edge is chosen by selects.
template <uint32_t N>
__device__ inline float add_samples(const TriangleRow& row, const InPixel& in,
                                   const PixelGradient& d, const FallOff fall_off,
                                   float exponent, Samples<N>& samples, float (&behind)[N * N],
                                   float (&values)[D_VALUES]) {
    const Worth worth(row, in, d);
    float weight = 0.0f, along_x = 0.0f, along_y = 0.0f, most = 0.0f;
    float shares[3] = {}, shares_x[3] = {}, shares_y[3] = {}, d_log_opacity = 0.0f;
#pragma unroll
    for (uint32_t line = 0; line < N; ++line) {
        // All samples of a line have equal y.
        const float y = Samples<N>::offset(line * N).y;
        float weight_of_line = 0.0f, shares_of_line[3] = {};
#pragma unroll
        for (uint32_t s = line * N; s < line * N + N; ++s) {
            const float2 offset = Samples<N>::offset(s);
            const InSample at = in_sample(row, in, offset, exponent);
            if (!at.is_seen || !samples.is_open(s)) continue;
            const float before = samples.transmittance[s];
            const float w = pass(samples, s, at.alpha);
            const float shade = worth.at(offset);
            behind[s] = fmaf(-w, shade, behind[s]);
            // One reciprocal for two divisions.
            const float opening = 1.0f - at.alpha;
            const float inverse = fast_reciprocal(opening * at.left);
            const float d_alpha = fmaf(before, shade, -behind[s] * (inverse * at.left));
            weight_of_line += w;
            along_x = fmaf(w, offset.x, along_x);
            most = fmaxf(most, w);
            if (!at.is_held) d_log_opacity = fmaf(d_alpha, at.alpha, d_log_opacity);
            const float d_share = -d_alpha * fall_off.slope(at, exponent, inverse * opening);
#pragma unroll
            for (uint32_t edge = 0; edge < 3; ++edge) {
                const float own = at.nearest[edge] ? d_share : 0.0f;
                shares_of_line[edge] += own;
                shares_x[edge] = fmaf(own, offset.x, shares_x[edge]);
            }
        }
        weight += weight_of_line;
        along_y = fmaf(weight_of_line, y, along_y);
#pragma unroll
        for (uint32_t edge = 0; edge < 3; ++edge) {
            shares[edge] += shares_of_line[edge];
            shares_y[edge] = fmaf(shares_of_line[edge], y, shares_y[edge]);
        }
    }
    values[D_LOG_OPACITY] = d_log_opacity;
#pragma unroll
    for (uint32_t edge = 0; edge < 3; ++edge) {
        values[D_SHARES + edge] = shares[edge];
        values[D_SLOPES + 2 * edge] = fmaf(shares[edge], in.from.x, shares_x[edge]);
        values[D_SLOPES + 2 * edge + 1] = fmaf(shares[edge], in.from.y, shares_y[edge]);
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

// Finds the light of each sample by blending again, since the image holds their mean.
template <uint32_t N>
__device__ inline void light_of_samples(const BlendArgs& a, const PartLists& lists, Staged& own,
                                        const PixelGradient& d, float (&light)[N * N]) {
    const Part& part = lists.part;
    Samples<N> samples(part.inside);
    for_each_triangle<N>(
        a, lists, own, [&] { return samples.open != 0; }, [](uint32_t) {},
        [&](uint32_t at) {
            const TriangleRow& row = own.rows[at];
            const InPixel in = in_pixel(row, part.centre_px);
            if (samples.open == 0 || !may_be_inside<N>(row, in)) return;
            const Worth worth(row, in, d);
#pragma unroll
            for (uint32_t s = 0; s < Samples<N>::COUNT; ++s) {
                const float2 offset = Samples<N>::offset(s);
                const InSample hit = in_sample(row, in, offset, a.window_exponent);
                if (!hit.is_seen || !samples.is_open(s)) continue;
                light[s] = fmaf(pass(samples, s, hit.alpha), worth.at(offset), light[s]);
            }
        });
    const float of_background =
        dot(d.d_color, float3{a.background[0], a.background[1], a.background[2]});
#pragma unroll
    for (uint32_t s = 0; s < Samples<N>::COUNT; ++s) {
        light[s] = fmaf(samples.transmittance[s], of_background, light[s]);
    }
}

template <uint32_t N>
__device__ inline void blend_bwd(const BlendArgs& a) {
    static_assert(N > 1, "one sample a pixel goes once: blend_pixels_bwd");
    __shared__ Staged staged[PARTS];
    __shared__ FallOff fall_offs[PARTS][WARP];
    __shared__ float4 sums[PARTS][SUMMED_LANES * SUMS_STRIDE / 4];
    const uint32_t warp = threadIdx.x / WARP;
    Staged& own = staged[warp];
    const PartLists lists = part_lists(a);
    const Part& part = lists.part;
    constexpr float SHARE = 1.0f / Samples<N>::COUNT;
    PixelGradient d = {};
    if (part.inside) {
        const uint64_t pixel = uint64_t{part.pixel.y} * a.size[0] + part.pixel.x;
        d.d_color = {SHARE * a.d_image[pixel * 3], SHARE * a.d_image[pixel * 3 + 1],
                     SHARE * a.d_image[pixel * 3 + 2]};
        if (a.d_inverse_depths != nullptr) d.d_inverse_depth = SHARE * a.d_inverse_depths[pixel];
    }
    // Light of all triangles of a sample at first, then of those behind the current one.
    float behind[N * N] = {};
    light_of_samples<N>(a, lists, own, d, behind);
    Samples<N> samples(part.inside);
    for_each_triangle<N>(
        a, lists, own, [&] { return samples.open != 0; },
        [&](uint32_t at) { fall_offs[warp][at].prepare(a, own.rows[at]); },
        [&](uint32_t at) {
            const TriangleRow& row = own.rows[at];
            const InPixel in = in_pixel(row, part.centre_px);
            const bool concerned = samples.open != 0 && may_be_inside<N>(row, in);
            float values[D_VALUES] = {}, most = 0.0f;
            if (concerned) {
                most = add_samples(row, in, d, fall_offs[warp][at], a.window_exponent, samples,
                                   behind, values);
            }
            const uint32_t lanes = __ballot_sync(FULL_WARP, most > 0.0f);
            if (lanes == 0) return;
            if (a.face_weights != nullptr) raise_weight(a, row.face(), most);
            float* const record =
                a.gradients + uint64_t{own.splat_indices[at]} * TRIANGLE_RECORD_WIDTH;
            add_record(record, values, lanes, sums[warp]);
        });
}

// Numbers of resident blocks; samples take registers. A backward block uses 38 KiB of shared memory with one sample per
// pixel and 45 KiB with more. If shared memory permits fewer blocks, the numbers only limit the registers.
#define BLEND_TRIANGLES(N, FWD_RESIDENT, BWD_RESIDENT)                                             \
    extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, FWD_RESIDENT)                        \
        blend_fwd_triangles_##N(const __grid_constant__ BlendArgs a) {                             \
        blend_fwd<N>(a);                                                                           \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(BLEND_BLOCK, BWD_RESIDENT)                        \
        blend_bwd_triangles_##N(const __grid_constant__ BlendArgs a) {                             \
        if constexpr (N == 1) {                                                                    \
            blend_pixels_bwd(a);                                                                   \
        } else {                                                                                   \
            blend_bwd<N>(a);                                                                       \
        }                                                                                          \
    }

BLEND_TRIANGLES(1, 4, 4)
BLEND_TRIANGLES(2, 4, 3)
BLEND_TRIANGLES(3, 3, 2)
BLEND_TRIANGLES(4, 3, 2)
