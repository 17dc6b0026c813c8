//! What a splat covers: the pixels and tiles that it may reach, and its span in rows of pixels.

use serde::{Deserialize, Serialize};

use std::ops::Range;

use super::projection::Ellipse;
use crate::math::Real;
use crate::math::blend::ALPHA_MIN;

/// Side of a tile in px.
pub const TILE: u32 = 16;

/// A rectangle of pixels or tiles: `x0..x1` by `y0..y1`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Rect {
    /// First column.
    pub x0: u32,
    /// First row.
    pub y0: u32,
    /// Column after the last.
    pub x1: u32,
    /// Row after the last.
    pub y1: u32,
}

impl Rect {
    /// Nothing inside.
    pub fn is_empty(&self) -> bool {
        self.x0 >= self.x1 || self.y0 >= self.y1
    }

    /// What both have.
    #[inline]
    pub fn intersection(&self, other: &Self) -> Self {
        Self {
            x0: self.x0.max(other.x0),
            y0: self.y0.max(other.y0),
            x1: self.x1.min(other.x1),
            y1: self.y1.min(other.y1),
        }
    }

    /// The tiles that these pixels lie in.
    pub fn tiles(&self) -> Self {
        Self {
            x0: self.x0 / TILE,
            y0: self.y0 / TILE,
            x1: self.x1.div_ceil(TILE),
            y1: self.y1.div_ceil(TILE),
        }
    }

    /// The pixels of tile (`x`, `y`) in an image of this size.
    pub fn of_tile(x: u32, y: u32, size: [u32; 2]) -> Self {
        Self {
            x0: x * TILE,
            y0: y * TILE,
            x1: ((x + 1) * TILE).min(size[0]),
            y1: ((y + 1) * TILE).min(size[1]),
        }
    }
}

/// Where a splat of some opacity can be seen.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<R> {
    /// Pixels outside of which its opacity is below [`ALPHA_MIN`]; may be empty between centres.
    pub pixels: Rect,
    /// An exponent below which its opacity is certainly below [`ALPHA_MIN`].
    pub exponent_min: R,
}

/// Bounds of an ellipse, or `None` if it cannot be seen at all.
///
/// The opacity falls to 1/255 where ½ dᵀ C d = ln(255 o); that ellipse reaches √(2 ln(255 o) cov)
/// along each axis. A splat counts as seen when this box, rounded up to whole pixels, meets the
/// image, even if no pixel centre lies in it: density statistics are averaged over seen splats.
pub fn bounds<R: Real>(ellipse: &Ellipse<R>, opacity: R, size: [u32; 2]) -> Option<Bounds<R>> {
    let exponent_min = exponent_min(opacity)?;
    let reach = (opacity / R::of(ALPHA_MIN)).ln();
    // A thousandth of a pixel and 1e-5 of the reach are added against rounding: a bound may be
    // too wide, since every pixel is tested again, but never too narrow.
    let extent = [ellipse.cov_px2[0], ellipse.cov_px2[2]]
        .map(|variance| (R::TWO * reach * variance).sqrt() * R::of(1.0 + 1e-5) + R::of(1e-3));
    let mut spans = [(0, 0); 2];
    for axis in 0..2 {
        let (mean, extent, side) = (ellipse.mean_px[axis], extent[axis], size[axis]);
        let limit = R::of(f64::from(side));
        let radius = R::of(f64::from(extent.ceil_i32()));
        if !(mean + radius > R::ZERO && mean - radius < limit) {
            return None;
        }
        spans[axis] = (
            pixel_index((mean - extent - R::HALF).ceil_i32(), side),
            pixel_index((mean + extent - R::HALF).floor_i32().saturating_add(1), side),
        );
    }
    let pixels = Rect { x0: spans[0].0, x1: spans[0].1, y0: spans[1].0, y1: spans[1].1 };
    Some(Bounds { pixels, exponent_min })
}

/// An exponent below which a splat of this opacity is certainly invisible; `None` if it always is.
pub(super) fn exponent_min<R: Real>(opacity: R) -> Option<R> {
    if opacity < R::of(ALPHA_MIN) || !opacity.is_finite() {
        return None;
    }
    let reach = (opacity / R::of(ALPHA_MIN)).ln();
    // A little lower because of rounding: below it the search stops, above it the exact test decides.
    Some(-reach * R::of(1.0 + 1e-4) - R::of(1e-4))
}

/// Holds an index to `0..=side`.
fn pixel_index(index: i32, side: u32) -> u32 {
    u32::try_from(index).unwrap_or(0).min(side)
}

/// What a splat reaches in rows of pixels: an ellipse is convex, so that it spans columns in each.
///
/// Heights grow downwards and count from the centre.
#[derive(Clone, Copy, Debug)]
pub struct Spans<R> {
    /// Of the image, px.
    size: [u32; 2],
    /// Height of the centre in the image.
    mean_y_px: R,
    /// How far the middle of the span moves to the right per px of height.
    shear: R,
    /// Square of half the span through the centre.
    half_px2: R,
    /// What that loses per px² of height.
    taper: R,
    /// Height of the rightmost point; the leftmost lies opposite.
    tip_px: R,
    /// Column of the first pixel of a splat without extent, rounding included.
    left_px: R,
    /// The one after its last.
    right_px: R,
}

impl<R: Real> Spans<R> {
    /// Of a splat down to this exponent, in an image of this size.
    pub fn new(ellipse: &Ellipse<R>, exponent_min: R, size: [u32; 2]) -> Self {
        let [xx, xy, yy] = ellipse.conic;
        let mean = ellipse.mean_px;
        // Kahan's difference of products: that of rounded products has no digit right where a splat
        // is long and thin.
        let square = xy * xy;
        let det = xx.mul_add(yy, -square) - xy.mul_add(xy, -square);
        let inverse = R::ONE / xx;
        // A few units in the last place of single precision are added against rounding here and
        // below: where a centre is far away or a row's middle moves fast, more than a thousandth of
        // a pixel is at stake.
        let reach = R::of(-2.000_004) * exponent_min;
        let shear = -xy * inverse;
        let height = R::of(f64::from(size[1]));
        let lever = mean[0].abs() + shear.abs() * (mean[1].abs() + height);
        let margin = R::of(4e-7) * lever + R::of(1e-3);
        Self {
            size,
            mean_y_px: mean[1],
            shear,
            half_px2: reach * inverse,
            taper: det * inverse * inverse,
            // Rounded, a conic may be that of a hyperbola: its tips are infinitely far.
            tip_px: -xy * (reach / (yy * det.max(R::ZERO))).sqrt(),
            left_px: mean[0] - R::HALF - margin,
            right_px: mean[0] + R::HALF + margin,
        }
    }

    /// The columns of pixels whose centres the splat reaches at some height between the centres of
    /// these rows.
    pub fn columns(&self, rows: Range<u32>) -> Range<u32> {
        let low = R::of(f64::from(rows.start)) + R::HALF - self.mean_y_px;
        let high = R::of(f64::from(rows.end)) - R::HALF - self.mean_y_px;
        let [nearest, left, right] =
            [R::ZERO, -self.tip_px, self.tip_px].map(|height| height.max(low).min(high));
        if self.half_px2_at(nearest) < R::ZERO {
            return 0..0;
        }
        let half = |height| self.half_px2_at(height).max(R::ZERO).sqrt();
        let first = self.left_px + self.shear * left - half(left);
        let end = self.right_px + self.shear * right + half(right);
        // What overflowed on the way, and is no number, gives whole rows.
        let width = R::of(f64::from(self.size[0]));
        pixel_index(first.ceil_i32(), self.size[0])
            ..pixel_index(end.min(width).floor_i32(), self.size[0])
    }

    fn half_px2_at(&self, height: R) -> R {
        self.half_px2 - self.taper * height * height
    }
}
