// Vertices of triangles: rows of Gaussians whose scales are the sizes of their triangles. Their record is
//   0  position x y, px; inverse depth, 0 if the view does not see the vertex; opacity
//   1  colour, at least 0
// Their gradients are in records of ellipses: the inverse depth's is in place of the depth's, and the opacity's, times
// 1 - sigmoid(logit), is that of the logit.
#pragma once

#include "gaussian.cuh"
#include "triangle.cuh"

// Vertices as a primitive of Adam steps.
template <class Storage>
struct Vertices : Gaussian<Storage, true> {};

constexpr uint32_t VERTEX_QUADS = VERTEX_WIDTH / 4;

__device__ inline Vertex load_seen_vertex(const float* vertices, uint32_t row) {
    const float4* const record = reinterpret_cast<const float4*>(vertices) + uint64_t{row} * VERTEX_QUADS;
    const float4 place = record[0], color = record[1];
    return {{place.x, place.y}, place.z, place.w, {color.x, color.y, color.z}};
}

// Loads a vertex without its colour.
__device__ inline Vertex load_vertex_place(const float* vertices, uint32_t row) {
    const float4 place = reinterpret_cast<const float4*>(vertices)[uint64_t{row} * VERTEX_QUADS];
    return {{place.x, place.y}, place.z, place.w, {0.0f, 0.0f, 0.0f}};
}

// Twin of math/splat/triangle.rs.
__device__ inline float3 place_vertex_bwd(const ViewCamera& view, float3 world, float2 d_px,
                                          float d_inverse_depth) {
    const float3 cam = camera_from_world(view, world);
    const float inverse_depth = 1.0f / cam.z;
    const float d_x = d_px.x * view.focal_px[0], d_y = d_px.y * view.focal_px[1];
    const float d_inverse = d_x * cam.x + d_y * cam.y + d_inverse_depth;
    return mul_transposed(camera_rotation(view),
                          float3{d_x * inverse_depth, d_y * inverse_depth,
                                 -d_inverse * inverse_depth * inverse_depth});
}
