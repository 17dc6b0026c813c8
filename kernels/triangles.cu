// triangles: projects faces to triangles on the screen, and maps their gradients to the vertices (MeshSplatting, Held
// et al. 2025). `place_vertices` (one thread per vertex) projects the vertices; `mark_corners` (one per face) marks the
// vertices of the visible faces; `color_vertices` (one per vertex) finds the colours of these; `project_faces` (one per
// face) lists the triangles, as `project` does with splats. A vertex is its own splat: its index is its row, or UNSEEN.
// `faces_bwd` (one thread per triangle) adds to the vertices' gradients.
// Shapes: geometry [lane blocks, 11, 32], vertices [n, 8], d_vertices [n, 12], faces [f, 3], splats and gradients
// [visible, record].
//
// `add_midpoints` adds vertices at the midpoints of edges, `clear_vertex_sizes`, `add_face_areas` and
// `set_vertex_sizes` find the sizes of vertices, `raise_opacity_floor` puts opacities under a new floor.
// Shapes: tables [lane blocks, words, 32], midpoints [n, 2], faces [faces, 3].

#include "compact.cuh"
#include "gaussian.cuh"
#include "layout.cuh"
#include "linalg.cuh"
#include "project.cuh"
#include "triangle.cuh"
#include "triangle_footprint.cuh"

// A vertex of a visible face.
constexpr uint32_t MARKED = UNSEEN - 1;

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    place_vertices(const __grid_constant__ ProjectArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.gaussians) return;
    const float* __restrict__ geometry = a.geometry;
    const uint64_t at = lane_block(row, GEOMETRY_WIDTH);
    float2 px = {0.0f, 0.0f};
    float inverse_depth = 0.0f;
    const float logit = geometry[at + component(OPACITY_LOGIT)];
    const bool seen = place_vertex(a.camera, load_triple(geometry, at, MEAN), px, inverse_depth);
    const float opacity = a.opacity_floor + (1.0f - a.opacity_floor) * sigmoid(logit);
    float4* const record = reinterpret_cast<float4*>(a.splats) + uint64_t{row} * VERTEX_QUADS;
    // A vertex with a non-finite logit is skipped; `step` reports it.
    record[0] = {px.x, px.y, seen && isfinite(logit) ? inverse_depth : 0.0f, opacity};
    a.splat_from_gaussian[row] = UNSEEN;
}

// Returns the corners of a face and the pixels that it may cover; false if there are none.
__device__ inline bool face_corners(const FacesArgs& a, const uint32_t (&rows)[3],
                                    Vertex (&corners)[3], Rect& pixels) {
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) corners[i] = load_vertex_place(a.vertices, rows[i]);
    if (!(corners[0].inverse_depth > 0.0f && corners[1].inverse_depth > 0.0f &&
          corners[2].inverse_depth > 0.0f)) {
        return false;
    }
    return touched_pixels(corners, a.camera.size, pixels) &&
           smallest_opacity(corners) >= ALPHA_MIN;
}

__device__ inline void face_rows(const FacesArgs& a, uint32_t face, uint32_t (&rows)[3]) {
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) rows[i] = a.faces[uint64_t{face} * 3 + i];
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    mark_corners(const __grid_constant__ FacesArgs a) {
    const uint32_t face = blockIdx.x * blockDim.x + threadIdx.x;
    if (face >= a.faces_len) return;
    uint32_t rows[3];
    Vertex corners[3];
    Rect pixels;
    face_rows(a, face, rows);
    Outline o;
    if (!face_corners(a, rows, corners, pixels) || !outline(corners, a.inradius_min_px, o)) return;
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) a.splat_from_gaussian[rows[i]] = MARKED;
}

template <class Storage>
__device__ inline void color_vertex(const ProjectArgs& a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.gaussians || a.splat_from_gaussian[row] != MARKED) return;
    const float3 world = load_triple(a.geometry, lane_block(row, GEOMETRY_WIDTH), MEAN);
    float3 color;
    // A vertex with a non-finite colour is skipped.
    const bool seen = project_color<Storage>(a, row, world, color);
    a.splat_from_gaussian[row] = seen ? row : UNSEEN;
    float4* const record = reinterpret_cast<float4*>(a.splats) + uint64_t{row} * VERTEX_QUADS;
    record[1] = {fmaxf(color.x, 0.0f), fmaxf(color.y, 0.0f), fmaxf(color.z, 0.0f), 0.0f};
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    color_vertices(const __grid_constant__ ProjectArgs a) {
    color_vertex<Full>(a);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    color_vertices_half(const __grid_constant__ ProjectArgs a) {
    color_vertex<HalfColors>(a);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    color_vertices_compact(const __grid_constant__ ProjectArgs a) {
    color_vertex<Compact>(a);
}

// Projects a face; false if it is not visible.
__device__ inline bool project_face(const FacesArgs& a, uint32_t face, ScreenTriangle& shown,
                                    Ellipse& over, Rect& pixels) {
    uint32_t rows[3];
    Vertex corners[3];
    face_rows(a, face, rows);
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        if (a.splat_from_gaussian[rows[i]] == UNSEEN) return false;
    }
    if (!face_corners(a, rows, corners, pixels)) return false;
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) corners[i] = load_seen_vertex(a.vertices, rows[i]);
    return triangle(corners, a.inradius_min_px, shown) && cover(corners, over);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    project_faces(const __grid_constant__ FacesArgs a) {
    const uint32_t face = blockIdx.x * blockDim.x + threadIdx.x;
    ScreenTriangle shown;
    Ellipse over;
    Rect pixels;
    TileQuery query = {};
    const bool visible = face < a.faces_len && project_face(a, face, shown, over, pixels);
    if (visible) {
        query.mean_px = over.mean_px;
        query.conic = over.conic;
        query.exponent_min = COVER_EXPONENT;
        query.tiles = tiles_of(pixels);
    }
    const uint32_t instances =
        for_each_row<PROJECT_BLOCK>(a.camera, query, [](const TileRow&, uint32_t) {});
    const uint32_t splat_index = append(a, visible, instances);
    if (!visible || splat_index >= a.capacity) return;
    store_record(reinterpret_cast<float4*>(a.splats) +
                     uint64_t{splat_index} * TriangleFootprint::QUADS,
                 shown, over, face);
    a.tiles[splat_index] = {query.tiles.x0, query.tiles.y0, query.tiles.x1, query.tiles.y1};
    // Depths are positive: their bits are ordered like the depths.
    a.depth_keys[splat_index] = __float_as_uint(over.depth);
    a.splat_indices[splat_index] = splat_index;
    a.instance_counts[splat_index] = instances;
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    faces_bwd(const __grid_constant__ FacesBwdArgs a) {
    const uint32_t splat_index = blockIdx.x * blockDim.x + threadIdx.x;
    if (splat_index >= a.visible) return;
    const uint64_t at = uint64_t{splat_index} * TriangleFootprint::QUADS;
    const float4* const record = reinterpret_cast<const float4*>(a.splats) + at;
    const uint32_t face = __float_as_uint(record[3].w);
    uint32_t rows[3];
    Vertex corners[3];
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        rows[i] = a.faces[uint64_t{face} * 3 + i];
        corners[i] = load_seen_vertex(a.vertices, rows[i]);
    }
    if (a.reaches_px != nullptr) a.reaches_px[face] = fmaxf(a.reaches_px[face], reach_px(corners));
    VertexGradient d_corners[3] = {};
    triangle_bwd(corners, a.inradius_min_px, a.by_distances != 0,
                 load_triangle_gradient(reinterpret_cast<const float4*>(a.gradients) + at),
                 d_corners);
    if (a.gradient_norms != nullptr) {
        float norms = 0.0f;
#pragma unroll
        for (const VertexGradient& d : d_corners) norms += sqrtf(dot(d.d_px, d.d_px));
        // Skip a view whose gradient is not finite.
        if (isfinite(norms)) a.gradient_norms[face] += norms;
    }
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        const VertexGradient& d = d_corners[i];
        const float3 color = corners[i].color;
        float4* const sums =
            reinterpret_cast<float4*>(a.d_vertices) + uint64_t{rows[i]} * (RECORD_WIDTH / 4);
        // (1 - floor) sigmoid(logit) is the opacity above the floor.
        const float above = corners[i].opacity - a.opacity_floor;
        add_quad(sums, {d.d_px.x, d.d_px.y, d.d_opacity * above, 0.0f});
        // A channel that was clamped to 0 has no gradient.
        add_quad(sums + 2, {color.x > 0.0f ? d.d_color.x : 0.0f, color.y > 0.0f ? d.d_color.y : 0.0f,
                            color.z > 0.0f ? d.d_color.z : 0.0f, d.d_inverse_depth});
    }
}

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
