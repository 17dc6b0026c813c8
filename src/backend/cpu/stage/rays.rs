//! Stage `rays`: the visible Gaussians in a form for ray intersection, and its gradients.

use rayon::prelude::*;

use crate::backend::cpu::primitive::{DensityField, Splat};
use crate::math::Real;
use crate::math::field::GEOMETRY;
use crate::math::splat::Viewpoint;
use crate::math::transmittance::{RayGaussian, RayGaussianGradient};

/// Returns one Gaussian per splat.
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

/// Adds the gradients of splats along rays to the geometry of their rows, `[rows, 11]`.
pub(crate) fn backward<R: Real>(
    field: &dyn DensityField<R>,
    view: &Viewpoint<R>,
    splats: &[Splat<R>],
    d_rays: &[RayGaussianGradient<R>],
    d_geometry: &mut [[R; GEOMETRY]],
) {
    for (splat, d_ray) in splats.iter().zip(d_rays) {
        let ellipsoid = field.ellipsoid(splat.row);
        let d = RayGaussian::new_bwd(view, &ellipsoid.shape, ellipsoid.opacity_logit, d_ray);
        for (sum, d) in d_geometry[splat.row].iter_mut().zip(d) {
            *sum += d;
        }
    }
}
