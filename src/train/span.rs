//! The images that one step trains on. Schedules count images, so that what is due in a run does not
//! depend on how many images a step takes.

/// Images from after `before` to `after`: those of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Images that the run had trained on before the step.
    pub before: u32,
    /// Images that it has trained on after the step.
    pub after: u32,
}

impl Span {
    /// The one image `image` (from 1).
    pub fn of(image: u32) -> Self {
        Self { before: image.saturating_sub(1), after: image }
    }

    /// The step after so many images of a stage that ends after `last`: `batch` of them, or what is
    /// left of the stage.
    pub fn next(before: u32, batch: u32, last: u32) -> Self {
        let after = before.saturating_add(batch.max(1)).min(last.max(before.saturating_add(1)));
        Self { before, after }
    }

    /// The step that ended after so many images of a stage that began after `start`. Batches are
    /// counted from there, so that a resumed run knows its last step.
    pub fn ended(after: u32, batch: u32, start: u32) -> Self {
        let done = after.saturating_sub(start);
        let batch = batch.max(1);
        let images = match done % batch {
            0 => batch.min(done),
            rest => rest,
        };
        Self { before: after - images, after }
    }

    /// Number of images.
    pub fn images(self) -> u32 {
        self.after - self.before
    }

    /// The images, from 1.
    pub fn each(self) -> impl Iterator<Item = u32> {
        self.before + 1..=self.after
    }

    /// Whether a multiple of `interval`, 0 excepted, is among them.
    pub fn crosses(self, interval: u32) -> bool {
        let interval = interval.max(1);
        self.before / interval < self.after / interval
    }

    /// Whether image `number` is among them.
    pub fn hits(self, number: u32) -> bool {
        self.before < number && number <= self.after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_image_it_is_what_counting_iterations_is() {
        for image in 1..=30_000_u32 {
            let span = Span::of(image);
            for interval in [1, 2, 3, 10, 100, 500, 1000, 3000, 7001] {
                assert_eq!(span.crosses(interval), image.is_multiple_of(interval));
                assert_eq!(span.hits(interval), image == interval);
            }
            assert_eq!(span, Span::next(image - 1, 1, 30_000));
            assert_eq!(span, Span::ended(image, 1, 0));
            assert!(span.each().eq([image]));
        }
    }

    #[test]
    fn what_is_due_in_a_run_is_due_once_whatever_the_batch() {
        for batch in 1..=8 {
            let mut span = Span { before: 0, after: 0 };
            let (mut rounds, mut hits, mut images) = (0, 0, 0);
            while span.after < 1003 {
                span = Span::next(span.after, batch, 1003);
                assert_eq!(span, Span::ended(span.after, batch, 0), "a resumed run knows it");
                rounds += u32::from(span.crosses(100));
                hits += u32::from(span.hits(777));
                images += span.images();
            }
            assert_eq!((rounds, hits, images), (10, 1, 1003), "batches of {batch}");
        }
    }
}
