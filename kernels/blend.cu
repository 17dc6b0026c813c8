// blend: front-to-back compositing of the tiles, and pixel gradients back to splats.
//
// Forward: one block per tile, one thread per pixel. Each warp draws its own part of 8x4 pixels and
// never waits for the others: of 32 instances each lane tests one against that part, and the warp
// walks over those that reach it, all lanes through the same instructions: what leaves a pixel as it
// is has an opacity of 0. Before every BLEND_CHUNK instances the pixels' state is kept.
//
// Backward: one block per chunk of a tile's list, one warp per part of 8x4 pixels. A warp gathers
// BATCH splats that reach its part and visits them twice: once a lane is a pixel, walks front to back
// from the state kept, deciding by the same functions as forward, and notes two numbers per splat,
// the weight of its colour and the gradient of its exponent; then a lane is a splat and adds them up
// over the pixels. So nothing is reduced across lanes, and the sums of the warps meet in shared
// memory.
//
// Shapes: splats and gradients [visible, 12], splat_from_instance [instances], ranges [tiles],
// image and d_image [h, w, 3], blended [h, w], reached [tiles, PARTS], states
// [instances / BLEND_CHUNK + 1, PARTS, WARP, 4].

#include "parts.cuh"

static_assert(BLEND_BLOCK == PARTS * WARP, "one thread per pixel of a tile");

// Place of the pixel's state before instance `start`, the first of a chunk but not of its tile. Two
// such instances are BLEND_CHUNK apart or more, so that no two share a place.
__device__ inline uint64_t state_at(uint32_t start, uint32_t part) {
    return (uint64_t{start / BLEND_CHUNK} * PARTS + part) * WARP + threadIdx.x % WARP;
}

// Opacity of a splat in a pixel that is not finished, and the pixel's transmittance behind it. What
// would take the transmittance below its least finishes the pixel: it turns negative and stays so.
__device__ inline float pass(const Touch& touch, float& transmittance) {
    const float alpha = touch.seen ? touch.alpha : 0.0f;
    const float after = fmaf(-alpha, transmittance, transmittance);
    const bool goes_on = after >= TRANSMITTANCE_MIN;
    transmittance = goes_on ? after : -fabsf(transmittance);
    return goes_on ? alpha : 0.0f;
}

// Splats staged by a warp for its pixels.
template <uint32_t N>
struct Rows {
    float4 shapes[N], scales[N];
    float2 tints[N];

    __device__ void put(uint32_t at, const Row& row) {
        shapes[at] = row.shape;
        scales[at] = row.scale;
        tints[at] = row.tint;
    }
    __device__ Row get(uint32_t at) const { return {shapes[at], scales[at], tints[at]}; }
};

// `counts` is a constant where this is called: counting costs nothing where no one asks for it.
__device__ inline void blend_tile(const BlendArgs& a, bool counts) {
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    const uint32_t* __restrict__ splat_from_instance = a.splat_from_instance;
    __shared__ Rows<WARP> rows[PARTS];

    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t tile = blockIdx.x;
    Rows<WARP>& own = rows[warp];
    const TileRange range = a.ranges[tile];
    const Part part = part_of(a.size, a.tiles_wide, tile, warp);
    float4* const states = reinterpret_cast<float4*>(a.states);

    float transmittance = part.inside ? 1.0f : -1.0f;
    float3 color = {0.0f, 0.0f, 0.0f};
    uint32_t blended = 0;
    uint32_t base = range.start;
    // Slot of the lane's splat, read a round ahead.
    uint32_t next =
        range.start < range.end ? splat_from_instance[min(base + lane, range.end - 1)] : 0;
    for (; base < range.end && __any_sync(FULL_WARP, transmittance > 0.0f); base += WARP) {
        const uint32_t position = base - range.start;
        if (states && position % BLEND_CHUNK == 0 && position > 0) {
            states[state_at(base, warp)] = {color.x, color.y, color.z, transmittance};
        }
        const uint32_t instance = base + lane;
        const uint64_t splat = uint64_t{next} * 3;
        next = splat_from_instance[min(instance + WARP, range.end - 1)];
        const float4 place = splats[splat], form = splats[splat + 1];
        const bool hit = reaches_part(part, place, form) && instance < range.end;
        const uint32_t hits = __ballot_sync(FULL_WARP, hit);
        if (hit) {
            own.put(__popc(hits & lanes_below()), row_of(place, form, splats[splat + 2], 0));
        }
        __syncwarp();  // the rows are there
        const uint32_t count = __popc(hits);
#pragma unroll 4
        for (uint32_t at = 0; at < count; ++at) {
            const Row row = own.get(at);
            const float before = transmittance;
            const float alpha =
                pass(touch(row.shape, row.scale, part.centre_px), transmittance);
            const float weight = alpha * before;
            color.x = fmaf(weight, row.scale.w, color.x);
            color.y = fmaf(weight, row.tint.x, color.y);
            color.z = fmaf(weight, row.tint.y, color.z);
            if (counts && alpha > 0.0f) ++blended;
        }
        __syncwarp();  // everyone has read them
    }
    if (a.reached && lane == 0) a.reached[tile * PARTS + warp] = min(base, range.end) - range.start;
    if (!part.inside) return;
    const uint64_t pixel = uint64_t{part.pixel.y} * a.size[0] + part.pixel.x;
    const float through = fabsf(transmittance);
    a.image[pixel * 3] = color.x + through * a.background[0];
    a.image[pixel * 3 + 1] = color.y + through * a.background[1];
    a.image[pixel * 3 + 2] = color.z + through * a.background[2];
    if (counts) a.blended[pixel] = blended;
}

extern "C" __global__ void __launch_bounds__(BLEND_BLOCK)
    blend_fwd(const __grid_constant__ BlendArgs a) {
    blend_tile(a, false);
}

// The same, and how many splats changed each pixel.
extern "C" __global__ void __launch_bounds__(BLEND_BLOCK)
    blend_counted(const __grid_constant__ BlendArgs a) {
    blend_tile(a, true);
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
        Rows<BATCH> rows;  // their numbers are places in the chunk
        float2 notes[BATCH * NOTE_STRIDE];  // weight of the colour, gradient of the exponent
        uint8_t queue[BATCH + WARP];  // places in the chunk
    } own[PARTS];
};
static_assert(BLEND_CHUNK <= 256, "places in a chunk are bytes");
static_assert(sizeof(Notes) <= BLEND_SHARED_BYTES, "asked for at launch");

// A pixel on its way front to back.
struct PixelWalk {
    float transmittance;  // negative once finished
    float d_behind;  // gradient of the pixel times the colour of what is not yet passed
    float3 d_color;
};

// The first visit: the lane is a pixel. With B the colour from behind the splat,
// dC/d_alpha = T c - B / (1 - alpha); no gradient passes an opacity that was clamped.
__device__ inline void visit_pixels(Notes::Own& own, uint32_t count, const Part& part,
                                    PixelWalk& walk) {
    const uint32_t lane = threadIdx.x % WARP;
#pragma unroll 4
    for (uint32_t k = 0; k < count; ++k) {
        const Row row = own.rows.get(k);
        const Touch t = touch(row.shape, row.scale, part.centre_px);
        const float before = walk.transmittance;
        const float alpha = pass(t, walk.transmittance);
        const float3 d = walk.d_color;
        const float d_shade = row.scale.w * d.x + row.tint.x * d.y + row.tint.y * d.z;
        const float weight = alpha * before;
        walk.d_behind = fmaf(-weight, d_shade, walk.d_behind);
        const float d_alpha =
            fmaf(before, d_shade, -walk.d_behind * fast_reciprocal(1.0f - alpha));
        const float d_exponent = t.unclamped < ALPHA_MAX ? d_alpha * alpha : 0.0f;
        own.notes[k * NOTE_STRIDE + lane] = {weight, d_exponent};
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
            const float2 note = own.notes[k * NOTE_STRIDE + pixel];
            const float weight = note.x, e = note.y;
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
    const float4 shape = own.rows.shapes[k], scale = own.rows.scales[k];
    Moments m = half_of_moments(own, k, lane / BATCH,
                                {part.low_px.x - shape.x, part.low_px.y - shape.y});
    m = {both_halves(m.e),  both_halves(m.x),  both_halves(m.y),
         both_halves(m.xx), both_halves(m.xy), both_halves(m.yy),
         float3{both_halves(m.color.x), both_halves(m.color.y), both_halves(m.color.z)}};
    if (k >= count) return;
    float* const sums = notes.sums[__float_as_uint(scale.z)];
    // Each half of the lanes adds its share of the nine.
    if (lane < BATCH) {
        // The offset is the pixel less the centre, so the centre takes the opposite sign.
        atomicAdd(&sums[0], -LN_2 * (2.0f * shape.z * m.x + shape.w * m.y));
        atomicAdd(&sums[1], -LN_2 * (shape.w * m.x + 2.0f * scale.x * m.y));
        atomicAdd(&sums[2], m.e * fast_exp2(-scale.y));
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
    const Part part = part_of(a.size, a.tiles_wide, tile, warp);
    const uint64_t pixel = uint64_t{part.pixel.y} * a.size[0] + part.pixel.x;

    // Instances of this chunk that the warp has to look at.
    const int rest = static_cast<int>(a.reached[tile * PARTS + warp] - chunk * BLEND_CHUNK);
    const int last_in_warp = min(rest, static_cast<int>(BLEND_CHUNK));
    if (!__syncthreads_or(last_in_warp > 0)) return;
    for (uint32_t i = threadIdx.x; i < BLEND_CHUNK * SUMS; i += BLEND_BLOCK) {
        (&notes.sums[0][0])[i] = 0.0f;
    }
    __syncthreads();  // the sums start at 0

    PixelWalk walk = {-1.0f, 0.0f, {0.0f, 0.0f, 0.0f}};
    if (last_in_warp > 0 && part.inside) {
        const float* const d = a.d_image + pixel * 3;
        const float* const c = a.image + pixel * 3;
        float4 state = {0.0f, 0.0f, 0.0f, 1.0f};
        if (chunk > 0) {
            state = reinterpret_cast<const float4*>(a.states)[state_at(start, warp)];
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
                own.rows.put(lane, row_of(splats[splat], splats[splat + 1], splats[splat + 2],
                                          place));
            }
            __syncwarp();  // the splats are there
            visit_pixels(own, count, part, walk);
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
