// Twin of math/splat/surfel.rs: projection of a flat Gaussian to a surfel on the screen, and its gradients. See Rust
// for the equations. Here the ellipse of the disc is separate, since parts of tiles are tested with it.
#pragma once

#include "splat.cuh"

// A disc on the screen, relative to its projected centre.
struct Surfel {
    float2 mean_px;
    float depth;
    float2 along_u, along_v;  // slopes of the two coordinates at the centre, per px
    float2 tilt;              // relative slope of the inverse depth, per px
};

// Gradients of `Surfel`.
struct SurfelGradient {
    float2 d_mean_px;
    float d_depth;
    float2 d_along_u, d_along_v;
    float2 d_tilt;
};

// Intermediate values of both passes.
struct SurfelChain {
    float3 mean_cam;
    float3 first, second, normal;  // the disc's axes and its normal, camera axes
    float facing;                  // dot product of normal and centre
    float2 inverse_scale;
    float3 to_u, to_v;  // slopes before the conversion to pixels
    float2 per_px;      // depth over focal length and `facing`
};

// The centre must be in front. Returns false if the disc is seen edge-on.
__device__ inline bool surfel_chain(const ViewCamera& view, const Shape& shape, SurfelChain& c) {
    c.mean_cam = camera_from_world(view, shape.mean_world);
    const Mat3 axes = mat_mul(camera_rotation(view), rotation(shape.quat));
    c.first = {axes.row[0].x, axes.row[1].x, axes.row[2].x};
    c.second = {axes.row[0].y, axes.row[1].y, axes.row[2].y};
    c.normal = cross(c.first, c.second);
    c.facing = dot(c.normal, c.mean_cam);
    const float distance = sqrtf(dot(c.mean_cam, c.mean_cam));
    if (!(fabsf(c.facing) > SURFEL_FACING_MIN * distance)) return false;
    c.inverse_scale = {expf(-shape.log_scale.x), expf(-shape.log_scale.y)};
    c.to_u = scale(cross(c.second, c.mean_cam), c.inverse_scale.x);
    c.to_v = scale(cross(c.mean_cam, c.first), c.inverse_scale.y);
    const float z = c.mean_cam.z;
    c.per_px = {z / (view.focal_px[0] * c.facing), z / (view.focal_px[1] * c.facing)};
    return true;
}

__device__ inline bool is_finite(float2 v) { return isfinite(v.x) && isfinite(v.y); }

// Returns false if a parameter is not finite, or on overflow.
__device__ inline bool surfel_of(const ViewCamera& view, const SurfelChain& c, Surfel& out) {
    const float3 m = c.mean_cam;
    out.mean_px = {view.focal_px[0] * m.x / m.z + view.centre_px[0],
                   view.focal_px[1] * m.y / m.z + view.centre_px[1]};
    out.depth = m.z;
    out.along_u = {c.to_u.x * c.per_px.x, c.to_u.y * c.per_px.y};
    out.along_v = {c.to_v.x * c.per_px.x, c.to_v.y * c.per_px.y};
    out.tilt = {c.normal.x * c.per_px.x, c.normal.y * c.per_px.y};
    return is_finite(out.mean_px) && is_finite(out.along_u) && is_finite(out.along_v) &&
           is_finite(out.tilt);
}

__device__ inline bool project_surfel(const ViewCamera& view, const Shape& shape, Surfel& out) {
    SurfelChain c;
    return surfel_chain(view, shape, c) && surfel_of(view, c, out);
}

__device__ inline ShapeGradient project_surfel_bwd(const ViewCamera& view, const Shape& shape,
                                                   const SurfelGradient& d_surfel) {
    SurfelChain c;
    if (!surfel_chain(view, shape, c)) return {};
    const float z = c.mean_cam.z;
    const float2 d_u = d_surfel.d_along_u, d_v = d_surfel.d_along_v, d_tilt = d_surfel.d_tilt;

    // Through depth over focal length and `facing`, a common factor of x and y of all three.
    const float d_log_per_px =
        (c.to_u.x * d_u.x + c.to_v.x * d_v.x + c.normal.x * d_tilt.x) * c.per_px.x +
        (c.to_u.y * d_u.y + c.to_v.y * d_v.y + c.normal.y * d_tilt.y) * c.per_px.y;
    const float d_facing = -d_log_per_px / c.facing;
    float3 d_mean_cam = {0.0f, 0.0f, d_surfel.d_depth + d_log_per_px / z};

    const float3 d_to_u = {d_u.x * c.per_px.x, d_u.y * c.per_px.y, 0.0f};
    const float3 d_to_v = {d_v.x * c.per_px.x, d_v.y * c.per_px.y, 0.0f};
    ShapeGradient d;
    d.d_log_scale = {-dot(c.to_u, d_to_u), -dot(c.to_v, d_to_v), 0.0f};
    // Of the cross products: c = a x b gives d_a = b x d_c and d_b = d_c x a.
    const float3 d_cross_u = scale(d_to_u, c.inverse_scale.x);
    const float3 d_cross_v = scale(d_to_v, c.inverse_scale.y);
    const float3 d_normal = add(float3{d_tilt.x * c.per_px.x, d_tilt.y * c.per_px.y, 0.0f},
                                scale(c.mean_cam, d_facing));
    d_mean_cam = add(d_mean_cam, add(cross(d_cross_u, c.second), cross(c.first, d_cross_v)));
    d_mean_cam = add(d_mean_cam, scale(c.normal, d_facing));
    const float3 d_first = add(cross(d_cross_v, c.mean_cam), cross(c.second, d_normal));
    const float3 d_second = add(cross(c.mean_cam, d_cross_u), cross(d_normal, c.first));

    const float2 d_along = {d_surfel.d_mean_px.x * view.focal_px[0] / z,
                            d_surfel.d_mean_px.y * view.focal_px[1] / z};
    d_mean_cam.x += d_along.x;
    d_mean_cam.y += d_along.y;
    d_mean_cam.z -= (d_along.x * c.mean_cam.x + d_along.y * c.mean_cam.y) / z;
    const Mat3 d_cam_from_axes = {float3{d_first.x, d_second.x, 0.0f},
                                  float3{d_first.y, d_second.y, 0.0f},
                                  float3{d_first.z, d_second.z, 0.0f}};
    const Mat3 turn = camera_rotation(view);
    d.d_quat = rotation_bwd(shape.quat, mat_mul(transpose(turn), d_cam_from_axes));
    d.d_mean_world = mul_transposed(turn, d_mean_cam);
    return d;
}

__device__ inline float area_of(float2 p, float2 q) { return fmaf(p.x, q.y, -(p.y * q.x)); }

// The ellipse on the screen where the disc's exponent is at least `exponent_min`.
struct DiscEllipse {
    Sym2 form;          // K
    float inverse_det;  // of K
    float2 shift;       // offset of its centre from that of the surfel
    float widened;      // divisor of the form's exponents
};

// Returns false if the disc extends behind the camera. Contractions are explicit: with a small determinant, counted and
// listed tiles would differ.
__device__ inline bool disc_ellipse(const Surfel& s, float exponent_min, DiscEllipse& out) {
    const float reach2 = -2.0f * exponent_min;
    const float2 a = s.along_u, b = s.along_v, g = s.tilt;
    const float2 far = {-reach2 * g.x, -reach2 * g.y};
    const Sym2 k = {fmaf(a.x, a.x, fmaf(b.x, b.x, far.x * g.x)),
                    fmaf(a.x, a.y, fmaf(b.x, b.y, far.x * g.y)),
                    fmaf(a.y, a.y, fmaf(b.y, b.y, far.y * g.y))};
    const float of_disc = area_of(a, b), of_u = area_of(a, g), of_v = area_of(b, g);
    const float det = fmaf(of_disc, of_disc, -reach2 * fmaf(of_u, of_u, of_v * of_v));
    if (!(det > 0.0f && k.xx > 0.0f && k.yy > 0.0f)) return false;
    out.form = k;
    out.inverse_det = fast_reciprocal(det);
    const float2 turned = {fmaf(k.yy, g.x, -(k.xy * g.y)) * out.inverse_det,
                           fmaf(k.xx, g.y, -(k.xy * g.x)) * out.inverse_det};
    out.shift = {reach2 * turned.x, reach2 * turned.y};
    out.widened = fmaf(reach2, fmaf(g.x, turned.x, g.y * turned.y), 1.0f);
    return true;
}

// Returns the ellipse that contains all points where the exponent is at least `exponent_min`; false if the disc extends
// behind the camera.
__device__ inline bool cover(const Surfel& s, float exponent_min, Ellipse& out) {
    DiscEllipse disc;
    if (!disc_ellipse(s, exponent_min, disc)) return false;
    const float per_form = disc.widened * disc.inverse_det;
    Sym2 cov = {disc.form.yy * per_form, -disc.form.xy * per_form, disc.form.xx * per_form};
    const float2 shift = disc.shift;
    const float reach2 = -2.0f * exponent_min;
    const float shift2 = fmaf(shift.x, shift.x, shift.y * shift.y);
    const float radius = fast_sqrt(0.5f) + fast_sqrt(shift2 * fast_reciprocal(reach2));
    const float radius2 = radius * radius;
    float cov_det = disc.widened * per_form;
    const float trace = cov.xx + cov.yy;
    if (!(cov_det >= radius2 * trace)) {
        cov_det = fmaf(radius2, trace + radius2, cov_det);
        cov.xx += radius2;
        cov.yy += radius2;
    }
    const float inverse = fast_reciprocal(cov_det);
    out.cov_px2 = cov;
    out.conic = {cov.yy * inverse, -cov.xy * inverse, cov.xx * inverse};
    out.mean_px = {s.mean_px.x + shift.x, s.mean_px.y + shift.y};
    out.depth = s.depth;
    out.kept = 1.0f;
    return cov_det > 0.0f && isfinite(cov_det) && is_finite(out.mean_px) &&
           isfinite(out.conic.xx) && isfinite(out.conic.xy) && isfinite(out.conic.yy);
}
