// A surfel as pixels meet it: what `footprint.cuh` asks for. Its record is that of an ellipse, with the tilt in the
// place of the conic, and the slopes of its two coordinates behind it.
#pragma once

#include "footprint.cuh"
#include "surfel.cuh"

// The coordinates of a row are scaled so that the sum of their squares is the negative exponent of 2:
// by the root of log2(e) / 2.
constexpr float COORDINATE_SCALE = 0.849321800f;
constexpr float COORDINATE_UNSCALE = 1.0f / COORDINATE_SCALE;

// Opacity of a surfel in a pixel, and the depth of its centre over that which the ray meets.
struct SurfelPixel : PixelAlpha {
    float inverse_share;
};

// What of a row its moments need.
struct SurfelShape {
    float4 place;   // centre x y; log2 of the opacity; a number in its bits
    float4 slopes;  // of both coordinates, scaled
    float2 tilt;

    __device__ uint32_t number() const { return __float_as_uint(place.w); }
};

struct SurfelRow {
    SurfelShape shape;
    float3 tint;

    __device__ float3 color() const { return tint; }
    __device__ float number() const { return shape.place.w; }
};

// Where the ray at an offset from the centre meets the disc, or the filter where that is larger.
struct SurfelMeeting {
    float2 offset_px;
    float inverse_share, share;
    float u, v;  // scaled
    float loss;  // negative exponent of 2
    bool on_disc;
};

// Contractions are spelt out: both passes have to decide alike about a surfel and a pixel.
__device__ inline SurfelMeeting meet(const SurfelShape& s, float dx, float dy) {
    const float inverse_share = fmaf(s.tilt.x, dx, fmaf(s.tilt.y, dy, 1.0f));
    const float share = fast_reciprocal(inverse_share);
    const float u = fmaf(s.slopes.x, dx, s.slopes.y * dy) * share;
    const float v = fmaf(s.slopes.z, dx, s.slopes.w * dy) * share;
    const float on_plane = fmaf(u, u, v * v);
    const float filtered = LOG2_E * fmaf(dx, dx, dy * dy);
    // False where the plane is met behind the camera, and where there is no number.
    const bool on_disc = inverse_share > 0.0f && on_plane <= filtered;
    return {{dx, dy},
            on_disc ? inverse_share : 1.0f,
            on_disc ? share : 1.0f,
            // Infinite where the plane is seen from its edge; gradients of 0 are multiplied by it.
            on_disc ? u : 0.0f,
            on_disc ? v : 0.0f,
            on_disc ? on_plane : filtered,
            on_disc};
}

__device__ inline float share_of(const SurfelMeeting& met) { return met.share; }
__device__ inline float inverse_share_of(const SurfelMeeting& met) { return met.inverse_share; }

__device__ inline SurfelPixel pixel_alpha(const SurfelRow& row, float2 centre_px) {
    const SurfelShape& s = row.shape;
    const SurfelMeeting met = meet(s, centre_px.x - s.place.x, centre_px.y - s.place.y);
    const float unclamped = fast_exp2(s.place.z - met.loss);
    return {{unclamped, fminf(unclamped, ALPHA_MAX), unclamped >= ALPHA_MIN}, met.inverse_share};
}

// Inverse depth where a pixel meets a surfel, from that of its centre.
__device__ inline float in_pixel(float inverse_depth, const SurfelPixel& pixel) {
    return inverse_depth * pixel.inverse_share;
}

// The same of depth, normal and inverse depth.
__device__ inline float4 in_pixel(float4 features, const SurfelPixel& pixel) {
    return {features.x * fast_reciprocal(pixel.inverse_share), features.y, features.z,
            features.w * pixel.inverse_share};
}

// Rows staged by a warp for its pixels.
template <uint32_t N>
struct SurfelRows {
    float4 places[N], slopes[N], tilts[N];  // tilt, red, green
    float blues[N];

    __device__ void put(uint32_t at, const SurfelRow& row) {
        places[at] = row.shape.place;
        slopes[at] = row.shape.slopes;
        tilts[at] = {row.shape.tilt.x, row.shape.tilt.y, row.tint.x, row.tint.y};
        blues[at] = row.tint.z;
    }
    __device__ SurfelRow get(uint32_t at) const {
        const float4 more = tilts[at];
        return {{places[at], slopes[at], {more.x, more.y}}, {more.z, more.w, blues[at]}};
    }
    __device__ SurfelShape shape(uint32_t at) const { return get(at).shape; }
};

// Where a part's first pixel is from the centre.
struct SurfelOffsets {
    SurfelShape shape;
    float2 offset_px;

    __device__ SurfelOffsets(const SurfelShape& s, const Part& part)
        : shape(s), offset_px{part.low_px.x - s.place.x, part.low_px.y - s.place.y} {}
};

// Sums over a line of a part's pixels: of the gradients of both scaled coordinates times the inverse share,
// of the inverse share's, and of the exponent's where the filter decides; and of each times the pixel's place
// in the line.
struct SurfelLine {
    float u0 = 0.0f, u1 = 0.0f, v0 = 0.0f, v1 = 0.0f, share0 = 0.0f, share1 = 0.0f;
    float filter0 = 0.0f, filter1 = 0.0f, e0 = 0.0f;
    float dy;

    __device__ SurfelLine(const SurfelOffsets& o, uint32_t line)
        : dy(o.offset_px.y + static_cast<float>(line)) {}

    __device__ SurfelMeeting meet_at(const SurfelOffsets& o, uint32_t x) const {
        return meet(o.shape, o.offset_px.x + static_cast<float>(x), dy);
    }

    // `d_inverse_share` is what the inverse share has besides the exponent.
    __device__ void add(float e, uint32_t x, const SurfelMeeting& met, float d_inverse_share) {
        const float along = static_cast<float>(x);
        e0 += e;
        const float by_filter = met.on_disc ? 0.0f : e;
        filter0 += by_filter;
        filter1 += by_filter * along;
        const float e_share = met.on_disc ? e * met.share : 0.0f;
        const float u = e_share * met.u, v = e_share * met.v;
        constexpr float UNSCALE_2 = COORDINATE_UNSCALE * COORDINATE_UNSCALE;
        const float share =
            met.on_disc ? fmaf(e_share * UNSCALE_2, met.loss, d_inverse_share) : 0.0f;
        u0 -= u;
        u1 -= u * along;
        v0 -= v;
        v1 -= v * along;
        share0 += share;
        share1 += share * along;
    }

    // The slopes of the exponent of 2 at a pixel.
    __device__ float slope_x(const SurfelOffsets& o, uint32_t, const SurfelMeeting& met) const {
        return slope(o.shape.slopes.x, o.shape.slopes.z, o.shape.tilt.x, met.offset_px.x, met);
    }
    __device__ float slope_y(const SurfelOffsets& o, uint32_t, const SurfelMeeting& met) const {
        return slope(o.shape.slopes.y, o.shape.slopes.w, o.shape.tilt.y, met.offset_px.y, met);
    }

private:
    __device__ static float slope(float of_u, float of_v, float tilt, float offset_px,
                                  const SurfelMeeting& met) {
        if (!met.on_disc) return -2.0f * LOG2_E * offset_px;
        return -2.0f * met.share * (met.u * of_u + met.v * of_v - met.loss * tilt);
    }
};

// Sums over pixels, and sums of each times the pixel's offset from the centre.
struct SurfelMoments {
    float u, u_x, u_y, v, v_x, v_y, share, share_x, share_y;
    float filter_x, filter_y, e;

    __device__ void add(const SurfelLine& l, const SurfelOffsets& o, uint32_t) {
        const float dx = o.offset_px.x;
        e += l.e0;
        u += l.u0;
        u_x += l.u1 + dx * l.u0;
        u_y += l.dy * l.u0;
        v += l.v0;
        v_x += l.v1 + dx * l.v0;
        v_y += l.dy * l.v0;
        share += l.share0;
        share_x += l.share1 + dx * l.share0;
        share_y += l.dy * l.share0;
        filter_x += l.filter1 + dx * l.filter0;
        filter_y += l.dy * l.filter0;
    }

    __device__ void add_halves() {
        for (float* sum : {&u, &u_x, &u_y, &v, &v_x, &v_y, &share, &share_x, &share_y, &filter_x,
                           &filter_y, &e}) {
            *sum = both_halves(*sum);
        }
    }

    // Centre, the opacity's logarithm and a statistic; the slopes. The offset is the pixel less the centre, so the
    // centre takes the opposite sign.
    __device__ void store_first(float4* record, const SurfelShape& s, float statistic) const {
        constexpr float UNSCALE_2 = COORDINATE_UNSCALE * COORDINATE_UNSCALE;
        const float by_x = UNSCALE_2 * (s.slopes.x * u + s.slopes.z * v) + s.tilt.x * share;
        const float by_y = UNSCALE_2 * (s.slopes.y * u + s.slopes.w * v) + s.tilt.y * share;
        add_quad(record, {2.0f * filter_x - by_x, 2.0f * filter_y - by_y, e, statistic});
        add_quad(record + 3, {COORDINATE_UNSCALE * u_x, COORDINATE_UNSCALE * u_y,
                              COORDINATE_UNSCALE * v_x, COORDINATE_UNSCALE * v_y});
    }

    // Tilt and a statistic.
    __device__ void store_second(float4* record, float statistic) const {
        add_quad(record + 1, {share_x, share_y, 0.0f, statistic});
    }
};

// A disc that rays meet, of one opacity and one colour.
struct SurfelFootprint {
    static constexpr uint32_t QUADS = 4;
    static constexpr bool HAS_MEETINGS = true;

    using Pixel = SurfelPixel;
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
        return {record[0], record[1], record[3]};
    }

    __device__ float depth() const { return form.w; }

    __device__ Surfel surfel() const {
        return {{place.x, place.y}, form.w, {slopes.x, slopes.y}, {slopes.z, slopes.w}, {form.x, form.y}};
    }
};

// Whether the disc or the filter's circle reaches a part.
__device__ inline bool reaches_part(const Part& part, const SurfelFootprint& splat) {
    const float exponent_min = splat.place.w;
    const float x = fminf(fmaxf(splat.place.x, part.low_px.x), part.high_px.x) - splat.place.x;
    const float y = fminf(fmaxf(splat.place.y, part.low_px.y), part.high_px.y) - splat.place.y;
    if (-(x * x + y * y) >= exponent_min) return true;
    DiscEllipse disc;
    // It was one when it was projected; rounded otherwise, it may reach any part.
    if (!disc_ellipse(splat.surfel(), exponent_min, disc)) return true;
    const float scale = fast_reciprocal(disc.widened);
    const float4 place = {splat.place.x + disc.shift.x, splat.place.y + disc.shift.y, splat.place.z,
                          exponent_min};
    return reaches_part(part, EllipseFootprint{place, {disc.form.xx * scale, disc.form.xy * scale,
                                                       disc.form.yy * scale, splat.depth()}});
}

__device__ inline SurfelRow row_of(const SurfelFootprint& splat, const float4* record,
                                   uint32_t number) {
    constexpr float S = COORDINATE_SCALE;
    const float4 place = splat.place, form = splat.form, slopes = splat.slopes;
    const float4 color = record[COLOR_QUAD];
    return {{{place.x, place.y, fast_log2(place.z), __uint_as_float(number)},
             {S * slopes.x, S * slopes.y, S * slopes.z, S * slopes.w},
             {form.x, form.y}},
            {color.x, color.y, color.z}};
}

// A row that leaves every pixel as it is.
__device__ inline SurfelRow unseen_row(const SurfelFootprint&) {
    return {{{0.0f, 0.0f, -1e30f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f}},
            {0.0f, 0.0f, 0.0f}};
}
