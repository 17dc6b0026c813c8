//! What a triangle covers on the screen.

use super::coverage::{Bounds, Rect};
use super::projection::Ellipse;
use super::triangle::Vertex;
use crate::math::Real;
use crate::math::linalg::{Sym2, add, scale};

/// By how much the variance of a triangle's corners grows, and what is added to it, px². An ellipse that takes up
/// another has (1 + p) times its variance and (1 + 1/p) times that of the other: with p = 1/8, the ellipse about
/// the triangle takes up a circle of 0.54 px. So it covers the centres of all pixels that have a sample inside,
/// which tiles go by.
const COVER_GROWTH: f64 = 1.125;
const COVER_VARIANCE_PX2: f64 = 1.3;
/// Share of the variance along both axes that is added to each: of a longer sliver single precision would not know
/// how long it is.
const COVER_ROUNDNESS: f64 = 1e-4;

/// Exponent of the ellipse through a triangle's corners, whose conic is the inverse of their variance (Steiner).
const COVER_EXPONENT: f64 = -1.0;

/// Largest distance of a corner from the middle of all, px.
pub fn reach_px<R: Real>(corners: &[Vertex<R>; 3]) -> R {
    let middle = middle(corners);
    let squared = corners.iter().map(|corner| {
        let [x, y] = [0, 1].map(|axis| corner.px[axis] - middle[axis]);
        x * x + y * y
    });
    squared.fold(R::ZERO, R::max).sqrt()
}

fn middle<R: Real>(corners: &[Vertex<R>; 3]) -> [R; 2] {
    let third = R::ONE / R::of(3.0);
    [0, 1].map(|axis| (corners[0].px[axis] + corners[1].px[axis] + corners[2].px[axis]) * third)
}

/// The ellipse that covers a triangle, its depth in the middle, and the pixels of which some sample may be
/// inside; nothing where there is none.
pub fn cover<R: Real>(corners: &[Vertex<R>; 3], size: [u32; 2]) -> Option<(Ellipse<R>, Bounds<R>)> {
    let mean_px = middle(corners);
    let third = R::ONE / R::of(3.0);
    let mut variance: Sym2<R> = [R::ZERO; 3];
    for corner in corners {
        let [x, y] = [0, 1].map(|axis| corner.px[axis] - mean_px[axis]);
        let share = third * R::of(COVER_GROWTH);
        variance = add(variance, scale([x * x, x * y, y * y], share));
    }
    let more = R::of(COVER_VARIANCE_PX2) + R::of(COVER_ROUNDNESS) * (variance[0] + variance[2]);
    variance = [variance[0] + more, variance[1], variance[2] + more];
    let determinant = variance[0] * variance[2] - variance[1] * variance[1];
    let conic = [variance[2], -variance[1], variance[0]].map(|value| value / determinant);
    let inverse = corners.iter().map(|corner| corner.inverse_depth).sum::<R>() * third;
    let ellipse =
        Ellipse { mean_px, depth: R::ONE / inverse, cov_px2: variance, conic, kept: R::ONE };
    let pixels = pixels(corners, size)?;
    let is_finite = conic.iter().all(|value| value.is_finite());
    is_finite.then_some((ellipse, Bounds { pixels, exponent_min: R::of(COVER_EXPONENT) }))
}

/// Pixels that the rectangle about the corners touches.
fn pixels<R: Real>(corners: &[Vertex<R>; 3], size: [u32; 2]) -> Option<Rect> {
    let range = |axis: usize| {
        let values = corners.map(|corner| corner.px[axis]);
        let side = f64::from(size[axis]);
        let low = values[0].min(values[1]).min(values[2]).to_f64().max(0.0);
        let high = values[0].max(values[1]).max(values[2]).to_f64().min(side);
        (low < high).then(|| {
            let first = low.floor_i32().unsigned_abs();
            (first, (high.floor_i32().unsigned_abs() + 1).min(size[axis]))
        })
    };
    let ((x0, x1), (y0, y1)) = (range(0)?, range(1)?);
    (x0 < x1 && y0 < y1).then_some(Rect { x0, y0, x1, y1 })
}
