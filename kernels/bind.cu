// bind: moves Gaussians with the mesh that they are bound to (SuGaR, Guedon and Lepetit 2024, section 4.3), and maps
// their gradients to the mesh and to their form on it. Does not use atomics: each vertex sums its gradients in the
// order of its lists, so results are reproducible to the bit. Row n f + j of the model is Gaussian j of the n on face
// f.
// Shapes: geometry [lane blocks, 11, 32], d_geometry [n, 12], forms [n, 4] with the log-scales in the
// plane and the complex number, vertices [vertices, 3].

#include "adam.cuh"
#include "linalg.cuh"

// Twin of math/bound.rs: Gaussians bound to triangles, and the angles between triangles.
// Same names, same order of arguments; see Rust for the equations.

struct Triangle {
    float3 corner[3];
};

// Returns the corner weights of Gaussian `place` of the `each` on a triangle.
__device__ inline float3 corner_weights(uint32_t each, uint32_t place) {
    const bool has_middle = each == 1 || each == 4;
    if (has_middle && place == 0) return {1.0f / 3.0f, 1.0f / 3.0f, 1.0f / 3.0f};
    uint32_t corner = each == 4 ? place - 1 : place;
    float one = 2.0f / 3.0f, others = 1.0f / 6.0f;
    if (each == 3) {
        one = 0.5f;
        others = 0.25f;
    } else if (corner >= 3) {
        corner -= 3;
        one = 1.0f / 6.0f;
        others = 5.0f / 12.0f;
    }
    return {corner == 0 ? one : others, corner == 1 ? one : others, corner == 2 ? one : others};
}

// Axes of a triangle; those of the world if it has no area.
struct TriangleAxes {
    float3 normal, along, across;
    float per_length, per_area;
};

__device__ inline TriangleAxes triangle_axes(const Triangle& t) {
    const float3 edge = sub(t.corner[0], t.corner[1]);
    const float3 product =
        cross(sub(t.corner[1], t.corner[0]), sub(t.corner[2], t.corner[0]));
    const float length = sqrtf(dot(edge, edge)), width = sqrtf(dot(product, product));
    const float per_length = 1.0f / length, per_area = 1.0f / width;
    if (!(length > 0.0f && width > 0.0f && isfinite(per_length) && isfinite(per_area))) {
        return {{1.0f, 0.0f, 0.0f}, {0.0f, 1.0f, 0.0f}, {0.0f, 0.0f, 1.0f}, 0.0f, 0.0f};
    }
    const float3 normal = scale(product, per_area), along = scale(edge, per_length);
    return {normal, along, cross(normal, along), per_length, per_area};
}

// Returns 1 over the length of a complex number; 0 if the number is 0.
__device__ inline float inverse_length(float2 turn) {
    const float squared = turn.x * turn.x + turn.y * turn.y;
    return squared > 0.0f ? 1.0f / sqrtf(squared) : 0.0f;
}

// Returns the unit quaternion of a rotation given by columns.
__device__ inline Quat quaternion(float3 a, float3 b, float3 c) {
    const float trace = a.x + b.y + c.z;
    const auto twice = [](float squared) { return 2.0f * sqrtf(fmaxf(squared, 0.0f)); };
    if (trace > 0.0f) {
        const float s = twice(1.0f + trace);
        return {0.25f * s, (b.z - c.y) / s, (c.x - a.z) / s, (a.y - b.x) / s};
    }
    if (a.x > b.y && a.x > c.z) {
        const float s = twice(1.0f + a.x - b.y - c.z);
        return {(b.z - c.y) / s, 0.25f * s, (b.x + a.y) / s, (c.x + a.z) / s};
    }
    if (b.y > c.z) {
        const float s = twice(1.0f + b.y - a.x - c.z);
        return {(c.x - a.z) / s, (b.x + a.y) / s, 0.25f * s, (c.y + b.z) / s};
    }
    const float s = twice(1.0f + c.z - a.x - b.y);
    return {(a.y - b.x) / s, (c.x + a.z) / s, (c.y + b.z) / s, 0.25f * s};
}

struct BoundPlace {
    float3 mean;
    Quat quat;
};

__device__ inline BoundPlace place(const Triangle& t, float3 weights, float2 turn) {
    const TriangleAxes axes = triangle_axes(t);
    const float inverse = inverse_length(turn);
    const float p = inverse > 0.0f ? turn.x * inverse : 1.0f;
    const float q = inverse > 0.0f ? turn.y * inverse : 0.0f;
    const float3 first = add(scale(axes.along, p), scale(axes.across, q));
    const float3 second = sub(scale(axes.across, p), scale(axes.along, q));
    const float3 mean = add(add(scale(t.corner[0], weights.x), scale(t.corner[1], weights.y)),
                            scale(t.corner[2], weights.z));
    return {mean, quaternion(axes.normal, first, second)};
}

// Gradients of a triangle's corners, and of a complex number.
struct FlatGradient {
    float3 d_corner[3];
    float2 d_turn;
};

__device__ inline float3 rotation_vector_bwd(Quat q, Quat d) {
    const float3 axis = {q.x, q.y, q.z}, d_axis = {d.x, d.y, d.z};
    return scale(add(sub(scale(d_axis, q.w), scale(axis, d.w)), cross(axis, d_axis)), 0.5f);
}

__device__ inline FlatGradient place_bwd(const Triangle& t, float3 weights, float2 turn, Quat quat,
                                         float3 d_mean, Quat d_quat) {
    const TriangleAxes axes = triangle_axes(t);
    const float3 d_rotation = rotation_vector_bwd(quat, d_quat);
    const float d_angle = dot(d_rotation, axes.normal);
    const float inverse = inverse_length(turn);
    const float d_angle_over = d_angle * inverse * inverse;
    const float3 d_product = scale(cross(d_rotation, axes.normal), axes.per_area);
    const float3 d_edge = scale(axes.across, d_angle * axes.per_length);
    const float3 d_ab = cross(sub(t.corner[2], t.corner[0]), d_product);
    const float3 d_ac = cross(d_product, sub(t.corner[1], t.corner[0]));
    return {{add(scale(d_mean, weights.x), sub(d_edge, add(d_ab, d_ac))),
             add(scale(d_mean, weights.y), sub(d_ab, d_edge)), add(scale(d_mean, weights.z), d_ac)},
            {-d_angle_over * turn.y, d_angle_over * turn.x}};
}

// Two triangles with a common edge: its ends, then the opposite corner of each triangle.
struct Hinge {
    float3 corner[4];
};

// Returns the gradient of corner `place` of a hinge's loss.
__device__ inline float3 crease_bwd(const Hinge& h, uint32_t place, float weight) {
    const float3 along = sub(h.corner[1], h.corner[0]);
    const float3 to_first = sub(h.corner[2], h.corner[0]);
    const float3 to_second = sub(h.corner[3], h.corner[0]);
    const float3 first = cross(along, to_first), second = cross(to_second, along);
    const float per_first = 1.0f / sqrtf(dot(first, first));
    const float per_second = 1.0f / sqrtf(dot(second, second));
    if (!isfinite(per_first) || !isfinite(per_second)) return {0.0f, 0.0f, 0.0f};
    const float3 n = scale(first, per_first), m = scale(second, per_second);
    const float cosine = dot(n, m);
    const float3 d_n = scale(sub(scale(n, cosine), m), weight * per_first);
    const float3 d_m = scale(sub(scale(m, cosine), n), weight * per_second);
    const float3 d_along = add(cross(to_first, d_n), cross(d_m, to_second));
    const float3 d_first = cross(d_n, along), d_second = cross(along, d_m);
    if (place == 1) return d_along;
    if (place == 2) return d_first;
    if (place == 3) return d_second;
    return scale(add(add(d_along, d_first), d_second), -1.0f);
}

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
