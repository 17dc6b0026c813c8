//! Images of one step. Schedules count images, so that they do not depend on the batch size. The iterations of a step
//! are a span too if they do not follow the images.

/// Range of images in one step: after `before`, up to and including `after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSpan {
    /// Number of trained images before the step.
    pub before: u32,
    /// Number of trained images after the step.
    pub after: u32,
}

impl ImageSpan {
    /// Returns the span of image `image` (from 1), or an empty span for 0.
    pub fn of(image: u32) -> Self {
        Self { before: image.saturating_sub(1), after: image }
    }

    /// Returns the number of images.
    pub fn images(self) -> u32 {
        self.after - self.before
    }

    /// Iterates over the images, from 1.
    pub fn each(self) -> impl Iterator<Item = u32> {
        self.before + 1..=self.after
    }

    /// Divides the span into parts of `images` images. The last part may be shorter.
    pub fn rounds(self, images: u32) -> impl Iterator<Item = Self> {
        let images = images.max(1);
        (self.before..self.after).step_by(images as usize).map(move |before| Self {
            before,
            after: self.after.min(before.saturating_add(images)),
        })
    }

    /// Returns the last positive multiple of `interval` in the span.
    pub fn multiple(self, interval: u32) -> Option<u32> {
        let interval = interval.max(1);
        let last = self.after / interval;
        (self.before / interval < last).then_some(last * interval)
    }

    /// True if a positive multiple of `interval` is in the span.
    pub fn crosses(self, interval: u32) -> bool {
        self.multiple(interval).is_some()
    }

    /// True if image `number` is in the span.
    pub fn hits(self, number: u32) -> bool {
        self.before < number && number <= self.after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_span_cover_all_images_in_order() {
        let span = ImageSpan { before: 4, after: 11 };
        for images in [0, 1, 3, 7, 8] {
            let rounds: Vec<_> = span.rounds(images).collect();
            assert!(rounds.iter().flat_map(|round| round.each()).eq(span.each()), "{images}");
            let most = rounds.iter().map(|round| round.images()).max();
            assert_eq!(most, Some(images.clamp(1, 7)));
        }
        assert_eq!(ImageSpan::of(0).rounds(3).count(), 0);
    }

    #[test]
    fn a_span_of_one_image_equals_counting_iterations() {
        for image in 1..=30_000_u32 {
            let span = ImageSpan::of(image);
            for interval in [1, 2, 3, 10, 100, 500, 1000, 3000, 7001] {
                assert_eq!(span.crosses(interval), image.is_multiple_of(interval));
                assert_eq!(span.hits(interval), image == interval);
            }
            assert!(span.each().eq([image]));
        }
        assert!(
            !ImageSpan::of(0).crosses(1)
                && !ImageSpan::of(0).hits(0)
                && ImageSpan::of(0).images() == 0
        );
    }

    #[test]
    fn a_span_returns_its_last_multiple() {
        let span = ImageSpan { before: 96, after: 104 };
        assert_eq!((span.images(), span.each().next()), (8, Some(97)));
        assert_eq!(
            [3, 8, 100, 105].map(|interval| span.multiple(interval)),
            [Some(102), Some(104), Some(100), None]
        );
        assert_eq!([96, 97, 104, 105].map(|image| span.hits(image)), [false, true, true, false]);
    }
}
