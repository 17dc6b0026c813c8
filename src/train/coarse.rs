//! Schedule of SuGaR's coarse stage (Guédon and Lepetit 2024, sections 4.1 and 5).
//!
//! The authors' program starts the stage after iteration 6,999, drives opacities to 0 or 1 from 7,001 to 8,999,
//! prunes transparent Gaussians at 9,001 and applies surface terms from there to 15,000: a quarter of the stage and
//! the rest.

use std::ops::RangeInclusive;

use super::schedule;
use super::span::ImageSpan;
use super::view_step::adam_step;
use crate::backend::{AdamStep, EditRule, Grow, Keep};
use crate::config::{Config, SugarSchedule};

/// Finished iterations at the begin of the stage in the authors' program.
const REFERENCE_START: u32 = 6999;

/// Iterations that drive opacities to 0 or 1 in the authors' program.
const REFERENCE_ENTROPY: RangeInclusive<u32> = 7001..=8999;

/// Iteration after which transparent Gaussians are pruned in the authors' program.
const REFERENCE_PRUNE: u32 = 9000;

/// Divisor of the stage: its first part drives opacities to 0 or 1.
const OPACITIES_PART: u32 = 4;

/// Opacity below which Gaussians are pruned.
const OPAQUE_MIN: f64 = 0.5;

/// Iterations between two searches of neighbours, because the centres move.
const NEIGHBOURS_INTERVAL: u32 = 500;

/// Iterations between two reports of the terms.
const REPORT_INTERVAL: u32 = 100;

/// Schedule of the stage, in iterations of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoarseSchedule {
    /// Last iteration of the photometric stage.
    pub start: u32,
    /// Last iteration of the coarse stage.
    pub last: u32,
    /// Iterations that drive opacities to 0 or 1.
    pub entropy: RangeInclusive<u32>,
    /// Iteration after which transparent Gaussians are pruned.
    pub prune: u32,
    schedule: SugarSchedule,
}

impl CoarseSchedule {
    /// Returns the stage of a run, if it has one.
    pub fn of(config: &Config) -> Option<Self> {
        if !config.has_coarse_stage() {
            return None;
        }
        let (start, last) = (config.optimize.iterations, config.last_iteration());
        let schedule = config.sugar.sugar_schedule;
        let (entropy, prune) = match schedule {
            SugarSchedule::Relative => {
                let quarter = start.saturating_add((last - start) / OPACITIES_PART);
                (start.saturating_add(2)..=quarter, quarter.saturating_add(1))
            }
            SugarSchedule::Absolute => (REFERENCE_ENTROPY, REFERENCE_PRUNE),
        };
        Some(Self { start, last, entropy, prune, schedule })
    }

    /// True if `iteration` (from 1) belongs to the stage.
    pub fn contains(&self, iteration: u32) -> bool {
        iteration > self.start
    }

    /// True if neighbours are found again after a step.
    pub fn is_neighbour_update(&self, span: ImageSpan) -> bool {
        let [before, after] =
            [span.before, span.after].map(|image| image.saturating_sub(self.prune));
        ImageSpan { before, after }.crosses(NEIGHBOURS_INTERVAL)
    }

    /// True if the terms are reported after a step.
    pub fn is_reported(&self, span: ImageSpan) -> bool {
        self.contains(span.after) && span.crosses(REPORT_INTERVAL)
    }

    /// Returns the Adam step over these images. The stage starts with zero moments. The learning rates are those of the
    /// authors' program at the same distance from the start of its stage.
    pub fn step(&self, config: &Config, extent: f64, span: ImageSpan) -> AdamStep {
        let at = match self.schedule {
            SugarSchedule::Relative => REFERENCE_START.saturating_add(span.after - self.start),
            SugarSchedule::Absolute => span.after,
        };
        let rates = schedule::rates(&config.optimize, extent, at);
        adam_step(&config.optimize, span, self.start, rates)
    }
}

/// Rule that prunes transparent Gaussians.
pub const PRUNE_RULE: EditRule = EditRule::Grow {
    large: Grow::Copy,
    keep: Keep { opacity_min: OPAQUE_MIN, scale_max: None, unseen: true },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Regularize;

    fn config(start: u32, schedule: SugarSchedule) -> Config {
        let mut config = Config::default();
        config.optimize.iterations = start;
        config.sugar.regularize = Regularize::Density;
        config.sugar.sugar_schedule = schedule;
        config
    }

    #[test]
    fn the_absolute_schedule_is_the_references() {
        for start in [1, 7000, 8000] {
            let config = config(start, SugarSchedule::Absolute);
            let schedule = CoarseSchedule::of(&config).expect("a stage");
            assert_eq!((schedule.prune, schedule.last), (9000, 15_000));
        }
    }

    #[test]
    fn the_relative_schedule_does_not_depend_on_its_start() {
        for start in [7000, 40_000] {
            let config = config(start, SugarSchedule::Relative);
            let schedule = CoarseSchedule::of(&config).expect("a stage");
            assert_eq!((schedule.prune - start, schedule.last - start), (2001, 8000));
            let reference = schedule::rates(&config.optimize, 2.0, 7122);
            let step = schedule.step(&config, 2.0, ImageSpan::of(start + 123));
            assert_eq!((step.rates, step.number), (reference, 123));
        }
        assert!(CoarseSchedule::of(&Config::default()).is_none());
    }

    #[test]
    fn neighbours_are_updated_every_500_iterations_after_the_prune() {
        let schedule = CoarseSchedule::of(&config(7000, SugarSchedule::Relative)).expect("a stage");
        let found: Vec<u32> = (1..=schedule.last)
            .filter(|&i| schedule.is_neighbour_update(ImageSpan::of(i)))
            .collect();
        assert_eq!((found[0], found.len()), (9501, 11));
    }
}
