//! Stage `smooth`: the 3D filter of Mip-Splatting (Yu et al. 2024, section 4.1) from the training
//! views, and the reset of opacities through it.

use rayon::prelude::*;

use crate::backend::cpu::model::{Model, Parameter};
use crate::math::Real;
use crate::math::filter::{kept_in_space, lowered_logit, sampled_depth, smoothing_per_depth};
use crate::math::splat::Viewpoint;

/// Gives every Gaussian the filter of the nearest view that samples it, all with the largest focal
/// length, as Mip-Splatting's program does; those that none samples get the widest. Where no view
/// samples any there is nothing to go by, and the filters are zero.
pub(crate) fn smooth<R: Real>(model: &mut Model<R>, views: &[Viewpoint<R>]) {
    let nearest = nearest(model, views);
    let farthest = farthest(&nearest);
    set(model, views, &nearest, farthest);
}

/// The depth at which the nearest view that samples each Gaussian sees it.
pub(crate) fn nearest<R: Real>(model: &Model<R>, views: &[Viewpoint<R>]) -> Vec<Option<R>> {
    let rows = (0..model.len()).into_par_iter();
    let nearest = rows.map(|index| {
        let mean = model.triple(Parameter::Means, index);
        views.iter().filter_map(|view| sampled_depth(view, mean)).reduce(Real::min)
    });
    nearest.collect()
}

/// The largest of these depths; 0 where there is none.
pub(crate) fn farthest<R: Real>(nearest: &[Option<R>]) -> R {
    nearest.iter().flatten().copied().fold(R::ZERO, Real::max)
}

/// Gives every Gaussian the filter of its depth, or of the farthest where no view samples it.
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

/// Lowers every opacity, as it is through the filter, to at most `ceiling` and forgets the
/// opacities' moments.
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
