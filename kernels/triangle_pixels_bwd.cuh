// The backward pass of `blend` for triangles with one sample per pixel. In a mesh a triangle covers few of a part's
// pixels, so a warp whose lanes are the pixels of one triangle would mostly idle. Instead the warp takes BATCH
// triangles that may reach its part and visits them three times. First, each lane is half of a triangle and finds the
// pixels inside, with the opacity and the light there. Then each lane is a pixel, visits the triangles that contain it
// front to back, and stores the weight of the colour and the gradient of the opacity. Finally, each lane is half of a
// triangle again and sums over its pixels. Only halves are reduced across lanes.
#pragma once

#include "triangle_gradients.cuh"

static_assert(WARP == 2 * BATCH, "half of a triangle a lane");

// Rows of pixels that a lane has of its triangle, and the number of pixels.
constexpr uint32_t HALF_HEIGHT = PART_HEIGHT / 2, HALF_PIXELS = WARP / 2;

// Shared data of a warp.
struct TriangleBatch {
    // Opacity and light, then weight and gradient of the opacity. One element of padding, so that lanes with equal
    // pixels of different triangles use different banks.
    float2 notes[BATCH][WARP + 1];
    float4 d_pixels[WARP];  // gradients of a pixel's colour and of its inverse depth
    uint32_t queue[WARP + BATCH];
};

// A lane's pixel during the front-to-back pass.
struct TriangleWalk {
    float transmittance;
    float behind;  // the gradient times the light that remains behind
    bool is_open;
};

// A lane's half of a triangle, in the pixels of its part.
struct TriangleHalf {
    TriangleRow row;
    uint32_t number;  // index of the triangle in the batch
    float2 first_px;  // centre of its first pixel
    uint32_t first_pixel;
    uint32_t inside;  // one bit per pixel whose centre is inside

    __device__ InPixel in(uint32_t pixel) const {
        return in_pixel(row, {first_px.x + static_cast<float>(pixel % PART_WIDTH),
                              first_px.y + static_cast<float>(pixel / PART_WIDTH)});
    }

    __device__ InSample sample(const InPixel& in, float exponent) const {
        return in_sample(row, in, {0.0f, 0.0f}, exponent);
    }

    __device__ void find_inside() {
        inside = 0;
#pragma unroll
        for (uint32_t pixel = 0; pixel < HALF_PIXELS; ++pixel) {
            const InPixel here = in(pixel);
            const float largest = fmaxf(here.shares[0], fmaxf(here.shares[1], here.shares[2]));
            if (largest < 1.0f) inside |= 1u << pixel;
        }
    }
};

// Returns one bit for every triangle that contains the lane's pixel.
__device__ inline uint32_t triangles_of_pixel(uint32_t inside) {
    const uint32_t lane = threadIdx.x % WARP;
    uint32_t own = 0;
#pragma unroll
    for (uint32_t pixel = 0; pixel < HALF_PIXELS; ++pixel) {
        const uint32_t both = __ballot_sync(FULL_WARP, (inside >> pixel & 1) != 0);
        if (lane % HALF_PIXELS == pixel) own = both;
    }
    return lane < HALF_PIXELS ? own & ((1u << BATCH) - 1) : own >> BATCH;
}

// First visit: the lane is half of a triangle.
__device__ inline void find_pixels(TriangleBatch& own, const TriangleHalf& half, float exponent) {
    for (uint32_t rest = half.inside; rest != 0; rest &= rest - 1) {
        const uint32_t pixel = __ffs(static_cast<int>(rest)) - 1;
        const InPixel in = half.in(pixel);
        const InSample at = half.sample(in, exponent);
        const float4 d = own.d_pixels[half.first_pixel + pixel];
        const Worth worth(half.row, in, {{d.x, d.y, d.z}, d.w});
        own.notes[half.number][half.first_pixel + pixel] = {at.is_seen ? at.alpha : 0.0f, worth.here};
    }
}

// Second visit: the lane is a pixel.
__device__ inline void walk_triangles(TriangleBatch& own, uint32_t triangles, TriangleWalk& walk) {
    const uint32_t lane = threadIdx.x % WARP;
    for (; triangles != 0; triangles &= triangles - 1) {
        float2& note = own.notes[__ffs(static_cast<int>(triangles)) - 1][lane];
        const float alpha = walk.is_open ? note.x : 0.0f, worth = note.y;
        const float before = walk.transmittance, weight = alpha * before;
        walk.transmittance = fmaf(-alpha, before, before);
        // The triangle that finishes a pixel counts.
        walk.is_open = walk.is_open && walk.transmittance >= TRANSMITTANCE_MIN;
        walk.behind = fmaf(-weight, worth, walk.behind);
        const float d_alpha = fmaf(before, worth, -walk.behind * fast_reciprocal(1.0f - alpha));
        note = {weight, weight > 0.0f ? d_alpha : 0.0f};
    }
}

// Third visit: the lane is half of a triangle; returns its largest weight at a pixel of the half.
__device__ inline float sum_pixels(const TriangleBatch& own, const TriangleHalf& half,
                                   const FallOff fall_off, float exponent,
                                   float (&values)[D_VALUES]) {
    float most = 0.0f;
    for (uint32_t rest = half.inside; rest != 0; rest &= rest - 1) {
        const uint32_t pixel = __ffs(static_cast<int>(rest)) - 1;
        const float2 note = own.notes[half.number][half.first_pixel + pixel];
        const float weight = note.x, d_alpha = note.y;
        if (weight <= 0.0f) continue;
        most = fmaxf(most, weight);
        const InPixel in = half.in(pixel);
        const InSample at = half.sample(in, exponent);
        if (!at.is_held) values[D_LOG_OPACITY] = fmaf(d_alpha, at.alpha, values[D_LOG_OPACITY]);
        const float d_share = -d_alpha * fall_off.slope(at, exponent, fast_reciprocal(at.left));
#pragma unroll
        for (uint32_t edge = 0; edge < 3; ++edge) {
            const float own_share = at.nearest[edge] ? d_share : 0.0f;
            values[D_SHARES + edge] += own_share;
            float* const slope = values + D_SLOPES + 2 * edge;
            slope[0] = fmaf(own_share, in.from.x, slope[0]);
            slope[1] = fmaf(own_share, in.from.y, slope[1]);
        }
        const float4 d = own.d_pixels[half.first_pixel + pixel];
        const float d_color[3] = {d.x, d.y, d.z};
        const float along_x = weight * in.from.x, along_y = weight * in.from.y;
#pragma unroll
        for (uint32_t c = 0; c < 3; ++c) {
            values[D_COLOR + c] = fmaf(weight, d_color[c], values[D_COLOR + c]);
            values[D_COLOR_X + c] = fmaf(along_x, d_color[c], values[D_COLOR_X + c]);
            values[D_COLOR_Y + c] = fmaf(along_y, d_color[c], values[D_COLOR_Y + c]);
        }
        values[D_INVERSE] = fmaf(weight, d.w, values[D_INVERSE]);
        values[D_INVERSE_SLOPES] = fmaf(along_x, d.w, values[D_INVERSE_SLOPES]);
        values[D_INVERSE_SLOPES + 1] = fmaf(along_y, d.w, values[D_INVERSE_SLOPES + 1]);
    }
    return most;
}

// Performs all three visits of at most BATCH triangles, from index `taken` of the queue on.
__device__ inline void visit_triangles(const BlendArgs& a, TriangleBatch& own, const Part& part,
                                       uint32_t taken, uint32_t count, TriangleWalk& walk) {
    const uint32_t lane = threadIdx.x % WARP, k = lane % BATCH, which = lane / BATCH;
    const bool is_there = k < count;
    const uint32_t splat_index = is_there ? own.queue[taken + k] : 0;
    TriangleHalf half;
    const float4* const record = reinterpret_cast<const float4*>(a.splats) +
                                 uint64_t{splat_index} * TriangleFootprint::QUADS;
#pragma unroll
    for (uint32_t quad = 0; quad < 6; ++quad) half.row.quads[quad] = record[quad];
    half.row.quads[0].z = fast_log2(half.row.quads[0].z);
    half.first_px = {part.low_px.x, part.low_px.y + static_cast<float>(which * HALF_HEIGHT)};
    half.first_pixel = which * HALF_PIXELS;
    half.number = k;
    half.find_inside();
    if (!is_there) half.inside = 0;
    find_pixels(own, half, a.window_exponent);
    __syncwarp();  // opacities are there
    walk_triangles(own, triangles_of_pixel(half.inside), walk);
    __syncwarp();  // weights are there
    FallOff fall_off;
    fall_off.prepare(a, half.row);
    float values[D_VALUES] = {};
    float most = sum_pixels(own, half, fall_off, a.window_exponent, values);
#pragma unroll
    for (float& value : values) value = both_halves(value);
    most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, BATCH));
    __syncwarp();  // all lanes have read the notes
    if (most <= 0.0f) return;
    float4* const sums = reinterpret_cast<float4*>(a.gradients) +
                         uint64_t{splat_index} * TriangleFootprint::QUADS;
    constexpr uint32_t QUADS = D_VALUES / 4 / 2;
#pragma unroll
    for (uint32_t quad = 0; quad < QUADS; ++quad) {
        const float* const low = values + 4 * quad;
        const float* const high = values + 4 * (quad + QUADS);
        const float4 sum = which == 0 ? float4{low[0], low[1], low[2], low[3]}
                                      : float4{high[0], high[1], high[2], high[3]};
        add_quad(sums + which * QUADS + quad, sum);
    }
    if (a.face_weights != nullptr && which == 0) raise_face_weight(a, half.row.face(), most);
}

// Returns the lane's pixel in front of the first triangle, and its gradient.
__device__ inline TriangleWalk begin_walk(const BlendArgs& a, const Part& part, float4& d_pixel) {
    d_pixel = {0.0f, 0.0f, 0.0f, 0.0f};
    if (!part.inside) return {1.0f, 0.0f, false};
    const uint64_t pixel = uint64_t{part.pixel.y} * a.size[0] + part.pixel.x;
    const float* const d = a.d_image + pixel * 3;
    const float* const c = a.image + pixel * 3;
    // The light of the whole pixel is its colour in the image.
    float light = c[0] * d[0] + c[1] * d[1] + c[2] * d[2];
    d_pixel = {d[0], d[1], d[2], 0.0f};
    if (a.d_inverse_depths != nullptr) {
        d_pixel.w = a.d_inverse_depths[pixel];
        light = fmaf(d_pixel.w, a.inverse_depths[pixel], light);
    }
    return {1.0f, light, true};
}

// Processes a part of a tile, by one warp.
__device__ inline void blend_pixels_bwd(const BlendArgs& a) {
    __shared__ TriangleBatch batches[PARTS];
    const uint32_t lane = threadIdx.x % WARP;
    TriangleBatch& own = batches[threadIdx.x / WARP];
    const auto [part, range] = part_lists(a);
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    TriangleWalk walk = begin_walk(a, part, own.d_pixels[lane]);
    uint32_t queued = 0;
    for (uint32_t base = range.start;
         base < range.end && __any_sync(FULL_WARP, walk.is_open); base += WARP) {
        const uint32_t instance = base + lane;
        const uint32_t splat_index = a.splat_from_instance[min(instance, range.end - 1)];
        const float4* const record = splats + uint64_t{splat_index} * TriangleFootprint::QUADS;
        const bool hit = instance < range.end && reaches_part(part, Samples<1>::REACH, record);
        const uint32_t hits = __ballot_sync(FULL_WARP, hit);
        if (hit) own.queue[queued + __popc(hits & lanes_below())] = splat_index;
        queued += __popc(hits);
        __syncwarp();  // the queue is there
        const bool at_end = base + WARP >= range.end;
        uint32_t taken = 0;
        while (queued - taken >= BATCH || (at_end && queued > taken)) {
            const uint32_t count = min(queued - taken, BATCH);
            visit_triangles(a, own, part, taken, count, walk);
            taken += count;
        }
        // Move the rest to the front of the queue.
        queued -= taken;
        const uint32_t rest = lane < queued ? own.queue[taken + lane] : 0;
        __syncwarp();  // the rest is in registers
        if (lane < queued) own.queue[lane] = rest;
        __syncwarp();
    }
}
