//! The opacity that remains after widening, on the screen and in space; used by the filters.

use super::Real;
use super::linalg::Vec3;

/// Least determinant of a covariance, px⁴: below, nothing is left of a splat. It is added to
/// denominators, too (the numerics of Mip-Splatting's own rasteriser).
pub const DET_MIN_PX4: f64 = 1e-6;

/// The share of its opacity that a splat keeps when it is widened, from the determinants of its
/// covariance before and after (px⁴).
pub fn kept_on_screen<R: Real>(det: R, widened: R) -> R {
    kept_squared(det, widened).map_or(R::ZERO, Real::sqrt)
}

fn kept_squared<R: Real>(det: R, widened: R) -> Option<R> {
    let least = R::of(DET_MIN_PX4);
    (det > least && widened > least).then(|| det / (widened + least) + least)
}

/// Gradients of both determinants from that of the share's logarithm. Zero if nothing
/// is kept.
pub fn kept_on_screen_bwd<R: Real>(det: R, widened: R, d_log_kept: R) -> [R; 2] {
    let Some(squared) = kept_squared(det, widened) else { return [R::ZERO; 2] };
    let inverse = R::ONE / (widened + R::of(DET_MIN_PX4));
    let d_det = R::HALF * d_log_kept / squared * inverse;
    [d_det, -d_det * det * inverse]
}

/// Scales with a 3D filter of this standard deviation (world units), √(s² + f²) each, and the share
/// of its opacity that a Gaussian keeps: Π s / √(s² + f²).
pub fn smoothed<R: Real>(scale: Vec3<R>, smoothing: R) -> (Vec3<R>, R) {
    let variance = smoothing * smoothing;
    // Without a filter the scales keep all their digits; so they do if its square underflows.
    if variance <= R::ZERO {
        return (scale, R::ONE);
    }
    let wide = scale.map(|s| (s * s + variance).sqrt());
    (wide, scale[0] / wide[0] * (scale[1] / wide[1]) * (scale[2] / wide[2]))
}

/// Gradients of the logarithms of the scales, from those of the logarithms of the smoothed scales
/// and of the kept share.
///
/// With l = ln s: ∂ ln √(s² + f²) / ∂l = s² / (s² + f²), and ∂ ln(kept) / ∂l = f² / (s² + f²).
pub fn smoothed_bwd<R: Real>(
    wide: Vec3<R>,
    smoothing: R,
    d_log_wide: Vec3<R>,
    d_log_kept: R,
) -> Vec3<R> {
    if smoothing * smoothing <= R::ZERO {
        return d_log_wide;
    }
    [0, 1, 2].map(|axis| {
        let share = smoothing / wide[axis];
        let lost = share * share;
        d_log_wide[axis] * (R::ONE - lost) + d_log_kept * lost
    })
}
