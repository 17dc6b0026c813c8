// Twin of math/splat/triangle.rs: triangles between vertices on the screen. Same names, same order of arguments; see
// Rust for the equations.
#pragma once

#include "linalg.cuh"
#include "splat.cuh"

// Twin of math/adam.rs: size of the triangles around a vertex.

// Returns the area of a triangle, world units squared.
__device__ inline float area(const float3 (&corners)[3]) {
    const float3 normal = cross(sub(corners[1], corners[0]), sub(corners[2], corners[0]));
    return 0.5f * sqrtf(dot(normal, normal));
}

// Returns the log-size of a vertex from the sum of the areas of its triangles and their number.
__device__ inline float log_size(float sum, float count) {
    return count > 0.0f ? 0.5f * logf(fmaxf(sum / count, AREA_MIN)) : 0.0f;
}

// A projected vertex.
struct Vertex {
    float2 px;
    float inverse_depth;  // 0 if the view does not see it
    float opacity;
    float3 color;
};

// Projects a point in the world to the screen; false if it is not in front.
__device__ inline bool place_vertex(const ViewCamera& view, float3 world, float2& px,
                                    float& inverse_depth) {
    const float3 cam = camera_from_world(view, world);
    if (!in_front(cam.z, view.near)) return false;
    inverse_depth = 1.0f / cam.z;
    px = {view.focal_px[0] * cam.x * inverse_depth + view.centre_px[0],
          view.focal_px[1] * cam.y * inverse_depth + view.centre_px[1]};
    return isfinite(px.x) && isfinite(px.y);
}

// A triangle on the screen.
struct ScreenTriangle {
    float2 centre_px;
    float2 slopes[3];
    float opacity;
    float3 color[3];         // at the centre, and per px along x and y
    float inverse_depth[3];  // at the centre, and per px along x and y
};

struct TriangleGradient {
    float d_shares[3];
    float2 d_slopes[3];
    float d_log_opacity;
    float3 d_color[3];
    float d_inverse_depth[3];
};

struct VertexGradient {
    float2 d_px;
    float d_inverse_depth;
    float d_opacity;
    float3 d_color;
};

// Values that depend only on the corners' positions.
struct Outline {
    float2 edges[3];
    float lengths[3];
    float perimeter;
    float doubled_area;
    float weights[3];
    float2 centre_px;
    float2 slopes[3];
};

__device__ inline float2 edge_between(const Vertex& from, const Vertex& to) {
    return {to.px.x - from.px.x, to.px.y - from.px.y};
}

__device__ inline float dot(float2 a, float2 b) { return a.x * b.x + a.y * b.y; }

__device__ inline bool outline(const Vertex (&corners)[3], float inradius_min_px, Outline& o) {
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        o.edges[i] = edge_between(corners[(i + 1) % 3], corners[(i + 2) % 3]);
        o.lengths[i] = sqrtf(dot(o.edges[i], o.edges[i]));
    }
    o.perimeter = o.lengths[0] + o.lengths[1] + o.lengths[2];
    o.doubled_area = o.edges[2].x * o.edges[0].y - o.edges[2].y * o.edges[0].x;
    if (!(fabsf(o.doubled_area) > inradius_min_px * o.perimeter && isfinite(o.perimeter))) {
        return false;
    }
    o.centre_px = {0.0f, 0.0f};
    float sum = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        o.weights[i] = o.lengths[i] / o.perimeter;
        const float per = 1.0f / (o.doubled_area * o.weights[i]);
        o.slopes[i] = {o.edges[i].y * per, -o.edges[i].x * per};
        o.centre_px.x += o.weights[i] * corners[i].px.x;
        o.centre_px.y += o.weights[i] * corners[i].px.y;
        sum += fabsf(o.slopes[i].x) + fabsf(o.slopes[i].y);
    }
    return isfinite(sum) && isfinite(o.centre_px.x) && isfinite(o.centre_px.y);
}

// Returns the corner with the smallest opacity; ties go to the first.
__device__ inline uint32_t least_opacity(const Vertex (&corners)[3]) {
    uint32_t least = 0;
    float opacity = corners[0].opacity;
#pragma unroll
    for (uint32_t i = 1; i < 3; ++i) {
        if (corners[i].opacity < opacity) {
            least = i;
            opacity = corners[i].opacity;
        }
    }
    return least;
}

__device__ inline float smallest_opacity(const Vertex (&corners)[3]) {
    return fminf(fminf(corners[0].opacity, corners[1].opacity), corners[2].opacity);
}

__device__ inline ScreenTriangle triangle_of(const Vertex (&corners)[3], const Outline& o) {
    ScreenTriangle t = {};
    t.centre_px = o.centre_px;
    t.opacity = smallest_opacity(corners);
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        t.slopes[i] = o.slopes[i];
        const float linear[3] = {o.weights[i], -o.weights[i] * o.slopes[i].x,
                                 -o.weights[i] * o.slopes[i].y};
#pragma unroll
        for (uint32_t k = 0; k < 3; ++k) {
            t.color[k] = add(t.color[k], scale(corners[i].color, linear[k]));
            t.inverse_depth[k] += corners[i].inverse_depth * linear[k];
        }
    }
    return t;
}

// Returns the triangle between three vertices; false if it is too narrow or too transparent to be visible.
__device__ inline bool triangle(const Vertex (&corners)[3], float inradius_min_px, ScreenTriangle& t) {
    Outline o;
    if (!outline(corners, inradius_min_px, o)) return false;
    if (!(smallest_opacity(corners) >= ALPHA_MIN)) return false;
    t = triangle_of(corners, o);
    return true;
}

// Computes the gradients of the corners' colours and inverse depths.
__device__ inline void values_bwd(const Outline& o, const TriangleGradient& d,
                                  VertexGradient (&d_corners)[3]) {
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        const float2 m = o.slopes[i];
        const float weight = o.weights[i];
        d_corners[i].d_color =
            scale(sub(d.d_color[0], add(scale(d.d_color[1], m.x), scale(d.d_color[2], m.y))),
                  weight);
        d_corners[i].d_inverse_depth =
            weight * (d.d_inverse_depth[0] - m.x * d.d_inverse_depth[1] -
                      m.y * d.d_inverse_depth[2]);
    }
}

// Computes the gradients of the corners' positions by everything that depends on them.
__device__ inline void places_bwd(const Vertex (&corners)[3], const ScreenTriangle& drawn,
                                  const Outline& o, const TriangleGradient& d,
                                  VertexGradient (&d_corners)[3]) {
    float2 d_centre_px = {
        -dot(drawn.color[1], d.d_color[0]) - drawn.inverse_depth[1] * d.d_inverse_depth[0],
        -dot(drawn.color[2], d.d_color[0]) - drawn.inverse_depth[2] * d.d_inverse_depth[0]};
#pragma unroll
    for (uint32_t k = 0; k < 3; ++k) {
        d_centre_px.x -= o.slopes[k].x * d.d_shares[k];
        d_centre_px.y -= o.slopes[k].y * d.d_shares[k];
    }

    float d_weights[3];
    float2 d_slopes[3];
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        float d_linear[3];
#pragma unroll
        for (uint32_t k = 0; k < 3; ++k) {
            d_linear[k] = dot(corners[i].color, d.d_color[k]) +
                          corners[i].inverse_depth * d.d_inverse_depth[k];
        }
        const float2 m = o.slopes[i];
        const float weight = o.weights[i];
        d_weights[i] = d_linear[0] - m.x * d_linear[1] - m.y * d_linear[2];
        d_slopes[i] = {d.d_slopes[i].x - weight * d_linear[1],
                       d.d_slopes[i].y - weight * d_linear[2]};
        const float2 from_centre = {corners[i].px.x - o.centre_px.x,
                                    corners[i].px.y - o.centre_px.y};
        d_weights[i] += dot(from_centre, d_centre_px);
        d_corners[i].d_px = {weight * d_centre_px.x, weight * d_centre_px.y};
    }

    float d_doubled_area = 0.0f, d_sum = 0.0f;
    float2 d_edges[3];
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        const float per = 1.0f / (o.doubled_area * o.weights[i]);
        const float along = dot(o.slopes[i], d_slopes[i]);
        d_edges[i] = {-d_slopes[i].y * per, d_slopes[i].x * per};
        d_weights[i] -= along / o.weights[i];
        d_doubled_area -= along / o.doubled_area;
        d_sum += d_weights[i] * o.weights[i];
    }
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        const float d_length = (d_weights[i] - d_sum) / (o.perimeter * o.lengths[i]);
        d_edges[i].x += o.edges[i].x * d_length;
        d_edges[i].y += o.edges[i].y * d_length;
    }
    d_edges[2].x += o.edges[0].y * d_doubled_area;
    d_edges[2].y -= o.edges[0].x * d_doubled_area;
    d_edges[0].y += o.edges[2].x * d_doubled_area;
    d_edges[0].x -= o.edges[2].y * d_doubled_area;
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        const uint32_t to = (i + 2) % 3, from = (i + 1) % 3;
        d_corners[to].d_px.x += d_edges[i].x;
        d_corners[to].d_px.y += d_edges[i].y;
        d_corners[from].d_px.x -= d_edges[i].x;
        d_corners[from].d_px.y -= d_edges[i].y;
    }
}

// Computes the gradients of the corners' positions by the samples' distances to the nearest edges only.
__device__ inline void distances_bwd(const Vertex (&corners)[3], const Outline& o,
                                     const TriangleGradient& d, VertexGradient (&d_corners)[3]) {
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        const uint32_t start = (i + 1) % 3, end = (i + 2) % 3;
        const float2 from_start = {o.centre_px.x - corners[start].px.x,
                                   o.centre_px.y - corners[start].px.y};
        const float per = 1.0f / (o.lengths[i] * o.lengths[i]);
        const float of_end = per * (dot(o.edges[i], from_start) * d.d_shares[i] +
                                    dot(o.edges[i], d.d_slopes[i]));
        const float of_start = d.d_shares[i] - of_end;
        d_corners[start].d_px.x -= o.slopes[i].x * of_start;
        d_corners[start].d_px.y -= o.slopes[i].y * of_start;
        d_corners[end].d_px.x -= o.slopes[i].x * of_end;
        d_corners[end].d_px.y -= o.slopes[i].y * of_end;
    }
}

// Gradients of a drawn triangle; `by_distances` selects `PlaceGradients::EdgeDistances`.
__device__ inline void triangle_bwd(const Vertex (&corners)[3], float inradius_min_px,
                                    bool by_distances, const TriangleGradient& d,
                                    VertexGradient (&d_corners)[3]) {
    Outline o;
    if (!outline(corners, inradius_min_px, o)) return;
    values_bwd(o, d, d_corners);
    const uint32_t least = least_opacity(corners);
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        d_corners[i].d_opacity = i == least ? d.d_log_opacity / corners[i].opacity : 0.0f;
    }
    if (by_distances) {
        distances_bwd(corners, o, d, d_corners);
    } else {
        places_bwd(corners, triangle_of(corners, o), o, d, d_corners);
    }
}

// Returns the mean of the corners.
__device__ inline float2 middle(const Vertex (&corners)[3]) {
    constexpr float THIRD = 1.0f / 3.0f;
    return {(corners[0].px.x + corners[1].px.x + corners[2].px.x) * THIRD,
            (corners[0].px.y + corners[1].px.y + corners[2].px.y) * THIRD};
}

// Returns the largest distance of a corner from the mean, px.
__device__ inline float reach_px(const Vertex (&corners)[3]) {
    const float2 from = middle(corners);
    float squared = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        const float2 offset = {corners[i].px.x - from.x, corners[i].px.y - from.y};
        squared = fmaxf(squared, dot(offset, offset));
    }
    return sqrtf(squared);
}

// One axis of the pixels that the corners' bounding rectangle touches.
__device__ inline bool touched(float low, float high, uint32_t side, uint16_t& first,
                               uint16_t& end) {
    low = fmaxf(low, 0.0f);
    high = fminf(high, static_cast<float>(side));
    if (!(low < high)) return false;
    first = pixel_index(floorf(low), side);
    end = pixel_index(floorf(high) + 1.0f, side);
    return first < end;
}

__device__ inline bool touched_pixels(const Vertex (&c)[3], const uint32_t* size, Rect& pixels) {
    return touched(fminf(fminf(c[0].px.x, c[1].px.x), c[2].px.x),
                   fmaxf(fmaxf(c[0].px.x, c[1].px.x), c[2].px.x), size[0], pixels.x0, pixels.x1) &&
           touched(fminf(fminf(c[0].px.y, c[1].px.y), c[2].px.y),
                   fmaxf(fmaxf(c[0].px.y, c[1].px.y), c[2].px.y), size[1], pixels.y0, pixels.y1);
}

// Returns the ellipse that covers a triangle; its depth is that of the middle.
__device__ inline bool cover(const Vertex (&corners)[3], Ellipse& ellipse) {
    constexpr float THIRD = 1.0f / 3.0f;
    const float2 mean = middle(corners);
    constexpr float SHARE = THIRD * COVER_GROWTH;
    Sym2 variance = {0.0f, 0.0f, 0.0f};
    float inverse = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < 3; ++i) {
        const float2 d = {corners[i].px.x - mean.x, corners[i].px.y - mean.y};
        variance.xx += d.x * d.x * SHARE;
        variance.xy += d.x * d.y * SHARE;
        variance.yy += d.y * d.y * SHARE;
        inverse += corners[i].inverse_depth * THIRD;
    }
    const float more = COVER_VARIANCE_PX2 + COVER_ROUNDNESS * (variance.xx + variance.yy);
    variance.xx += more;
    variance.yy += more;
    const float determinant = variance.xx * variance.yy - variance.xy * variance.xy;
    ellipse.mean_px = mean;
    ellipse.conic = {variance.yy / determinant, -variance.xy / determinant,
                     variance.xx / determinant};
    ellipse.depth = 1.0f / inverse;
    return determinant > 0.0f && isfinite(ellipse.conic.xx) && isfinite(ellipse.conic.xy) &&
           isfinite(ellipse.conic.yy);
}
