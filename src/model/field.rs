//! Primitives that together make up a density, and so a surface.

use super::Gaussians;
use crate::math::field::DensityKernel;
use crate::math::splat::Shape;

/// Primitives each of which adds to a density in space.
pub trait Field {
    /// What each of them adds, in their order.
    fn density_kernels(&self) -> impl Iterator<Item = DensityKernel<f64>>;
}

impl Field for Gaussians {
    fn density_kernels(&self) -> impl Iterator<Item = DensityKernel<f64>> {
        let (means, _) = self.means.as_chunks::<3>();
        let (log_scales, _) = self.log_scales.as_chunks::<3>();
        let (quats, _) = self.quats.as_chunks::<4>();
        let shapes = means.iter().zip(log_scales).zip(quats);
        let shapes = shapes.map(|((mean, log_scale), quat)| Shape {
            mean_world: mean.map(f64::from),
            log_scale: log_scale.map(f64::from),
            quat: quat.map(f64::from),
            smoothing: 0.0,
        });
        let opacity_logits = self.opacity_logits.iter().copied().map(f64::from);
        shapes.zip(opacity_logits).map(|(shape, logit)| DensityKernel::new(&shape, logit))
    }
}
