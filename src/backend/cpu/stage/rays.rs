//! Stage `rays`: the Gaussians that a view sees, as its rays meet them.

use rayon::prelude::*;

use crate::backend::cpu::primitive::DensityField;
use crate::backend::cpu::splat::Splat;
use crate::math::Real;
use crate::math::splat::Viewpoint;
use crate::math::transmittance::RayGaussian;

/// One for each splat.
pub(crate) fn rays<R: Real>(
    field: &dyn DensityField<R>,
    view: &Viewpoint<R>,
    splats: &[Splat<R>],
) -> Vec<RayGaussian<R>> {
    splats
        .par_iter()
        .map(|splat| {
            let ellipsoid = field.ellipsoid(splat.row);
            RayGaussian::new(view, &ellipsoid.shape, ellipsoid.opacity_logit)
        })
        .collect()
}
