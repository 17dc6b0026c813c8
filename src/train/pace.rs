//! Pace of a run through its schedule: by images, by the clock, or faster or slower than its images.

use super::batches::Batches;
use super::span::ImageSpan;
use crate::config::{Config, TimeBudget};

/// Images of a step and the iterations of the schedule that pass with it.
///
/// Usually one iteration passes per image. With a time budget iterations follow the clock, so that a step may pass
/// many or none. A limit of passes over the views stretches the schedule over fewer or more images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Images of the step.
    pub images: ImageSpan,
    /// Iterations of the schedule.
    pub iterations: ImageSpan,
    /// True if one iteration passes per image.
    pub is_plain: bool,
}

impl Turn {
    /// Returns the turn of one image in a run without a budget.
    pub fn of(image: u32) -> Self {
        Self { images: ImageSpan::of(image), iterations: ImageSpan::of(image), is_plain: true }
    }

    /// Shortens the turn to its first images.
    pub(super) fn cut(self, images: ImageSpan) -> Self {
        if !self.is_plain {
            return Self { images, ..self };
        }
        let after = self.iterations.before + images.images();
        Self { images, iterations: ImageSpan { after, ..self.iterations }, is_plain: true }
    }

    /// Returns the iteration (from 1) that trains image `image` of the step.
    pub fn iteration_of(self, image: u32) -> u32 {
        if self.is_plain {
            return self.iterations.before + (image - self.images.before);
        }
        self.iteration()
    }

    /// Returns the iteration (from 1) of the step.
    pub fn iteration(self) -> u32 {
        self.iterations.after.max(1)
    }
}

/// Steps of a run.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    batches: Batches,
    batch_views: u32,
    budget: Option<PaceBudget>,
    images: u32,
    /// Seconds of training before this process.
    earlier_seconds: f64,
    /// Start times of the last three steps, seconds.
    begun: [f64; 3],
    /// Images before the last densification step and before the last opacity decay, in this process.
    rested_at: [Option<u32>; 2],
}

impl Pace {
    /// Returns the pace of a run over `views` training views, from its progress on.
    pub(super) fn new(config: &Config, views: usize, from: Passed) -> Self {
        Self {
            batches: Batches::of(config),
            batch_views: config.optimize.batch_views.max(1),
            budget: PaceBudget::of(config, views, from),
            images: from.images,
            earlier_seconds: from.seconds,
            begun: [0.0; 3],
            // Views are observed from here on.
            rested_at: [Some(from.images).filter(|&images| images > 0), None],
        }
    }

    /// Returns the step after `iteration`. `seconds`: training time of this process.
    ///
    /// With a budget the step ends where the clock will be when it is done, predicted from the shorter of the last
    /// two steps.
    pub(super) fn next(&mut self, iteration: u32, seconds: f64) -> Turn {
        self.begun = [self.begun[1], self.begun[2], seconds];
        let images = |count: u32| ImageSpan {
            before: self.images,
            after: self.images.saturating_add(count),
        };
        let budget = self.budget.filter(|budget| iteration < budget.last);
        let Some(budget) = budget else {
            let iterations = self.batches.next(iteration);
            return Turn { images: images(iterations.images()), iterations, is_plain: true };
        };
        let left = budget.most_images.map_or(u32::MAX, |most| most.saturating_sub(self.images));
        let images = images(self.batch_views.min(left.max(1)));
        let [first, second, third] = self.begun;
        let expected = (third - second).min(second - first);
        let done = self.earlier_seconds + seconds + expected;
        let after = budget.iteration_at(done, images.after).max(iteration);
        Turn { images, iterations: ImageSpan { before: iteration, after }, is_plain: false }
    }

    /// Counts seconds before the first step against the clock.
    pub(super) fn begins_after(&mut self, seconds: f64) {
        self.earlier_seconds += seconds;
        if let Some(budget) = &mut self.budget {
            budget.from.seconds += seconds;
        }
    }

    /// Records that the run has trained on the images of a step.
    pub(super) fn trained(&mut self, images: ImageSpan) {
        self.images = images.after;
    }

    /// True if a densification step may come. With a clock, steps may be due in quick succession. A step is then
    /// skipped unless `least_images` images have passed since the last one.
    pub(super) fn takes_densify_step(&mut self, least_images: u32) -> bool {
        self.rests(0, least_images)
    }

    /// True if an adjustment that lowers opacities may come. The opacities need images to rise again.
    pub(super) fn takes_adjustment(&mut self, least_images: u32) -> bool {
        self.rests(1, least_images)
    }

    /// Returns the images since opacities were last lowered or this process began, in runs with a clock.
    pub(super) fn images_since_adjustment(&self) -> Option<u32> {
        let budget = self.clocked()?;
        Some(self.images - self.rested_at[1].unwrap_or(budget.from.images))
    }

    /// Returns the budget of a run with a clock.
    fn clocked(&self) -> Option<PaceBudget> {
        self.budget.filter(|budget| budget.seconds.is_some())
    }

    fn rests(&mut self, kind: usize, least_images: u32) -> bool {
        let has_clock = self.clocked().is_some();
        let is_rested = self.rested_at[kind].is_none_or(|at| self.images - at >= least_images);
        let is_taken = !has_clock || is_rested;
        if is_taken {
            self.rested_at[kind] = Some(self.images);
        }
        is_taken
    }

    /// Returns the images per iteration so far in this process, in runs with a clock.
    pub(super) fn images_per_iteration(&self, iteration: u32) -> Option<f64> {
        let budget = self.clocked()?;
        let iterations = iteration.checked_sub(budget.from.iteration).filter(|&since| since > 0)?;
        Some(f64::from(self.images - budget.from.images) / f64::from(iterations))
    }

    /// Returns the first image that is not yet trained on.
    pub(super) fn next_image(&self) -> u32 {
        self.images.saturating_add(1)
    }

    /// Returns the progress of the run. `seconds`: training time of this process.
    pub(super) fn progress(&self, iteration: u32, seconds: f64) -> Passed {
        Passed { iteration, images: self.images, seconds: self.earlier_seconds + seconds }
    }

    /// True if iterations do not simply follow images.
    pub(super) fn has_budget(&self) -> bool {
        self.budget.is_some()
    }

    /// Returns the limit of images, if the run has one.
    pub(super) fn most_images(&self) -> Option<u32> {
        self.budget.and_then(|budget| budget.most_images)
    }

    /// Returns the progress to store in a checkpoint, if the iterations alone do not determine it.
    pub(super) fn paced(&self, last_step: ImageSpan, seconds: f64) -> Option<Paced> {
        let ImageSpan { before, after } = last_step;
        let has_clock = self.clocked().is_some();
        let passed = self.progress(after, seconds);
        (self.has_budget() || passed.images != after).then_some(Paced {
            images: passed.images,
            before,
            seconds: has_clock.then_some(passed.seconds),
        })
    }

    /// Returns the expected number of images of the run, without regard to the clock.
    pub(super) fn all_images(&self, iterations: u32) -> u32 {
        let has_clock = self.clocked().is_some();
        self.most_images()
            .map_or(iterations, |most| if has_clock { most.min(iterations) } else { most })
    }
}

// Progress of a run: iterations, images and seconds.

/// Progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passed {
    /// Finished iterations of the schedule.
    pub iteration: u32,
    /// Images trained on.
    pub images: u32,
    /// Seconds of training.
    pub seconds: f64,
}

/// Additional progress of a run with a time budget or a limit of passes over few views.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paced {
    /// Images trained on.
    pub images: u32,
    /// Finished iterations before the last step.
    pub before: u32,
    /// Seconds of training, if the run has a time budget.
    pub seconds: Option<f64>,
}

// Options that decouple iterations from images.

/// Limits that decouple iterations from images.
#[derive(Clone, Copy, Debug)]
pub(super) struct PaceBudget {
    /// Seconds of training, if the run has a time budget.
    pub(super) seconds: Option<f64>,
    /// Number of images. With a time budget, an upper bound.
    pub(super) most_images: Option<u32>,
    /// Iterations of the schedule.
    pub(super) last: u32,
    /// Progress at the start of this process.
    pub(super) from: Passed,
}

impl PaceBudget {
    /// Returns the budget of a run over `views` training views, or `None` if iterations follow images.
    pub(super) fn of(config: &Config, views: usize, from: Passed) -> Option<Self> {
        let options = &config.optimize;
        let seconds = options.time_budget.map(TimeBudget::seconds);
        let views = u32::try_from(views).unwrap_or(u32::MAX);
        let most =
            (options.max_passes > 0).then(|| options.max_passes.saturating_mul(views).max(1));
        let most_images = if seconds.is_some() {
            most
        } else {
            let images = options.images(views);
            // If a run with other options has trained on more images, each remaining image is one iteration.
            Some(images).filter(|&images| images != options.iterations && images > from.images)
        };
        (seconds.is_some() || most_images.is_some()).then_some(Self {
            seconds,
            most_images,
            last: options.iterations,
            from,
        })
    }

    /// Returns the last iteration that has passed at this time and number of images.
    pub(super) fn iteration_at(&self, seconds: f64, images: u32) -> u32 {
        let by_images = self.most_images.map_or(0, |most| self.by_images(images, most));
        let by_clock = self.seconds.map_or(0, |all| {
            self.share_of_rest(share(seconds - self.from.seconds, all - self.from.seconds))
        });
        by_images.max(by_clock)
    }

    /// Depends only on the number of images, so that a resumed run follows the schedule of an uninterrupted one.
    /// Changed options spread the rest of the schedule over the rest of the images.
    fn by_images(&self, images: u32, most: u32) -> u32 {
        let at = |images: u32| u64::from(images) * u64::from(self.last) / u64::from(most);
        if at(self.from.images) == u64::from(self.from.iteration) {
            return u32::try_from(at(images)).unwrap_or(u32::MAX).min(self.last);
        }
        let since = f64::from(images) - f64::from(self.from.images);
        self.share_of_rest(share(since, f64::from(most) - f64::from(self.from.images)))
    }

    /// Spreads the rest of the schedule over the rest of the budget.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of the iterations, from 0 to 1"
    )]
    fn share_of_rest(&self, share: f64) -> u32 {
        let left = self.last.saturating_sub(self.from.iteration);
        self.from.iteration + (share * f64::from(left)) as u32
    }
}

/// Returns the share of `whole` that has passed, 0 to 1.
fn share(passed: f64, whole: f64) -> f64 {
    if passed >= whole { 1.0 } else { passed.max(0.0) / whole }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OptimizeOptions;

    fn config(budget: Option<&str>, batch_views: u32) -> Config {
        let time_budget = budget.map(|text| text.parse().unwrap());
        let optimize = OptimizeOptions {
            iterations: 1000,
            time_budget,
            batch_views,
            max_passes: if budget.is_some() { 10 } else { 0 },
            ..OptimizeOptions::default()
        };
        Config { optimize, ..Config::default() }
    }

    /// Returns all steps of a run in which each step takes this many seconds.
    fn turns(pace: &mut Pace, mut iteration: u32, step_seconds: f64) -> Vec<Turn> {
        let (mut seconds, mut turns) = (0.0, Vec::new());
        while iteration < 1000 {
            let turn = pace.next(iteration, seconds);
            pace.trained(turn.images);
            iteration = turn.iterations.after;
            seconds += step_seconds;
            turns.push(turn);
        }
        turns
    }

    #[test]
    fn without_a_budget_an_iteration_passes_with_each_image() {
        for views in [1, 3, 8] {
            let mut pace = Pace::new(&config(None, views), 5, Passed::default());
            let turns = turns(&mut pace, 0, 1.0);
            assert!(turns.iter().all(|turn| turn.images == turn.iterations));
            assert_eq!(turns.len(), 1000_usize.div_ceil(views as usize));
            let last = turns[turns.len() - 1];
            assert!(last.images.each().all(|image| last.iteration_of(image) == image));
        }
    }

    #[test]
    fn a_budget_ends_in_time_however_long_steps_take() {
        for (step_seconds, steps) in [(0.001, 2000), (0.01, 200), (0.11, 18), (5.0, 1)] {
            let mut pace = Pace::new(&config(Some("2s"), 1), 1_000_000, Passed::default());
            let turns = turns(&mut pace, 0, step_seconds);
            // The duration of the first two steps is unknown.
            let apart = turns.len().abs_diff(steps);
            assert!(
                apart <= 1 || steps < 3 && turns.len() <= 3,
                "{step_seconds} s: {}",
                turns.len()
            );
            let whole = |turn: &Turn| turn.images.images() == 1;
            assert!(turns.iter().all(whole));
            let gapless =
                turns.windows(2).all(|two| two[0].iterations.after == two[1].iterations.before);
            assert!(gapless);
        }
    }

    #[test]
    fn iterations_pass_with_the_clock_and_not_with_images() {
        let mut pace = Pace::new(&config(Some("4s"), 4), 1_000_000, Passed::default());
        let turns = turns(&mut pace, 0, 0.001);
        let (last, half) = (turns.len() - 1, turns[turns.len() / 2]);
        assert_eq!(turns[last].images.after, 4 * u32::try_from(turns.len()).unwrap());
        assert!(half.iterations.after.abs_diff(500) <= 1, "{half:?}");
        assert!(turns.iter().any(|turn| turn.iterations.images() == 0));
        let images = turns[0].images;
        let none = Turn { images, iterations: ImageSpan { before: 0, after: 0 }, is_plain: false };
        assert_eq!(none.iteration_of(3), 1);
    }

    #[test]
    fn a_resumed_run_spreads_the_rest_over_the_rest_of_the_time() {
        let from = Passed { iteration: 400, images: 9000, seconds: 1.5 };
        let mut pace = Pace::new(&config(Some("2s"), 1), 1_000_000, from);
        let turns_of_rest = turns(&mut pace, 400, 0.001);
        let (first, steps) = (turns_of_rest[0], turns_of_rest.len());
        assert_eq!((first.images.before, first.iterations.before), (9000, 400));
        assert!(steps.abs_diff(500) <= 1, "{steps}");
        let progress = pace.progress(1000, 0.5);
        assert_eq!((progress.images - 9000) as usize, steps);
        assert_eq!(progress.seconds, 2.0);
        // A budget that is spent leaves one step.
        let spent = Passed { seconds: 2.5, ..from };
        let mut pace = Pace::new(&config(Some("2s"), 1), 1_000_000, spent);
        assert_eq!(turns(&mut pace, 400, 0.001).len(), 1);
    }

    #[test]
    fn densification_steps_of_a_run_with_a_clock_wait_for_images() {
        let mut pace = Pace::new(&config(Some("1s"), 1), 50, Passed::default());
        let mut taken = Vec::new();
        for image in 1..=10 {
            pace.trained(ImageSpan::of(image));
            if pace.takes_densify_step(4) {
                taken.push(image);
            }
        }
        assert_eq!(taken, [1, 5, 9]);
        assert!(pace.takes_adjustment(10) && !pace.takes_adjustment(1));
        let mut without = Pace::new(&config(None, 1), 50, Passed::default());
        assert!(without.takes_densify_step(4) && without.takes_densify_step(4));
    }

    #[test]
    fn passes_over_few_views_end_a_long_budget() {
        let mut pace = Pace::new(&config(Some("60s"), 1), 30, Passed::default());
        assert_eq!(turns(&mut pace, 0, 0.001).len(), 300);
        assert_eq!(pace.most_images(), Some(pace.next_image() - 1));
        let mut endless = config(Some("1s"), 1);
        endless.optimize.max_passes = 0;
        let mut pace = Pace::new(&endless, 30, Passed::default());
        assert!(turns(&mut pace, 0, 0.001).len() > 990);
        assert_eq!(pace.most_images(), None);
    }

    #[test]
    fn the_schedule_of_few_views_passes_faster_and_resumes_the_same() {
        let mut short = config(None, 4);
        short.optimize.max_passes = 7;
        let mut whole = Pace::new(&short, 31, Passed::default());
        let turns_of_all = turns(&mut whole, 0, 1.0);
        assert_eq!(turns_of_all.len(), 217_usize.div_ceil(4));
        let last = turns_of_all[turns_of_all.len() - 1];
        assert_eq!((last.images.after, last.iterations.after), (217, 1000));
        assert_eq!((whole.all_images(1000), whole.most_images()), (217, Some(217)));
        for (at, turn) in turns_of_all.iter().enumerate() {
            let (iteration, images) = (turn.iterations.after, turn.images.after);
            let from = Passed { iteration, images, seconds: 0.0 };
            let resumed = turns(&mut Pace::new(&short, 31, from), iteration, 1.0);
            assert_eq!(resumed, turns_of_all[at + 1..]);
        }
        // With many views the limit has no effect.
        let mut many = Pace::new(&short, 143, Passed::default());
        assert!(turns(&mut many, 0, 1.0).iter().all(|turn| turn.images == turn.iterations));
    }

    #[test]
    fn a_lengthened_run_continues_from_its_progress() {
        let mut longer = config(None, 1);
        longer.optimize.max_passes = 10;
        let from = Passed { iteration: 300, images: 50, seconds: 0.0 };
        let turns = turns(&mut Pace::new(&longer, 20, from), 300, 1.0);
        assert_eq!((turns.len(), turns[74].iterations.after), (150, 650));
    }

    /// Returns the images of a run of 1,000 iterations over 50 views, and its iteration after each image.
    fn iterations([min_passes, max_passes]: [u32; 2]) -> Option<(u32, Vec<u32>)> {
        let optimize = OptimizeOptions {
            iterations: 1000,
            min_passes,
            max_passes,
            ..OptimizeOptions::default()
        };
        let config = Config { optimize, ..Config::default() };
        let budget = PaceBudget::of(&config, 50, Passed::default())?;
        let images = budget.most_images.unwrap();
        Some((images, (1..=images).map(|image| budget.iteration_at(0.0, image)).collect()))
    }

    #[test]
    fn a_run_beyond_its_passes_takes_one_image_per_iteration() {
        let optimize =
            OptimizeOptions { iterations: 100, min_passes: 3, ..OptimizeOptions::default() };
        let config = Config { optimize, ..Config::default() };
        let from = Passed { iteration: 83, images: 200, seconds: 0.0 };
        assert!(PaceBudget::of(&config, 50, from).is_none());
        assert!(PaceBudget::of(&config, 50, Passed { images: 140, ..from }).is_some());
    }

    #[test]
    fn pass_limits_set_the_number_of_images_or_have_no_effect() {
        for passes in [[0, 0], [20, 0], [0, 20], [10, 30], [20, 20]] {
            assert_eq!(iterations(passes), None, "{passes:?}");
        }
        for (passes, images) in
            [([0, 10], 500), ([30, 0], 1500), ([30, 40], 1500), ([30, 25], 1250)]
        {
            let (found, iterations) = iterations(passes).unwrap();
            assert_eq!(found, images, "{passes:?}");
            assert_eq!(iterations.last(), Some(&1000), "{passes:?}");
            assert!(iterations[..iterations.len() - 1].iter().all(|&iteration| iteration < 1000));
            let steps = iterations.windows(2).map(|two| two[1] - two[0]);
            let expected = if images > 1000 { 0..=1 } else { 2..=2 };
            assert!(steps.into_iter().all(|step| expected.contains(&step)), "{passes:?}");
        }
    }
}
