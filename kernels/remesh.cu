// remesh: new vertices in the middle of two, and opacities under another floor (MeshSplatting, Held et al. 2025).
// Shapes: tables [lane blocks, words, 32], midpoints [n, 2].

#include "compact.cuh"
#include "layout.cuh"
#include "linalg.cuh"

// Twins of math/opacity_floor.rs.
__device__ inline float floored(float logit, float floor) {
    return floor + (1.0f - floor) * sigmoid(logit);
}

__device__ inline float logit_of(float share) { return logf(share / (1.0f - share)); }

__device__ inline float mean_logit(float one, float other) {
    const float share = 0.5f * (sigmoid(one) + sigmoid(other));
    return logit_of(fminf(fmaxf(share, SHARE_MIN), 1.0f - SHARE_MIN));
}

__device__ inline float raised_logit(float logit, float before, float after) {
    const float opacity =
        fminf(fmaxf(floored(logit, before), after + SHARE_MIN), 1.0f - SHARE_MIN);
    return logit_of((opacity - after) / (1.0f - after + SHARE_MIN));
}

// One thread for each word of a new vertex; its moments are zero already.
extern "C" __global__ void __launch_bounds__(REMESH_BLOCK)
    add_midpoints(const __grid_constant__ MidpointsArgs a) {
    const uint64_t thread = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const uint32_t words = GEOMETRY_WIDTH + a.sh_words;
    // Threads of a warp take the same word of neighbouring vertices.
    const uint64_t group = thread / WARP;
    const uint32_t word = group % words;
    const uint64_t number = group / words * WARP + thread % WARP;
    if (number >= a.count) return;
    const uint32_t first = a.midpoints[2 * number], second = a.midpoints[2 * number + 1];
    const uint32_t row = a.rows_before + static_cast<uint32_t>(number);
    if (word < GEOMETRY_WIDTH) {
        const auto at = [&](uint32_t of) {
            return a.geometry + lane_block(of, GEOMETRY_WIDTH) + component(word);
        };
        const float one = *at(first), other = *at(second);
        *at(row) = word == OPACITY_LOGIT ? mean_logit(one, other) : 0.5f * (one + other);
        return;
    }
    const auto at = [&](uint32_t of) {
        return a.sh + lane_block(of, a.sh_words) + component(word - GEOMETRY_WIDTH);
    };
    const uint32_t one = *at(first), other = *at(second);
    if (a.sh_in_halves == 0) {
        *at(row) = __float_as_uint(0.5f * (__uint_as_float(one) + __uint_as_float(other)));
        return;
    }
    const auto mean = [&](uint32_t half) {
        return 0.5f * (decode_half(one, half) + decode_half(other, half));
    };
    *at(row) = with_half(with_half(0, 0, encode_half(mean(0), NEAREST)), 1,
                         encode_half(mean(1), NEAREST));
}

// An opacity stays what it is, as far as the new floor lets it.
extern "C" __global__ void __launch_bounds__(REMESH_BLOCK)
    raise_opacity_floor(const __grid_constant__ RaiseFloorArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.n) return;
    float* const logit = a.geometry + lane_block(row, GEOMETRY_WIDTH) + component(OPACITY_LOGIT);
    *logit = raised_logit(*logit, a.before, a.after);
}
