// Twin of math/splat/: projection of a Gaussian to an ellipse on the screen, and its gradients.
#pragma once

#include "abi.cuh"
#include "fast.cuh"
#include "linalg.cuh"

// Twin of math/filter.rs: the filters of Mip-Splatting (Yu et al. 2024), the share of the opacity that a Gaussian keeps
// through them, and their gradients. See Rust for the equations.

// Share kept by the screen filter; `det` and `widened` are determinants of covariances, px^4.
__device__ inline float kept_on_screen(float det, float widened) {
    if (!(det > DET_MIN_PX4 && widened > DET_MIN_PX4)) return 0.0f;
    return sqrtf(det / (widened + DET_MIN_PX4) + DET_MIN_PX4);
}

// Returns the gradients of both determinants from that of the share's logarithm.
__device__ inline float2 kept_on_screen_bwd(float det, float widened, float d_log_kept) {
    if (!(det > DET_MIN_PX4 && widened > DET_MIN_PX4)) return {0.0f, 0.0f};
    const float inverse = 1.0f / (widened + DET_MIN_PX4);
    const float d_det = 0.5f * d_log_kept / (det * inverse + DET_MIN_PX4) * inverse;
    return {d_det, -d_det * det * inverse};
}

// Applies a 3D filter of this standard deviation to scales; `kept` is the share of the opacity that remains.
__device__ inline float3 smoothed(float3 scale, float smoothing, float& kept) {
    kept = 1.0f;
    const float variance = smoothing * smoothing;
    if (!(variance > 0.0f)) return scale;
    const float3 wide = {sqrtf(scale.x * scale.x + variance), sqrtf(scale.y * scale.y + variance),
                         sqrtf(scale.z * scale.z + variance)};
    kept = scale.x / wide.x * (scale.y / wide.y) * (scale.z / wide.z);
    return wide;
}

// Returns one axis of the gradient of the log-scales.
__device__ inline float smoothed_axis_bwd(float wide, float smoothing, float d_log_wide,
                                          float d_log_kept) {
    const float share = smoothing / wide;
    const float lost = share * share;
    return d_log_wide * (1.0f - lost) + d_log_kept * lost;
}

__device__ inline float3 smoothed_bwd(float3 wide, float smoothing, float3 d_log_wide,
                                      float d_log_kept) {
    if (!(smoothing * smoothing > 0.0f)) return d_log_wide;
    return {smoothed_axis_bwd(wide.x, smoothing, d_log_wide.x, d_log_kept),
            smoothed_axis_bwd(wide.y, smoothing, d_log_wide.y, d_log_kept),
            smoothed_axis_bwd(wide.z, smoothing, d_log_wide.z, d_log_kept)};
}

// Returns the opacity logit that limits the opacity to `ceiling` for a Gaussian that keeps this share.
__device__ inline float lowered_logit(float logit, float kept, float ceiling) {
    if (!(sigmoid(logit) * kept > ceiling)) return logit;
    const float opacity = ceiling / kept;
    return logf(opacity / (1.0f - opacity));
}

// A symmetric 2x2 matrix.
struct Sym2 {
    float xx, xy, yy;
};

// Raw parameters of a Gaussian's shape and position.
struct Shape {
    float3 mean_world;
    float3 log_scale;
    Quat quat;
    float smoothing;  // standard deviation of the 3D filter, world units; `EXTENDED` only
};

// The ellipse that a Gaussian projects to.
struct Ellipse {
    float2 mean_px;
    float depth;
    Sym2 cov_px2;
    Sym2 conic;
    float kept;  // share of the opacity that the filters keep; `EXTENDED` only
};

// Intermediate values of both passes between shape and ellipse.
struct Chain {
    float3 mean_cam;
    float2 slope;  // x/z and y/z, clamped to the guard band
    bool inside_x, inside_y;
    float2 over_z;  // focal lengths over the depth: the Jacobian's diagonal
    Mat3 cam_from_axes;
    float3 scale;         // with the 3D filter
    float kept_in_space;  // share of the opacity that it keeps
    float3 root_x, root_y;  // J * cam_from_axes * diag(scale)
};

__device__ inline Mat3 camera_rotation(const ViewCamera& view) {
    const float* r = view.rotation;
    return {float3{r[0], r[1], r[2]}, float3{r[3], r[4], r[5]}, float3{r[6], r[7], r[8]}};
}

__device__ inline float3 camera_from_world(const ViewCamera& view, float3 mean_world) {
    const float3 translation = {view.translation[0], view.translation[1], view.translation[2]};
    return add(mul(camera_rotation(view), mean_world), translation);
}

// True if the depth is finite and beyond `near`; false for NaN.
__device__ inline bool in_front(float depth, float near) { return depth > near && isfinite(depth); }

// True if an ellipse with this centre is drawn; false for NaN.
__device__ inline bool is_in_view(const ViewCamera& view, float3 mean_cam) {
    const float* sides = view.sides;  // lower and upper bound of x/z, then of y/z
    const float x = mean_cam.x, y = mean_cam.y, z = mean_cam.z;
    return in_front(z, view.near) && x >= sides[0] * z && x <= sides[1] * z && y >= sides[2] * z &&
           y <= sides[3] * z;
}

// The centre must be in view. `EXTENDED` supports a 3D filter, and any screen filter.
template <bool EXTENDED = false>
__device__ inline Chain chain(const ViewCamera& view, const Shape& shape) {
    Chain c;
    c.mean_cam = camera_from_world(view, shape.mean_world);
    const float x = c.mean_cam.x, y = c.mean_cam.y, z = c.mean_cam.z;
    const float raw_x = x / z, raw_y = y / z;
    const float* guard = view.guard;  // lower and upper bound of x/z, then of y/z
    c.slope = {fminf(fmaxf(raw_x, guard[0]), guard[1]), fminf(fmaxf(raw_y, guard[2]), guard[3])};
    c.inside_x = raw_x >= guard[0] && raw_x <= guard[1];
    c.inside_y = raw_y >= guard[2] && raw_y <= guard[3];
    c.over_z = {view.focal_px[0] / z, view.focal_px[1] / z};
    c.cam_from_axes = mat_mul(camera_rotation(view), rotation(shape.quat));
    c.scale = {expf(shape.log_scale.x), expf(shape.log_scale.y), expf(shape.log_scale.z)};
    if (EXTENDED) c.scale = smoothed(c.scale, shape.smoothing, c.kept_in_space);
    const float3 turned_x =
        mul_transposed(c.cam_from_axes, float3{c.over_z.x, 0.0f, -c.over_z.x * c.slope.x});
    const float3 turned_y =
        mul_transposed(c.cam_from_axes, float3{0.0f, c.over_z.y, -c.over_z.y * c.slope.y});
    c.root_x = {turned_x.x * c.scale.x, turned_x.y * c.scale.y, turned_x.z * c.scale.z};
    c.root_y = {turned_y.x * c.scale.x, turned_y.y * c.scale.y, turned_y.z * c.scale.z};
    return c;
}

// Returns A A^T plus the screen filter's variance on the diagonal. Its determinant, and that without the filter, are
// sums of positive terms by Lagrange's identity.
__device__ inline Sym2 covariance(float3 a, float3 b, float variance, float& det, float& sharp_det) {
    const float aa = dot(a, a), bb = dot(b, b);
    const float3 area = cross(a, b);
    sharp_det = dot(area, area);
    det = sharp_det + variance * (aa + bb) + variance * variance;
    return {aa + variance, dot(a, b), bb + variance};
}

// Returns false if a parameter is not finite, or on overflow.
template <bool EXTENDED = false>
__device__ inline bool ellipse(const ViewCamera& view, const Chain& c, Ellipse& out) {
    float det, sharp_det;
    const float variance = EXTENDED ? view.variance_px2 : DILATION_PX2;
    out.cov_px2 = covariance(c.root_x, c.root_y, variance, det, sharp_det);
    if (EXTENDED) {
        const float on_screen = view.compensates ? kept_on_screen(sharp_det, det) : 1.0f;
        out.kept = c.kept_in_space * on_screen;
    }
    out.mean_px = {c.over_z.x * c.mean_cam.x + view.centre_px[0],
                   c.over_z.y * c.mean_cam.y + view.centre_px[1]};
    out.depth = c.mean_cam.z;
    out.conic = {out.cov_px2.yy / det, -out.cov_px2.xy / det, out.cov_px2.xx / det};
    return isfinite(det) && isfinite(out.mean_px.x) && isfinite(out.mean_px.y);
}

// Gradients of `Shape`, raw parameters.
struct ShapeGradient {
    float3 d_mean_world;
    float3 d_log_scale;
    Quat d_quat;
};

// Returns `d_cov` (xx, xy, yy; xy counted once) of the inverse of a matrix with this determinant.
__device__ inline Sym2 conic_bwd(Sym2 cov, float det, Sym2 d_conic) {
    const float inverse_det = 1.0f / det;
    const float shared =
        (d_conic.xx * cov.yy - d_conic.xy * cov.xy + d_conic.yy * cov.xx) * inverse_det;
    return {(d_conic.yy - shared * cov.yy) * inverse_det,
            (2.0f * shared * cov.xy - d_conic.xy) * inverse_det,
            (d_conic.xx - shared * cov.xx) * inverse_det};
}

// Returns one axis of the centre's gradient, through the projected centre and through the Jacobian's entries f/z and
// -f u/z; adds the depth's share to `d_depth`.
__device__ inline float axis_bwd(float z, float over_z, float along, float slope, bool inside,
                                 float d_mean_px, float d_diagonal, float d_last, float& d_depth) {
    float d_along_axis = d_mean_px * over_z;
    d_depth -= d_mean_px * over_z * along;
    d_depth += (d_last * slope - d_diagonal) * over_z / z;
    if (inside) {
        const float d_slope = -d_last * over_z;
        d_along_axis += d_slope / z;
        d_depth -= d_slope * along / z;
    }
    return d_along_axis;
}

// Adds the gradients of the two determinants of A A^T: |a x b|^2, and that plus the variance times |a|^2 + |b|^2.
__device__ inline void det_bwd(float3 a, float3 b, float variance, float d_area, float d_det,
                               float3& d_a, float3& d_b) {
    const float3 area = cross(a, b);
    const float along = 2.0f * d_det * variance;
    d_a = add(d_a, add(scale(cross(b, area), 2.0f * d_area), scale(a, along)));
    d_b = add(d_b, add(scale(cross(area, a), 2.0f * d_area), scale(b, along)));
}

// Gradients of `Ellipse`; xy of the conic counted once. The last two, of the logarithm of the kept share and of the
// depth, are for `EXTENDED` only.
struct EllipseGradient {
    float2 d_mean_px;
    Sym2 d_conic;
    float d_log_kept;
    float d_depth;
};

// Returns `d_shape` of `chain` and `ellipse`.
template <bool EXTENDED = false>
__device__ inline ShapeGradient project_bwd(const ViewCamera& view, const Shape& shape,
                                            const EllipseGradient& d_ellipse) {
    const Chain c = chain<EXTENDED>(view, shape);
    const float2 d_mean_px = d_ellipse.d_mean_px;
    const float variance = EXTENDED ? view.variance_px2 : DILATION_PX2;
    float det, sharp_det;
    const Sym2 cov = covariance(c.root_x, c.root_y, variance, det, sharp_det);
    const Sym2 d_cov = conic_bwd(cov, det, d_ellipse.d_conic);

    // cov = A A^T with A = J T diag(s): d_A = 2 G A, the off-diagonal of G being half of d_xy.
    const float g_xx = 2.0f * d_cov.xx, g_xy = d_cov.xy, g_yy = 2.0f * d_cov.yy;
    const float3 a = c.root_x, b = c.root_y;
    float3 d_a = add(scale(a, g_xx), scale(b, g_xy));
    float3 d_b = add(scale(a, g_xy), scale(b, g_yy));
    if (EXTENDED && view.compensates) {
        const float2 d_dets = kept_on_screen_bwd(sharp_det, det, d_ellipse.d_log_kept);
        det_bwd(a, b, variance, d_dets.x + d_dets.y, d_dets.y, d_a, d_b);
    }
    ShapeGradient d;
    d.d_log_scale = {d_a.x * a.x + d_b.x * b.x, d_a.y * a.y + d_b.y * b.y,
                     d_a.z * a.z + d_b.z * b.z};
    if (EXTENDED) {
        d.d_log_scale = smoothed_bwd(c.scale, shape.smoothing, d.d_log_scale, d_ellipse.d_log_kept);
    }
    const float3 d_turned_x = {d_a.x * c.scale.x, d_a.y * c.scale.y, d_a.z * c.scale.z};
    const float3 d_turned_y = {d_b.x * c.scale.x, d_b.y * c.scale.y, d_b.z * c.scale.z};

    // J has a diagonal and a last column; the other entries are constant.
    const float last_x = -c.over_z.x * c.slope.x, last_y = -c.over_z.y * c.slope.y;
    const Mat3 d_cam_from_axes = {scale(d_turned_x, c.over_z.x), scale(d_turned_y, c.over_z.y),
                                  add(scale(d_turned_x, last_x), scale(d_turned_y, last_y))};
    const float3 d_jacobian_x = mul(c.cam_from_axes, d_turned_x);
    const float3 d_jacobian_y = mul(c.cam_from_axes, d_turned_y);
    const Mat3 turn = camera_rotation(view);
    d.d_quat = rotation_bwd(shape.quat, mat_mul(transpose(turn), d_cam_from_axes));

    const float z = c.mean_cam.z;
    float3 d_mean_cam = {0.0f, 0.0f, EXTENDED ? d_ellipse.d_depth : 0.0f};
    d_mean_cam.x = axis_bwd(z, c.over_z.x, c.mean_cam.x / z, c.slope.x, c.inside_x, d_mean_px.x,
                            d_jacobian_x.x, d_jacobian_x.z, d_mean_cam.z);
    d_mean_cam.y = axis_bwd(z, c.over_z.y, c.mean_cam.y / z, c.slope.y, c.inside_y, d_mean_px.y,
                            d_jacobian_y.y, d_jacobian_y.z, d_mean_cam.z);
    d.d_mean_world = mul_transposed(turn, d_mean_cam);
    return d;
}

// A rectangle of pixels: x0..x1 by y0..y1. Images have at most 65,535 px per side.
struct Rect {
    uint16_t x0, y0, x1, y1;
};

// Clamps an index to 0..=side.
__device__ inline uint16_t pixel_index(float index, uint32_t side) {
    return static_cast<uint16_t>(fminf(fmaxf(index, 0.0f), static_cast<float>(side)));
}

// One axis of `bounds`: false if the splat, rounded up to whole pixels, misses the image.
__device__ inline bool span(float mean, float extent, uint32_t side, uint16_t& low, uint16_t& high) {
    const float radius = ceilf(extent);
    if (!(mean + radius > 0.0f && mean - radius < static_cast<float>(side))) return false;
    low = pixel_index(ceilf(mean - extent - 0.5f), side);
    high = pixel_index(floorf(mean + extent - 0.5f) + 1.0f, side);
    return true;
}

// Returns an exponent below which a splat of this opacity is invisible; false if it always is.
__device__ inline bool least_exponent(float opacity, float& exponent_min) {
    if (!(opacity >= ALPHA_MIN && isfinite(opacity))) return false;
    const float reach = logf(opacity / ALPHA_MIN);
    exponent_min = -reach * (1.0f + 1e-4f) - 1e-4f;
    return true;
}

// Returns the pixels in which a splat of this opacity may be visible; false if there are none.
__device__ inline bool bounds(const Ellipse& e, float opacity, const uint32_t* size, Rect& pixels,
                              float& exponent_min) {
    if (!least_exponent(opacity, exponent_min)) return false;
    const float reach = logf(opacity / ALPHA_MIN);
    const float extent_x = sqrtf(2.0f * reach * e.cov_px2.xx) * (1.0f + 1e-5f) + 1e-3f;
    const float extent_y = sqrtf(2.0f * reach * e.cov_px2.yy) * (1.0f + 1e-5f) + 1e-3f;
    if (!span(e.mean_px.x, extent_x, size[0], pixels.x0, pixels.x1)) return false;
    return span(e.mean_px.y, extent_y, size[1], pixels.y0, pixels.y1);
}

// Spans of a splat in rows of pixels: an ellipse is convex, so it covers an interval in each row. Heights increase
// downwards, relative to the centre.
struct Spans {
    float shear;     // shift of the span's middle to the right per px of height
    float half_px2;  // square of half the span through the centre
    float taper;     // its decrease per px^2 of height
    float tip_px;    // height of the rightmost point; the leftmost is opposite
    float left_px;   // column of the first pixel of a splat without extent, rounding included
    float right_px;  // the column after its last
};

__device__ inline Spans spans_of(float2 mean_px, Sym2 conic, float exponent_min, uint32_t height) {
    // Kahan's difference of products: a difference of rounded products has no correct digit for long, thin splats.
    const float square = conic.xy * conic.xy;
    const float det =
        fmaf(conic.xx, conic.yy, -square) - fmaf(conic.xy, conic.xy, -square);
    const float inverse = fast_reciprocal(conic.xx);
    const float reach = -2.000004f * exponent_min;  // 2e-6 against rounding
    Spans s;
    s.shear = -conic.xy * inverse;
    s.half_px2 = reach * inverse;
    s.taper = det * inverse * inverse;
    // After rounding, a conic may be a hyperbola, whose tips are at infinity.
    s.tip_px = -conic.xy * fast_sqrt(reach * fast_reciprocal(conic.yy * fmaxf(det, 0.0f)));
    const float lever = fabsf(mean_px.x) + fabsf(s.shear) * (fabsf(mean_px.y) + height);
    const float margin = 4e-7f * lever + 1e-3f;
    s.left_px = mean_px.x - 0.5f - margin;
    s.right_px = mean_px.x + 0.5f + margin;
    return s;
}

__device__ inline float half_px2_at(const Spans& s, float y) {
    return fmaf(-s.taper * y, y, s.half_px2);
}

// Returns the columns of pixels, `first` to before `end`, whose centres the splat reaches at some height from `low` to
// `high`; none if `first` is not below `end`. Columns end at `width`.
__device__ inline void columns(const Spans& s, float low, float high, uint32_t width,
                               uint32_t& first, uint32_t& end) {
    const float nearest = fminf(fmaxf(0.0f, low), high);
    const float left = fminf(fmaxf(-s.tip_px, low), high);
    const float right = fminf(fmaxf(s.tip_px, low), high);
    const float half_left = fast_sqrt(fmaxf(half_px2_at(s, left), 0.0f));
    const float half_right = fast_sqrt(fmaxf(half_px2_at(s, right), 0.0f));
    // Negative values become 0; NaN after an overflow gives whole rows.
    first = __float2uint_ru(s.left_px + fmaf(s.shear, left, -half_left));
    end = __float2uint_rd(fminf(s.right_px + fmaf(s.shear, right, half_right), width));
    if (half_px2_at(s, nearest) < 0.0f) end = first;
}
