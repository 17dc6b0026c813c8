// Templates of `blend` over the footprint; `blend.cu` explains how warps share the work. First the common parts of both
// passes: addresses of states and hits, and the step past a splat.
#pragma once

#include <type_traits>

#include "footprint.cuh"
#include "layout.cuh"
#include "tiles.cuh"

// Data that the warps of `blend` stage in shared memory: splats for their pixels, and the backward pass' notes of pairs
// of a splat and a pixel.

// Splats staged by a warp, with surface features.
template <class Footprint>
struct FeaturedRows : Footprint::template Rows<WARP> {
    float4 features[WARP];
};

// Number of splats of a batch whose opacities are computed together.
constexpr uint32_t GROUP = 4;
static_assert(BATCH % GROUP == 0, "a batch has room for whole groups");

// Scratch of a warp in the backward pass; maps add their own.
template <class Footprint, class Aux>
struct WarpScratch : Aux::Scratch {
    float4 d_color[WARP];  // of the pixels; the last component is of their inverse depths
    typename Footprint::template Rows<BATCH> rows;  // their numbers are splat indices
    typename Footprint::Notes notes[BATCH];
    uint32_t queue[BATCH + WARP];  // splat indices
};

// Returns the address of the pixel's state before instance `start`, the first of a chunk but not of its tile. Such
// instances are at least BLEND_CHUNK apart, so addresses are unique.
__device__ inline uint64_t state_at(uint32_t start, uint32_t warp_tile) {
    return (uint64_t{start / BLEND_CHUNK} * WARP_TILES + warp_tile) * WARP + threadIdx.x % WARP;
}

// Returns the first address of the hits of a tile whose instances begin at `start`: one word per warp tile for every
// WARP of instances. The last one of each tile may be partial, which shifts later tiles by one.
__device__ inline uint64_t hits_at(uint32_t start, uint32_t tile) {
    return (uint64_t{start / WARP} + tile) * WARP_TILES;
}

// Returns the opacity of a splat at an open pixel, and updates the transmittance. A splat that takes the transmittance
// below its minimum finishes the pixel: it becomes negative for good.
__device__ inline float composite(const PixelAlpha& pixel, float& transmittance) {
    const float alpha = pixel.seen ? pixel.alpha : 0.0f;
    const float after = fmaf(-alpha, transmittance, transmittance);
    const bool contributes = after >= TRANSMITTANCE_MIN;
    transmittance = contributes ? after : -fabsf(transmittance);
    return contributes ? alpha : 0.0f;
}

// The forward pass: a tile's splats to its pixels, front to back.

static_assert(BLEND_BLOCK == WARP_TILES * WARP, "one thread per pixel of a tile");

// Number of resident blocks per multiprocessor, which hide each other's latencies. On compute capability 9.0 these are
// half of the 64 possible warps; more would spill registers and be slower.
constexpr uint32_t FWD_RESIDENT = 4;

// Maps of a forward pass beside the colours; SURFACE includes inverse depths if requested.
enum class AuxOutput { NOTHING, COUNTS, DEPTHS, SURFACE };

__device__ inline void add_scaled(float4& sum, float weight, float4 value) {
    sum.x = fmaf(weight, value.x, sum.x);
    sum.y = fmaf(weight, value.y, sum.y);
    sum.z = fmaf(weight, value.z, sum.z);
    sum.w = fmaf(weight, value.w, sum.w);
}

// Lists the chunks that the tile's pixels reached, in any order of tiles. All threads of the block must take part. Each
// kernel has its own instance, since kernels that share memory by name have equal layouts.
template <AuxOutput AUX>
__device__ inline void list_chunks(const BlendArgs& a, uint32_t tile, uint32_t reached) {
    __shared__ uint32_t reached_by[WARP_TILES];
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (lane == 0) {
        reached_by[warp] = reached;
        a.reached[tile * WARP_TILES + warp] = reached;
    }
    __syncthreads();  // all warps are through
    if (warp != 0) return;
    const uint32_t most = warp_max(static_cast<int>(reached_by[lane % WARP_TILES]));
    const uint32_t count = (most + BLEND_CHUNK - 1) / BLEND_CHUNK;
    uint32_t first = 0;
    if (lane == 0 && count > 0) first = atomicAdd(a.chunk_count, count);
    first = __shfl_sync(FULL_WARP, first, 0);
    uint2* const chunks = reinterpret_cast<uint2*>(a.chunks);
    for (uint32_t chunk = lane; chunk < count; chunk += WARP) chunks[first + chunk] = {tile, chunk};
}

template <class Footprint, AuxOutput AUX>
__device__ inline void blend_tile(const BlendArgs& a) {
    constexpr bool counts = AUX == AuxOutput::COUNTS, depths = AUX == AuxOutput::DEPTHS;
    constexpr bool surface = AUX == AuxOutput::SURFACE;
    using Staged = std::conditional_t<surface, FeaturedRows<Footprint>,
                                      typename Footprint::template Rows<WARP>>;
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    const uint32_t* __restrict__ splat_from_instance = a.splat_from_instance;
    __shared__ Staged rows[WARP_TILES];

    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t tile = a.first_tile + blockIdx.x;
    Staged& own = rows[warp];
    const TileRange range = a.ranges[tile];
    const WarpTile warp_tile = warp_tile_of(a.size, a.tiles_wide, tile, warp);
    float4* const states = reinterpret_cast<float4*>(a.states);
    uint32_t* const own_hits = a.hits ? a.hits + hits_at(range.start, tile) + warp : nullptr;

    float transmittance = warp_tile.inside ? 1.0f : -1.0f;
    float3 color = {0.0f, 0.0f, 0.0f};
    float inverse_depth = 0.0f;
    float4 features = {0.0f, 0.0f, 0.0f, 0.0f};
    uint32_t blended = 0;
    [[maybe_unused]] float median_depth = 0.0f, inverse_square = 0.0f;
    uint32_t base = range.start;
    // Index of the lane's splat, read one round ahead.
    uint32_t next =
        range.start < range.end ? splat_from_instance[min(base + lane, range.end - 1)] : 0;
    for (; base < range.end && __any_sync(FULL_WARP, transmittance > 0.0f); base += WARP) {
        const uint32_t position = base - range.start;
        if (states && position % BLEND_CHUNK == 0 && position > 0) {
            states[state_at(base, warp)] = {color.x, color.y, color.z, transmittance};
            if constexpr (depths) a.depth_states[state_at(base, warp)] = inverse_depth;
            if constexpr (surface) {
                reinterpret_cast<float4*>(a.surface_states)[state_at(base, warp)] = features;
                // The features of a surface include inverse depths.
                if (Footprint::HAS_MEETINGS && a.inverse_squares) {
                    a.depth_states[state_at(base, warp)] = inverse_square;
                }
            }
        }
        const uint32_t instance = base + lane;
        const float4* const record = splats + uint64_t{next} * Footprint::QUADS;
        [[maybe_unused]] const uint32_t splat_index = next;
        next = splat_from_instance[min(instance + WARP, range.end - 1)];
        const Footprint footprint = Footprint::load(record);
        const bool hit = reaches_warp_tile(warp_tile, footprint) && instance < range.end;
        const uint32_t hits = __ballot_sync(FULL_WARP, hit);
        if (own_hits && lane == 0) own_hits[position / WARP * WARP_TILES] = hits;
        if (hit) {
            // The number of a row is not used here.
            const uint32_t number = depths ? __float_as_uint(__frcp_rn(footprint.depth())) : 0;
            own.put(__popc(hits & lanes_below()), row_of(footprint, record, number));
            if constexpr (surface) {
                own.features[__popc(hits & lanes_below())] =
                    reinterpret_cast<const float4*>(a.features)[splat_index];
            }
        }
        __syncwarp();  // the rows are there
        const uint32_t count = __popc(hits);
#pragma unroll 4
        for (uint32_t at = 0; at < count; ++at) {
            const typename Footprint::Row row = own.get(at);
            const float before = transmittance;
            const typename Footprint::Pixel in = pixel_alpha(row, warp_tile.centre_px);
            const float alpha = composite(in, transmittance);
            const float weight = alpha * before;
            const float3 shade = row.color();
            color.x = fmaf(weight, shade.x, color.x);
            color.y = fmaf(weight, shade.y, color.y);
            color.z = fmaf(weight, shade.z, color.z);
            if constexpr (depths) inverse_depth = fmaf(weight, in_pixel(row.number(), in), inverse_depth);
            if constexpr (surface) {
                const float4 here = in_pixel(own.features[at], in);
                add_scaled(features, weight, here);
                if (Footprint::HAS_MEETINGS) {
                    inverse_square = fmaf(weight * here.w, here.w, inverse_square);
                }
                // A finished pixel has a negative transmittance.
                if (Footprint::HAS_MEETINGS && before > 0.5f && fabsf(transmittance) <= 0.5f &&
                    alpha > 0.0f) {
                    median_depth = here.x;
                }
            }
            if (counts && alpha > 0.0f) ++blended;
        }
        __syncwarp();  // all lanes have read them
    }
    if (!counts && a.reached) list_chunks<AUX>(a, tile, min(base, range.end) - range.start);
    if (!warp_tile.inside) return;
    const uint64_t pixel = uint64_t{warp_tile.pixel.y} * a.size[0] + warp_tile.pixel.x;
    const float through = fabsf(transmittance);
    a.image[pixel * 3] = color.x + through * a.background[0];
    a.image[pixel * 3 + 1] = color.y + through * a.background[1];
    a.image[pixel * 3 + 2] = color.z + through * a.background[2];
    if (counts) a.blended[pixel] = blended;
    if constexpr (depths) a.inverse_depths[pixel] = inverse_depth;
    if constexpr (surface) {
        reinterpret_cast<float4*>(a.surface)[pixel] = {features.x, features.y, features.z,
                                                       1.0f - through};
        if (a.inverse_depths) a.inverse_depths[pixel] = features.w;
        if (Footprint::HAS_MEETINGS && a.median_depths) a.median_depths[pixel] = median_depth;
        if (Footprint::HAS_MEETINGS && a.inverse_squares) a.inverse_squares[pixel] = inverse_square;
    }
}

// Variants of the backward pass of `blend`, besides the gradients of colours, centres, conics and log-opacities:
// statistics for density control, and gradients of maps beside the colours. Each is a policy of the kernel's templates,
// so that an unused one costs nothing.

__device__ inline float dot(float4 a, float4 b) {
    return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, a.w * b.w)));
}

// Returns the gradient of the depth from that of the inverse depth.
__device__ inline float depth_bwd(float inverse_depth, float d_inverse_depth) {
    return -d_inverse_depth * inverse_depth * inverse_depth;
}


struct NoStats {
    __device__ void add(float, float, float2) {}
    __device__ void add_halves() {}
    __device__ float2 sums() const { return {0.0f, 0.0f}; }
};

// Sums over the pixels of the absolute contributions to the gradient of the splat's centre.
struct AbsoluteStats {
    float x = 0.0f, y = 0.0f;

    // Takes the splat's weight, the gradient of the exponent, and that times the exponent's slopes at the pixel.
    __device__ void add(float, float, float2 pulls) {
        x += fabsf(pulls.x);
        y += fabsf(pulls.y);
    }
    __device__ void add_halves() {
        x = LN_2 * both_halves(x);
        y = LN_2 * both_halves(y);
    }
    __device__ float2 sums() const { return {x, y}; }
};

// Sums over the pixels of the squared contributions to the gradient of the log-opacity, and the number of pixels.
struct SquareStats {
    float squares = 0.0f, pixels = 0.0f;

    __device__ void add(float weight, float e, float2) {
        squares = fmaf(e, e, squares);
        pixels += weight > 0.0f ? 1.0f : 0.0f;
    }
    __device__ void add_halves() {
        squares = both_halves(squares);
        pixels = both_halves(pixels);
    }
    __device__ float2 sums() const { return {squares, pixels}; }
};

// Position of a pixel in the maps, and the warp's chunk.
struct PixelStart {
    uint64_t pixel;
    uint64_t state;  // address of the pixel's state before the chunk
    bool first;      // the chunk is the tile's first, before which there is no state
};

// A pair of a splat and a pixel of a batch.
struct MapNote {
    float weight;  // of the splat in the pixel
    float d;       // gradient of the pixel's inverse depth
    uint32_t splat, pixel;
};

// No maps beside the colours.
struct NoAux {
    // Values of a splat for the maps, and the gradient of a pixel's maps.
    struct Value {};
    struct Gradient {};

    struct Scratch {
        __device__ void put(const BlendArgs&, uint32_t, uint32_t, float) {}
        __device__ void put_unseen(uint32_t) {}
        __device__ Value value(uint32_t) const { return {}; }
        __device__ void put_gradient(Gradient) {}
    };

    // Returns the pixel's gradient; adds the contribution of all remaining light to `d_behind`.
    __device__ static Gradient load(const BlendArgs&, const PixelStart&, float&) { return {}; }
    __device__ static float inverse_depth(Gradient) { return 0.0f; }
    // Adds the gradient of the pixel times the value to that of the colour.
    __device__ static float dot_gradient(float of_color, Value, Gradient) { return of_color; }

    // Returns the gradient of the centre's depth, relative to the depth at the pixel.
    template <class Meeting>
    __device__ float add(MapNote, const Scratch&, const Meeting&) {
        return ADDS_NOTHING;
    }
    __device__ void add_halves() {}
    __device__ float d_depth(Value) const { return 0.0f; }
    __device__ void store(const BlendArgs&, uint32_t) const {}
};

// Inverse depths over a background of 0.
struct InverseDepth {
    using Value = float;
    using Gradient = float;

    struct Scratch {
        float inverse_depths[BATCH];

        __device__ void put(const BlendArgs&, uint32_t at, uint32_t, float depth) {
            inverse_depths[at] = __frcp_rn(depth);
        }
        __device__ void put_unseen(uint32_t at) { inverse_depths[at] = 0.0f; }
        __device__ Value value(uint32_t at) const { return inverse_depths[at]; }
        __device__ void put_gradient(Gradient) {}
    };

    __device__ static Gradient load(const BlendArgs& a, const PixelStart& start, float& d_behind) {
        const float before = start.first ? 0.0f : a.depth_states[start.state];
        const float d = a.d_inverse_depths[start.pixel];
        d_behind += (a.inverse_depths[start.pixel] - before) * d;
        return d;
    }
    __device__ static float inverse_depth(Gradient d) { return d; }
    __device__ static float dot_gradient(float of_color, Value value, Gradient d) {
        return fmaf(value, d, of_color);
    }

    float sum = 0.0f;

    template <class Meeting>
    __device__ float add(MapNote note, const Scratch& own, const Meeting& met) {
        const float of_inverse = note.weight * note.d;
        sum += of_inverse * met.inverse_share();
        return of_inverse * own.inverse_depths[note.splat];
    }
    __device__ void add_halves() { sum = both_halves(sum); }
    __device__ float d_depth(Value inverse) const { return depth_bwd(inverse, sum); }
    __device__ void store(const BlendArgs&, uint32_t) const {}
};

// Surface maps: depth, x and y of the normal, opacity; and inverse depths if drawn.
struct SurfaceMaps {
    // Depth, x and y of the normal, inverse depth.
    using Value = float4;
    using Gradient = float4;

    struct Scratch {
        float4 features[BATCH], d_maps[WARP];

        __device__ void put(const BlendArgs& a, uint32_t at, uint32_t splat_index, float) {
            features[at] = reinterpret_cast<const float4*>(a.features)[splat_index];
        }
        __device__ void put_unseen(uint32_t at) { features[at] = {0.0f, 0.0f, 0.0f, 0.0f}; }
        __device__ Value value(uint32_t at) const { return features[at]; }
        __device__ void put_gradient(Gradient d) { d_maps[threadIdx.x % WARP] = d; }
    };

    __device__ static Gradient load(const BlendArgs& a, const PixelStart& start, float& d_behind) {
        float4 before = {0.0f, 0.0f, 0.0f, 0.0f}, all = before, d = before;
        if (!start.first) before = reinterpret_cast<const float4*>(a.surface_states)[start.state];
        if (a.d_surface) {
            all = reinterpret_cast<const float4*>(a.surface)[start.pixel];
            d = reinterpret_cast<const float4*>(a.d_surface)[start.pixel];
            // The final transmittance acts like a colour that no splat has.
            d_behind = fmaf(1.0f - all.w, d.w, d_behind);
        }
        // The last component of a pixel's map is its opacity; here the inverse depth replaces it.
        all.w = a.d_inverse_depths ? a.inverse_depths[start.pixel] : 0.0f;
        d.w = a.d_inverse_depths ? a.d_inverse_depths[start.pixel] : 0.0f;
        d_behind +=
            dot(float4{all.x - before.x, all.y - before.y, all.z - before.z, all.w - before.w}, d);
        return d;
    }
    __device__ static float inverse_depth(Gradient d) { return d.w; }
    __device__ static float dot_gradient(float of_color, Value value, Gradient d) {
        return dot(value, d) + of_color;
    }

    float inverse = 0.0f;
    float3 depth_and_normal = {0.0f, 0.0f, 0.0f};

    template <class Meeting>
    __device__ float add(MapNote note, const Scratch& own, const Meeting& met) {
        const float4 d_map = own.d_maps[note.pixel], centre = own.features[note.splat];
        const float of_inverse = note.weight * note.d;
        const float of_depth = note.weight * d_map.x * met.share();
        inverse += of_inverse * met.inverse_share();
        depth_and_normal.x += of_depth;
        depth_and_normal.y += note.weight * d_map.y;
        depth_and_normal.z += note.weight * d_map.z;
        return of_inverse * centre.w - of_depth * centre.x * met.share();
    }
    __device__ void add_halves() {
        inverse = both_halves(inverse);
        depth_and_normal = {both_halves(depth_and_normal.x), both_halves(depth_and_normal.y),
                            both_halves(depth_and_normal.z)};
    }
    __device__ float d_depth(Value value) const { return depth_bwd(value.w, inverse); }
    __device__ void store(const BlendArgs& a, uint32_t splat_index) const {
        const float3 d = depth_and_normal;
        add_quad(reinterpret_cast<float4*>(a.d_features) + splat_index, {d.x, d.y, d.z, 0.0f});
    }
};

// The backward pass: maps pixel gradients to splats for a chunk of a tile's list.

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
__device__ inline void accumulate_pixels(WarpScratch<Footprint, Aux>& own, uint32_t count, const WarpTile& warp_tile,
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
            alphas[i] = pixel_alpha(row, warp_tile.centre_px);
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

// Half of a lane's splat: two of the warp tile's four rows.
template <class Stats, class Footprint, class Aux>
__device__ inline Sums<Footprint, Stats, Aux> half_of_sums(const WarpScratch<Footprint, Aux>& own,
                                                           uint32_t k, uint32_t half,
                                                           const typename Footprint::Offsets& from) {
    Sums<Footprint, Stats, Aux> m = {};
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
        typename Footprint::Line line(from, 2 * half + i);
#pragma unroll
        for (uint32_t x = 0; x < WARP_TILE_WIDTH; ++x) {
            const uint32_t pixel = (2 * half + i) * WARP_TILE_WIDTH + x;
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
                                         uint32_t count, const WarpTile& warp_tile) {
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t k = lane % BATCH;
    const typename Footprint::Shape shape = own.rows.shape(k);
    Sums<Footprint, Stats, Aux> m = half_of_sums<Stats>(own, k, lane / BATCH, {shape, warp_tile});
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

// Processes one chunk of a tile's list in one warp tile, by one warp.
template <class Stats, class Footprint, class Aux>
__device__ inline void blend_warp_tile_bwd(const BlendArgs& a, WarpScratch<Footprint, Aux>& own,
                                           uint32_t tile, uint32_t chunk, uint32_t warp_tile_index) {
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t reached = a.reached[tile * WARP_TILES + warp_tile_index];
    if (reached <= chunk * BLEND_CHUNK) return;
    const uint32_t end = min(reached - chunk * BLEND_CHUNK, BLEND_CHUNK);
    const uint32_t of_tile = a.ranges[tile].start;
    const uint32_t start = of_tile + chunk * BLEND_CHUNK;
    // Each lane holds the hits of another WARP of instances.
    uint32_t hits_of_round = 0;
    if (lane * WARP < end) {
        const uint32_t round = chunk * (BLEND_CHUNK / WARP) + lane;
        hits_of_round = a.hits[hits_at(of_tile, tile) + uint64_t{round} * WARP_TILES + warp_tile_index];
    }
    const uint32_t* __restrict__ splat_from_instance = a.splat_from_instance + start;
    const WarpTile warp_tile = warp_tile_of(a.size, a.tiles_wide, tile, warp_tile_index);

    PixelWalk<Aux> walk = {};
    walk.transmittance = -1.0f;
    if (warp_tile.inside) {
        const uint64_t pixel = uint64_t{warp_tile.pixel.y} * a.size[0] + warp_tile.pixel.x;
        const uint64_t at = state_at(start, warp_tile_index);
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
            accumulate_pixels(own, count, warp_tile, walk);
            __syncwarp();  // the notes are there
            accumulate_splats<Stats>(a, own, count, warp_tile);
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
    __syncthreads();  // no warp tile is taken yet
    while (true) {
        uint32_t warp_tile = 0;
        if (threadIdx.x % WARP == 0) warp_tile = atomicAdd(&taken, 1);
        warp_tile = __shfl_sync(FULL_WARP, warp_tile, 0);
        if (warp_tile >= WARP_TILES) return;
        // Read again for every warp tile, since holding them would take registers.
        const uint2 chunk = reinterpret_cast<const uint2*>(a.chunks)[blockIdx.x];
        blend_warp_tile_bwd<Stats>(a, scratch[threadIdx.x / WARP], chunk.x, chunk.y, warp_tile);
    }
}
