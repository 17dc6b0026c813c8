// blend: front-to-back compositing of the tiles, and pixel gradients back to splats.
//
// Forward: one block per tile, one thread per pixel. Each warp draws its own part of 8x4 pixels and
// never waits for the others: of 32 instances each lane tests one against that part, and the warp
// walks over those that reach it. Before every BLEND_CHUNK instances the pixels' state is kept.
//
// Backward: one block per chunk of a tile's list, one warp per part of 8x4 pixels. A warp gathers
// BATCH splats that reach its part and visits them twice: once a lane is a pixel, walks front to back
// from the state kept and notes two numbers per splat, the weight of its colour and the gradient of
// its exponent; then a lane is a splat and adds them up over the pixels. So nothing is reduced across
// lanes, and the sums of the warps meet in shared memory.
//
// Shapes: splats and gradients [visible, 12], splat_from_instance [instances], ranges [tiles],
// image and d_image [h, w, 3], last and blended [h, w], states [instances / BLEND_CHUNK + 1, pixels
// of a tile, 4].

#include "parts.cuh"

// Place of the pixel's state before instance `start`, the first of a chunk but not of its tile. Two
// such instances are BLEND_CHUNK apart or more, so that no two share a place.
__device__ inline uint64_t state_at(uint32_t start) {
    return uint64_t{start / BLEND_CHUNK} * BLEND_BLOCK + threadIdx.x;
}

extern "C" __global__ void __launch_bounds__(BLEND_BLOCK)
    blend_fwd(const __grid_constant__ BlendArgs a) {
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    const uint32_t* __restrict__ splat_from_instance = a.splat_from_instance;
    __shared__ float4 staged[PARTS][WARP][3];  // a warp's own rows

    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t tile = blockIdx.x;
    const TileRange range = a.ranges[tile];
    const Part part = part_of(a.size, a.tiles_wide, tile);
    float4* const states = reinterpret_cast<float4*>(a.states);

    float transmittance = 1.0f;
    float3 color = {0.0f, 0.0f, 0.0f};
    uint32_t last = 0, blended = 0;
    bool finished = !part.inside;
    for (uint32_t base = range.start; base < range.end; base += WARP) {
        if (__all_sync(FULL_WARP, finished)) break;
        const uint32_t position = base - range.start;
        if (states && position % BLEND_CHUNK == 0 && position > 0) {
            states[state_at(base)] = {color.x, color.y, color.z, transmittance};
        }
        bool hit = false;
        float4 place, form;
        uint64_t splat = 0;
        if (base + lane < range.end) {
            splat = uint64_t{splat_from_instance[base + lane]} * 3;
            place = splats[splat];
            form = splats[splat + 1];
            hit = reaches_part(part, place, form);
        }
        const uint32_t hits = __ballot_sync(FULL_WARP, hit);
        if (hit) {
            const uint32_t row = __popc(hits & lanes_below());
            form.w = __uint_as_float(position + lane + 1);
            staged[warp][row][0] = place;
            staged[warp][row][1] = form;
            staged[warp][row][2] = splats[splat + 2];
        }
        __syncwarp();  // the rows are there
        const uint32_t count = __popc(hits);
        for (uint32_t row = 0; row < count; ++row) {
            const float4 row_form = staged[warp][row][1];
            const float alpha = alpha_at(staged[warp][row][0], row_form, part.centre_px);
            if (alpha > 0.0f && !finished) {
                const float after = transmittance * (1.0f - alpha);
                if (after < TRANSMITTANCE_MIN) {
                    finished = true;
                } else {
                    const float4 shade = staged[warp][row][2];
                    const float weight = alpha * transmittance;
                    color.x += weight * shade.x;
                    color.y += weight * shade.y;
                    color.z += weight * shade.z;
                    transmittance = after;
                    last = __float_as_uint(row_form.w);
                    ++blended;
                }
            }
        }
        __syncwarp();  // everyone has read them
    }
    if (!part.inside) return;
    const uint64_t pixel = uint64_t{part.pixel.y} * a.size[0] + part.pixel.x;
    a.image[pixel * 3] = color.x + transmittance * a.background[0];
    a.image[pixel * 3 + 1] = color.y + transmittance * a.background[1];
    a.image[pixel * 3 + 2] = color.z + transmittance * a.background[2];
    if (a.last) a.last[pixel] = last;
    if (a.blended) a.blended[pixel] = blended;
}

// Splats that a warp works on at a time: half a lane each.
constexpr uint32_t BATCH = 16;
// Odd, so that the lanes of the second visit read from different banks.
constexpr uint32_t NOTE_STRIDE = WARP + 1;
// Sums per splat: mean x y, opacity, conic xx xy yy, colour.
constexpr uint32_t SUMS = 9;

// What the warps of a block share, and what each has for itself.
struct Notes {
    float sums[BLEND_CHUNK][SUMS];
    struct Own {
        float4 d_color[WARP];  // of the pixels
        float4 splats[BATCH][3];
        float weight[BATCH * NOTE_STRIDE];
        float d_exponent[BATCH * NOTE_STRIDE];
        uint8_t queue[BATCH + WARP];  // places in the chunk
    } own[PARTS];
};
static_assert(BLEND_CHUNK <= 256, "places in a chunk are bytes");
static_assert(sizeof(Notes) <= BLEND_SHARED_BYTES, "asked for at launch");

// A pixel on its way front to back.
struct PixelWalk {
    float transmittance;
    float d_behind;  // gradient of the pixel times the colour of what is not yet passed
    float3 d_color;
};

// The first visit: the lane is a pixel. With B the colour from behind the splat,
// dC/d_alpha = T c - B / (1 - alpha); no gradient passes an opacity that was clamped.
__device__ inline void visit_pixels(Notes::Own& own, uint32_t count, const Part& part,
                                    int last_in_chunk, PixelWalk& walk) {
    const uint32_t lane = threadIdx.x % WARP;
    for (uint32_t k = 0; k < count; ++k) {
        const float4 form = own.splats[k][1];
        float alpha = alpha_at(own.splats[k][0], form, part.centre_px);
        if (static_cast<int>(__float_as_uint(form.w)) >= last_in_chunk) alpha = 0.0f;
        float weight = 0.0f, d_exponent = 0.0f;
        if (alpha > 0.0f) {
            const float4 shade = own.splats[k][2];
            const float3 d = walk.d_color;
            const float d_shade = shade.x * d.x + shade.y * d.y + shade.z * d.z;
            weight = alpha * walk.transmittance;
            walk.d_behind -= weight * d_shade;
            const float d_alpha =
                walk.transmittance * d_shade - __fdividef(walk.d_behind, 1.0f - alpha);
            walk.transmittance *= 1.0f - alpha;
            if (alpha < ALPHA_MAX) d_exponent = d_alpha * alpha;
        }
        own.weight[k * NOTE_STRIDE + lane] = weight;
        own.d_exponent[k * NOTE_STRIDE + lane] = d_exponent;
    }
}

// Moments of the exponent's gradient over pixels: sums of e, e x, e y, e x^2, e x y, e y^2 with the
// pixel's offset (x, y) from the splat, and of the colour's weights.
struct Moments {
    float e, x, y, xx, xy, yy;
    float3 color;
};

// Half of a lane's splat: two of the part's four rows.
__device__ inline Moments half_of_moments(const Notes::Own& own, uint32_t k, uint32_t half,
                                          float2 offset_px) {
    Moments m = {};
#pragma unroll
    for (uint32_t line = 0; line < 2; ++line) {
        float s0 = 0.0f, s1 = 0.0f, s2 = 0.0f;  // of e, e x, e x^2 with x from the part's corner
#pragma unroll
        for (uint32_t x = 0; x < PART_WIDTH; ++x) {
            const uint32_t pixel = (2 * half + line) * PART_WIDTH + x;
            const float e = own.d_exponent[k * NOTE_STRIDE + pixel];
            const float weight = own.weight[k * NOTE_STRIDE + pixel];
            const float4 d = own.d_color[pixel];
            s0 += e;
            s1 += e * static_cast<float>(x);
            s2 += e * static_cast<float>(x * x);
            m.color.x += weight * d.x;
            m.color.y += weight * d.y;
            m.color.z += weight * d.z;
        }
        const float dx = offset_px.x;
        const float dy = offset_px.y + static_cast<float>(2 * half + line);
        const float along_x = s1 + dx * s0;
        m.e += s0;
        m.x += along_x;
        m.xx += s2 + dx * (s1 + along_x);
        m.y += dy * s0;
        m.xy += dy * along_x;
        m.yy += dy * dy * s0;
    }
    return m;
}

__device__ inline float both_halves(float value) {
    return value + __shfl_xor_sync(FULL_WARP, value, BATCH);
}

// The second visit: the lane is half of a splat.
__device__ inline void visit_splats(Notes& notes, Notes::Own& own, uint32_t count,
                                    const Part& part) {
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t k = lane % BATCH;
    const float4 place = own.splats[k][0], form = own.splats[k][1];
    Moments m = half_of_moments(own, k, lane / BATCH,
                                {part.low_px.x - place.x, part.low_px.y - place.y});
    m = {both_halves(m.e),  both_halves(m.x),  both_halves(m.y),
         both_halves(m.xx), both_halves(m.xy), both_halves(m.yy),
         float3{both_halves(m.color.x), both_halves(m.color.y), both_halves(m.color.z)}};
    if (k >= count) return;
    float* const sums = notes.sums[__float_as_uint(form.w)];
    // Each half of the lanes adds its share of the nine.
    if (lane < BATCH) {
        // The offset is the pixel less the centre, so the centre takes the opposite sign.
        atomicAdd(&sums[0], form.x * m.x + form.y * m.y);
        atomicAdd(&sums[1], form.y * m.x + form.z * m.y);
        atomicAdd(&sums[2], m.e / place.z);
        atomicAdd(&sums[3], -0.5f * m.xx);
        atomicAdd(&sums[4], -m.xy);
    } else {
        atomicAdd(&sums[5], -0.5f * m.yy);
        atomicAdd(&sums[6], m.color.x);
        atomicAdd(&sums[7], m.color.y);
        atomicAdd(&sums[8], m.color.z);
    }
}

// Adds four floats to a record in device memory.
__device__ inline void add_quad(float4* at, float4 value) {
#if __CUDA_ARCH__ >= 900
    atomicAdd(at, value);
#else
    float* const out = reinterpret_cast<float*>(at);
    if (value.x != 0.0f) atomicAdd(out, value.x);
    if (value.y != 0.0f) atomicAdd(out + 1, value.y);
    if (value.z != 0.0f) atomicAdd(out + 2, value.z);
    if (value.w != 0.0f) atomicAdd(out + 3, value.w);
#endif
}

extern "C" __global__ void __launch_bounds__(BLEND_BLOCK)
    blend_bwd(const __grid_constant__ BlendArgs a) {
    if (blockIdx.x >= *a.chunk_count) return;
    extern __shared__ float4 shared[];
    Notes& notes = *reinterpret_cast<Notes*>(shared);
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    const uint32_t* __restrict__ splat_from_instance = a.splat_from_instance;

    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    Notes::Own& own = notes.own[warp];
    const uint32_t tile = a.tile_from_chunk[blockIdx.x];
    const uint32_t chunk = blockIdx.x - a.first_chunk[tile];
    const TileRange range = a.ranges[tile];
    const uint32_t start = range.start + chunk * BLEND_CHUNK;
    const Part part = part_of(a.size, a.tiles_wide, tile);
    const uint64_t pixel = uint64_t{part.pixel.y} * a.size[0] + part.pixel.x;

    // Instances of this chunk that the pixel, the warp and the block have to look at.
    int last_in_chunk = part.inside ? static_cast<int>(a.last[pixel] - chunk * BLEND_CHUNK) : 0;
    last_in_chunk = min(last_in_chunk, static_cast<int>(min(BLEND_CHUNK, range.end - start)));
    const int last_in_warp = warp_max(last_in_chunk);
    if (!__syncthreads_or(last_in_warp > 0)) return;
    for (uint32_t i = threadIdx.x; i < BLEND_CHUNK * SUMS; i += BLEND_BLOCK) {
        (&notes.sums[0][0])[i] = 0.0f;
    }
    __syncthreads();  // the sums start at 0

    PixelWalk walk = {1.0f, 0.0f, {0.0f, 0.0f, 0.0f}};
    if (last_in_chunk > 0) {
        const float* const d = a.d_image + pixel * 3;
        const float* const c = a.image + pixel * 3;
        float4 state = {0.0f, 0.0f, 0.0f, 1.0f};
        if (chunk > 0) {
            state = reinterpret_cast<const float4*>(a.states)[state_at(start)];
        }
        walk.d_color = {d[0], d[1], d[2]};
        walk.transmittance = state.w;
        walk.d_behind =
            (c[0] - state.x) * d[0] + (c[1] - state.y) * d[1] + (c[2] - state.z) * d[2];
    }
    own.d_color[lane] = {walk.d_color.x, walk.d_color.y, walk.d_color.z, 0.0f};

    uint32_t queued = 0;
    for (int base = 0; base < last_in_warp || queued > 0; base += WARP) {
        // Fill the queue from the next 32 instances, if there are any.
        const int place_in_chunk = base + static_cast<int>(lane);
        bool hit = false;
        if (place_in_chunk < last_in_warp) {
            const uint64_t splat = uint64_t{splat_from_instance[start + place_in_chunk]} * 3;
            hit = reaches_part(part, splats[splat], splats[splat + 1]);
        }
        const uint32_t hits = __ballot_sync(FULL_WARP, hit);
        if (hit) {
            own.queue[queued + __popc(hits & lanes_below())] = static_cast<uint8_t>(place_in_chunk);
        }
        queued += __popc(hits);
        const bool at_end = base + static_cast<int>(WARP) >= last_in_warp;
        uint32_t taken = 0;
        while (queued - taken >= BATCH || (at_end && queued > taken)) {
            const uint32_t count = min(queued - taken, BATCH);
            __syncwarp();  // the queue is there
            if (lane < count) {
                const uint32_t place = own.queue[taken + lane];
                const uint64_t splat = uint64_t{splat_from_instance[start + place]} * 3;
                float4 form = splats[splat + 1];
                form.w = __uint_as_float(place);
                own.splats[lane][0] = splats[splat];
                own.splats[lane][1] = form;
                own.splats[lane][2] = splats[splat + 2];
            }
            __syncwarp();  // the splats are there
            visit_pixels(own, count, part, last_in_chunk, walk);
            __syncwarp();  // the notes are there
            visit_splats(notes, own, count, part);
            taken += count;
        }
        // What is left moves to the front of the queue.
        queued -= taken;
        __syncwarp();  // the queue has been read
        const uint8_t rest = lane < queued ? own.queue[taken + lane] : 0;
        __syncwarp();  // the rest is in registers
        if (lane < queued) own.queue[lane] = rest;
    }
    __syncthreads();  // all warps' sums are in

    if (threadIdx.x < min(BLEND_CHUNK, range.end - start)) {
        const float* const s = notes.sums[threadIdx.x];
        float any = 0.0f;
        for (uint32_t k = 0; k < SUMS; ++k) any += fabsf(s[k]);
        if (any != 0.0f) {
            float4* const record = reinterpret_cast<float4*>(a.gradients) +
                                   uint64_t{splat_from_instance[start + threadIdx.x]} * 3;
            add_quad(record, {s[0], s[1], s[2], 0.0f});
            add_quad(record + 1, {s[3], s[4], s[5], 0.0f});
            add_quad(record + 2, {s[6], s[7], s[8], 0.0f});
        }
    }
}
