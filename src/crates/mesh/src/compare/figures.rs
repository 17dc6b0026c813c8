//! Distances between two surfaces, and what is said of them.

use rayon::prelude::*;
use serde::Serialize;

use super::SurfaceSamples;
use crate::mesh::Vec3;
use crate::narrow::to_f32;
use crate::search::{BoxTree, Nearest};
use crate::vector::dot;

/// One sample's way to the other surface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// Distance, world units; infinite beyond the clamp.
    pub(super) distance: f64,
    /// Of the normals of both faces; of nothing where there is no other.
    pub(super) cosine: Option<f32>,
    /// What the filter said of the nearest place.
    pub(super) is_seen: bool,
}

/// Distances from samples of one surface to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Distances {
    /// Samples.
    pub samples: usize,
    /// Mean distance, world units.
    pub mean: f64,
    /// Median distance, world units.
    pub median: f64,
    /// 95 % of the distances are smaller, world units.
    pub p95: f64,
    /// Share of samples farther than the clamp, which count as that.
    pub clamped_share: f64,
    /// Mean |n · n'| over the others.
    pub normal_agreement: f64,
    /// Share of them with n · n' < 0.
    pub opposed_share: f64,
}

/// How much of both surfaces agrees within a distance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Score {
    /// The distance, world units.
    pub threshold: f64,
    /// Share of the mesh nearer than that to the truth.
    pub precision: f64,
    /// Share of the truth nearer than that to the mesh.
    pub recall: f64,
    /// 2 P R / (P + R).
    pub f_score: f64,
}

/// Figures of two surfaces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// From the mesh to the truth.
    pub accuracy: Distances,
    /// From the truth to the mesh.
    pub completeness: Distances,
    /// Half the sum of both means, world units.
    pub chamfer: f64,
    /// At several distances.
    pub scores: Vec<Score>,
}

impl Figures {
    pub(super) fn of(
        accuracy: &[Measured],
        completeness: &[Measured],
        clamp: f64,
        thresholds: &[f64],
    ) -> Self {
        let score = |&threshold: &f64| {
            let [precision, recall] =
                [accuracy, completeness].map(|measured| share_under(measured, threshold));
            let sum = precision + recall;
            let f_score = if sum > 0.0 { 2.0 * precision * recall / sum } else { 0.0 };
            Score { threshold, precision, recall, f_score }
        };
        let scores = thresholds.iter().map(score).collect();
        let accuracy = Distances::of(accuracy, clamp);
        let completeness = Distances::of(completeness, clamp);
        let chamfer = 0.5 * (accuracy.mean + completeness.mean);
        Self { accuracy, completeness, chamfer, scores }
    }
}

impl Distances {
    fn of(measured: &[Measured], clamp: f64) -> Self {
        if measured.is_empty() {
            return Self::default();
        }
        let samples = measured.len();
        let mut distances: Vec<f64> = measured.iter().map(|m| m.distance.min(clamp)).collect();
        let mean = distances.iter().sum::<f64>() / samples as f64;
        distances.par_sort_unstable_by(f64::total_cmp);
        // The least value that a share of all does not exceed.
        let quantile = |percent: usize| distances[(samples * percent).div_ceil(100).max(1) - 1];
        let clamped = measured.iter().filter(|m| m.distance > clamp).count();
        let cosines = || measured.iter().filter_map(|m| m.cosine).map(f64::from);
        let compared = cosines().count().max(1) as f64;
        Self {
            samples,
            mean,
            median: quantile(50),
            p95: quantile(95),
            clamped_share: clamped as f64 / samples as f64,
            normal_agreement: cosines().map(f64::abs).sum::<f64>() / compared,
            opposed_share: cosines().filter(|&cosine| cosine < 0.0).count() as f64 / compared,
        }
    }
}

/// Share of the samples nearer than `threshold`.
fn share_under(measured: &[Measured], threshold: f64) -> f64 {
    let under = measured.iter().filter(|m| m.distance < threshold).count();
    under as f64 / measured.len().max(1) as f64
}

/// The way from each sample to the surface of `tree`, in the samples' order.
pub(super) fn measure(
    samples: &SurfaceSamples<'_>,
    from: &BoxTree<'_>,
    to: &BoxTree<'_>,
    clamp: f64,
    is_seen: impl Fn(&Nearest) -> bool + Sync,
) -> Vec<Measured> {
    let indices = (0..samples.len()).into_par_iter();
    indices
        .map(|index| {
            let sample = samples.get(index);
            let mut measured = way(sample.place, from.normal(sample.face), to, clamp);
            if let Some(nearest) = measured.1 {
                measured.0.is_seen = is_seen(&nearest);
            }
            measured.0
        })
        .collect()
}

/// The way from a place of one surface, whose normal there is `normal`, to another surface.
pub(super) fn way(
    place: Vec3,
    normal: Vec3,
    to: &BoxTree<'_>,
    clamp: f64,
) -> (Measured, Option<Nearest>) {
    let nearest = to.nearest(place, clamp);
    let cosine = nearest.map(|nearest| to_f32(dot(normal, to.normal(nearest.face))));
    let distance = nearest.map_or(f64::INFINITY, |nearest| nearest.distance);
    (Measured { distance, cosine, is_seen: false }, nearest)
}
