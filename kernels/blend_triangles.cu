// blend, of triangles: a tile's triangles to its pixels, front to back, and pixel gradients back to triangles. A
// pixel is the mean of N x N samples, which live in the registers of its lane: no map has more than a value a pixel,
// however many samples it is the mean of. A warp draws a warp tile, as in `blend.cu`.
// The backward pass goes front to back once with one sample a pixel, whose colour is in the image; with more it goes
// twice: first for the colours of the samples, then for the gradients. `blend_pixels_bwd` is the
// former. Each time and in the forward pass the same function decides about a triangle and a sample.
// Shapes: as in `blend.cu`; face_weights [faces].

#include "fast.cuh"
#include "triangle_footprint.cuh"

// Evaluation of a triangle at the samples of a pixel, common to all passes of `blend_triangles.cu`.

// A warp tile and its list.
struct WarpTileLists {
    WarpTile warp_tile;
    TileRange range;
};

__device__ inline WarpTileLists warp_tile_lists(const BlendArgs& a) {
    const uint32_t tile = a.first_tile + blockIdx.x;
    return {warp_tile_of(a.size, a.tiles_wide, tile, threadIdx.x / WARP), a.ranges[tile]};
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

// Common parts of the triangles' backward passes: a pixel's gradients, the gradient of a triangle's light at a sample,
// and the fall-off of its opacity.

// Offsets of the gradients in a triangle's record.
constexpr uint32_t D_SHARES = 0, D_LOG_OPACITY = 3, D_SLOPES = 4, D_INVERSE_SLOPES = 10, D_COLOR = 12,
                   D_INVERSE = 15, D_COLOR_X = 16, D_COLOR_Y = 20, D_VALUES = 24;

// Gradients of a pixel, which is the mean of its samples.
struct PixelGradient {
    float3 d_color;
    float d_inverse_depth;
};

// Gradient times colour and inverse depth of a triangle at a sample: a linear function of the sample's position.
struct LightGradient {
    float here, along_x, along_y;

    __device__ LightGradient(const TriangleRow& row, const InPixel& in, const PixelGradient& d) {
        along_x = fmaf(d.d_inverse_depth, row.inverse_depth(1), dot(row.color(1), d.d_color));
        along_y = fmaf(d.d_inverse_depth, row.inverse_depth(2), dot(row.color(2), d.d_color));
        here = fmaf(d.d_inverse_depth, row.inverse_depth(0), dot(row.color(0), d.d_color)) +
               in.from.x * along_x + in.from.y * along_y;
    }

    __device__ float at(float2 offset) const {
        return fmaf(along_x, offset.x, fmaf(along_y, offset.y, here));
    }
};

// Fall-off of a triangle's opacity from its middle to its edges: strips along the edges, as shares of the way from the
// middle, and the mean slopes in them.
struct FallOff {
    float strips[3], slopes[3];

    __device__ void prepare(const BlendArgs& a, const TriangleRow& row) {
#pragma unroll
        for (uint32_t edge = 0; edge < 3; ++edge) {
            const float2 m = row.slope(edge);
            const float strip = fminf(a.strip_px * sqrtf(dot(m, m)), 1.0f);
            const float there =
                fast_exp2(fmaf(a.window_exponent, fast_log2(strip), row.log_opacity()));
            strips[edge] = strip;
            slopes[edge] = fminf(there, TRIANGLE_ALPHA_MAX) * fast_reciprocal(strip);
        }
    }

    // Derivative of the opacity by the remaining share to the edge.
    __device__ float slope(const InSample& at, float exponent, float inverse_left) const {
        const float strip = of_nearest(at, strips);
        const float own = at.is_held ? 0.0f : at.alpha * exponent * inverse_left;
        return at.left < strip ? of_nearest(at, slopes) : own;
    }

    __device__ static float of_nearest(const InSample& at, const float (&values)[3]) {
        return at.nearest[2] ? values[2] : at.nearest[1] ? values[1] : values[0];
    }
};

// Raises the largest weight of a face, by one lane.
__device__ inline void raise_face_weight(const BlendArgs& a, uint32_t face, float most) {
    int* const at = reinterpret_cast<int*>(a.face_weights) + face;
    if (*at < __float_as_int(most)) atomicMax(at, __float_as_int(most));
}

// The backward pass of `blend` for triangles with one sample per pixel. In a mesh a triangle covers few of a warp
// tile's pixels, so a warp whose lanes are the pixels of one triangle would mostly idle. Instead the warp takes BATCH
// triangles that may reach its warp tile and visits them three times. First, each lane is half of a triangle and finds
// the pixels inside, with the opacity and the light there. Then each lane is a pixel, visits the triangles that contain
// it front to back, and stores the weight of the colour and the gradient of the opacity. Finally, each lane is half of
// a triangle again and sums over its pixels. Only halves are reduced across lanes.

static_assert(WARP == 2 * BATCH, "half of a triangle a lane");

// Rows of pixels that a lane has of its triangle, and the number of pixels.
constexpr uint32_t HALF_HEIGHT = WARP_TILE_HEIGHT / 2, HALF_PIXELS = WARP / 2;

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

// A lane's half of a triangle, in the pixels of its warp tile.
struct TriangleHalf {
    TriangleRow row;
    uint32_t number;  // index of the triangle in the batch
    float2 first_px;  // centre of its first pixel
    uint32_t first_pixel;
    uint32_t inside;  // one bit per pixel whose centre is inside

    __device__ InPixel in(uint32_t pixel) const {
        return in_pixel(row, {first_px.x + static_cast<float>(pixel % WARP_TILE_WIDTH),
                              first_px.y + static_cast<float>(pixel / WARP_TILE_WIDTH)});
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
        const LightGradient d_light(half.row, in, {{d.x, d.y, d.z}, d.w});
        own.notes[half.number][half.first_pixel + pixel] = {at.is_seen ? at.alpha : 0.0f, d_light.here};
    }
}

// Second visit: the lane is a pixel.
__device__ inline void walk_triangles(TriangleBatch& own, uint32_t triangles, TriangleWalk& walk) {
    const uint32_t lane = threadIdx.x % WARP;
    for (; triangles != 0; triangles &= triangles - 1) {
        float2& note = own.notes[__ffs(static_cast<int>(triangles)) - 1][lane];
        const float alpha = walk.is_open ? note.x : 0.0f, d_light = note.y;
        const float before = walk.transmittance, weight = alpha * before;
        walk.transmittance = fmaf(-alpha, before, before);
        // The triangle that finishes a pixel counts.
        walk.is_open = walk.is_open && walk.transmittance >= TRANSMITTANCE_MIN;
        walk.behind = fmaf(-weight, d_light, walk.behind);
        const float d_alpha = fmaf(before, d_light, -walk.behind * fast_reciprocal(1.0f - alpha));
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
__device__ inline void visit_triangles(const BlendArgs& a, TriangleBatch& own, const WarpTile& warp_tile,
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
    half.first_px = {warp_tile.low_px.x, warp_tile.low_px.y + static_cast<float>(which * HALF_HEIGHT)};
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
__device__ inline TriangleWalk begin_walk(const BlendArgs& a, const WarpTile& warp_tile, float4& d_pixel) {
    d_pixel = {0.0f, 0.0f, 0.0f, 0.0f};
    if (!warp_tile.inside) return {1.0f, 0.0f, false};
    const uint64_t pixel = uint64_t{warp_tile.pixel.y} * a.size[0] + warp_tile.pixel.x;
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

// Processes a warp tile, by one warp.
__device__ inline void blend_pixels_bwd(const BlendArgs& a) {
    __shared__ TriangleBatch batches[WARP_TILES];
    const uint32_t lane = threadIdx.x % WARP;
    TriangleBatch& own = batches[threadIdx.x / WARP];
    const auto [warp_tile, range] = warp_tile_lists(a);
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    TriangleWalk walk = begin_walk(a, warp_tile, own.d_pixels[lane]);
    uint32_t queued = 0;
    for (uint32_t base = range.start;
         base < range.end && __any_sync(FULL_WARP, walk.is_open); base += WARP) {
        const uint32_t instance = base + lane;
        const uint32_t splat_index = a.splat_from_instance[min(instance, range.end - 1)];
        const float4* const record = splats + uint64_t{splat_index} * TriangleFootprint::QUADS;
        const bool hit = instance < range.end && reaches_warp_tile(warp_tile, Samples<1>::REACH, record);
        const uint32_t hits = __ballot_sync(FULL_WARP, hit);
        if (hit) own.queue[queued + __popc(hits & lanes_below())] = splat_index;
        queued += __popc(hits);
        __syncwarp();  // the queue is there
        const bool at_end = base + WARP >= range.end;
        uint32_t taken = 0;
        while (queued - taken >= BATCH || (at_end && queued > taken)) {
            const uint32_t count = min(queued - taken, BATCH);
            visit_triangles(a, own, warp_tile, taken, count, walk);
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

static_assert(BLEND_BLOCK == WARP_TILES * WARP, "one thread per pixel of a tile");

// Triangles staged by a warp.
struct Staged {
    TriangleRow rows[WARP];
    uint32_t splat_indices[WARP];
};

// Calls `visit(at)` on all lanes for each triangle of the warp tile, front to back, while `goes_on` is true for some
// lane. `at` is the index of the staged triangle. `prepare(at)` runs on one lane after it has staged a triangle.
template <uint32_t N, class GoesOn, class Prepare, class Visit>
__device__ inline void for_each_triangle(const BlendArgs& a, const WarpTileLists& lists, Staged& own,
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
            instance < range.end && reaches_warp_tile(lists.warp_tile, Samples<N>::REACH, record);
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
    __shared__ Staged staged[WARP_TILES];
    Staged& own = staged[threadIdx.x / WARP];
    const WarpTileLists lists = warp_tile_lists(a);
    const WarpTile& warp_tile = lists.warp_tile;
    Samples<N> samples(warp_tile.inside);
    float3 color = {0.0f, 0.0f, 0.0f};
    float inverse_depth = 0.0f;
    for_each_triangle<N>(
        a, lists, own, [&] { return samples.open != 0; }, [](uint32_t) {},
        [&](uint32_t at) {
            const TriangleRow& row = own.rows[at];
            const InPixel in = in_pixel(row, warp_tile.centre_px);
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
    if (!warp_tile.inside) return;
    constexpr float SHARE = 1.0f / Samples<N>::COUNT;
    float through = 0.0f;
#pragma unroll
    for (uint32_t s = 0; s < Samples<N>::COUNT; ++s) through += samples.transmittance[s];
    const uint64_t pixel = uint64_t{warp_tile.pixel.y} * a.size[0] + warp_tile.pixel.x;
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
    const LightGradient d_light(row, in, d);
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
            const float shade = d_light.at(offset);
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
__device__ inline void light_of_samples(const BlendArgs& a, const WarpTileLists& lists, Staged& own,
                                        const PixelGradient& d, float (&light)[N * N]) {
    const WarpTile& warp_tile = lists.warp_tile;
    Samples<N> samples(warp_tile.inside);
    for_each_triangle<N>(
        a, lists, own, [&] { return samples.open != 0; }, [](uint32_t) {},
        [&](uint32_t at) {
            const TriangleRow& row = own.rows[at];
            const InPixel in = in_pixel(row, warp_tile.centre_px);
            if (samples.open == 0 || !may_be_inside<N>(row, in)) return;
            const LightGradient d_light(row, in, d);
#pragma unroll
            for (uint32_t s = 0; s < Samples<N>::COUNT; ++s) {
                const float2 offset = Samples<N>::offset(s);
                const InSample hit = in_sample(row, in, offset, a.window_exponent);
                if (!hit.is_seen || !samples.is_open(s)) continue;
                light[s] = fmaf(pass(samples, s, hit.alpha), d_light.at(offset), light[s]);
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
    __shared__ Staged staged[WARP_TILES];
    __shared__ FallOff fall_offs[WARP_TILES][WARP];
    __shared__ float4 sums[WARP_TILES][SUMMED_LANES * SUMS_STRIDE / 4];
    const uint32_t warp = threadIdx.x / WARP;
    Staged& own = staged[warp];
    const WarpTileLists lists = warp_tile_lists(a);
    const WarpTile& warp_tile = lists.warp_tile;
    constexpr float SHARE = 1.0f / Samples<N>::COUNT;
    PixelGradient d = {};
    if (warp_tile.inside) {
        const uint64_t pixel = uint64_t{warp_tile.pixel.y} * a.size[0] + warp_tile.pixel.x;
        d.d_color = {SHARE * a.d_image[pixel * 3], SHARE * a.d_image[pixel * 3 + 1],
                     SHARE * a.d_image[pixel * 3 + 2]};
        if (a.d_inverse_depths != nullptr) d.d_inverse_depth = SHARE * a.d_inverse_depths[pixel];
    }
    // Light of all triangles of a sample at first, then of those behind the current one.
    float behind[N * N] = {};
    light_of_samples<N>(a, lists, own, d, behind);
    Samples<N> samples(warp_tile.inside);
    for_each_triangle<N>(
        a, lists, own, [&] { return samples.open != 0; },
        [&](uint32_t at) { fall_offs[warp][at].prepare(a, own.rows[at]); },
        [&](uint32_t at) {
            const TriangleRow& row = own.rows[at];
            const InPixel in = in_pixel(row, warp_tile.centre_px);
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
