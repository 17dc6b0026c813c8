//! Images of each step of a run.

use super::coarse::CoarseSchedule;
use super::span::ImageSpan;
use crate::config::Config;

/// Steps of a run. A stage begins with a whole batch and may end with a short one, so that stages
/// change between steps.
#[derive(Clone, Debug)]
pub(super) struct Batches {
    /// Number of images of a step.
    views: u32,
    /// Last images of the stages, ascending.
    ends: Vec<u32>,
}

impl Batches {
    /// Divides a run into batches. The coarse stage has one part before and one after the prune.
    pub(super) fn of(config: &Config) -> Self {
        let (start, last) = (config.optimize.iterations, config.last_iteration());
        let prune = CoarseSchedule::of(config).map(|course| course.prune);
        let mut ends = vec![start, last];
        ends.extend(prune.filter(|prune| (start..last).contains(prune)));
        ends.sort_unstable();
        Self { views: config.optimize.batch_views.max(1), ends }
    }

    /// Returns the step after `before` images.
    pub(super) fn next(&self, before: u32) -> ImageSpan {
        let start = self.start(before.saturating_add(1));
        let whole = (before - start) / self.views + 1;
        let after = start.saturating_add(whole.saturating_mul(self.views));
        let end = self.ends.iter().copied().find(|&end| end > before);
        ImageSpan { before, after: after.min(end.unwrap_or(u32::MAX)) }
    }

    /// Returns the step that ended after `after` images.
    pub(super) fn ended(&self, after: u32) -> ImageSpan {
        let Some(last) = after.checked_sub(1) else { return ImageSpan::of(0) };
        let start = self.start(after);
        ImageSpan { before: start + (last - start) / self.views * self.views, after }
    }

    /// Returns the number of images before the stage of image `image` (from 1).
    fn start(&self, image: u32) -> u32 {
        self.ends.iter().copied().rfind(|&end| end < image).unwrap_or(0)
    }
}

/// Images that one rank draws. The ranks take turns through each step.
#[derive(Clone, Debug)]
pub(super) struct RankImages {
    batches: Batches,
    rank: u32,
    world: u32,
}

impl RankImages {
    /// Returns the images of one of `world` ranks.
    pub(super) fn of(config: &Config, rank: u32, world: u32) -> Self {
        Self { batches: Batches::of(config), rank, world: world.max(1) }
    }

    /// True if the rank draws this image (from 1).
    pub(super) fn has(&self, image: u32) -> bool {
        let place = image.saturating_sub(self.batches.ended(image).before + 1);
        place % self.world == self.rank
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{OptimizeOptions, Regularize, SugarSchedule};

    fn config(views: u32) -> Config {
        let mut config = Config::default();
        config.optimize.batch_views = views;
        config
    }

    fn spans(batches: &Batches, from: u32, last: u32) -> Vec<ImageSpan> {
        let mut spans = vec![batches.next(from)];
        while spans[spans.len() - 1].after < last {
            spans.push(batches.next(spans[spans.len() - 1].after));
        }
        spans
    }

    #[test]
    fn a_batch_of_one_is_an_iteration() {
        let batches = Batches::of(&config(1));
        for image in 1..=30_000 {
            assert_eq!(batches.next(image - 1), ImageSpan::of(image));
            assert_eq!(batches.ended(image), ImageSpan::of(image));
        }
        assert_eq!(batches.ended(0), ImageSpan::of(0));
    }

    #[test]
    fn milestones_come_once_for_any_batch_size() {
        for views in 1..=8 {
            let mut config = config(views);
            config.optimize.iterations = 1003;
            let batches = Batches::of(&config);
            let spans = spans(&batches, 0, 1003);
            for &span in &spans {
                assert_eq!(batches.ended(span.after), span, "a resumed run knows its last step");
            }
            let images: u32 = spans.iter().map(|span| span.images()).sum();
            let rounds = spans.iter().filter(|span| span.crosses(100)).count();
            let hits = spans.iter().filter(|span| span.hits(777)).count();
            assert_eq!((images, rounds, hits), (1003, 10, 1), "batches of {views}");
            let short = spans.iter().filter(|span| span.images() < views).count();
            assert_eq!(short, usize::from(!1003_u32.is_multiple_of(views)), "batches of {views}");
        }
    }

    #[test]
    fn ranks_share_the_images_of_each_round() {
        for (views, world) in [(1, 1), (3, 3), (4, 3), (2, 5), (8, 3)] {
            let config = Config {
                optimize: OptimizeOptions { iterations: 101, ..config(views).optimize },
                ..config(views)
            };
            let images: Vec<_> =
                (0..world).map(|rank| RankImages::of(&config, rank, world)).collect();
            for span in spans(&Batches::of(&config), 0, 101) {
                for round in span.rounds(world) {
                    for (rank, image) in (0..).zip(round.each()) {
                        let of: Vec<_> =
                            (0..world).filter(|&of| images[of as usize].has(image)).collect();
                        assert_eq!(of, [rank], "image {image}, {views} views, {world} ranks");
                    }
                }
            }
        }
    }

    #[test]
    fn stages_end_with_a_batch() {
        let mut config = config(8);
        config.optimize.iterations = 7001;
        config.sugar.regularize = Regularize::Density;
        for (schedule, prune) in [(SugarSchedule::Relative, 9002), (SugarSchedule::Absolute, 9000)]
        {
            config.sugar.sugar_schedule = schedule;
            let (batches, last) = (Batches::of(&config), config.last_iteration());
            let ends: Vec<u32> = spans(&batches, 0, last).iter().map(|span| span.after).collect();
            assert!([7001, prune, last].iter().all(|end| ends.contains(end)), "{schedule:?}");
            assert_eq!(batches.next(7001).after, 7009);
        }
        // A run that is resumed with another batch size realigns.
        let batches = Batches::of(&self::config(8));
        assert_eq!(batches.next(13), ImageSpan { before: 13, after: 16 });
        assert_eq!(batches.next(16), ImageSpan { before: 16, after: 24 });
    }
}
