// Variants of the backward pass of `blend`, besides the gradients of colours, centres, conics and log-opacities:
// statistics for density control, and gradients of maps beside the colours. Each is a policy of the kernel's templates,
// so that an unused one costs nothing.
#pragma once

#include "composite.cuh"
#include "quad.cuh"

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
