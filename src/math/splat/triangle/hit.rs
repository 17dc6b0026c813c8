//! A triangle in a sample: its opacity, colour and inverse depth there.

use super::{TRIANGLE_ALPHA_MAX, Triangle, TriangleGradient};
use crate::math::Real;
use crate::math::blend::ALPHA_MIN;
use crate::math::linalg::{Vec3, add, scale};

/// How the opacity of a triangle falls off from its middle to its edges.
#[derive(Clone, Copy, Debug)]
pub struct FallOff<R> {
    /// s
    pub exponent: R,
    /// Width of the strips along the edges in which gradients take the mean slope, px.
    pub strip_px: R,
}

/// A triangle in a sample that it changes.
#[derive(Clone, Copy, Debug)]
pub struct TriangleHit<R> {
    /// The sample less the centre, px.
    pub offset_px: [R; 2],
    /// Opacity there.
    pub alpha: R,
    /// The edge that is nearest, by its share.
    edge: usize,
    /// What is left to that edge: 1 - its share.
    left: R,
}

/// Gradients of what a sample takes of a triangle.
#[derive(Clone, Copy, Debug)]
pub struct HitGradient<R> {
    /// Of the opacity there.
    pub d_alpha: R,
    /// Of the colour there.
    pub d_color: Vec3<R>,
    /// Of the inverse depth there.
    pub d_inverse_depth: R,
}

impl<R: Real> Triangle<R> {
    /// In a sample at this place; nothing where it leaves it as it is.
    pub fn hit(&self, sample_px: [R; 2], exponent: R) -> Option<TriangleHit<R>> {
        let offset_px = [sample_px[0] - self.centre_px[0], sample_px[1] - self.centre_px[1]];
        let shares = self.slopes.map(|[x, y]| x * offset_px[0] + y * offset_px[1]);
        let mut edge = 0;
        for other in [1, 2] {
            if shares[other] > shares[edge] {
                edge = other;
            }
        }
        let left = R::ONE - shares[edge];
        let is_inside = left > R::ZERO;
        if !is_inside {
            return None;
        }
        let alpha = self.opacity_at(left, exponent);
        (alpha >= R::of(ALPHA_MIN)).then_some(TriangleHit { offset_px, alpha, edge, left })
    }

    /// Where so much of the way to an edge is left.
    fn opacity_at(&self, left: R, exponent: R) -> R {
        (self.opacity * (exponent * left.ln()).exp()).min(R::of(TRIANGLE_ALPHA_MAX))
    }

    /// Colour in a sample.
    pub fn color_at(&self, hit: &TriangleHit<R>) -> Vec3<R> {
        let [x, y] = hit.offset_px;
        add(self.color[0], add(scale(self.color[1], x), scale(self.color[2], y)))
    }

    /// Inverse depth in a sample.
    pub fn inverse_depth_at(&self, hit: &TriangleHit<R>) -> R {
        let [x, y] = hit.offset_px;
        self.inverse_depth[0] + self.inverse_depth[1] * x + self.inverse_depth[2] * y
    }

    /// What the opacity grows by with [`TriangleHit::left`].
    ///
    /// Next to an edge it is the mean over a strip. Wherever the edge lies between samples, these together then
    /// give what they give on average. Of a solid triangle all of the slope is so near to the edge that without
    /// a strip no sample would meet it.
    fn slope_of_opacity(&self, hit: &TriangleHit<R>, fall_off: &FallOff<R>) -> R {
        let &FallOff { exponent, strip_px } = fall_off;
        let [x, y] = self.slopes[hit.edge];
        let strip = (strip_px * (x * x + y * y).sqrt()).min(R::ONE);
        if hit.left < strip {
            self.opacity_at(strip, exponent) / strip
        } else if hit.alpha >= R::of(TRIANGLE_ALPHA_MAX) {
            R::ZERO
        } else {
            exponent * hit.alpha / hit.left
        }
    }

    /// Adds what a sample gives: the gradients of its opacity, its colour and its inverse depth. Where the opacity
    /// was held at the largest, only strips along edges pass one.
    pub fn hit_bwd(
        &self,
        hit: &TriangleHit<R>,
        fall_off: &FallOff<R>,
        d: &HitGradient<R>,
        sums: &mut TriangleGradient<R>,
    ) {
        let &HitGradient { d_alpha, d_color, d_inverse_depth } = d;
        let [x, y] = hit.offset_px;
        for (k, by) in [R::ONE, x, y].into_iter().enumerate() {
            sums.d_color[k] = add(sums.d_color[k], scale(d_color, by));
            sums.d_inverse_depth[k] += d_inverse_depth * by;
        }
        if hit.alpha < R::of(TRIANGLE_ALPHA_MAX) {
            sums.d_log_opacity += d_alpha * hit.alpha;
        }
        let d_share = -d_alpha * self.slope_of_opacity(hit, fall_off);
        sums.d_shares[hit.edge] += d_share;
        sums.d_slopes[hit.edge][0] += d_share * x;
        sums.d_slopes[hit.edge][1] += d_share * y;
    }
}
