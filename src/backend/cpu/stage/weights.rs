//! Stage `weights`: blend weights of each Gaussian, summed over views.
//!
//! A pixel's colour is the sum of the Gaussians' colours times their blend weights. A Gaussian's summed weight is
//! therefore the gradient of its colour if the gradient of every pixel is 1.

use crate::backend::cpu::model::Model;
use crate::backend::cpu::primitive::Splat;
use crate::math::Real;
use crate::math::blend::ScreenGradient;
use crate::model::Primitive;

/// Returns the image gradient that makes colour gradients equal to weights.
pub(crate) fn d_image<R: Real>(values: usize) -> Vec<R> {
    vec![R::ONE; values]
}

/// Adds a view's weights to `gradient_norm_sums`, which holds the weights of earlier views.
pub(crate) fn add<R: Real, P: Primitive>(
    model: &mut Model<R, P>,
    splats: &[Splat<R>],
    screen: &[ScreenGradient<R>],
) {
    for (splat, gradient) in splats.iter().zip(screen) {
        let [weight, ..] = gradient.d_color;
        model.gradient_norm_sums[splat.row] += weight;
    }
}
