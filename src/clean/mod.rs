//! Removes Gaussians from a trained model that no view needs or that harm views: floaters, haze, and unseen ones.
//!
//! Contributions and PSNR are measured over the training views, so that no rule takes a step that loses more PSNR
//! than allowed. Held-out views are not used.

mod cleaner;

use std::num::NonZeroUsize;

use kiddo::SquaredEuclidean;
use rayon::prelude::*;
use serde::Serialize;

use self::cleaner::{Cleaner, Evaluator};
use crate::backend::{Contribution, RenderSettings, TrainDevice};
use crate::math::Real;
use crate::math::linalg::{Vec3, dot, sub};
use crate::memory::Bytes;
use crate::model::{Gaussians, Primitive};
use crate::train::event::Split;
use crate::train::{TrainError, Views};

pub use self::cleaner::{CleanOptions, CleanRule};

/// Number of Gaussians that a rule removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RemovedByRule {
    /// The rule.
    pub rule: CleanRule,
    /// Number of Gaussians.
    pub removed: usize,
}

/// Result of cleaning.
#[derive(Clone, Debug)]
pub struct Cleaning {
    /// Rule that removes each Gaussian, if any.
    pub gone: Vec<Option<CleanRule>>,
    /// Mean PSNR of the training views before cleaning, dB.
    pub psnr_before: f64,
    /// Mean PSNR after all rules except the crop, which comes last, dB.
    pub psnr_after: f64,
    /// Number of passes over the training views.
    pub passes: u32,
}

impl Cleaning {
    /// Counts the removed Gaussians of each rule, in the order of the rules.
    pub fn by_rule(&self) -> Vec<RemovedByRule> {
        let count = |rule| self.gone.iter().filter(|&&gone| gone == Some(rule)).count();
        CleanRule::ALL.map(|rule| RemovedByRule { rule, removed: count(rule) }).to_vec()
    }

    /// Returns the Gaussians that stay, in their order.
    pub fn left(&self, gaussians: &Gaussians) -> Gaussians {
        gaussians.gather((0..self.gone.len()).filter(|&row| self.gone[row].is_none()))
    }

    /// Returns the number of removed Gaussians.
    pub fn removed(&self) -> usize {
        self.gone.iter().flatten().count()
    }
}

/// Finds the Gaussians to remove. `None` if no training view has an image.
pub fn clean<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    views: &mut Views<'_>,
    settings: RenderSettings,
    options: &CleanOptions,
) -> Result<Option<Cleaning>, TrainError> {
    let extents = Extents::of(gaussians, views);
    let mut evaluator = Evaluator::new(device, gaussians, views, settings)?;
    let Some(now) = evaluator.evaluate(&vec![None; gaussians.len()])? else { return Ok(None) };
    let (psnr_before, max_loss) = (now.psnr, options.max_loss);
    tracing::info!("{} Gaussians, PSNR {psnr_before:.3} dB on training views", gaussians.len());
    let gone = vec![None; gaussians.len()];
    let (before, best) = (psnr_before, psnr_before);
    let mut cleaner = Cleaner { evaluator, gone, now, before, best, max_loss };
    cleaner.drop_unseen();
    cleaner.drop_near(&extents, options.near)?;
    cleaner.drop_huge(&extents)?;
    drop_harmful(&mut cleaner)?;
    cleaner.drop_isolated(gaussians)?;
    // Gaussians that covered errors of the isolated ones may come back.
    drop_harmful(&mut cleaner)?;
    drop_redundant(&mut cleaner)?;
    cleaner.drop_unseen();
    let psnr_after = cleaner.now.psnr;
    let (mut gone, passes) = (cleaner.gone, cleaner.evaluator.passes);
    for (gone, &place) in gone.iter_mut().zip(gaussians.means.as_chunks().0) {
        if !options.keeps(place) {
            *gone = Some(CleanRule::Cropped);
        }
    }
    Ok(Some(Cleaning { gone, psnr_before, psnr_after, passes }))
}

/// Returns the largest host memory of cleaning beside a model of this size: contributions with and without a
/// step, positions, distances and rules.
pub fn bytes_beside(gaussians: usize) -> Bytes {
    // On the CPU a third and a fourth copy are being computed.
    let contributions = Bytes::of::<[Contribution; 4]>(gaussians);
    let extents = Bytes::of::<[[f32; 3]; 3]>(gaussians) + Bytes::of::<[f64; 6]>(gaussians);
    contributions + extents + Bytes::of::<[Option<CleanRule>; 4]>(gaussians)
}

/// Isolation above which a Gaussian is removed if it hardly changes the error: 3.5 standard deviations (Iglewicz and
/// Hoaglin 1993).
const ISOLATION_MIN: f64 = 3.5;

/// Allowed growth of the error by an isolated Gaussian, as a share of its weight.
const ISOLATED_HARM_MAX: f64 = 1e-3;

/// Isolation above which a Gaussian is removed if the error falls.
const HARMFUL_ISOLATION_MIN: f64 = 2.5;

impl<B: TrainDevice> Cleaner<'_, '_, B> {
    /// Removes Gaussians that no view shows, which changes no view.
    fn drop_unseen(&mut self) {
        for row in self.left(|row| self.now.contributions[row].weight_max <= 0.0) {
            self.gone[row] = Some(CleanRule::Unseen);
        }
    }

    fn drop_near(&mut self, extents: &Extents, near: f64) -> Result<(), TrainError> {
        let rows = self.left(|row| extents.camera_distance[row] < near);
        let rows = sorted(rows, |row| extents.camera_distance[row]);
        self.drop_within(rows, CleanRule::Near, 0.5)
    }

    fn drop_huge(&mut self, extents: &Extents) -> Result<(), TrainError> {
        let rows = self.left(|row| {
            extents.scale[row] > HUGE_FACTOR * extents.box_side && self.weight_max(row) < 0.05
        });
        self.drop_within(sorted(rows, |row| -extents.scale[row]), CleanRule::Huge, 0.5)
    }

    fn drop_isolated(&mut self, gaussians: &Gaussians) -> Result<(), TrainError> {
        for (isolation_min, harm_max) in
            [(ISOLATION_MIN, ISOLATED_HARM_MAX), (HARMFUL_ISOLATION_MIN, 0.0)]
        {
            let left = self.left(|_| true);
            let isolation = isolation(gaussians, &left);
            let rows = left.into_iter().zip(isolation).filter(|&(_, found)| found > isolation_min);
            let rows = rows.map(|(row, _)| row).filter(|&row| self.harm(row) < harm_max).collect();
            let rows = sorted(rows, |row| self.harm(row));
            self.drop_within(rows, CleanRule::Isolated, 0.5)?;
        }
        Ok(())
    }
}

/// Returns the rows in ascending order of a value.
fn sorted<T: Into<f64>>(mut rows: Vec<usize>, value: impl Fn(usize) -> T) -> Vec<usize> {
    rows.sort_by(|&a, &b| value(a).into().total_cmp(&value(b).into()));
    rows
}

// Removing Gaussians without which the training views hardly change.
//
// The blend weight does not tell the change: a Gaussian with the colour of its background can go, however opaque it
// is. Its neighbours then count for more, so only a few go at a time, and all are measured again.

/// Share of the Gaussians left that the first step removes.
const FIRST_SHARE: f64 = 0.1;

/// Halvings of that share, each after a step that cost too much. The last share is 0.6 %.
const HALVINGS: u32 = 4;

/// Largest number of steps. About 1.5 % of the Gaussians would be left.
const MAX_STEPS: u32 = 40;

/// Removes the Gaussians that change the views least, as many as the loss allows.
fn drop_redundant<B: TrainDevice>(cleaner: &mut Cleaner<'_, '_, B>) -> Result<(), TrainError> {
    let (mut share, mut halvings) = (FIRST_SHARE, 0);
    for round in 1..=MAX_STEPS {
        let rows = least_changing(cleaner, share);
        if rows.is_empty() {
            break;
        }
        let proposal = cleaner.without(&rows, CleanRule::Redundant)?;
        let psnr = proposal.evaluation.psnr;
        tracing::info!("redundant, round {round}: {}, PSNR {psnr:.3} dB", rows.len());
        if psnr >= cleaner.min_psnr() {
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

/// Returns this share of the rows left, those that change the views least.
fn least_changing<B: TrainDevice>(cleaner: &Cleaner<'_, '_, B>, share: f64) -> Vec<usize> {
    let rows = cleaner.left(|_| true);
    let mut rows = sorted(rows, |row| cleaner.now.contributions[row].squared_change);
    rows.truncate((share * rows.len() as f64).floor_i32().unsigned_abs() as usize);
    rows
}

// Removing Gaussians that harm the training views.
//
// The change of the error by one Gaussian does not hold for many, because neighbours cover each other's errors. So
// only the worst few go, and all are measured again. Gaussians that were blamed for a removed one come back.

/// Largest share of the Gaussians in the first step.
const HARMFUL_FIRST_SHARE: f64 = 0.005;

/// Share of a Gaussian's weight by which the error must fall without it.
const HARM_MIN: f64 = 2e-3;

/// Smallest rise of the PSNR by a step, dB.
const RISE_MIN: f64 = 2e-3;

/// Share of the expected fall of the error above which the next step is larger.
const EXPECTED_SHARE: f64 = 0.5;

/// Consecutive steps without success before the end. Each has a quarter of the size of the step before.
const MAX_FAILURES: u32 = 3;

/// Removes the worst Gaussians step by step while the PSNR rises.
fn drop_harmful<B: TrainDevice>(cleaner: &mut Cleaner<'_, '_, B>) -> Result<(), TrainError> {
    let mut most = (HARMFUL_FIRST_SHARE * cleaner.gone.len() as f64).max(1.0);
    let mut failures = 0;
    for round in 1..=MAX_STEPS {
        let changes = worst(cleaner, most.floor_i32().unsigned_abs() as usize);
        if changes.is_empty() {
            break;
        }
        let mut gone = cleaner.gone.clone();
        for &row in &changes {
            gone[row] = if gone[row].is_some() { None } else { Some(CleanRule::Harmful) };
        }
        let error_change = |&row: &usize| f64::from(cleaner.now.contributions[row].error_change);
        let expected: f64 = changes.iter().map(error_change).sum();
        let proposal = cleaner.propose(gone)?;
        let fell = cleaner.now.squared_error - proposal.evaluation.squared_error;
        tracing::info!(
            "round {round}: {} change, PSNR {:.3} dB",
            changes.len(),
            proposal.evaluation.psnr
        );
        if proposal.evaluation.psnr < cleaner.now.psnr + RISE_MIN {
            failures += 1;
            most = (most / 4.0).max(1.0);
            if failures == MAX_FAILURES {
                break;
            }
            continue;
        }
        failures = 0;
        most = if fell > -EXPECTED_SHARE * expected { most * 2.0 } else { (most / 2.0).max(1.0) };
        cleaner.accept(proposal);
    }
    Ok(())
}

/// Returns the rows whose change lowers the error most: rows to remove and rows to bring back.
fn worst<B: TrainDevice>(cleaner: &Cleaner<'_, '_, B>, most: usize) -> Vec<usize> {
    let may_change = |row: &usize| {
        let gone = cleaner.gone[*row];
        gone.is_none_or(|rule| rule == CleanRule::Harmful) && cleaner.harm(*row) < -HARM_MIN
    };
    let rows = (0..cleaner.gone.len()).filter(may_change).collect();
    let mut rows = sorted(rows, |row| cleaner.now.contributions[row].error_change);
    rows.truncate(most);
    rows
}

/// Share of the centres beyond the scene's box at each end of each axis.
const OUTSIDE_SHARE: f64 = 0.005;

/// Ratio of a Gaussian's largest standard deviation to the box's longest side above which it is huge.
const HUGE_FACTOR: f64 = 2.0;

struct Extents {
    /// Distances to the nearest training camera, world units.
    camera_distance: Vec<f64>,
    /// Largest standard deviations, world units.
    scale: Vec<f64>,
    /// Longest side of the box around most centres, world units.
    box_side: f64,
}

impl Extents {
    fn of(gaussians: &Gaussians, views: &Views<'_>) -> Self {
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
}

fn box_side(means: &[[f32; 3]]) -> f64 {
    let side = |axis: usize| {
        let mut values: Vec<f32> = means.iter().map(|mean| mean[axis]).collect();
        values.sort_unstable_by(f32::total_cmp);
        let outside = (OUTSIDE_SHARE * values.len() as f64).floor_i32().unsigned_abs();
        let (low, high) = (outside as usize, values.len().checked_sub(1 + outside as usize));
        high.map_or(0.0, |high| f64::from(values[high.max(low)]) - f64::from(values[low]))
    };
    (0..3).map(side).fold(0.0, f64::max)
}

/// Number of neighbours. With a few, a pair of floaters would hide one another.
const NEIGHBOURS: usize = 16;

/// Ratio of a normal distribution's standard deviation to its median absolute deviation.
const NORMAL_DEVIATIONS: f64 = 1.4826;

/// Returns the isolation of each of these rows among them: the logarithm of the mean distance to the nearest others,
/// minus its median, in robust standard deviations (Iglewicz and Hoaglin 1993). 0 if all distances are equal.
fn isolation(gaussians: &Gaussians, rows: &[usize]) -> Vec<f64> {
    let means = gaussians.means.as_chunks::<3>().0;
    let means: Vec<[f32; 3]> = rows.iter().map(|&row| means[row]).collect();
    let distances: Vec<f64> = mean_distances(&means);
    let typical = median(&distances);
    let apart: Vec<f64> = distances.iter().map(|distance| distance - typical).collect();
    let spread =
        NORMAL_DEVIATIONS * median(&apart.iter().map(|apart| apart.abs()).collect::<Vec<_>>());
    apart.iter().map(|apart| if spread > 0.0 { apart / spread } else { 0.0 }).collect()
}

fn mean_distances(means: &[[f32; 3]]) -> Vec<f64> {
    let wanted = NonZeroUsize::new((NEIGHBOURS + 1).min(means.len()));
    let Some(wanted) = wanted.filter(|wanted| wanted.get() > 1) else {
        return vec![0.0; means.len()];
    };
    let Ok(tree) = kiddo::ImmutableKdTree::<f32, 3>::new_from_slice(means) else {
        return vec![0.0; means.len()];
    };
    let distance = |mean: &[f32; 3]| {
        // The Gaussian itself, or one at its position, comes first at distance 0.
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
    fn only_gaussians_far_from_a_crowd_are_isolated() {
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
        // A corner has an eighth of the neighbours: twice the distance, log 2 above the median.
        let crowd = found[..1000].iter().copied().fold(0.0, f64::max);
        assert!(3.0 * crowd < found[1000], "{crowd} {}", found[1000]);
        // A single row has no neighbours.
        assert_eq!(isolation(&at(&means), &[1000]), [0.0]);
        assert_eq!(isolation(&at(&[[1.0; 3]; 20]), &(0..20).collect::<Vec<_>>()), [0.0; 20]);
        assert!(isolation(&at(&[]), &[]).is_empty());
    }
}
