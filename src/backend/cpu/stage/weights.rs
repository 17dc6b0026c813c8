//! Stage `weights`: how much each Gaussian shows in the views.
//!
//! A colour in a pixel is the sum of the Gaussians' colours times their blend weights. So a Gaussian's
//! weight, summed over the pixels, is the gradient of its colour where that of every pixel is 1.

use crate::backend::cpu::model::Model;
use crate::backend::cpu::primitive::Splat;
use crate::math::Real;
use crate::math::blend::ScreenGradient;
use crate::model::Primitive;

/// Gradient of an image of so many values, by which the colours' gradients are weights.
pub(crate) fn d_image<R: Real>(values: usize) -> Vec<R> {
    vec![R::ONE; values]
}

/// Adds a view's weights to those of the views before, which are where the norms of gradients were.
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
