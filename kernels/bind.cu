// bind: moves Gaussians with the mesh that they are bound to (SuGaR, Guedon and Lepetit 2024, section 4.3), and maps
// their gradients to the mesh and to their form on it. Does not use atomics: each vertex sums its gradients in the
// order of its lists, so results are reproducible to the bit. Row n f + j of the model is Gaussian j of the n on face
// f.
// Shapes: geometry [lane blocks, 11, 32], d_geometry [n, 12], forms [n, 4] with the log-scales in the
// plane and the complex number, vertices [vertices, 3].

#include "adam.cuh"
#include "bound.cuh"

__device__ inline float3 load_vertex(const float* vertices, uint32_t vertex) {
    const float* const place = vertices + uint64_t{vertex} * 3;
    return {place[0], place[1], place[2]};
}

__device__ inline Triangle load_triangle(const BindArgs& a, uint32_t row) {
    const uint32_t* const face = a.faces + uint64_t{row / a.each} * 3;
    return {{load_vertex(a.vertices, face[0]), load_vertex(a.vertices, face[1]),
             load_vertex(a.vertices, face[2])}};
}

// Writes the centre, scales and rotation of each Gaussian.
extern "C" __global__ void __launch_bounds__(BIND_BLOCK)
    bind_place(const __grid_constant__ BindArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.gaussians) return;
    const float4 form = reinterpret_cast<const float4*>(a.forms)[row];
    const BoundPlace placed = place(load_triangle(a, row), corner_weights(a.each, row % a.each),
                                    float2{form.z, form.w});
    const float values[OPACITY_LOGIT] = {placed.mean.x, placed.mean.y,  placed.mean.z,
                                         a.log_thickness, form.x,       form.y,
                                         placed.quat.w, placed.quat.x,  placed.quat.y,
                                         placed.quat.z};
    float* const geometry = a.geometry + lane_block(row, GEOMETRY_WIDTH);
    FiniteCheck health[3] = {};
#pragma unroll
    for (uint32_t k = 0; k < OPACITY_LOGIT; ++k) {
        geometry[component(k)] = values[k];
        FiniteCheck& group = health[k < LOG_SCALE ? 0 : k < QUAT ? 1 : 2];
        group.zero += 0.0f * values[k];
        group.largest = fmaxf(group.largest, fabsf(values[k]));
    }
#pragma unroll
    for (uint32_t group = 0; group < 3; ++group) report(a, row, group, health[group]);
}

// Moves each Gaussian's form, and replaces the gradients of its geometry by those of its triangle's corners, 4 values
// each.
extern "C" __global__ void __launch_bounds__(BIND_BLOCK)
    bind_forms(const __grid_constant__ BindArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.gaussians) return;
    float4* const d_row = reinterpret_cast<float4*>(a.d_geometry) + uint64_t{row} * 3;
    const float4 first = d_row[0], second = d_row[1], third = d_row[2];
    const float3 d_mean = {first.x, first.y, first.z};
    const Quat d_quat = {second.z, second.w, third.x, third.y};
    const float* const geometry = a.geometry + lane_block(row, GEOMETRY_WIDTH);
    const Quat quat = {geometry[component(QUAT)], geometry[component(QUAT + 1)],
                       geometry[component(QUAT + 2)], geometry[component(QUAT + 3)]};

    AdamRow<4> form;
    float4* const tables[3] = {reinterpret_cast<float4*>(a.forms) + row,
                               reinterpret_cast<float4*>(a.forms_first) + row,
                               reinterpret_cast<float4*>(a.forms_second) + row};
    float* const parts[3] = {form.value, form.first, form.second};
#pragma unroll
    for (uint32_t part = 0; part < 3; ++part) {
        const float4 loaded = *tables[part];
        parts[part][0] = loaded.x;
        parts[part][1] = loaded.y;
        parts[part][2] = loaded.z;
        parts[part][3] = loaded.w;
    }
    const FlatGradient d =
        place_bwd(load_triangle(a, row), corner_weights(a.each, row % a.each),
                  float2{form.value[2], form.value[3]}, quat, d_mean, d_quat);
    const float d_form[4] = {second.x, second.y, d.d_turn.x, d.d_turn.y};
    FiniteCheck scales = {}, turns = {};
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
        move<false>(a, form, k, k < 2 ? a.log_scale_rate : a.turn_rate, d_form[k],
                    k < 2 ? scales : turns);
    }
#pragma unroll
    for (uint32_t part = 0; part < 3; ++part) {
        *tables[part] = {parts[part][0], parts[part][1], parts[part][2], parts[part][3]};
    }
#pragma unroll
    for (uint32_t corner = 0; corner < 3; ++corner) {
        const float3 d_corner = d.d_corner[corner];
        d_row[corner] = {d_corner.x, d_corner.y, d_corner.z, 0.0f};
    }
    report(a, row, 1, scales);
    report(a, row, 2, turns);
}

// Moves each vertex by the gradients of its faces' Gaussians, then of its hinges. Keeps the previous positions, which
// the hinges of other vertices need.
extern "C" __global__ void __launch_bounds__(BIND_BLOCK)
    bind_vertices(const __grid_constant__ BindArgs a) {
    const uint32_t vertex = blockIdx.x * blockDim.x + threadIdx.x;
    if (vertex >= a.vertices_len) return;
    const float4* const d_corners = reinterpret_cast<const float4*>(a.d_geometry);
    const uint32_t first_corner = a.corner_starts[vertex], last_corner = a.corner_starts[vertex + 1];
    float3 sum = {0.0f, 0.0f, 0.0f};
    for (uint32_t at = first_corner; at < last_corner; ++at) {
        const uint32_t corner = a.corner_numbers[at];
        const uint64_t row = uint64_t{corner / 3} * a.each;
        for (uint32_t j = 0; j < a.each; ++j) {
            const float4 d = d_corners[(row + j) * 3 + corner % 3];
            sum = add(sum, float3{d.x, d.y, d.z});
        }
    }
    if (a.per_hinge != 0.0f) {
        for (uint32_t at = a.hinge_starts[vertex]; at < a.hinge_starts[vertex + 1]; ++at) {
            const uint32_t number = a.hinge_numbers[at];
            const uint32_t* const hinge = a.hinges + uint64_t{number / 4} * 4;
            const Hinge corners = {
                {load_vertex(a.vertices, hinge[0]), load_vertex(a.vertices, hinge[1]),
                 load_vertex(a.vertices, hinge[2]), load_vertex(a.vertices, hinge[3])}};
            sum = add(sum, crease_bwd(corners, number % 4, a.per_hinge));
        }
    }
    AdamRow<3> place;
    const float d[3] = {sum.x, sum.y, sum.z};
    FiniteCheck health = {};
#pragma unroll
    for (uint32_t k = 0; k < 3; ++k) {
        const uint64_t at = uint64_t{vertex} * 3 + k;
        place.value[k] = a.vertices[at];
        place.first[k] = a.vertices_first[at];
        place.second[k] = a.vertices_second[at];
        move<false>(a, place, k, a.vertex_rate, d[k], health);
        a.next_vertices[at] = place.value[k];
        a.vertices_first[at] = place.first[k];
        a.vertices_second[at] = place.second[k];
    }
    // A vertex without a face has no Gaussian to report, and does not move.
    if (first_corner < last_corner) {
        report(a, a.corner_numbers[first_corner] / 3 * a.each, 0, health);
    }
}
