//! Part of the stage `densify`: which Gaussians are candidates.

use super::quantile::quantile;
use super::threshold::last_at_most;
use crate::abi::{DensityCounts, In, Out, SurveyArgs};
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::session::Session;
use crate::backend::{Candidates, DeviceError, GradientRule, ScoreRule};
use crate::layout::DENSITY_COUNTS;
use crate::math::Real;

/// What makes a Gaussian a candidate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thresholds {
    /// Mean norm of the gradient.
    pub(super) gradient: f32,
    /// Mean absolute gradient, where that counts, too.
    pub(super) absolute: Option<f32>,
    /// Largest logarithm of the scale of a small one.
    pub(super) small_log_scale: f32,
    /// The key that candidates are drawn by, where they are not ranked.
    pub(super) drawn_by: Option<u64>,
}

impl Thresholds {
    pub(super) fn known(rule: &GradientRule, absolute_min: Option<f64>) -> Self {
        Self {
            gradient: f32::of(rule.min),
            absolute: absolute_min.map(f32::of),
            small_log_scale: log_scale_max(rule.small_max),
            drawn_by: rule.drawn_by,
        }
    }
}

/// Finds what makes a candidate, and counts the candidates.
pub(crate) fn score(
    session: &Session,
    model: &Model,
    rule: &ScoreRule,
    gradient: &GradientRule,
) -> Result<Candidates, DeviceError> {
    let mut counts = session.heap.take(&DENSITY_COUNTS, &1)?;
    let mut count = |absolute_min| {
        counts.zero(&session.stream)?;
        let thresholds = Thresholds::known(gradient, absolute_min);
        mark(session, model, &thresholds, Out::NULL, counts.write())?;
        let DensityCounts { clones, splits, .. } = read(session, &counts)?;
        let (small, large) = (clones as usize, splits as usize);
        Ok::<_, DeviceError>(Candidates { rule: *rule, absolute_min, small, large })
    };
    let candidates = count(None)?;
    // Before any view was observed there are no absolute gradients.
    if !gradient.with_quantile || model.absolute_norm_sums.is_empty() {
        return Ok(candidates);
    }
    let quantile = quantile(session, model, candidates.count())?;
    count(Some(f64::from(quantile)))
}

/// Flags and counts the candidates, as far as the pointers are not null.
pub(super) fn mark(
    session: &Session,
    model: &Model,
    thresholds: &Thresholds,
    flags: Out<'_, u32>,
    counts: Out<'_, DensityCounts>,
) -> Result<(), DeviceError> {
    let args = SurveyArgs {
        geometry: model.geometry(),
        gradient_norm_sums: model.gradient_norm_sums.read(),
        views_seen: model.views_seen.read(),
        absolute_norm_sums: absolute_norm_sums(model, thresholds),
        flags,
        counts,
        n: count_u32(model.len())?,
        gradient_min: thresholds.gradient,
        absolute_min: thresholds.absolute.unwrap_or(0.0),
        clone_log_scale_max: thresholds.small_log_scale,
    };
    session.kernels.survey.over(&session.stream, model.len(), &args)
}

/// What the bar for absolute gradients is held against, where there is one.
pub(super) fn absolute_norm_sums<'a>(model: &'a Model, thresholds: &Thresholds) -> In<'a, f32> {
    if thresholds.absolute.is_some() { model.absolute_norm_sums.read() } else { In::NULL }
}

/// The largest logarithm of a scale whose scale is within a bound.
pub(super) fn log_scale_max(scale_max: f64) -> f32 {
    last_at_most(f32::exp, f32::of(scale_max))
}

pub(super) fn read(
    session: &Session,
    counts: &Block<DensityCounts>,
) -> Result<DensityCounts, DeviceError> {
    let mut host = [DensityCounts {
        clones: 0,
        splits: 0,
        cloned: 0,
        split: 0,
        pruned: 0,
        rows_after_hole: 0,
    }];
    counts.download(&session.stream, 0, &mut host)?;
    Ok(host[0])
}
