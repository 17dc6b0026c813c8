//! Distances of the nearest points, and outliers by them as the reference has them.

use std::num::NonZeroUsize;

use kiddo::{ImmutableKdTree, SquaredEuclidean};
use rayon::prelude::*;

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

/// The distance of the nearest of these points to each place, scene units; infinite where there is no point.
pub fn nearest_distances(points: &[[f32; 3]], places: &[[f32; 3]]) -> Vec<f32> {
    let tree = (!points.is_empty()).then(|| ImmutableKdTree::<f32, 3>::new_from_slice(points));
    let Some(Ok(tree)) = tree else { return vec![f32::INFINITY; places.len()] };
    let nearest = |place: &[f32; 3]| {
        let near = tree.query(place).nearest_one::<SquaredEuclidean<f32>>().execute();
        near.distance.max(0.0).sqrt()
    };
    places.par_iter().map(nearest).collect()
}
