// The footprint of surfels (`footprint.cuh`). The record is that of an ellipse, with the tilt in place of the conic,
// followed by the slopes of the two coordinates.
#pragma once

#include <cfloat>

#include "footprint.cuh"
#include "splat.cuh"

// Twin of math/splat/surfel.rs: projection of a flat Gaussian to a surfel on the screen, and its gradients. See Rust
// for the equations. Here the ellipse of the disc is separate, since warp tiles are tested with it.

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
    // Gradients of the cross products: c = a x b gives d_a = b x d_c and d_b = d_c x a.
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

// Scale of a row's coordinates, the root of one half, so that the sum of their squares is the negative exponent.
constexpr float COORDINATE_SCALE = 0.707106781f;
constexpr float UNSCALE_2 = 2.0f;  // the square of its inverse

// Index of the slopes of both coordinates in a record, and in a record of gradients.
constexpr uint32_t SLOPES_QUAD = 3;

// Opacity of a surfel at a pixel, and the depth of the intersection.
struct SurfelPixel : PixelAlpha {
    float inverse_share;  // the centre's depth over that of the intersection; 1 if the filter is larger
    float disc_share;     // the inverse; 0 if the filter is larger
};

// Data of a pair of a surfel and a pixel from the first visit.
struct SurfelNote {
    float weight;      // of the colour
    float e;           // gradient of the exponent
    float disc_share;  // as in `SurfelPixel`
};

// Data of a row for its moments. Pixels only use the sum of the squares of both coordinates, which a rotation of the
// disc in its plane does not change. The disc is rotated until the second coordinate is constant along a line of
// pixels.
struct SurfelShape {
    float4 place;    // centre x y; log2 of the opacity; a number in its bits
    float2 along;    // slopes of the first coordinate, scaled
    float across_2;  // square of the second slope along y, scaled
    float2 tilt;

    __device__ uint32_t number() const { return __float_as_uint(place.w); }
};

struct SurfelRow {
    SurfelShape shape;
    float3 tint;

    __device__ float3 color() const { return tint; }
    __device__ float number() const { return shape.place.w; }
};

// Depth at a pixel, relative to that of the centre.
struct SurfelMeeting {
    float inverse;  // inverse of the share; 1 if the filter is larger
    bool on_disc;

    __device__ float share() const { return fast_reciprocal(inverse); }
    __device__ float inverse_share() const { return inverse; }
};

// Contractions are explicit: both passes must decide equally about a surfel and a pixel.
__device__ inline SurfelPixel pixel_alpha(const SurfelRow& row, float2 centre_px) {
    const SurfelShape& s = row.shape;
    const float dx = centre_px.x - s.place.x, dy = centre_px.y - s.place.y;
    const float inverse_share = fmaf(s.tilt.x, dx, fmaf(s.tilt.y, dy, 1.0f));
    const float share = fast_reciprocal(inverse_share);
    const float dy_2 = dy * dy;
    const float u = fmaf(s.along.x, dx, s.along.y * dy);
    // Negative if the plane is intersected behind the camera.
    const float on_plane = fmaf(u, u, s.across_2 * dy_2) * share * fabsf(share);
    const float filtered = fmaf(dx, dx, dy_2);
    // As integers, negative numbers and NaN are greater than all others.
    const uint32_t plane_bits = __float_as_uint(on_plane), filter_bits = __float_as_uint(filtered);
    const bool on_disc = plane_bits <= filter_bits;
    const float loss = __uint_as_float(min(plane_bits, filter_bits));
    const float unclamped = fast_exp2(fmaf(-LOG2_E, loss, s.place.z));
    return {{unclamped, fminf(unclamped, ALPHA_MAX), unclamped >= ALPHA_MIN},
            on_disc ? inverse_share : 1.0f, on_disc ? share : 0.0f};
}

__device__ inline SurfelNote note_of(const SurfelPixel& pixel, float weight, float e) {
    return {weight, e, pixel.disc_share};
}

__device__ inline float weight_of(const SurfelNote& note) { return note.weight; }

// Notes of a surfel for a warp tile's pixels. Kinds are separate, so that a lane of the second visit reads those of
// four pixels at once; padding between surfels lets eight lanes use different banks.
struct alignas(16) SurfelNotes {
    float weights[WARP], e[WARP], disc_shares[WARP];
    float apart[4];

    __device__ void put(uint32_t pixel, const SurfelNote& note) {
        weights[pixel] = note.weight;
        e[pixel] = note.e;
        disc_shares[pixel] = note.disc_share;
    }
    __device__ SurfelNote get(uint32_t pixel) const {
        return {weights[pixel], e[pixel], disc_shares[pixel]};
    }
};

// Returns the inverse depth at a pixel from that of the centre.
__device__ inline float in_pixel(float inverse_depth, const SurfelPixel& pixel) {
    return inverse_depth * pixel.inverse_share;
}

// Returns depth, normal and inverse depth at a pixel.
__device__ inline float4 in_pixel(float4 features, const SurfelPixel& pixel) {
    return {features.x * fast_reciprocal(pixel.inverse_share), features.y, features.z,
            features.w * pixel.inverse_share};
}

// Rows staged by a warp for its pixels.
template <uint32_t N>
struct SurfelRows {
    float4 places[N], forms[N], tints[N];  // all of the slopes and x of the tilt; its y and the colour

    __device__ void put(uint32_t at, const SurfelRow& row) {
        const SurfelShape& s = row.shape;
        places[at] = s.place;
        forms[at] = {s.along.x, s.along.y, s.across_2, s.tilt.x};
        tints[at] = {s.tilt.y, row.tint.x, row.tint.y, row.tint.z};
    }
    __device__ SurfelRow get(uint32_t at) const {
        const float4 form = forms[at], tint = tints[at];
        return {{places[at], {form.x, form.y}, form.z, {form.w, tint.x}}, {tint.y, tint.z, tint.w}};
    }
    __device__ SurfelShape shape(uint32_t at) const { return get(at).shape; }
};

// Offset of a warp tile's first pixel from the centre.
struct SurfelOffsets {
    SurfelShape shape;
    float2 offset_px;

    __device__ SurfelOffsets(const SurfelShape& s, const WarpTile& warp_tile)
        : shape(s), offset_px{warp_tile.low_px.x - s.place.x, warp_tile.low_px.y - s.place.y} {}
};

// Sums over a line of a warp tile's pixels. The gradient of both coordinates' numerators is linear in them, hence a sum
// of `pull` times products of offsets, where `pull` is the exponent's gradient times the square of the share of the
// depth. Also sums of the gradient of the inverse share, and of that of the exponent where the filter is larger.
struct SurfelLine {
    float pull0 = ADDS_NOTHING, pull1 = ADDS_NOTHING, pull2 = ADDS_NOTHING;
    float inverse0 = ADDS_NOTHING, inverse1 = ADDS_NOTHING;  // halved
    float filter0 = ADDS_NOTHING, filter1 = ADDS_NOTHING, e0 = ADDS_NOTHING;
    float dy;
    float start_u;  // numerator of the first coordinate at the line's first pixel
    float v_2;      // square of the second's numerator

    __device__ SurfelLine(const SurfelOffsets& o, uint32_t line)
        : dy(o.offset_px.y + static_cast<float>(line)),
          start_u(o.shape.along.x * o.offset_px.x + o.shape.along.y * dy),
          v_2(o.shape.across_2 * (dy * dy)) {}

    __device__ SurfelMeeting meet_at(const SurfelOffsets& o, uint32_t x,
                                     const SurfelNote& note) const {
        const float2 tilt = o.shape.tilt;
        const float dx = o.offset_px.x + static_cast<float>(x);
        const bool on_disc = note.disc_share > 0.0f;
        return {on_disc ? fmaf(tilt.x, dx, fmaf(tilt.y, dy, 1.0f)) : 1.0f, on_disc};
    }

    // `d_besides` is the gradient of the inverse share besides that through the exponent.
    __device__ void add(const SurfelOffsets& o, const SurfelNote& note, uint32_t x,
                        const SurfelMeeting& met, float d_besides) {
        const Pull p = pull(o, x, note);
        const float half = p.half_inverse + 0.5f * (met.on_disc ? d_besides : ADDS_NOTHING);
        const float by_filter = met.on_disc ? 0.0f : note.e;
        e0 += note.e;
        pull0 += p.pull;
        inverse0 += half;
        filter0 += by_filter;
        if (x == 0) return;
        const float along = static_cast<float>(x);
        pull1 += p.pull * along;
        pull2 += p.pull * (along * along);
        inverse1 += half * along;
        filter1 += by_filter * along;
    }

    // Returns the exponent's gradient times its slopes at a pixel, per unit of a base-2 exponent.
    __device__ float2 pulls(const SurfelOffsets& o, uint32_t x, const SurfelNote& note) const {
        const Pull p = pull(o, x, note);
        const SurfelShape& s = o.shape;
        const float by_u = p.pull * p.u;
        const float2 by_disc = {p.half_inverse * s.tilt.x - by_u * s.along.x,
                                p.half_inverse * s.tilt.y - by_u * s.along.y -
                                    p.pull * (s.across_2 * dy)};
        const float dx = o.offset_px.x + static_cast<float>(x);
        const float filter = note.disc_share > 0.0f ? 0.0f : note.e;
        constexpr float PER_HALF = UNSCALE_2 * LOG2_E;
        return {PER_HALF * (by_disc.x - filter * dx), PER_HALF * (by_disc.y - filter * dy)};
    }

private:
    struct Pull {
        float u;  // numerator of the first coordinate
        float pull;
        float half_inverse;  // half of the gradient of the inverse share
    };

    __device__ Pull pull(const SurfelOffsets& o, uint32_t x, const SurfelNote& note) const {
        const float along = static_cast<float>(x);
        const float u = fmaf(o.shape.along.x, along, start_u);
        const float pull = note.e * note.disc_share * note.disc_share;
        return {u, pull, pull * note.disc_share * fmaf(u, u, v_2)};
    }
};

// Sums over pixels, and sums of each times the pixel's offset from the centre.
struct SurfelMoments {
    float pull_x = ADDS_NOTHING, pull_y = ADDS_NOTHING;
    float pull_xx = ADDS_NOTHING, pull_xy = ADDS_NOTHING, pull_yy = ADDS_NOTHING;
    float inverse = ADDS_NOTHING, inverse_x = ADDS_NOTHING, inverse_y = ADDS_NOTHING;  // halved
    float filter_x = ADDS_NOTHING, filter_y = ADDS_NOTHING, e = ADDS_NOTHING;

    __device__ void add(const SurfelLine& l, const SurfelOffsets& o, uint32_t) {
        const float dx = o.offset_px.x, dy = l.dy;
        const float along_x = l.pull1 + dx * l.pull0;
        e += l.e0;
        pull_x += along_x;
        pull_xx += l.pull2 + dx * (l.pull1 + along_x);
        pull_y += dy * l.pull0;
        pull_xy += dy * along_x;
        pull_yy += dy * dy * l.pull0;
        inverse += l.inverse0;
        inverse_x += l.inverse1 + dx * l.inverse0;
        inverse_y += dy * l.inverse0;
        filter_x += l.filter1 + dx * l.filter0;
        filter_y += dy * l.filter0;
    }

    __device__ void add_halves() {
        for (float* sum : {&pull_x, &pull_y, &pull_xx, &pull_xy, &pull_yy, &inverse, &inverse_x,
                           &inverse_y, &filter_x, &filter_y, &e}) {
            *sum = both_halves(*sum);
        }
    }

    // Adds the gradients of centre and log-opacity, and a statistic; and those of the slopes, read without the rotation
    // from the splat's own record. The offset is the pixel minus the centre, so the centre's gradient has the opposite
    // sign.
    __device__ void store_first(float4* record, const float4* splat, const SurfelShape& s,
                                float statistic) const {
        const float4 slopes = splat[SLOPES_QUAD];
        const float u = s.along.x * pull_x + s.along.y * pull_y, v = s.across_2 * pull_y;
        add_quad(record, {2.0f * (filter_x + s.along.x * u - s.tilt.x * inverse),
                          2.0f * (filter_y + s.along.y * u + v - s.tilt.y * inverse), e, statistic});
        add_quad(record + SLOPES_QUAD, {-(slopes.x * pull_xx + slopes.y * pull_xy),
                                        -(slopes.x * pull_xy + slopes.y * pull_yy),
                                        -(slopes.z * pull_xx + slopes.w * pull_xy),
                                        -(slopes.z * pull_xy + slopes.w * pull_yy)});
    }

    // Adds the gradient of the tilt and a statistic.
    __device__ void store_second(float4* record, float statistic) const {
        add_quad(record + 1, {2.0f * inverse_x, 2.0f * inverse_y, 0.0f, statistic});
    }
};

// A disc that rays intersect, with one opacity and colour.
struct SurfelFootprint {
    static constexpr uint32_t QUADS = 4;
    static constexpr bool HAS_MEETINGS = true;

    using Pixel = SurfelPixel;
    using Note = SurfelNote;
    using Notes = SurfelNotes;
    using Row = SurfelRow;
    template <uint32_t N>
    using Rows = SurfelRows<N>;
    using Shape = SurfelShape;
    using Offsets = SurfelOffsets;
    using Line = SurfelLine;
    using Moments = SurfelMoments;

    float4 place;   // centre x y; opacity; least exponent
    float4 form;    // tilt x y; 0; depth
    float4 slopes;  // of both coordinates

    __device__ static SurfelFootprint load(const float4* record) {
        return {record[0], record[1], record[SLOPES_QUAD]};
    }

    __device__ float depth() const { return form.w; }

    __device__ Surfel surfel() const {
        return {{place.x, place.y}, form.w, {slopes.x, slopes.y}, {slopes.z, slopes.w}, {form.x, form.y}};
    }
};

// True if the disc or the filter's circle reaches a warp tile.
__device__ inline bool reaches_warp_tile(const WarpTile& warp_tile, const SurfelFootprint& splat) {
    const float exponent_min = splat.place.w;
    const float x = fminf(fmaxf(splat.place.x, warp_tile.low_px.x), warp_tile.high_px.x) - splat.place.x;
    const float y = fminf(fmaxf(splat.place.y, warp_tile.low_px.y), warp_tile.high_px.y) - splat.place.y;
    if (-(x * x + y * y) >= exponent_min) return true;
    DiscEllipse disc;
    // It succeeded at projection. If rounding makes it fail here, the surfel may reach any warp tile.
    if (!disc_ellipse(splat.surfel(), exponent_min, disc)) return true;
    const float scale = fast_reciprocal(disc.widened);
    const float4 place = {splat.place.x + disc.shift.x, splat.place.y + disc.shift.y, splat.place.z,
                          exponent_min};
    return reaches_warp_tile(warp_tile, EllipseFootprint{place, {disc.form.xx * scale, disc.form.xy * scale,
                                                                 disc.form.yy * scale, splat.depth()}});
}

// Approximation like those of `fast.cuh`, for surfels only.
__device__ inline float fast_inverse_sqrt(float x) {
    float out;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

__device__ inline SurfelRow row_of(const SurfelFootprint& splat, const float4* record,
                                   uint32_t number) {
    const float4 place = splat.place, form = splat.form, color = record[COLOR_QUAD];
    const float2 u = {splat.slopes.x, splat.slopes.y}, v = {splat.slopes.z, splat.slopes.w};
    // The rotation makes the root of this the only slope along x. It underflows only for discs as wide as 1e19 px.
    const float steep_2 = fmaxf(fmaf(u.x, u.x, v.x * v.x), FLT_MIN);
    const float turn = COORDINATE_SCALE * fast_inverse_sqrt(steep_2);
    const float across = turn * area_of(u, v);
    return {{{place.x, place.y, fast_log2(place.z), __uint_as_float(number)},
             {turn * steep_2, turn * fmaf(u.x, u.y, v.x * v.y)},
             across * across,
             {form.x, form.y}},
            {color.x, color.y, color.z}};
}

// A row that changes no pixel.
__device__ inline SurfelRow unseen_row(const SurfelFootprint&) {
    return {{{0.0f, 0.0f, -1e30f, 0.0f}, {0.0f, 0.0f}, 0.0f, {0.0f, 0.0f}}, {0.0f, 0.0f, 0.0f}};
}
