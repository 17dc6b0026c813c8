//! When rounds of density control come.

use std::ops::Range;

use crate::config::DensifyOptions;
use crate::train::span::ImageSpan;

/// Iterations after which the Gaussians have grown and moved enough to be put in order anew.
const REORDER_INTERVAL: u32 = 1000;

/// The iterations after which there is a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rounds {
    from: u32,
    until: u32,
    interval: u32,
}

/// Images between two rounds over so many views at least: those of a pass, or of an interval if that is less.
pub fn least_images(options: &DensifyOptions, views: usize) -> u32 {
    options.densification_interval.min(u32::try_from(views).unwrap_or(u32::MAX))
}

impl Rounds {
    /// Those that the options ask for.
    pub(super) fn new(options: &DensifyOptions) -> Self {
        let window = options.densify_from_iter..options.densify_until_iter;
        Self::every(options.densification_interval, window)
    }

    /// Every `interval` iterations of these, their first and their end excepted.
    pub(super) fn every(interval: u32, iterations: Range<u32>) -> Self {
        let Range { start: from, end: until } = iterations;
        Self { from, until, interval: interval.max(1) }
    }

    /// How many rounds are left, that of `iteration` included.
    pub(super) fn left(self, iteration: u32) -> u32 {
        self.until.saturating_sub(iteration).div_ceil(self.interval)
    }

    /// How many are left, that of `iteration` included, where so many images pass with an iteration and each round
    /// but the first waits for `least` of them.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of rounds, rounded down"
    )]
    pub(super) fn left_of_images(self, iteration: u32, per_iteration: f64, least: u32) -> u32 {
        let images = per_iteration * f64::from(self.until.saturating_sub(iteration));
        1 + (images / f64::from(least.max(1))) as u32
    }

    /// Whether there is one after a step.
    pub(super) fn is_due(self, span: ImageSpan) -> bool {
        self.iteration_of(span).is_some()
    }

    /// The iteration of a step that a round comes for, if there is one.
    fn iteration_of(self, span: ImageSpan) -> Option<u32> {
        let last = self.until.saturating_sub(1).max(span.before);
        let inside = ImageSpan { after: span.after.min(last), ..span };
        inside.multiple(self.interval).filter(|&round| round > self.from)
    }

    /// True if density control has begun before `iteration`.
    pub(super) fn has_begun(self, iteration: u32) -> bool {
        iteration > self.from
    }

    /// Whether a round may follow `iteration`, so that what is observed in it may be used.
    pub(super) fn may_follow(self, iteration: u32) -> bool {
        iteration < self.until
    }

    /// Whether Gaussians are put in the order of their places after the round that is due after a step:
    /// after the first of every thousand iterations, and after the last of all.
    pub(super) fn reorders(self, span: ImageSpan) -> bool {
        self.iteration_of(span).is_some_and(|round| {
            let first = round % REORDER_INTERVAL < self.interval;
            first || round.saturating_add(self.interval) >= self.until
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_come_every_hundred_iterations_between_500_and_15000_exclusive() {
        let rounds = Rounds::new(&DensifyOptions::default());
        let due: Vec<u32> = (1..=30_000).filter(|&i| rounds.is_due(ImageSpan::of(i))).collect();
        assert_eq!((due[0], due[1], due[due.len() - 1]), (600, 700, 14_900));
        assert_eq!(due.len(), 144);
    }

    #[test]
    fn of_several_iterations_the_last_round_that_may_come_does() {
        let rounds = Rounds::every(10, 20..55);
        let due = |before, after| rounds.iteration_of(ImageSpan { before, after });
        let spans = [(15, 20), (15, 25), (15, 31), (45, 80), (51, 80), (60, 80)];
        let found = spans.map(|(before, after)| due(before, after));
        assert_eq!(found, [None, None, Some(30), Some(50), None, None]);
    }

    #[test]
    fn the_first_round_of_each_thousand_iterations_and_the_last_reorder() {
        let mut options = DensifyOptions::default();
        let orders = |options: &DensifyOptions| -> Vec<u32> {
            (0..=30_000).filter(|&i| Rounds::new(options).reorders(ImageSpan::of(i))).collect()
        };
        let thousands = (1..=14).map(|i| i * 1000);
        assert_eq!(orders(&options), thousands.chain([14_900]).collect::<Vec<u32>>());
        options.densify_until_iter = 4000;
        options.densification_interval = 300;
        assert_eq!(orders(&options), [1200, 2100, 3000, 3900]);
        options.densification_interval = 1500;
        assert_eq!(orders(&options), [1500, 3000]);
        // There is no round at all.
        options.densify_until_iter = 0;
        assert_eq!(orders(&options), [0; 0]);
    }
}
