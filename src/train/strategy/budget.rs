//! Growth to a given number of Gaussians, as in the density control of `LiteGS` (2026): new Gaussians come at an even
//! pace where a view's pixels disagree about an opacity, unseen Gaussians are removed, and opacities are halved now
//! and then. Opacity resets, after which Adam loses all moments, are not used.

use super::growth::{SPLIT_SHRINK, grow};
use super::interface::{DensifySchedule, RandomMotion, Site, StepExtras, Strategy};
use crate::backend::{Adjust, Edit, EditRule, Grow, Keep, MotionReach, ScoreRule, Statistics};
use crate::config::{Config, OptimizeOptions, PrimitiveName};
use crate::math::random::{RandomStream, RandomUse};
use crate::model::Gaussians;
use crate::train::event::DensifyReport;
use crate::train::pace::Turn;
use crate::train::span::ImageSpan;
use crate::train::{SceneScale, TrainError};

/// Minimum number of densification steps, unless `--densification-interval` allows fewer. Each Gaussian is cloned or
/// split once per step, so that too few steps may miss the goal.
const MIN_STEPS: u32 = 8;

/// Factor of one opacity decay.
const DECAY_FACTOR: f64 = 0.5;

/// Largest number of passes over the training views between two halvings of the opacities.
///
/// A large faint Gaussian right before one camera covers held-out views at no cost. Halving makes every Gaussian earn
/// its opacity again. Long runs need as many halvings per pass as short ones.
const DECAY_PASSES: u32 = 6;

/// Lower bound of the opacity decay.
const DECAY_FLOOR: f64 = 1.0 / 128.0;

/// Number of views up to which `--sh-decay` counts in full.
const SH_DECAY_VIEWS: f64 = 100.0;

/// Decay of the SH coefficients above degree 0 over their learning rate.
///
/// High harmonics fit the errors of a Gaussian's few views and vary at random between these views. With many views
/// they are real reflections, which the decay would remove.
fn sh_decay(options: &OptimizeOptions, views: u32) -> f64 {
    options.sh_decay * (SH_DECAY_VIEWS / f64::from(views)).powi(2).min(1.0)
}

/// Strategy that grows the model to a number of Gaussians.
pub(super) struct BudgetGrowth {
    schedule: DensifySchedule,
    window: Window,
    extras: StepExtras,
    /// Random motion of Gaussians that no view of a step sees. `None` for surfels.
    motion: Option<RandomMotion>,
    /// Largest scale of cloned Gaussians, world units. Larger ones are split.
    small_max: f64,
    /// Final number of Gaussians. Without a limit, every candidate is added.
    most: usize,
    /// Iterations between two halvings of the opacities.
    decay_interval: u32,
    /// Maximum number of images between two halvings in runs with a clock.
    decay_images: Option<u32>,
    /// Smallest opacity that is kept.
    opacity_min: f64,
    seed: u64,
}

impl BudgetGrowth {
    /// Creates the strategy for a scene with these numbers of photographs and of all views, which include pseudo-views.
    /// Densification steps are whole passes apart, so that every view is observed, unless too few steps would be left.
    pub(super) fn new(
        config: &Config,
        scene: SceneScale,
        [photographs, views]: [usize; 2],
        most: usize,
    ) -> Self {
        let options = &config.densify;
        let (from, interval) = (options.densify_from_iter, options.densification_interval);
        let until = options.densify_until_iter.min(config.optimize.iterations);
        let [photographs, views] =
            [photographs, views].map(|count| u32::try_from(count).unwrap_or(u32::MAX).max(1));
        let longest = interval.max(until.saturating_sub(from) / MIN_STEPS);
        let window = Window::new(&config.optimize, views, interval, longest);
        // Surfels have no volume for the random motion.
        let is_moved = config.optimize.primitive == PrimitiveName::Gaussians;
        let extras = StepExtras {
            sh_decay_rate: sh_decay(&config.optimize, photographs),
            ..StepExtras::of(config, scene)
        };
        Self {
            schedule: DensifySchedule::every(window.iterations(), from..until),
            window,
            extras,
            motion: is_moved.then(|| {
                let reach = MotionReach::Unseen { longest: scene.unit };
                RandomMotion::new(config, scene, config.densify.unseen_noise_lr, reach)
            }),
            small_max: options.percent_dense * scene.extent,
            most,
            decay_interval: options.opacity_reset_interval,
            decay_images: (options.opacity_reset_interval < until)
                .then_some(DECAY_PASSES.saturating_mul(views)),
            opacity_min: options.min_opacity,
            seed: config.run.seed,
        }
    }

    /// Returns the number of new Gaussians of the densification step of `iteration`: an even share of the way to the
    /// goal.
    ///
    /// If images are scarcer than iterations, steps are skipped and the remaining steps add more.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of steps, at least 0"
    )]
    fn new_gaussians(
        &self,
        gaussians: usize,
        iteration: u32,
        images_per_iteration: Option<f64>,
    ) -> usize {
        let steps = self.schedule.left(iteration);
        let steps = images_per_iteration.map_or(steps, |per_iteration| {
            let images = per_iteration * f64::from(self.window.iterations());
            let least = f64::from(self.window.images(Some(per_iteration)));
            let skipped =
                (least / images.max(f64::MIN_POSITIVE)).ceil().clamp(1.0, f64::from(steps.max(1)));
            (f64::from(steps) / skipped).ceil() as u32
        });
        let steps = usize::try_from(steps.max(1)).unwrap_or(usize::MAX);
        self.most.saturating_sub(gaussians).div_ceil(steps)
    }

    fn key(&self, iteration: u32, purpose: RandomUse) -> u64 {
        RandomStream::new(self.seed, u64::from(iteration), purpose).key()
    }
}

/// Interval between two densification steps, in which views are observed.
#[derive(Clone, Copy, Debug)]
struct Window {
    length: WindowLength,
    views: u32,
}

/// Length of a window.
#[derive(Clone, Copy, Debug)]
enum WindowLength {
    /// Iterations, and their images.
    Iterations { iterations: u32, images: u32 },
    /// In a run with a clock, where the images of an iteration are not known before: `grid` is the number of iterations
    /// after which a step may come, `interval` and `longest` bound the window in iterations.
    Clock { grid: u32, interval: u32, longest: u32 },
}

impl Window {
    /// Returns the whole passes that take at least `interval` iterations, but no more than `longest` iterations.
    ///
    /// A pass limit decouples iterations from images. A window of less than a pass would remove what only the other
    /// views see.
    fn new(options: &OptimizeOptions, views: u32, interval: u32, longest: u32) -> Self {
        let whole_passes = interval.div_ceil(views).saturating_mul(views).min(longest);
        if options.time_budget.is_some() {
            // With many views, the images of a pass may take fewer iterations.
            let grid = if whole_passes > 2 * interval { interval } else { whole_passes };
            return Self { length: WindowLength::Clock { grid, interval, longest }, views };
        }
        let (all, images) =
            (u64::from(options.iterations.max(1)), u64::from(options.images(views)));
        let pass = (u64::from(views) * all).div_ceil(images);
        let iterations = whole_passes.max(u32::try_from(pass).unwrap_or(u32::MAX)).min(longest);
        let images = u32::try_from(u64::from(iterations) * images / all).unwrap_or(u32::MAX);
        Self { length: WindowLength::Iterations { iterations, images }, views }
    }

    /// Returns the iterations between two possible densification steps.
    fn iterations(&self) -> u32 {
        match self.length {
            WindowLength::Iterations { iterations, .. } => iterations,
            WindowLength::Clock { grid, .. } => grid,
        }
    }

    /// Returns the images of the window. With a clock: a pass, or those of `interval` iterations if they are more, but
    /// at most those of `longest` iterations.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of images, rounded down"
    )]
    fn images(&self, images_per_iteration: Option<f64>) -> u32 {
        match self.length {
            WindowLength::Iterations { images, .. } => images,
            WindowLength::Clock { interval, longest, .. } => {
                let of = |iterations: u32| {
                    (images_per_iteration.unwrap_or(0.0) * f64::from(iterations)) as u32
                };
                self.views.max(of(interval)).min(of(longest)).max(self.views.min(interval))
            }
        }
    }

    /// True if the window covers all views. Unseen Gaussians can then be removed.
    fn covers_views(&self, images_per_iteration: Option<f64>) -> bool {
        self.images(images_per_iteration) >= self.views
    }
}

impl<D: Edit<Gaussians>> Strategy<D> for BudgetGrowth {
    fn observes(&self, iteration: u32) -> Option<Statistics> {
        self.schedule.may_follow(iteration).then_some(Statistics::Disagreement)
    }

    /// Moves nearly transparent Gaussians at random while no view sees them, until some are useful. Gradients place
    /// the visible ones better.
    fn step_extras(&self, turn: Turn) -> StepExtras {
        let noise = self.motion.as_ref().and_then(|motion| motion.of_step(turn));
        StepExtras { noise, ..self.extras }
    }

    fn schedule(&self) -> DensifySchedule {
        self.schedule
    }

    fn images_of_window(&self, images_per_iteration: Option<f64>) -> Option<u32> {
        Some(self.window.images(images_per_iteration))
    }

    fn densify(&self, site: &mut Site<'_, D>) -> Result<DensifyReport, TrainError> {
        let iteration = site.span.after;
        let key = self.key(iteration, RandomUse::Multiply);
        let score = ScoreRule::Disagreement { small_max: self.small_max, key };
        let candidates = site.device.score(site.model, &score)?;
        let wanted = self
            .new_gaussians(site.len(), iteration, site.images_per_iteration)
            .min(candidates.count());
        let rule = EditRule::Grow {
            large: Grow::AddChild {
                shrink: SPLIT_SHRINK,
                key: self.key(iteration, RandomUse::Split),
            },
            keep: Keep {
                opacity_min: self.opacity_min,
                scale_max: None,
                unseen: !self.window.covers_views(site.images_per_iteration),
            },
        };
        grow(site, &candidates, wanted, wanted, &rule)
    }

    fn adjust(&self, span: ImageSpan, images_since: Option<u32>) -> Option<Adjust> {
        let mut decays = span.multiple(self.decay_interval).into_iter();
        let is_due = decays.any(|decay| self.schedule.may_follow(decay));
        let has_waited =
            images_since.zip(self.decay_images).is_some_and(|(since, most)| since >= most);
        let is_late = has_waited
            && self.schedule.has_begun(span.after)
            && self.schedule.may_follow(span.after);
        (is_due || is_late)
            .then_some(Adjust::DecayOpacity { factor: DECAY_FACTOR, floor: DECAY_FLOOR })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;

    fn budget(config: &Config, views: usize) -> BudgetGrowth {
        let most = config.densify.max_points.map_or(usize::MAX, |most| most.try_into().unwrap());
        BudgetGrowth::new(config, SceneScale { extent: 1.0, unit: 1.0 }, [views; 2], most)
    }

    /// Returns the iterations up to `last` after which a densification step follows.
    fn due(budget: &BudgetGrowth, last: u32) -> Vec<u32> {
        (1..=last).filter(|&i| Strategy::<Cpu<f32>>::due(budget, ImageSpan::of(i))).collect()
    }

    #[test]
    fn harmonics_decay_in_full_with_up_to_a_hundred_views() {
        let options = OptimizeOptions { sh_decay: 3.0, ..OptimizeOptions::default() };
        assert_eq!([1, 100, 200].map(|views| sh_decay(&options, views)), [3.0, 3.0, 0.75]);
    }

    #[test]
    fn unseen_gaussians_move_at_random_but_surfels_do_not() {
        let mut config = Config::default();
        config.densify.unseen_noise_lr = 1.0;
        let noise = |config: &Config| {
            let budget = budget(config, 10);
            Strategy::<Cpu<f32>>::step_extras(&budget, Turn::of(9)).noise
        };
        assert_eq!(
            noise(&config).map(|noise| noise.moved),
            Some(MotionReach::Unseen { longest: 1.0 })
        );
        config.densify.unseen_noise_lr = 0.0;
        assert_eq!(noise(&config), None);
        config.densify.unseen_noise_lr = 1.0;
        config.optimize.primitive = PrimitiveName::Surfels;
        assert_eq!(noise(&config), None);
    }

    #[test]
    fn densification_steps_come_after_whole_passes_over_the_views() {
        let due = |views| due(&budget(&Config::default(), views), 1500);
        assert_eq!(due(44), [528, 660, 792, 924, 1056, 1188, 1320, 1452]);
        assert_eq!(due(255), [510, 765, 1020, 1275]);
        assert_eq!(due(1), (6..=15).map(|step| step * 100).collect::<Vec<u32>>());
    }

    #[test]
    fn densification_steps_do_not_wait_for_whole_passes_if_too_few_would_be_left() {
        let mut config = Config::default();
        let mut due = |views, iterations, until, interval| {
            config.optimize.iterations = iterations;
            config.densify.densify_until_iter = until;
            config.densify.densification_interval = interval;
            due(&budget(&config, views), until)
        };
        let eighths = [537, 1074, 1611, 2148, 2685, 3222, 3759, 4296];
        assert_eq!(due(5000, 6000, 4800, 100), eighths);
        assert_eq!(due(700, 600, 4800, 40), [520, 560]);
        assert_eq!(due(700, 6000, 1400, 300), [600, 900, 1200]);
        assert_eq!(due(700, 400, 4800, 100), [0; 0]);
    }

    #[test]
    fn with_a_clock_opacities_are_halved_at_least_every_six_passes() {
        let mut config = Config::default();
        config.densify.opacity_reset_interval = 4000;
        let adjusts = |config: &Config, iteration, images| {
            let budget = budget(config, 10);
            Strategy::<Cpu<f32>>::adjust(&budget, ImageSpan::of(iteration), Some(images)).is_some()
        };
        assert!(adjusts(&config, 601, 60) && !adjusts(&config, 601, 59), "6 passes over 10 views");
        assert!(!adjusts(&config, 500, 60), "density control has not begun");
        assert!(!adjusts(&config, 15_000, 60), "density control has ended");
        config.densify.opacity_reset_interval = 100_000;
        assert!(!adjusts(&config, 601, 60), "halving is turned off");
    }

    #[test]
    fn only_windows_of_a_pass_remove_the_unseen() {
        let window = |iterations, max_passes, views, interval, longest| {
            let options = OptimizeOptions { iterations, max_passes, ..OptimizeOptions::default() };
            let window = Window::new(&options, views, interval, longest);
            (window.iterations(), window.covers_views(None))
        };
        // One iteration per image: whole passes, or less than one.
        assert_eq!(window(6000, 0, 44, 100, 312), (132, true));
        assert_eq!(window(6000, 0, 700, 100, 312), (312, false));
        // 24,000 iterations in 130 passes over 26 views are 7.1 iterations per image. A pass is 185 iterations.
        assert_eq!(window(24_000, 130, 26, 100, 1437), (185, true));
        assert_eq!(window(24_000, 130, 26, 100, 150), (150, false));
    }

    #[test]
    fn with_a_clock_a_window_has_the_images_of_a_pass_or_of_the_interval() {
        let options =
            OptimizeOptions { time_budget: "9s".parse().ok(), ..OptimizeOptions::default() };
        let window = |views, images_per_iteration| {
            let window = Window::new(&options, views, 100, 312);
            let images = window.images(Some(images_per_iteration));
            (window.iterations(), images, window.covers_views(Some(images_per_iteration)))
        };
        assert_eq!(window(44, 1.0), (132, 100, true));
        assert_eq!(window(405, 7.0), (100, 700, true));
        assert_eq!(window(405, 4.0), (100, 405, true));
        assert_eq!(window(405, 1.0), (100, 312, false), "at most the longest interval");
        assert_eq!(window(405, 0.01), (100, 100, false), "at least the interval");
        assert_eq!(window(44, 0.01), (132, 44, true), "at least a pass if it is short");
    }

    #[test]
    fn the_first_step_of_each_thousand_iterations_and_the_last_reorder() {
        let budget = budget(&Config::default(), 44);
        let reorders =
            |&iteration: &u32| Strategy::<Cpu<f32>>::reorders(&budget, ImageSpan::of(iteration));
        let found: Vec<u32> = (1..=30_000).filter(reorders).collect();
        assert_eq!(found[..4], [1056, 2112, 3036, 4092]);
        assert_eq!((found.len(), found.last()), (15, Some(&14_916)));
    }

    #[test]
    fn new_gaussians_come_at_an_even_pace_and_reach_the_goal() {
        let mut config = Config::default();
        config.densify.max_points = Some(10_000);
        let budget = budget(&config, 100);
        let mut gaussians = 1000;
        let mut born = Vec::new();
        for iteration in (600..15_000).step_by(100) {
            let new_gaussians = budget.new_gaussians(gaussians, iteration, None);
            gaussians += new_gaussians;
            born.push(new_gaussians);
        }
        assert_eq!(gaussians, 10_000);
        assert_eq!((born.iter().min(), born.iter().max()), (Some(&62), Some(&63)));
        // Pruned Gaussians are added again.
        assert_eq!(budget.new_gaussians(9_000, 14_900, None), 1000);
        assert_eq!(budget.new_gaussians(10_001, 14_900, None), 0);
    }

    #[test]
    fn skipped_densification_steps_pass_their_growth_on() {
        let mut config = Config::default();
        config.densify.max_points = Some(10_000);
        config.optimize.time_budget = "9s".parse().ok();
        // A pass over the views takes 500, 405 and 58 iterations, and steps are possible every 100.
        for (views, per_iteration, step) in [(50, 0.1, 500), (405, 1.0, 500), (405, 7.0, 100)] {
            let budget = budget(&config, views);
            let (mut gaussians, mut born) = (1000, Vec::new());
            for iteration in (600..15_000).step_by(step) {
                born.push(budget.new_gaussians(gaussians, iteration, Some(per_iteration)));
                gaussians += born[born.len() - 1];
            }
            assert_eq!(gaussians, 10_000, "{views} views");
            let (least, most) = (born.iter().min().unwrap(), born.iter().max().unwrap());
            assert!(most - least <= 1, "{views} views: {least} to {most}");
        }
    }

    #[test]
    fn a_run_that_ends_before_density_control_ends_at_the_goal() {
        let mut config = Config::default();
        config.densify.max_points = Some(2000);
        config.optimize.iterations = 1500;
        let budget = budget(&config, 100);
        let steps = due(&budget, 1500);
        assert_eq!((steps.len(), steps.last()), (9, Some(&1400)));
        let grown =
            steps.into_iter().fold(300, |count, i| count + budget.new_gaussians(count, i, None));
        assert_eq!(grown, 2000);
    }

    #[test]
    fn opacities_are_halved_at_intervals_until_the_last_densification_step() {
        let mut config = Config::default();
        config.densify.opacity_reset_interval = 4000;
        let budget = budget(&config, 100);
        let decays = |iteration| {
            Strategy::<Cpu<f32>>::adjust(&budget, ImageSpan::of(iteration), None).is_some()
        };
        let found: Vec<u32> = (1..=30_000).filter(|&iteration| decays(iteration)).collect();
        assert_eq!(found, [4000, 8000, 12_000]);
    }
}
