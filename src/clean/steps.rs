//! The rules that look at each Gaussian once.

use std::num::NonZeroUsize;

use kiddo::SquaredEuclidean;
use rayon::prelude::*;

use super::cleaner::{CleanRule, Cleaner};
use crate::backend::TrainDevice;
use crate::math::Real;
use crate::math::linalg::{Vec3, dot, sub};
use crate::model::Gaussians;
use crate::train::event::Split;
use crate::train::{TrainError, Views};

/// Isolation from which on a Gaussian goes that hardly changes the error: 3.5 standard deviations
/// (Iglewicz and Hoaglin 1993).
const ISOLATED: f64 = 3.5;

/// By how much of a Gaussian's weight the error may grow, where it is isolated.
const HARDLY_CHANGES: f64 = 1e-3;

/// Isolation from which on a Gaussian goes without which the error is less.
const RATHER_ISOLATED: f64 = 2.5;

impl<B: TrainDevice> Cleaner<'_, '_, B> {
    /// Nothing changes in any view without those that none shows.
    pub(super) fn drop_unseen(&mut self) {
        for row in self.left(|row| self.now.worths[row].weight_max <= 0.0) {
            self.gone[row] = Some(CleanRule::Unseen);
        }
    }

    pub(super) fn drop_near(&mut self, places: &Places, near: f64) -> Result<(), TrainError> {
        let mut rows = self.left(|row| places.camera_distance[row] < near);
        rows.sort_by(|&a, &b| places.camera_distance[a].total_cmp(&places.camera_distance[b]));
        self.drop_within(rows, CleanRule::Near, 0.5)
    }

    pub(super) fn drop_huge(&mut self, places: &Places) -> Result<(), TrainError> {
        let mut rows = self.left(|row| places.is_huge(row) && self.weight_max(row) < 0.05);
        rows.sort_by(|&a, &b| places.scale[b].total_cmp(&places.scale[a]));
        self.drop_within(rows, CleanRule::Huge, 0.5)
    }

    pub(super) fn drop_isolated(&mut self, gaussians: &Gaussians) -> Result<(), TrainError> {
        for (least, most_harm) in [(ISOLATED, HARDLY_CHANGES), (RATHER_ISOLATED, 0.0)] {
            let left = self.left(|_| true);
            let isolation = isolation(gaussians, &left);
            let rows = left.into_iter().zip(isolation).filter(|&(_, found)| found > least);
            let mut rows: Vec<usize> =
                rows.map(|(row, _)| row).filter(|&row| self.harm(row) < most_harm).collect();
            rows.sort_by(|&a, &b| self.harm(a).total_cmp(&self.harm(b)));
            self.drop_within(rows, CleanRule::Isolated, 0.5)?;
        }
        Ok(())
    }
}

// Removing Gaussians without which the training views hardly change.
//
// How much they change is no question of weight: one that has the colour of what lies behind it can go,
// however opaque it is. What stands in for those that went then counts for more. So a few go at a time, and
// all is measured anew.

/// Share of those left that goes in the first round.
const FIRST_SHARE: f64 = 0.1;

/// Halvings of that share, each after a round that cost too much, before it ends: the last is of 0.6 %.
const HALVINGS: u32 = 4;

/// Rounds at most, whatever may be lost: some 1.5 % of the Gaussians would be left.
const ROUNDS: u32 = 40;

/// Removes those that change the views least, as many as the loss allows.
pub(super) fn drop_redundant<B: TrainDevice>(
    cleaner: &mut Cleaner<'_, '_, B>,
) -> Result<(), TrainError> {
    let (mut share, mut halvings) = (FIRST_SHARE, 0);
    for round in 1..=ROUNDS {
        let rows = least_changing(cleaner, share);
        if rows.is_empty() {
            break;
        }
        let proposal = cleaner.without(&rows, CleanRule::Redundant)?;
        let psnr = proposal.judged.psnr;
        tracing::info!("redundant, round {round}: {}, PSNR {psnr:.3} dB", rows.len());
        if psnr >= cleaner.least() {
            cleaner.accept(proposal);
        } else if halvings < HALVINGS {
            halvings += 1;
            share /= 2.0;
        } else {
            break;
        }
    }
    Ok(())
}

/// The rows of this share of those left, without which the views change least.
fn least_changing<B: TrainDevice>(cleaner: &Cleaner<'_, '_, B>, share: f64) -> Vec<usize> {
    let mut rows = cleaner.left(|_| true);
    let change = |row: usize| cleaner.now.worths[row].squared_change;
    rows.sort_by(|&a, &b| change(a).total_cmp(&change(b)));
    rows.truncate((share * rows.len() as f64).floor_i32().unsigned_abs() as usize);
    rows
}

// Removing Gaussians that harm what the training views show.
//
// That the error would be less without a Gaussian says nothing of removing many of them: neighbours answer
// for one another. So the worst few go, and all is measured anew. Those that were blamed for what was before
// them come back as soon as that has gone.

/// Share of the Gaussians that go in the first round, at most.
const HARMFUL_FIRST_SHARE: f64 = 0.005;

/// Share of a Gaussian's weight by which the error must fall without it.
const HARM_MIN: f64 = 2e-3;

/// By how much a round has to raise the PSNR, dB.
const RISE_MIN: f64 = 2e-3;

/// Where the error fell by this share of what was expected, more go in the next round.
const AS_EXPECTED: f64 = 0.5;

/// Rounds one after the other that did not help, before it ends. Each has a quarter as many as the one
/// before.
const FAILURES: u32 = 3;

/// Removes the worst, round by round, as long as the PSNR rises.
pub(super) fn drop_harmful<B: TrainDevice>(
    cleaner: &mut Cleaner<'_, '_, B>,
) -> Result<(), TrainError> {
    let mut most = (HARMFUL_FIRST_SHARE * cleaner.gone.len() as f64).max(1.0);
    let mut failures = 0;
    for round in 1..=ROUNDS {
        let changes = worst(cleaner, most.floor_i32().unsigned_abs() as usize);
        if changes.is_empty() {
            break;
        }
        let mut gone = cleaner.gone.clone();
        for &row in &changes {
            gone[row] = if gone[row].is_some() { None } else { Some(CleanRule::Harmful) };
        }
        let error_change = |&row: &usize| f64::from(cleaner.now.worths[row].error_change);
        let expected: f64 = changes.iter().map(error_change).sum();
        let proposal = cleaner.propose(gone)?;
        let fell = cleaner.now.squared_error - proposal.judged.squared_error;
        tracing::info!(
            "round {round}: {} change, PSNR {:.3} dB",
            changes.len(),
            proposal.judged.psnr
        );
        if proposal.judged.psnr < cleaner.now.psnr + RISE_MIN {
            failures += 1;
            most = (most / 4.0).max(1.0);
            if failures == FAILURES {
                break;
            }
            continue;
        }
        failures = 0;
        most = if fell > -AS_EXPECTED * expected { most * 2.0 } else { (most / 2.0).max(1.0) };
        cleaner.accept(proposal);
    }
    Ok(())
}

/// The rows whose change lowers the error most: those left that would go, and those gone that would come
/// back.
fn worst<B: TrainDevice>(cleaner: &Cleaner<'_, '_, B>, most: usize) -> Vec<usize> {
    let may_change = |row: &usize| {
        let gone = cleaner.gone[*row];
        gone.is_none_or(|rule| rule == CleanRule::Harmful) && cleaner.harm(*row) < -HARM_MIN
    };
    let mut rows: Vec<usize> = (0..cleaner.gone.len()).filter(may_change).collect();
    let change = |row: usize| cleaner.now.worths[row].error_change;
    rows.sort_by(|&a, &b| change(a).total_cmp(&change(b)));
    rows.truncate(most);
    rows
}

// Positions and sizes of Gaussians, by which those right before cameras and huge ones are found.

/// Share of the centres, along each axis, that the scene's box leaves out at each end.
const OUTSIDE: f64 = 0.005;

/// A Gaussian is huge whose largest standard deviation exceeds the box's longest side by this factor.
const HUGE: f64 = 2.0;

/// Where Gaussians are, and how large.
pub(super) struct Places {
    /// To the nearest training camera, world units.
    pub(super) camera_distance: Vec<f64>,
    /// The largest standard deviation, world units.
    pub(super) scale: Vec<f64>,
    /// The longest side of the box of most centres, world units.
    box_side: f64,
}

impl Places {
    pub(super) fn of(gaussians: &Gaussians, views: &Views<'_>) -> Self {
        let means = gaussians.means.as_chunks().0;
        let train = views.split(Split::Train).iter();
        let cameras: Vec<Vec3<f64>> =
            train.map(|&index| views.view(index).pose.centre_world()).collect();
        let distance = |mean: &[f32; 3]| {
            let mean = mean.map(f64::from);
            let squared = |camera: &Vec3<f64>| {
                let away = sub(mean, *camera);
                dot(away, away)
            };
            cameras.iter().map(squared).fold(f64::INFINITY, f64::min).sqrt()
        };
        let scale = |scales: &[f32; 3]| {
            f64::from(scales.iter().copied().fold(f32::NEG_INFINITY, f32::max)).exp()
        };
        Self {
            camera_distance: means.par_iter().map(distance).collect(),
            scale: gaussians.log_scales.as_chunks().0.iter().map(scale).collect(),
            box_side: box_side(means),
        }
    }

    /// True if it is far larger than the scene.
    pub(super) fn is_huge(&self, row: usize) -> bool {
        self.scale[row] > HUGE * self.box_side
    }
}

/// The longest side of the box of most centres.
fn box_side(means: &[[f32; 3]]) -> f64 {
    let side = |axis: usize| {
        let mut values: Vec<f32> = means.iter().map(|mean| mean[axis]).collect();
        values.sort_unstable_by(f32::total_cmp);
        let outside = (OUTSIDE * values.len() as f64).floor_i32().unsigned_abs();
        let (low, high) = (outside as usize, values.len().checked_sub(1 + outside as usize));
        high.map_or(0.0, |high| f64::from(values[high.max(low)]) - f64::from(values[low]))
    };
    (0..3).map(side).fold(0.0, f64::max)
}

// Distances of Gaussians from all others.

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
