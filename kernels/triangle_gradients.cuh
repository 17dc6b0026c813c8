// Common parts of the triangles' backward passes: a pixel's gradients, the gradient of a triangle's light at a sample,
// and the fall-off of its opacity.
#pragma once

#include "triangle_samples.cuh"

// Offsets of the gradients in a triangle's record.
constexpr uint32_t D_SHARES = 0, D_LOG_OPACITY = 3, D_SLOPES = 4, D_INVERSE_SLOPES = 10, D_COLOR = 12,
                   D_INVERSE = 15, D_COLOR_X = 16, D_COLOR_Y = 20, D_VALUES = 24;

// Gradients of a pixel, which is the mean of its samples.
struct PixelGradient {
    float3 d_color;
    float d_inverse_depth;
};

// Gradient times colour and inverse depth of a triangle at a sample: a linear function of the sample's position.
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
