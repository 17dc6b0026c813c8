// Evaluation of a projected primitive at pixels. `blend` is a template over a footprint, which must provide
//   QUADS           16-byte quads of a record, and of a record of gradients; the third holds the
//                   colour, and in gradients also that of the depth
//   HAS_MEETINGS    true if the depth differs from pixel to pixel
//   load(record)    data for visibility tests, and depth() along the view axis
//   reaches_warp_tile  true if pixels of a warp tile may see the primitive
//   row_of          all data that pixels need, and a number, as a Row; Rows<N> are staged for a warp
//   unseen_row      a Row that changes no pixel
//   pixel_alpha     the opacity of a row at a pixel, as a Pixel; equal in both passes
//   note_of         data of a pair that the first backward visit stores for the second, as a Note; weight_of it
//   Notes           notes of a row for the pixels of a warp tile, staged for a warp
//   in_pixel        value of a map at a pixel, from the value at the row's centre
//   Shape           data of a row for its moments, and its number()
//   Offsets         offsets of a warp tile's pixels from the row
//   Line, Moments   sums over a line of pixels, and over all, of the gradients of the exponent
//     meet_at                     intersection of the row at a pixel of the line; its share() and inverse_share()
//                                 are the depth there relative to that of the centre, and the inverse
//     add                         adds a note, and the gradient of the inverse share
//     pulls                       the exponent's gradient times its slopes at a pixel of the line
//     add_halves                  adds the two halves of a splat
//     store_first, store_second   add to a record of gradients; the first may read the splat's own record
#pragma once

#include "layout.cuh"
#include "tiles.cuh"

// Returns the highest exponent on the edge at distance `offset` along one axis, with the other coordinate (relative to
// the centre) free in low..high. An error in the position of the maximum has no first-order effect.
__device__ inline float peak_on_edge(float conic_along, float conic_cross, float conic_other,
                                     float offset, float low, float high) {
    const float cross = conic_cross * offset;
    const float other = fminf(fmaxf(-cross * fast_reciprocal(conic_other), low), high);
    return -0.5f * (conic_along * offset * offset + conic_other * other * other) - cross * other;
}

constexpr float LOG2_E = 1.44269504f;
constexpr float LN_2 = 0.693147181f;

// Initial value of sums: adding it changes no number, not even a zero's sign, so the compiler removes it.
constexpr float ADDS_NOTHING = -0.0f;

// Index of the colour in a record, and in a record of gradients.
constexpr uint32_t COLOR_QUAD = 2;

// Opacity of a splat at a pixel.
struct PixelAlpha {
    float unclamped;
    float alpha;
    bool seen;  // false if the splat is skipped
};

// A staged ellipse. Its exponent is to base 2 and includes the logarithm of the opacity, so that the opacity at a pixel
// is one exponential.
struct EllipseRow {
    float4 shape;  // centre x y; xx and xy of the exponent per px^2
    float4 scale;  // yy; log2 of the opacity; a number in its bits; red
    float2 tint;   // green, blue

    __device__ float3 color() const { return {scale.w, tint.x, tint.y}; }
    __device__ float number() const { return scale.z; }
};

// Returns the log2 of a splat's opacity at a pixel. Contractions are explicit: both passes must decide equally.
__device__ inline float opacity_power(const EllipseRow& row, float2 centre_px) {
    const float4 shape = row.shape, scale = row.scale;
    const float dx = centre_px.x - shape.x, dy = centre_px.y - shape.y;
    return fmaf(dx, fmaf(shape.z, dx, shape.w * dy), fmaf(scale.x * dy, dy, scale.y));
}

__device__ inline PixelAlpha pixel_alpha(const EllipseRow& row, float2 centre_px) {
    const float power = opacity_power(row, centre_px);
    const float unclamped = fast_exp2(power);
    return {unclamped, fminf(unclamped, ALPHA_MAX), power <= row.scale.y && unclamped >= ALPHA_MIN};
}

// An ellipse has one depth.
template <class Value>
__device__ inline Value in_pixel(Value value, const PixelAlpha&) {
    return value;
}

// Data of a pair of an ellipse and a pixel from the first visit.
struct EllipseNote {
    float weight;  // of the colour
    float e;       // gradient of the exponent
};

__device__ inline EllipseNote note_of(const PixelAlpha&, float weight, float e) {
    return {weight, e};
}

__device__ inline float weight_of(const EllipseNote& note) { return note.weight; }

// Notes of an ellipse for a warp tile's pixels. One element of padding, so that the lanes of the second visit use
// different banks.
struct EllipseNotes {
    EllipseNote of_pixel[WARP + 1];

    __device__ void put(uint32_t pixel, const EllipseNote& note) { of_pixel[pixel] = note; }
    __device__ EllipseNote get(uint32_t pixel) const { return of_pixel[pixel]; }
};

struct EllipseMeeting {
    __device__ float share() const { return 1.0f; }
    __device__ float inverse_share() const { return 1.0f; }
};

// Data of a row for its moments.
struct EllipseShape {
    float4 shape, scale;

    __device__ uint32_t number() const { return __float_as_uint(scale.z); }
};

// Rows staged by a warp for its pixels.
template <uint32_t N>
struct EllipseRows {
    float4 shapes[N], scales[N];
    float2 tints[N];

    __device__ void put(uint32_t at, const EllipseRow& row) {
        shapes[at] = row.shape;
        scales[at] = row.scale;
        tints[at] = row.tint;
    }
    __device__ EllipseRow get(uint32_t at) const { return {shapes[at], scales[at], tints[at]}; }
    __device__ EllipseShape shape(uint32_t at) const { return {shapes[at], scales[at]}; }
};

// Offset of a warp tile's first pixel from the centre, and twice xx, xy, and twice yy of the exponent per px^2.
struct EllipseOffsets {
    float2 offset_px;
    float3 slopes;

    __device__ EllipseOffsets(const EllipseShape& s, const WarpTile& warp_tile)
        : offset_px{warp_tile.low_px.x - s.shape.x, warp_tile.low_px.y - s.shape.y},
          slopes{2.0f * s.shape.z, s.shape.w, 2.0f * s.scale.x} {}
};

// Sums over a line of a warp tile's pixels.
struct EllipseLine {
    float s0 = 0.0f, s1 = 0.0f, s2 = 0.0f;  // of e, e x, e x^2 with x from the warp tile's corner
    float start_x, start_y;                 // the exponent's slopes at the line's first pixel

    __device__ EllipseLine(const EllipseOffsets& o, uint32_t line) {
        const float line_px = o.offset_px.y + static_cast<float>(line);
        start_x = o.slopes.x * o.offset_px.x + o.slopes.y * line_px;
        start_y = o.slopes.y * o.offset_px.x + o.slopes.z * line_px;
    }

    __device__ EllipseMeeting meet_at(const EllipseOffsets&, uint32_t, const EllipseNote&) const {
        return {};
    }

    __device__ void add(const EllipseOffsets&, const EllipseNote& note, uint32_t x, EllipseMeeting,
                        float) {
        s0 += note.e;
        s1 += note.e * static_cast<float>(x);
        s2 += note.e * static_cast<float>(x * x);
    }

    // Returns the exponent's gradient times its slopes at a pixel.
    __device__ float2 pulls(const EllipseOffsets& o, uint32_t x, const EllipseNote& note) const {
        return {note.e * (start_x + o.slopes.x * static_cast<float>(x)),
                note.e * (start_y + o.slopes.y * static_cast<float>(x))};
    }
};

// Moments of the exponent's gradient over pixels: sums of e, e x, e y, e x^2, e x y, e y^2 with the pixel's offset (x,
// y) from the centre.
struct EllipseMoments {
    float e, x, y, xx, xy, yy;

    __device__ void add(const EllipseLine& l, const EllipseOffsets& o, uint32_t line) {
        const float dx = o.offset_px.x;
        const float dy = o.offset_px.y + static_cast<float>(line);
        const float along_x = l.s1 + dx * l.s0;
        e += l.s0;
        x += along_x;
        xx += l.s2 + dx * (l.s1 + along_x);
        y += dy * l.s0;
        xy += dy * along_x;
        yy += dy * dy * l.s0;
    }

    __device__ void add_halves() {
        for (float* sum : {&e, &x, &y, &xx, &xy, &yy}) *sum = both_halves(*sum);
    }

    // Adds the gradients of centre and log-opacity, and a statistic. The offset is the pixel minus the centre, so the
    // centre's gradient has the opposite sign.
    __device__ void store_first(float4* record, const float4*, const EllipseShape& s,
                                float statistic) const {
        add_quad(record, {-LN_2 * (2.0f * s.shape.z * x + s.shape.w * y),
                          -LN_2 * (s.shape.w * x + 2.0f * s.scale.x * y), e, statistic});
    }

    // Adds the gradient of the conic and a statistic.
    __device__ void store_second(float4* record, float statistic) const {
        add_quad(record + 1, {-0.5f * xx, -xy, -0.5f * yy, statistic});
    }
};

// An ellipse on the screen with one opacity and colour and a Gaussian fall-off.
struct EllipseFootprint {
    static constexpr uint32_t QUADS = 3;
    static constexpr bool HAS_MEETINGS = false;

    using Pixel = PixelAlpha;
    using Note = EllipseNote;
    using Notes = EllipseNotes;
    using Row = EllipseRow;
    template <uint32_t N>
    using Rows = EllipseRows<N>;
    using Shape = EllipseShape;
    using Offsets = EllipseOffsets;
    using Line = EllipseLine;
    using Moments = EllipseMoments;

    float4 place;  // centre x y; opacity; least exponent
    float4 form;   // conic xx, xy, yy; depth

    __device__ static EllipseFootprint load(const float4* record) { return {record[0], record[1]}; }

    __device__ float depth() const { return form.w; }
};

// True if the splat reaches its least exponent at some point between the pixel centres of a warp tile.
//
// The exponent is concave: if the centre is outside, its maximum is on one of the two edges that face the centre (Radl
// et al. 2024). If a coordinate of the centre is inside, the line through the centre also has points in the rectangle,
// and may be tested like an edge.
__device__ inline bool reaches_warp_tile(const WarpTile& warp_tile, const EllipseFootprint& splat) {
    const float4 place = splat.place, form = splat.form;
    const float2 low = {warp_tile.low_px.x - place.x, warp_tile.low_px.y - place.y};
    const float2 high = {warp_tile.high_px.x - place.x, warp_tile.high_px.y - place.y};
    const float x = fminf(fmaxf(0.0f, low.x), high.x);
    const float y = fminf(fmaxf(0.0f, low.y), high.y);
    const float by_x = peak_on_edge(form.x, form.y, form.z, x, low.y, high.y);
    const float by_y = peak_on_edge(form.z, form.y, form.x, y, low.x, high.x);
    return fmaxf(by_x, by_y) >= place.w;
}

__device__ inline EllipseRow row_of(const EllipseFootprint& splat, const float4* record,
                                    uint32_t number) {
    constexpr float HALF = -0.5f * LOG2_E;
    const float4 place = splat.place, form = splat.form, color = record[COLOR_QUAD];
    return {{place.x, place.y, HALF * form.x, -LOG2_E * form.y},
            {HALF * form.z, fast_log2(place.z), __uint_as_float(number), color.x},
            {color.y, color.z}};
}

// A row that changes no pixel.
__device__ inline EllipseRow unseen_row(const EllipseFootprint&) {
    return {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, -1e30f, 0.0f, 0.0f}, {0.0f, 0.0f}};
}
