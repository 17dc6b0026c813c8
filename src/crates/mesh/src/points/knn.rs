//! Distances of the nearest points, and outliers by them as the reference has them.

use std::num::NonZeroUsize;

use kiddo::{ImmutableKdTree, SquaredEuclidean};
use rayon::prelude::*;

use crate::narrow::to_f32;

/// Which points to keep: those whose mean distance to their `neighbours` nearest is at most the mean of
/// all these means plus `deviations` standard deviations (the reference: 20 and 20).
///
/// Like there, a point counts among its own nearest, at distance 0. A place that is not finite goes.
pub fn outliers_by_neighbours(
    places: &[[f32; 3]],
    neighbours: NonZeroUsize,
    deviations: f64,
) -> Vec<bool> {
    let is_finite = |place: &[f32; 3]| place.iter().all(|x| x.is_finite());
    let finite: Vec<[f32; 3]> = places.iter().copied().filter(is_finite).collect();
    if finite.is_empty() {
        return vec![false; places.len()];
    }
    let Ok(tree) = ImmutableKdTree::<f32, 3>::new_from_slice(&finite) else {
        // An index of 32 bits ran out: that many points hide no outlier.
        return places.iter().map(is_finite).collect();
    };
    let means: Vec<f64> = finite
        .par_iter()
        .map(|place| {
            let near = tree.query(place).nearest_n::<SquaredEuclidean<f32>>(neighbours).execute();
            let mut distances: Vec<f32> = near.iter().map(|n| n.distance.max(0.0).sqrt()).collect();
            distances.sort_unstable_by(f32::total_cmp);
            let sum: f64 = distances.iter().map(|&d| f64::from(d)).sum();
            sum / distances.len().max(1) as f64
        })
        .collect();
    let count = means.len().max(1) as f64;
    let mean = means.iter().sum::<f64>() / count;
    let variance =
        means.iter().map(|m| (m - mean) * (m - mean)).sum::<f64>() / (count - 1.0).max(1.0);
    let most = mean + deviations * variance.sqrt();
    let mut means = means.into_iter();
    let keeps = |place| is_finite(place) && means.next().is_some_and(|mean| mean <= most);
    places.iter().map(keeps).collect()
}

/// Whether any of these points is at most `radius` scene units from each place.
///
/// The time of a place far from all points does not grow with their number.
pub fn have_points_within(points: &[[f32; 3]], places: &[[f32; 3]], radius: f64) -> Vec<bool> {
    let tree = (!points.is_empty()).then(|| ImmutableKdTree::<f32, 3>::new_from_slice(points));
    let Some(Ok(tree)) = tree else { return vec![false; places.len()] };
    let most = to_f32(radius * radius);
    let has_point = |place: &[f32; 3]| {
        let nearest = tree.query(place).nearest_n::<SquaredEuclidean<f32>>(NonZeroUsize::MIN);
        !nearest.within(most).execute().is_empty()
    };
    places.par_iter().map(has_point).collect()
}
