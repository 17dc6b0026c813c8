//! The filters of Mip-Splatting (Yu et al. 2024): a Gaussian is never finer than the
//! training views can resolve (section 4.1), and a splat never thinner than a pixel (section 4.2). Both keep
//! what it adds up to: as it grows its opacity falls.

use super::linalg::{Vec3, add, mul};
pub use super::splat::projection::{
    DET_MIN_PX4, kept_on_screen, kept_on_screen_bwd, smoothed, smoothed_bwd,
};
use super::splat::{Shape, Viewpoint};
use super::{Real, inverse_sigmoid, sigmoid};

/// Variance of the 3D filter in units of the smallest interval that a view samples, squared.
pub const INTERVAL_VARIANCE: f64 = 0.2;

/// How far beyond the image's border a view still counts, as a share of its side.
pub const SAMPLED_MARGIN: f64 = 0.15;

/// The share of its opacity that a Gaussian keeps through its 3D filter.
pub fn kept_in_space<R: Real>(shape: &Shape<R>) -> R {
    smoothed(shape.log_scale.map(Real::exp), shape.smoothing).1
}

/// The opacity logit with which a Gaussian that keeps this share is of no more than this opacity.
pub fn lowered_logit<R: Real>(logit: R, kept: R, ceiling: R) -> R {
    // The share is above the ceiling then, and the quotient below 1.
    if sigmoid(logit) * kept > ceiling { inverse_sigmoid(ceiling / kept) } else { logit }
}

/// The depth in which a view samples this place (world units along its axis), if it does: beyond
/// [`Viewpoint::near`], and not far outside of the image.
pub fn sampled_depth<R: Real>(view: &Viewpoint<R>, mean_world: Vec3<R>) -> Option<R> {
    let [x, y, z] = add(mul(&view.rotation, mean_world), view.translation);
    let inside = |axis: usize, along: R| {
        let side = R::of(f64::from(view.size[axis]));
        let margin = R::of(SAMPLED_MARGIN) * side;
        let at = along / z * view.focal_px[axis] + view.centre_px[axis];
        at >= -margin && at <= side + margin
    };
    (z > view.near && inside(0, x) && inside(1, y)).then_some(z)
}

/// Standard deviation of the 3D filter per depth (world units both): of the finest view, whose focal
/// length is this (px).
pub fn smoothing_per_depth<R: Real>(focal_px: R) -> R {
    R::of(INTERVAL_VARIANCE).sqrt() / focal_px
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_splat_keeps_its_opacity_and_one_without_area_keeps_none() {
        // The root of 1 + 1e-6, less what the filter of 0.1 px² takes.
        assert!((kept_on_screen(1e8_f64, 1.001e8) - 0.9995).abs() < 1e-5);
        for det in [1e-6_f64, 1e-7, 0.0, f64::NAN] {
            assert_eq!(kept_on_screen(det, 0.01), 0.0, "{det}");
            assert_eq!(kept_on_screen_bwd(det, 0.01, 1.0), [0.0; 2], "{det}");
        }
        assert!(kept_on_screen(1.1e-6_f64, 0.01) > 0.0);
    }

    #[test]
    fn without_a_filter_scales_stay_as_they_are() {
        let scale = [0.1_f32, 1e-30, 3e20];
        assert_eq!(smoothed(scale, 0.0), (scale, 1.0));
        assert_eq!(smoothed_bwd(scale, 0.0, [1.0, 2.0, 3.0], 9.0), [1.0, 2.0, 3.0]);
        // Nor with one that single precision has no square of.
        assert_eq!(smoothed([0.0_f32; 3], 1e-30), ([0.0; 3], 1.0));
        assert_eq!(smoothed_bwd([0.0_f32; 3], 1e-30, [1.0; 3], 9.0), [1.0; 3]);
    }

    #[test]
    fn a_lowered_logit_gives_the_filtered_ceiling_and_lower_ones_stay() {
        for (logit, kept) in [(3.0_f64, 1.0), (0.5, 0.4), (-1.0, 0.05), (8.0, 0.0101)] {
            let lowered = lowered_logit(logit, kept, 0.01);
            assert!((sigmoid(lowered) * kept - 0.01).abs() < 1e-12, "{logit} {kept}");
        }
        for (logit, kept) in [(3.0_f64, 0.0099), (-6.0, 1.0), (2.0, 0.0)] {
            assert_eq!(lowered_logit(logit, kept, 0.01).to_bits(), logit.to_bits());
        }
    }
}
