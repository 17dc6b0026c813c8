//! Stage `smooth`: the 3D filter of Mip-Splatting (Yu et al. 2024, section 4.1), and opacity resets through it.

use rayon::prelude::*;

use crate::backend::cpu::model::{Model, Parameter};
use crate::math::Real;
use crate::math::filter::{kept_in_space, lowered_logit, sampled_depth, smoothing_per_depth};
use crate::math::splat::Viewpoint;

/// Sets the filter of every Gaussian from the nearest view that samples it and the largest focal length, as the
/// Mip-Splatting code does. Gaussians that no view samples get the widest filter; zero if no view samples any.
pub(crate) fn smooth<R: Real>(model: &mut Model<R>, views: &[Viewpoint<R>]) {
    let nearest = nearest(model, views);
    let farthest = farthest(&nearest);
    set(model, views, &nearest, farthest);
}

/// Returns the depth of each Gaussian in the nearest view that samples it.
pub(crate) fn nearest<R: Real>(model: &Model<R>, views: &[Viewpoint<R>]) -> Vec<Option<R>> {
    let rows = (0..model.len()).into_par_iter();
    let nearest = rows.map(|index| {
        let mean = model.triple(Parameter::Means, index);
        views.iter().filter_map(|view| sampled_depth(view, mean)).reduce(Real::min)
    });
    nearest.collect()
}

/// Returns the largest of these depths; 0 if there is none.
pub(crate) fn farthest<R: Real>(nearest: &[Option<R>]) -> R {
    nearest.iter().flatten().copied().fold(R::ZERO, Real::max)
}

/// Sets the filters from the depths, or from the farthest depth where no view samples the Gaussian.
pub(crate) fn set<R: Real>(
    model: &mut Model<R>,
    views: &[Viewpoint<R>],
    nearest: &[Option<R>],
    farthest: R,
) {
    let focal_px = views.iter().map(|view| view.focal_px[0]).fold(R::ZERO, Real::max);
    let per_depth = if views.is_empty() { R::ZERO } else { smoothing_per_depth(focal_px) };
    model.filter_3d = nearest.iter().map(|depth| depth.unwrap_or(farthest) * per_depth).collect();
}

/// Lowers every filtered opacity to at most `ceiling` and zeros the moments of opacities.
pub(crate) fn reset_opacity<R: Real>(model: &mut Model<R>, ceiling: f64) {
    let ceiling = R::of(ceiling);
    let kept: Vec<R> =
        (0..model.len()).into_par_iter().map(|index| kept_in_space(&model.shape(index))).collect();
    let column = model.column_mut(Parameter::OpacityLogits);
    for (logit, kept) in column.values.iter_mut().zip(kept) {
        *logit = lowered_logit(*logit, kept, ceiling);
    }
    model.forget_moments(Parameter::OpacityLogits as usize);
}
