// Maps of the backward pass of `blend` for splats whose depth differs from pixel to pixel: those of `SurfaceMaps`, and
// squared inverse depths if drawn.
#pragma once

#include "maps.cuh"

struct RayMaps {
    using Value = SurfaceMaps::Value;
    struct Gradient {
        float4 maps;
        float square;  // of the squared inverse depths
    };

    struct Scratch : SurfaceMaps::Scratch {
        float d_squares[WARP];

        __device__ void put_gradient(Gradient d) {
            d_maps[threadIdx.x % WARP] = d.maps;
            d_squares[threadIdx.x % WARP] = d.square;
        }
    };

    __device__ static Gradient load(const BlendArgs& a, const PixelStart& start, float& d_behind) {
        Gradient d = {SurfaceMaps::load(a, start, d_behind), 0.0f};
        if (a.d_inverse_squares) {
            const float before = start.first ? 0.0f : a.depth_states[start.state];
            d.square = a.d_inverse_squares[start.pixel];
            d_behind += (a.inverse_squares[start.pixel] - before) * d.square;
        }
        return d;
    }
    __device__ static float inverse_depth(Gradient d) { return d.maps.w; }
    __device__ static float dot_gradient(float of_color, Value value, Gradient d) {
        return fmaf(value.w * value.w, d.square, dot(value, d.maps) + of_color);
    }

    SurfaceMaps sums;

    template <class Meeting>
    __device__ float add(MapNote note, const Scratch& own, const Meeting& met) {
        const float inverse_depth = own.features[note.splat].w * met.inverse_share();
        note.d = fmaf(2.0f * inverse_depth, own.d_squares[note.pixel], note.d);
        return sums.add(note, own, met);
    }
    __device__ void add_halves() { sums.add_halves(); }
    __device__ float d_depth(Value value) const { return sums.d_depth(value); }
    __device__ void store(const BlendArgs& a, uint32_t splat_index) const {
        sums.store(a, splat_index);
    }
};
