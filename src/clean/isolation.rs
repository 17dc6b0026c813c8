//! How far Gaussians are from all others.

use std::num::NonZeroUsize;

use kiddo::SquaredEuclidean;
use rayon::prelude::*;

use crate::model::Gaussians;

/// Others that a Gaussian's distance is taken from. Of few, a pair of floaters would hide one another.
const NEIGHBOURS: usize = 16;

/// Standard deviations of a normal distribution to a median of absolute deviations.
const DEVIATIONS: f64 = 1.4826;

/// How much farther each of these rows is from the nearest others of them than usual: the logarithm of the
/// mean distance, less its median, in standard deviations as the median of absolute deviations tells them
/// (Iglewicz and Hoaglin 1993). 0 where all are alike.
pub(super) fn isolation(gaussians: &Gaussians, rows: &[usize]) -> Vec<f64> {
    let means = gaussians.means.as_chunks::<3>().0;
    let means: Vec<[f32; 3]> = rows.iter().map(|&row| means[row]).collect();
    let distances: Vec<f64> = mean_distances(&means);
    let typical = median(&distances);
    let apart: Vec<f64> = distances.iter().map(|distance| distance - typical).collect();
    let spread = DEVIATIONS * median(&apart.iter().map(|apart| apart.abs()).collect::<Vec<_>>());
    apart.iter().map(|apart| if spread > 0.0 { apart / spread } else { 0.0 }).collect()
}

/// Logarithms of the mean distances to the nearest others.
fn mean_distances(means: &[[f32; 3]]) -> Vec<f64> {
    let wanted = NonZeroUsize::new((NEIGHBOURS + 1).min(means.len()));
    let Some(wanted) = wanted.filter(|wanted| wanted.get() > 1) else {
        return vec![0.0; means.len()];
    };
    let Ok(tree) = kiddo::ImmutableKdTree::<f32, 3>::new_from_slice(means) else {
        return vec![0.0; means.len()];
    };
    let distance = |mean: &[f32; 3]| {
        // It comes first itself, or one that coincides with it, at distance 0.
        let near = tree.query(mean).nearest_n::<SquaredEuclidean<f32>>(wanted).execute();
        let sum: f64 = near.iter().skip(1).map(|near| f64::from(near.distance).sqrt()).sum();
        (sum / (wanted.get() - 1) as f64).max(f64::MIN_POSITIVE).ln()
    };
    means.par_iter().map(distance).collect()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(means: &[[f32; 3]]) -> Gaussians {
        let mut gaussians = Gaussians::zeros(0, means.len());
        gaussians.means = means.as_flattened().to_vec();
        gaussians
    }

    #[test]
    fn one_far_from_a_crowd_is_isolated_and_the_crowd_is_not() {
        let mut means: Vec<[f32; 3]> = (0..1000_u16)
            .map(|i| {
                let grid = [i % 10, i / 10 % 10, i / 100];
                let moved = [i * 37 % 101, i * 53 % 103, i * 29 % 107];
                std::array::from_fn(|k| f32::from(grid[k]) + f32::from(moved[k]) / 120.0)
            })
            .collect();
        means.push([40.0, 4.0, 4.0]);
        let rows: Vec<usize> = (0..means.len()).collect();
        let found = isolation(&at(&means), &rows);
        assert!(found[1000] > 10.0, "{}", found[1000]);
        // At corners there are an eighth as many on all sides: twice as far, log 2 above the median.
        let crowd = found[..1000].iter().copied().fold(0.0, f64::max);
        assert!(3.0 * crowd < found[1000], "{crowd} {}", found[1000]);
        // Of one alone there is nothing to be far from.
        assert_eq!(isolation(&at(&means), &[1000]), [0.0]);
    }

    #[test]
    fn those_in_one_place_and_none_at_all_are_not_isolated() {
        assert_eq!(isolation(&at(&[[1.0; 3]; 20]), &(0..20).collect::<Vec<_>>()), [0.0; 20]);
        assert!(isolation(&at(&[]), &[]).is_empty());
    }
}
