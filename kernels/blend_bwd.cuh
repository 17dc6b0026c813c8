// The backward pass of `blend`: maps pixel gradients to splats for a chunk of a tile's list. `blend.cu` explains how
// warps share the work; `maps.cuh` has the variants with statistics and maps.
#pragma once

#include "composite.cuh"
#include "maps.cuh"

// A pixel during the front-to-back pass.
template <class Aux>
struct PixelWalk {
    float transmittance;  // negative once finished
    float d_behind;       // gradient of the pixel times the light that remains behind
    float3 d_color;
    typename Aux::Gradient d_aux;
};

// Advances past a splat; returns the weight of its colour and the gradient of its exponent. With B the light from
// behind the splat, dC/d_alpha = T c - B / (1 - alpha). A clamped opacity has no gradient.
template <class Aux>
__device__ inline float2 blend_backward_step(const PixelAlpha& pixel, float3 shade, typename Aux::Value value,
                                   PixelWalk<Aux>& walk) {
    const float before = walk.transmittance;
    const float alpha = composite(pixel, walk.transmittance);
    const float d_shade = Aux::dot_gradient(dot(shade, walk.d_color), value, walk.d_aux);
    const float weight = alpha * before;
    walk.d_behind = fmaf(-weight, d_shade, walk.d_behind);
    const float d_alpha = fmaf(before, d_shade, -walk.d_behind * fast_reciprocal(1.0f - alpha));
    return {weight, pixel.unclamped < ALPHA_MAX ? d_alpha * alpha : 0.0f};
}

// First visit: the lane is a pixel. The opacities of a GROUP are computed before they are used, since they are
// independent; a batch ends with whole groups.
template <class Footprint, class Aux>
__device__ inline void accumulate_pixels(WarpScratch<Footprint, Aux>& own, uint32_t count, const Part& part,
                                    PixelWalk<Aux>& walk) {
    const uint32_t lane = threadIdx.x % WARP;
    for (uint32_t first = 0; first < count; first += GROUP) {
        typename Footprint::Pixel alphas[GROUP];
        float3 shades[GROUP];
        typename Aux::Value values[GROUP] = {};
        float2 notes[GROUP];
#pragma unroll
        for (uint32_t i = 0; i < GROUP; ++i) {
            const typename Footprint::Row row = own.rows.get(first + i);
            alphas[i] = pixel_alpha(row, part.centre_px);
            shades[i] = row.color();
            values[i] = in_pixel(own.value(first + i), alphas[i]);
        }
#pragma unroll
        for (uint32_t i = 0; i < GROUP; ++i) {
            notes[i] = blend_backward_step<Aux>(alphas[i], shades[i], values[i], walk);
        }
#pragma unroll
        for (uint32_t i = 0; i < GROUP; ++i) {
            own.notes[first + i].put(lane, note_of(alphas[i], notes[i].x, notes[i].y));
        }
    }
}

// Sums over pixels: those of the footprint, of the colour's weights, and of `Stats` and `Aux`.
template <class Footprint, class Stats, class Aux>
struct Sums {
    typename Footprint::Moments moments;
    float3 color;
    Stats stats;
    Aux aux;
};

// Half of a lane's splat: two of the part's four rows.
template <class Stats, class Footprint, class Aux>
__device__ inline Sums<Footprint, Stats, Aux> half_of_sums(const WarpScratch<Footprint, Aux>& own,
                                                           uint32_t k, uint32_t half,
                                                           const typename Footprint::Offsets& from) {
    Sums<Footprint, Stats, Aux> m = {};
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
        typename Footprint::Line line(from, 2 * half + i);
#pragma unroll
        for (uint32_t x = 0; x < PART_WIDTH; ++x) {
            const uint32_t pixel = (2 * half + i) * PART_WIDTH + x;
            const typename Footprint::Note note = own.notes[k].get(pixel);
            const float weight = weight_of(note);
            const float4 d = own.d_color[pixel];
            const auto met = line.meet_at(from, x, note);
            m.color.x += weight * d.x;
            m.color.y += weight * d.y;
            m.color.z += weight * d.z;
            m.stats.add(weight, note.e, line.pulls(from, x, note));
            line.add(from, note, x, met, m.aux.add({weight, d.w, k, pixel}, own, met));
        }
        m.moments.add(line, from, 2 * half + i);
    }
    return m;
}

// A channel that was clamped to 0 has no gradient.
__device__ inline float3 color_bwd(float3 color, float3 d_color) {
    return {color.x > 0.0f ? d_color.x : 0.0f, color.y > 0.0f ? d_color.y : 0.0f,
            color.z > 0.0f ? d_color.z : 0.0f};
}

// Second visit: the lane is half of a splat.
template <class Stats, class Footprint, class Aux>
__device__ inline void accumulate_splats(const BlendArgs& a, const WarpScratch<Footprint, Aux>& own,
                                         uint32_t count, const Part& part) {
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t k = lane % BATCH;
    const typename Footprint::Shape shape = own.rows.shape(k);
    Sums<Footprint, Stats, Aux> m = half_of_sums<Stats>(own, k, lane / BATCH, {shape, part});
    m.moments.add_halves();
    for (float* sum : {&m.color.x, &m.color.y, &m.color.z}) *sum = both_halves(*sum);
    m.stats.add_halves();
    m.aux.add_halves();
    if (k >= count) return;
    const uint32_t splat_index = shape.number();
    float4* const record =
        reinterpret_cast<float4*>(a.gradients) + uint64_t{splat_index} * Footprint::QUADS;
    if (lane < BATCH) {
        const float4* const splat =
            reinterpret_cast<const float4*>(a.splats) + uint64_t{splat_index} * Footprint::QUADS;
        m.moments.store_first(record, splat, shape, m.stats.sums().x);
        m.aux.store(a, splat_index);
    } else {
        m.moments.store_second(record, m.stats.sums().y);
        const float3 d_color = color_bwd(own.rows.get(k).color(), m.color);
        add_quad(record + COLOR_QUAD,
                 {d_color.x, d_color.y, d_color.z, m.aux.d_depth(own.value(k))});
    }
}

// Processes one chunk of a tile's list in one part of the tile, by one warp.
template <class Stats, class Footprint, class Aux>
__device__ inline void blend_part_bwd(const BlendArgs& a, WarpScratch<Footprint, Aux>& own,
                                      uint32_t tile, uint32_t chunk, uint32_t part_in_tile) {
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t reached = a.reached[tile * PARTS + part_in_tile];
    if (reached <= chunk * BLEND_CHUNK) return;
    const uint32_t end = min(reached - chunk * BLEND_CHUNK, BLEND_CHUNK);
    const uint32_t of_tile = a.ranges[tile].start;
    const uint32_t start = of_tile + chunk * BLEND_CHUNK;
    // Each lane holds the hits of another WARP of instances.
    uint32_t hits_of_round = 0;
    if (lane * WARP < end) {
        const uint32_t round = chunk * (BLEND_CHUNK / WARP) + lane;
        hits_of_round = a.hits[hits_at(of_tile, tile) + uint64_t{round} * PARTS + part_in_tile];
    }
    const uint32_t* __restrict__ splat_from_instance = a.splat_from_instance + start;
    const Part part = part_of(a.size, a.tiles_wide, tile, part_in_tile);

    PixelWalk<Aux> walk = {};
    walk.transmittance = -1.0f;
    if (part.inside) {
        const uint64_t pixel = uint64_t{part.pixel.y} * a.size[0] + part.pixel.x;
        const uint64_t at = state_at(start, part_in_tile);
        const float* const d = a.d_image + pixel * 3;
        const float* const c = a.image + pixel * 3;
        float4 state = {0.0f, 0.0f, 0.0f, 1.0f};
        if (chunk > 0) state = reinterpret_cast<const float4*>(a.states)[at];
        walk.d_color = {d[0], d[1], d[2]};
        walk.transmittance = state.w;
        walk.d_behind =
            (c[0] - state.x) * d[0] + (c[1] - state.y) * d[1] + (c[2] - state.z) * d[2];
        walk.d_aux = Aux::load(a, {pixel, at, chunk == 0}, walk.d_behind);
    }
    own.put_gradient(walk.d_aux);
    own.d_color[lane] = {walk.d_color.x, walk.d_color.y, walk.d_color.z,
                         Aux::inverse_depth(walk.d_aux)};

    uint32_t queued = 0;
    uint32_t next = splat_from_instance[min(lane, end - 1)];  // read a round ahead
    for (uint32_t base = 0; base < end; base += WARP) {
        // Fill the queue from 32 instances.
        const uint32_t splat_index = next;
        next = splat_from_instance[min(base + lane + WARP, end - 1)];
        const uint32_t hits = __shfl_sync(FULL_WARP, hits_of_round, base / WARP);
        if (hits >> lane & 1) own.queue[queued + __popc(hits & lanes_below())] = splat_index;
        queued += __popc(hits);
        const bool at_end = base + WARP >= end;
        uint32_t taken = 0;
        while (queued - taken >= BATCH || (at_end && queued > taken)) {
            const uint32_t count = min(queued - taken, BATCH);
            __syncwarp();  // the queue is there
            if (lane < count) {
                const uint32_t of_row = own.queue[taken + lane];
                const float4* const record = splats + uint64_t{of_row} * Footprint::QUADS;
                const Footprint footprint = Footprint::load(record);
                own.rows.put(lane, row_of(footprint, record, of_row));
                own.put(a, lane, of_row, footprint.depth());
            } else if (lane < BATCH) {
                own.rows.put(lane, unseen_row(Footprint{}));
                own.put_unseen(lane);
            }
            __syncwarp();  // the rows are there
            accumulate_pixels(own, count, part, walk);
            __syncwarp();  // the notes are there
            accumulate_splats<Stats>(a, own, count, part);
            taken += count;
        }
        // Move the rest to the front of the queue.
        queued -= taken;
        __syncwarp();  // the queue and the notes have been read
        const uint32_t rest = lane < queued ? own.queue[taken + lane] : 0;
        __syncwarp();  // the rest is in registers
        if (lane < queued) own.queue[lane] = rest;
    }
}

template <class Footprint, class Stats, class Aux>
__device__ inline void blend_chunk_bwd(const BlendArgs& a) {
    __shared__ WarpScratch<Footprint, Aux> scratch[BLEND_BWD_BLOCK / WARP];
    __shared__ uint32_t taken;
    if (blockIdx.x >= *a.chunk_count) return;
    if (threadIdx.x == 0) taken = 0;
    __syncthreads();  // no part is taken yet
    while (true) {
        uint32_t part = 0;
        if (threadIdx.x % WARP == 0) part = atomicAdd(&taken, 1);
        part = __shfl_sync(FULL_WARP, part, 0);
        if (part >= PARTS) return;
        // Read again for every part, since holding them would take registers.
        const uint2 chunk = reinterpret_cast<const uint2*>(a.chunks)[blockIdx.x];
        blend_part_bwd<Stats>(a, scratch[threadIdx.x / WARP], chunk.x, chunk.y, part);
    }
}
