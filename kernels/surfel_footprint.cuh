// A surfel as pixels meet it: what `footprint.cuh` asks for. Its record is that of an ellipse, with the tilt in the
// place of the conic, and the slopes of its two coordinates behind it.
#pragma once

#include "footprint.cuh"
#include "surfel.cuh"

// The coordinates of a row are scaled so that the sum of their squares is the negative exponent: by the
// root of one half.
constexpr float COORDINATE_SCALE = 0.707106781f;
constexpr float COORDINATE_UNSCALE = 1.0f / COORDINATE_SCALE;
constexpr float UNSCALE_2 = 2.0f;  // its square

// Opacity of a surfel in a pixel, and what the ray meets there.
struct SurfelPixel : PixelAlpha {
    float inverse_share;  // the centre's depth over that of the meeting; 1 where the filter is larger
    float disc_share;     // its inverse; 0 where the filter is larger
};

// What the first visit notes of a pair of a surfel and a pixel.
struct SurfelNote {
    float weight;      // of the colour
    float e;           // gradient of the exponent
    float disc_share;  // as of `SurfelPixel`
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

// How a pixel's depth is that of the centre.
struct SurfelMeeting {
    float inverse;  // of the share; 1 where the filter is larger
    bool on_disc;

    __device__ float share() const { return fast_reciprocal(inverse); }
    __device__ float inverse_share() const { return inverse; }
};

// Contractions are spelt out: both passes have to decide alike about a surfel and a pixel.
__device__ inline SurfelPixel pixel_alpha(const SurfelRow& row, float2 centre_px) {
    const SurfelShape& s = row.shape;
    const float dx = centre_px.x - s.place.x, dy = centre_px.y - s.place.y;
    const float inverse_share = fmaf(s.tilt.x, dx, fmaf(s.tilt.y, dy, 1.0f));
    const float share = fast_reciprocal(inverse_share);
    const float u = fmaf(s.slopes.x, dx, s.slopes.y * dy) * share;
    const float v = fmaf(s.slopes.z, dx, s.slopes.w * dy) * share;
    const float on_plane = fmaf(u, u, v * v);
    const float filtered = fmaf(dx, dx, dy * dy);
    // False where the plane is met behind the camera, and where there is no number.
    const bool on_disc = inverse_share > 0.0f && on_plane <= filtered;
    const float loss = on_disc ? on_plane : filtered;
    const float unclamped = fast_exp2(fmaf(-LOG2_E, loss, s.place.z));
    return {{unclamped, fminf(unclamped, ALPHA_MAX), unclamped >= ALPHA_MIN},
            on_disc ? inverse_share : 1.0f, on_disc ? share : 0.0f};
}

__device__ inline SurfelNote note_of(const SurfelPixel& pixel, float weight, float e) {
    return {weight, e, pixel.disc_share};
}

__device__ inline float weight_of(const SurfelNote& note) { return note.weight; }

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

// Sums over a line of a part's pixels. The gradient that the numerators of both coordinates take is linear in them,
// and so a sum of `pull`, the exponent's gradient times the square of the share of the depth, times products of
// offsets. Beside it: of the gradient of the inverse share, and of the exponent's where the filter is larger.
struct SurfelLine {
    float pull0 = 0.0f, pull1 = 0.0f, pull2 = 0.0f;
    float inverse0 = 0.0f, inverse1 = 0.0f, filter0 = 0.0f, filter1 = 0.0f, e0 = 0.0f;
    float dy;
    float start_u, start_v;  // numerators at the line's first pixel

    __device__ SurfelLine(const SurfelOffsets& o, uint32_t line)
        : dy(o.offset_px.y + static_cast<float>(line)),
          start_u(o.shape.slopes.x * o.offset_px.x + o.shape.slopes.y * dy),
          start_v(o.shape.slopes.z * o.offset_px.x + o.shape.slopes.w * dy) {}

    __device__ SurfelMeeting meet_at(const SurfelOffsets& o, uint32_t x,
                                     const SurfelNote& note) const {
        const float2 tilt = o.shape.tilt;
        const float dx = o.offset_px.x + static_cast<float>(x);
        const bool on_disc = note.disc_share > 0.0f;
        return {on_disc ? fmaf(tilt.x, dx, fmaf(tilt.y, dy, 1.0f)) : 1.0f, on_disc};
    }

    // `d_besides` is what the inverse share has besides the exponent.
    __device__ void add(const SurfelOffsets& o, const SurfelNote& note, uint32_t x,
                        const SurfelMeeting& met, float d_besides) {
        const float along = static_cast<float>(x);
        const Pull p = pull(o, x, note);
        e0 += note.e;
        pull0 += p.pull;
        pull1 += p.pull * along;
        pull2 += p.pull * (along * along);
        const float inverse = p.d_inverse + (met.on_disc ? d_besides : 0.0f);
        inverse0 += inverse;
        inverse1 += inverse * along;
        const float by_filter = met.on_disc ? 0.0f : note.e;
        filter0 += by_filter;
        filter1 += by_filter * along;
    }

    // The exponent's gradient times its slopes at a pixel, per unit of an exponent of 2.
    __device__ float2 pulls(const SurfelOffsets& o, uint32_t x, const SurfelNote& note) const {
        const Pull p = pull(o, x, note);
        const float4 slopes = o.shape.slopes;
        const float u = UNSCALE_2 * p.pull * p.u, v = UNSCALE_2 * p.pull * p.v;
        const float2 by_disc = {p.d_inverse * o.shape.tilt.x - u * slopes.x - v * slopes.z,
                                p.d_inverse * o.shape.tilt.y - u * slopes.y - v * slopes.w};
        const float dx = o.offset_px.x + static_cast<float>(x);
        const float filter = note.disc_share > 0.0f ? 0.0f : -2.0f * note.e;
        return {LOG2_E * (by_disc.x + filter * dx), LOG2_E * (by_disc.y + filter * dy)};
    }

private:
    struct Pull {
        float u, v;  // numerators
        float pull, d_inverse;
    };

    __device__ Pull pull(const SurfelOffsets& o, uint32_t x, const SurfelNote& note) const {
        const float along = static_cast<float>(x);
        const float u = fmaf(o.shape.slopes.x, along, start_u);
        const float v = fmaf(o.shape.slopes.z, along, start_v);
        const float pull = note.e * note.disc_share * note.disc_share;
        return {u, v, pull, UNSCALE_2 * pull * note.disc_share * fmaf(u, u, v * v)};
    }
};

// Sums over pixels, and sums of each times the pixel's offset from the centre.
struct SurfelMoments {
    float pull_x, pull_y, pull_xx, pull_xy, pull_yy;
    float inverse, inverse_x, inverse_y, filter_x, filter_y, e;

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

    // Centre, the opacity's logarithm and a statistic; the slopes. The offset is the pixel less the centre, so the
    // centre takes the opposite sign.
    __device__ void store_first(float4* record, const SurfelShape& s, float statistic) const {
        const float u = UNSCALE_2 * (s.slopes.x * pull_x + s.slopes.y * pull_y);
        const float v = UNSCALE_2 * (s.slopes.z * pull_x + s.slopes.w * pull_y);
        add_quad(record, {2.0f * filter_x + s.slopes.x * u + s.slopes.z * v - s.tilt.x * inverse,
                          2.0f * filter_y + s.slopes.y * u + s.slopes.w * v - s.tilt.y * inverse, e,
                          statistic});
        constexpr float S = -COORDINATE_UNSCALE;
        add_quad(record + 3, {S * (s.slopes.x * pull_xx + s.slopes.y * pull_xy),
                              S * (s.slopes.x * pull_xy + s.slopes.y * pull_yy),
                              S * (s.slopes.z * pull_xx + s.slopes.w * pull_xy),
                              S * (s.slopes.z * pull_xy + s.slopes.w * pull_yy)});
    }

    // Tilt and a statistic.
    __device__ void store_second(float4* record, float statistic) const {
        add_quad(record + 1, {inverse_x, inverse_y, 0.0f, statistic});
    }
};

// A disc that rays meet, of one opacity and one colour.
struct SurfelFootprint {
    static constexpr uint32_t QUADS = 4;
    static constexpr bool HAS_MEETINGS = true;

    using Pixel = SurfelPixel;
    using Note = SurfelNote;
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
