//! Interface of a strategy of density control.

use std::ops::Range;

use crate::backend::{
    Adjust, Candidates, Edit, EditRule, Edited, Faces, MotionReach, Noise, Pick, Reach,
    Regularisers, Remesh, Statistics,
};
use crate::config::{Config, DensifyOptions, OptimizeOptions, PrimitiveName, RegReach};
use crate::math::random::{RandomStream, RandomUse};
use crate::memory::plan::DensifyShape;
use crate::model::Gaussians;
use crate::train::event::DensifyReport;
use crate::train::pace::Turn;
use crate::train::schedule::rates;
use crate::train::span::ImageSpan;
use crate::train::view_step::rate_factor;
use crate::train::{SceneScale, TrainError};

/// Strategy of density control. It depends only on the options and the iteration, so that a resumed
/// run repeats an uninterrupted one.
pub trait Strategy<D: Edit<Gaussians>> {
    /// Returns the statistics that the backward pass of `iteration` (from 1) gathers, if any.
    fn observes(&self, iteration: u32) -> Option<Statistics>;

    /// Returns the extras of a step beside the gradients of the loss.
    fn step_extras(&self, turn: Turn) -> StepExtras;

    /// Returns the schedule of densification steps.
    fn schedule(&self) -> DensifySchedule;

    /// True if a densification step follows a step.
    fn due(&self, span: ImageSpan) -> bool {
        self.schedule().is_due(span)
    }

    /// True if Gaussians are sorted by position after that densification step.
    fn reorders(&self, span: ImageSpan) -> bool {
        self.schedule().reorders(span)
    }

    /// Returns the minimum number of images between two densification steps in a run with a clock, if it differs from
    /// [`least_images`].
    fn images_of_window(&self, images_per_iteration: Option<f64>) -> Option<u32> {
        let _ = images_per_iteration;
        None
    }

    /// Runs the densification step after the finished iterations.
    fn densify(&self, site: &mut Site<'_, D>) -> Result<DensifyReport, TrainError>;

    /// Returns the change of all Gaussians after a step and its densification step.
    ///
    /// `images_since`: images since the last such change, in runs with a clock.
    fn adjust(&self, span: ImageSpan, images_since: Option<u32>) -> Option<Adjust>;

    /// Returns the shape of the memory of a densification step, as `splat plan` uses it.
    fn shape(&self) -> DensifyShape {
        DensifyShape::Grow
    }
}

/// Extras of a step beside the gradients of the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepExtras {
    /// Regularization that keeps Gaussians few and small.
    pub regularisers: Regularisers,
    /// Random motion.
    pub noise: Option<Noise>,
    /// Decay of the SH coefficients above degree 0 per step, relative to their learning rate.
    pub sh_decay_rate: f64,
    /// Upper limit of the standard deviations relative to the distance from a camera; 0 for none.
    pub scale_limit: f64,
}

impl StepExtras {
    /// Returns the extras that the options add for every strategy. Scales are divided by the scene's unit, so that
    /// the effect does not depend on the scene's size.
    pub(super) fn of(config: &Config, scene: SceneScale) -> Self {
        let options = &config.optimize;
        let scale = options.scale_reg / scene.unit;
        let reach = match options.reg_reach {
            RegReach::Seen => Reach::Seen,
            // `Auto` is left only if there are no photographs.
            RegReach::All | RegReach::Auto => Reach::All,
        };
        let regularisers = Regularisers { opacity: options.opacity_reg, scale, reach };
        // Around a cut-out object nothing is lost behind haze, and larger Gaussians fit what masks hide.
        // Scales of vertices are the sizes of their triangles.
        let is_limited = reach == Reach::Seen && options.primitive != PrimitiveName::Triangles;
        let scale_limit = if is_limited { options.scale_limit } else { 0.0 };
        Self { regularisers, scale_limit, ..Self::default() }
    }
}

/// Random motion of Gaussians after every step.
#[derive(Clone, Debug)]
pub(super) struct RandomMotion {
    optimize: OptimizeOptions,
    /// Factor on the learning rate of the centres.
    noise_lr: f64,
    moved: MotionReach,
    seed: u64,
    scene: SceneScale,
}

impl RandomMotion {
    /// Creates the motion at `noise_lr` times the learning rate of the centres.
    pub(super) fn new(
        config: &Config,
        scene: SceneScale,
        noise_lr: f64,
        moved: MotionReach,
    ) -> Self {
        Self { optimize: config.optimize.clone(), noise_lr, moved, seed: config.run.seed, scene }
    }

    /// Returns the motion of a step. It is proportional to covariances and divided by the square of the scene's unit,
    /// so that the effect does not depend on the scene's size.
    pub(super) fn of_step(&self, turn: Turn) -> Option<Noise> {
        let SceneScale { extent, unit } = self.scene;
        let stream = RandomStream::new(self.seed, turn.images.after.into(), RandomUse::Noise);
        (self.noise_lr > 0.0).then(|| Noise {
            // As in gsplat, this is the rate of the next iteration.
            rate: rates(&self.optimize, extent, turn.iteration().saturating_add(1)).means
                * rate_factor(&self.optimize, turn.images)
                * self.noise_lr
                / (unit * unit),
            key: stream.key(),
            moved: self.moved,
        })
    }
}

/// Model of a densification step, on its device.
pub struct Site<'a, D: Edit<Gaussians>> {
    /// Device of the model.
    pub device: &'a mut D,
    /// Handle of the model.
    pub model: &'a mut D::Model,
    /// Finished step.
    pub span: ImageSpan,
    /// Number of images per iteration, in runs with a clock.
    pub images_per_iteration: Option<f64>,
    /// Sentences about skipped work, for the user.
    pub left_out: Vec<String>,
}

impl<D: Edit<Gaussians>> Site<'_, D> {
    /// Returns the number of Gaussians.
    pub(super) fn len(&self) -> usize {
        self.device.len(self.model)
    }

    /// Edits the model by the first of the picks that fits in memory. If none fits, the model stays unchanged, and
    /// the run warns with `what`.
    pub fn edit(
        &mut self,
        candidates: &Candidates,
        picks: &[Pick],
        rule: &EditRule,
        what: &str,
    ) -> Result<Option<Edited>, TrainError> {
        let mut refusal = None;
        for &pick in picks {
            let selected = self.device.select(self.model, candidates, pick);
            match selected.and_then(|selected| self.device.edit(self.model, selected, rule)) {
                Err(error) if error.is_out_of_memory() => refusal = Some(error),
                done => return Ok(Some(done?)),
            }
        }
        self.left_out.extend(refusal.map(|error| format!("{what}: {error}")));
        Ok(None)
    }
}

impl<D: Faces> Site<'_, D> {
    /// Applies the first of the changes that fits in memory and returns it. If none fits, the mesh stays unchanged,
    /// and the run warns with `what`.
    pub fn remesh<'c, 'm>(
        &mut self,
        changes: &'c [Remesh<'m>],
        what: &str,
    ) -> Result<Option<&'c Remesh<'m>>, TrainError> {
        let mut refusal = None;
        for change in changes {
            match self.device.remesh(self.model, change) {
                Err(error) if error.is_out_of_memory() => refusal = Some(error),
                done => return Ok(done.map(|()| Some(change))?),
            }
        }
        self.left_out.extend(refusal.map(|error| format!("{what}: {error}")));
        Ok(None)
    }
}

// Schedule of densification steps.

/// Iterations after which Gaussians have moved enough to be sorted again.
const REORDER_INTERVAL: u32 = 1000;

/// Schedule of densification steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DensifySchedule {
    from: u32,
    until: u32,
    interval: u32,
}

/// Returns the minimum number of images between two densification steps: one pass, or an interval if that is less.
pub fn least_images(options: &DensifyOptions, views: usize) -> u32 {
    options.densification_interval.min(u32::try_from(views).unwrap_or(u32::MAX))
}

impl DensifySchedule {
    /// Returns the schedule that the options ask for.
    pub(super) fn new(options: &DensifyOptions) -> Self {
        let window = options.densify_from_iter..options.densify_until_iter;
        Self::every(options.densification_interval, window)
    }

    /// Schedules a step every `interval` iterations, excluding both ends of the range.
    pub(super) fn every(interval: u32, iterations: Range<u32>) -> Self {
        let Range { start: from, end: until } = iterations;
        Self { from, until, interval: interval.max(1) }
    }

    /// Returns the number of densification steps left, that of `iteration` included.
    pub(super) fn left(self, iteration: u32) -> u32 {
        self.until.saturating_sub(iteration).div_ceil(self.interval)
    }

    /// True if a densification step follows a step.
    pub(super) fn is_due(self, span: ImageSpan) -> bool {
        self.iteration_of(span).is_some()
    }

    /// Returns the iteration that a densification step is due after, if a step contains one.
    fn iteration_of(self, span: ImageSpan) -> Option<u32> {
        let last = self.until.saturating_sub(1).max(span.before);
        let inside = ImageSpan { after: span.after.min(last), ..span };
        inside.multiple(self.interval).filter(|&step| step > self.from)
    }

    /// True if density control has begun before `iteration`.
    pub(super) fn has_begun(self, iteration: u32) -> bool {
        iteration > self.from
    }

    /// True if a densification step may follow `iteration`, which therefore gathers statistics.
    pub(super) fn may_follow(self, iteration: u32) -> bool {
        iteration < self.until
    }

    /// True if Gaussians are sorted after the densification step of a step: after the first of every thousand
    /// iterations and after the last of all.
    pub(super) fn reorders(self, span: ImageSpan) -> bool {
        self.iteration_of(span).is_some_and(|step| {
            let first = step % REORDER_INTERVAL < self.interval;
            first || step.saturating_add(self.interval) >= self.until
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_limited_unless_the_object_was_cut_out_or_is_of_triangles() {
        let scene = SceneScale { extent: 1.0, unit: 2.0 };
        let limit = |reg_reach, primitive| {
            let optimize = OptimizeOptions {
                scale_limit: 0.25,
                reg_reach,
                primitive,
                ..OptimizeOptions::default()
            };
            StepExtras::of(&Config { optimize, ..Config::default() }, scene).scale_limit
        };
        assert_eq!(limit(RegReach::Seen, PrimitiveName::Gaussians), 0.25);
        assert_eq!(limit(RegReach::Seen, PrimitiveName::Surfels), 0.25);
        assert_eq!(limit(RegReach::All, PrimitiveName::Gaussians), 0.0);
        assert_eq!(limit(RegReach::Seen, PrimitiveName::Triangles), 0.0);
    }

    #[test]
    fn densification_steps_come_every_hundred_iterations_between_500_and_15000_exclusive() {
        let schedule = DensifySchedule::new(&DensifyOptions::default());
        let due: Vec<u32> = (1..=30_000).filter(|&i| schedule.is_due(ImageSpan::of(i))).collect();
        assert_eq!((due[0], due[1], due[due.len() - 1]), (600, 700, 14_900));
        assert_eq!(due.len(), 144);
    }

    #[test]
    fn a_span_of_iterations_runs_its_last_possible_densification_step() {
        let schedule = DensifySchedule::every(10, 20..55);
        let due = |before, after| schedule.iteration_of(ImageSpan { before, after });
        let spans = [(15, 20), (15, 25), (15, 31), (45, 80), (51, 80), (60, 80)];
        let found = spans.map(|(before, after)| due(before, after));
        assert_eq!(found, [None, None, Some(30), Some(50), None, None]);
    }

    #[test]
    fn the_first_step_of_each_thousand_iterations_and_the_last_reorder() {
        let mut options = DensifyOptions::default();
        let orders = |options: &DensifyOptions| -> Vec<u32> {
            (0..=30_000)
                .filter(|&i| DensifySchedule::new(options).reorders(ImageSpan::of(i)))
                .collect()
        };
        let thousands = (1..=14).map(|i| i * 1000);
        assert_eq!(orders(&options), thousands.chain([14_900]).collect::<Vec<u32>>());
        options.densify_until_iter = 4000;
        options.densification_interval = 300;
        assert_eq!(orders(&options), [1200, 2100, 3000, 3900]);
        options.densification_interval = 1500;
        assert_eq!(orders(&options), [1500, 3000]);
        // No densification step exists.
        options.densify_until_iter = 0;
        assert_eq!(orders(&options), [0; 0]);
    }
}
