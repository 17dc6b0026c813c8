//! The filters of Mip-Splatting (Yu et al. 2024): a Gaussian is at least as large as the training views resolve
//! (section 4.1), and a splat at least as wide as a pixel (section 4.2). Opacity falls as a Gaussian widens.

use super::linalg::{Vec3, add, mul};
pub use super::splat::projection::{
    DET_MIN_PX4, kept_on_screen, kept_on_screen_bwd, smoothed, smoothed_bwd,
};
use super::splat::{Shape, Viewpoint};
use super::{Real, inverse_sigmoid, sigmoid};

/// Variance of the 3D filter, in units of the squared smallest sampling interval of a view.
pub const INTERVAL_VARIANCE: f64 = 0.2;

/// Margin around the image inside which a view still samples a point, as a share of the side.
pub const SAMPLED_MARGIN: f64 = 0.15;

/// Returns the share of its opacity that a Gaussian keeps through its 3D filter.
pub fn kept_in_space<R: Real>(shape: &Shape<R>) -> R {
    smoothed(shape.log_scale.map(Real::exp), shape.smoothing).1
}

/// Returns the logit held so that the opacity times `kept` is at most `ceiling`.
pub fn lowered_logit<R: Real>(logit: R, kept: R, ceiling: R) -> R {
    // `kept` is above the ceiling here, so the quotient is below 1.
    if sigmoid(logit) * kept > ceiling { inverse_sigmoid(ceiling / kept) } else { logit }
}

/// Returns the depth (world units along the view axis) in which a view samples a point; `None` if the point is not
/// beyond [`Viewpoint::near`] or far outside the image.
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

/// Returns the standard deviation of the 3D filter per unit of depth, for the finest view's focal length (px).
pub fn smoothing_per_depth<R: Real>(focal_px: R) -> R {
    R::of(INTERVAL_VARIANCE).sqrt() / focal_px
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_splats_keep_their_opacity_and_degenerate_ones_lose_it() {
        // √(1 + 1e-6), reduced by the filter of 0.1 px².
        assert!((kept_on_screen(1e8_f64, 1.001e8) - 0.9995).abs() < 1e-5);
        for det in [1e-6_f64, 1e-7, 0.0, f64::NAN] {
            assert_eq!(kept_on_screen(det, 0.01), 0.0, "{det}");
            assert_eq!(kept_on_screen_bwd(det, 0.01, 1.0), [0.0; 2], "{det}");
        }
        assert!(kept_on_screen(1.1e-6_f64, 0.01) > 0.0);
    }

    #[test]
    fn zero_filter_leaves_scales_unchanged() {
        let scale = [0.1_f32, 1e-30, 3e20];
        assert_eq!(smoothed(scale, 0.0), (scale, 1.0));
        assert_eq!(smoothed_bwd(scale, 0.0, [1.0, 2.0, 3.0], 9.0), [1.0, 2.0, 3.0]);
        // A filter whose square underflows in single precision has no effect either.
        assert_eq!(smoothed([0.0_f32; 3], 1e-30), ([0.0; 3], 1.0));
        assert_eq!(smoothed_bwd([0.0_f32; 3], 1e-30, [1.0; 3], 9.0), [1.0; 3]);
    }

    #[test]
    fn lowered_logit_respects_the_ceiling() {
        for (logit, kept) in [(3.0_f64, 1.0), (0.5, 0.4), (-1.0, 0.05), (8.0, 0.0101)] {
            let lowered = lowered_logit(logit, kept, 0.01);
            assert!((sigmoid(lowered) * kept - 0.01).abs() < 1e-12, "{logit} {kept}");
        }
        for (logit, kept) in [(3.0_f64, 0.0099), (-6.0, 1.0), (2.0, 0.0)] {
            assert_eq!(lowered_logit(logit, kept, 0.01).to_bits(), logit.to_bits());
        }
    }
}
