// remesh: new vertices at the midpoints of edges, vertex sizes, and opacities under a new floor (MeshSplatting, Held et
// al. 2025).
// Shapes: tables [lane blocks, words, 32], midpoints [n, 2], faces [faces, 3].

#include "compact.cuh"
#include "layout.cuh"
#include "linalg.cuh"
#include "triangle.cuh"

// Twins of math/adam.rs.
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

// One thread per word of a new vertex; the moments are zero already.
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

// Computes the sizes of all vertices in three passes. The first two log-scales hold the sum of the areas and their
// number until the third pass.
extern "C" __global__ void __launch_bounds__(REMESH_BLOCK)
    clear_vertex_sizes(const __grid_constant__ VertexSizesArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.n) return;
    float* const values = a.geometry + lane_block(row, GEOMETRY_WIDTH);
    values[component(LOG_SCALE)] = 0.0f;
    values[component(LOG_SCALE + 1)] = 0.0f;
}

extern "C" __global__ void __launch_bounds__(REMESH_BLOCK)
    add_face_areas(const __grid_constant__ VertexSizesArgs a) {
    const uint32_t face = blockIdx.x * blockDim.x + threadIdx.x;
    if (face >= a.faces_len) return;
    float* values[3];
    float3 corners[3];
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        values[i] = a.geometry + lane_block(a.faces[uint64_t{face} * 3 + i], GEOMETRY_WIDTH);
        corners[i] = {values[i][component(MEAN)], values[i][component(MEAN + 1)],
                      values[i][component(MEAN + 2)]};
    }
    const float own = area(corners);
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        atomicAdd(values[i] + component(LOG_SCALE), own);
        atomicAdd(values[i] + component(LOG_SCALE + 1), 1.0f);
    }
}

extern "C" __global__ void __launch_bounds__(REMESH_BLOCK)
    set_vertex_sizes(const __grid_constant__ VertexSizesArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.n) return;
    float* const values = a.geometry + lane_block(row, GEOMETRY_WIDTH);
    const float size = log_size(values[component(LOG_SCALE)], values[component(LOG_SCALE + 1)]);
#pragma unroll
    for (uint32_t axis = 0; axis < 3; ++axis) values[component(LOG_SCALE + axis)] = size;
}

// Keeps opacities, raised to the new floor if necessary.
extern "C" __global__ void __launch_bounds__(REMESH_BLOCK)
    raise_opacity_floor(const __grid_constant__ RaiseFloorArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.n) return;
    float* const logit = a.geometry + lane_block(row, GEOMETRY_WIDTH) + component(OPACITY_LOGIT);
    *logit = raised_logit(*logit, a.before, a.after);
}
