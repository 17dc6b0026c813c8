//! What has iterations of the schedule pass otherwise than one with each image.

use super::passed::Passed;
use crate::config::{Config, TimeBudget};

/// What has iterations pass otherwise than with images.
#[derive(Clone, Copy, Debug)]
pub(super) struct PaceBudget {
    /// Seconds of training; nothing where the clock says nothing.
    pub(super) seconds: Option<f64>,
    /// Images of the run; with a clock, at most.
    pub(super) most_images: Option<u32>,
    /// Iterations of the schedule.
    pub(super) last: u32,
    /// Where this process began.
    pub(super) from: Passed,
}

impl PaceBudget {
    /// That of a run over so many training views; nothing where iterations pass with images.
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
            // Where more were trained on by other options, an iteration passes with each that is left.
            Some(images).filter(|&images| images != options.iterations && images > from.images)
        };
        (seconds.is_some() || most_images.is_some()).then_some(Self {
            seconds,
            most_images,
            last: options.iterations,
            from,
        })
    }

    /// The last iteration that has passed by then.
    pub(super) fn iteration_at(&self, seconds: f64, images: u32) -> u32 {
        let by_images = self.most_images.map_or(0, |most| self.by_images(images, most));
        let by_clock = self.seconds.map_or(0, |all| {
            self.share_of_rest(share(seconds - self.from.seconds, all - self.from.seconds))
        });
        by_images.max(by_clock)
    }

    /// A function of the number of images alone, so that a run that goes on from a checkpoint goes the same way as
    /// one that was never stopped; unless its options have changed.
    fn by_images(&self, images: u32, most: u32) -> u32 {
        let at = |images: u32| u64::from(images) * u64::from(self.last) / u64::from(most);
        if at(self.from.images) == u64::from(self.from.iteration) {
            return u32::try_from(at(images)).unwrap_or(u32::MAX).min(self.last);
        }
        let since = f64::from(images) - f64::from(self.from.images);
        self.share_of_rest(share(since, f64::from(most) - f64::from(self.from.images)))
    }

    /// A run that goes on has what is left of its budget for what is left of the schedule.
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

/// What part of `whole` has passed, 0 to 1.
fn share(passed: f64, whole: f64) -> f64 {
    if passed >= whole { 1.0 } else { passed.max(0.0) / whole }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OptimizeOptions;

    /// Images of a run of 1,000 iterations over 50 views, and its iteration after each.
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
    fn passes_that_leave_the_iterations_as_they_are_change_nothing() {
        for passes in [[0, 0], [20, 0], [0, 20], [10, 30], [20, 20]] {
            assert_eq!(iterations(passes), None, "{passes:?}");
        }
    }

    #[test]
    fn a_run_beyond_its_passes_goes_on_with_an_image_an_iteration() {
        let optimize =
            OptimizeOptions { iterations: 100, min_passes: 3, ..OptimizeOptions::default() };
        let config = Config { optimize, ..Config::default() };
        let from = Passed { iteration: 83, images: 200, seconds: 0.0 };
        assert!(PaceBudget::of(&config, 50, from).is_none());
        assert!(PaceBudget::of(&config, 50, Passed { images: 140, ..from }).is_some());
    }

    #[test]
    fn a_schedule_passes_in_as_many_images_as_passes_say() {
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
