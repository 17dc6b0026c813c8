//! Gaussians with their 3D filter baked in, for those that know of none.

use super::Gaussians;
use crate::math::filter::smoothed;
use crate::math::{inverse_sigmoid, sigmoid};

/// Largest logit that is written, either way: of opacities that differ from 0 and 1 in single precision.
const LOGIT_MAX: f64 = 80.0;

/// Gives the Gaussians the scales and opacities that they are drawn with through filters of these
/// standard deviations, `[n]`, world units (Mip-Splatting, Yu et al. 2024, section 4.1).
///
/// The screen's filter is no part of it: it depends on the view.
pub fn fuse(gaussians: &mut Gaussians, filter_3d: &[f32]) {
    let scales = gaussians.log_scales.as_chunks_mut::<3>().0;
    for ((log_scale, logit), &filter) in
        scales.iter_mut().zip(&mut gaussians.opacity_logits).zip(filter_3d)
    {
        if filter <= 0.0 {
            continue;
        }
        let (wide, kept) = smoothed(log_scale.map(|l| f64::from(l).exp()), f64::from(filter));
        let opacity = sigmoid(f64::from(*logit)) * kept;
        let fused = inverse_sigmoid(opacity).clamp(-LOGIT_MAX, LOGIT_MAX);
        #[expect(clippy::cast_possible_truncation, reason = "rounded to the file's precision")]
        let (narrow, fused) = (wide.map(|scale| scale.ln() as f32), fused as f32);
        (*log_scale, *logit) = (narrow, fused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fused_is_finite_and_what_has_no_filter_stays() {
        let mut gaussians = Gaussians::zeros(0, 4);
        gaussians.log_scales =
            vec![-30.0, -30.0, -30.0, 5.0, 5.0, 5.0, -1.0, -2.0, -3.0, -1.0, -2.0, -3.0];
        gaussians.opacity_logits = vec![0.0, 90.0, 1.0, 1.0];
        let before = gaussians.clone();
        fuse(&mut gaussians, &[0.1, 1e-9, 0.0, 0.2]);
        assert!(
            gaussians.opacity_logits.iter().chain(&gaussians.log_scales).all(|v| v.is_finite())
        );
        // Of scales of e^-30 with a filter of 0.1 nothing is left.
        assert_eq!(gaussians.opacity_logits[..2], [-80.0, 80.0]);
        assert_eq!(gaussians.log_scales[6..9], before.log_scales[6..9]);
        assert_eq!(gaussians.opacity_logits[2].to_bits(), 1.0_f32.to_bits());
        // √(s² + 0.2²), and the share Π s / √(s² + 0.2²) of the opacity.
        let mut kept = 1.0;
        for axis in 9..12 {
            let scale = f64::from(before.log_scales[axis]).exp();
            let wide = scale.hypot(f64::from(0.2_f32));
            kept *= scale / wide;
            assert!((f64::from(gaussians.log_scales[axis]).exp() - wide).abs() < 1e-6);
        }
        let opacity = sigmoid(f64::from(gaussians.opacity_logits[3]));
        assert!((opacity - sigmoid(1.0) * kept).abs() < 1e-6);
    }
}
