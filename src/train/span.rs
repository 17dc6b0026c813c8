//! The images that one step trains on. As a rule schedules count images, so that what is due in a run does not
//! depend on how many images a step takes. Where iterations of the schedule pass otherwise, those that pass with a step
//! are such a span as well.

/// Images from after `before` to `after`: those of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSpan {
    /// Images that the run had trained on before the step.
    pub before: u32,
    /// Images that it has trained on after the step.
    pub after: u32,
}

impl ImageSpan {
    /// The one image `image` (from 1); no image where that is 0.
    pub fn of(image: u32) -> Self {
        Self { before: image.saturating_sub(1), after: image }
    }

    /// Number of images.
    pub fn images(self) -> u32 {
        self.after - self.before
    }

    /// The images, from 1.
    pub fn each(self) -> impl Iterator<Item = u32> {
        self.before + 1..=self.after
    }

    /// The images in parts of so many, the last of which may be short.
    pub fn rounds(self, images: u32) -> impl Iterator<Item = Self> {
        let images = images.max(1);
        (self.before..self.after).step_by(images as usize).map(move |before| Self {
            before,
            after: self.after.min(before.saturating_add(images)),
        })
    }

    /// The last multiple of `interval` among them, 0 excepted.
    pub fn multiple(self, interval: u32) -> Option<u32> {
        let interval = interval.max(1);
        let last = self.after / interval;
        (self.before / interval < last).then_some(last * interval)
    }

    /// True if a multiple of `interval`, 0 excepted, is among them.
    pub fn crosses(self, interval: u32) -> bool {
        self.multiple(interval).is_some()
    }

    /// True if image `number` is among them.
    pub fn hits(self, number: u32) -> bool {
        self.before < number && number <= self.after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_all_images_in_their_order() {
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
    fn of_one_image_it_is_what_counting_iterations_is() {
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
    fn of_several_images_it_names_the_last_multiple() {
        let span = ImageSpan { before: 96, after: 104 };
        assert_eq!((span.images(), span.each().next()), (8, Some(97)));
        assert_eq!(
            [3, 8, 100, 105].map(|interval| span.multiple(interval)),
            [Some(102), Some(104), Some(100), None]
        );
        assert_eq!([96, 97, 104, 105].map(|image| span.hits(image)), [false, true, true, false]);
    }
}
