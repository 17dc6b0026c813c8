//! How many Gaussians may be born: as many as the iterations that follow have memory for.

use super::frame::Frame;
use super::heap::Heap;
use super::images::Images;
use super::model::Model;
use crate::memory::plan::{Granule, Growth, ModelSize, largest_births};
use crate::memory::{Bytes, Ladder, Rung};

/// Iterations after which what views needed is no longer looked at, at the latest; at the earliest
/// half as many. Scenes have some hundred views.
const REMEMBERED: u32 = 1000;

/// Parts that the lists of a view come in where births are to fit, if it may be drawn in bands.
const PARTS: u64 = 4;

/// This part of the budget is left to what nobody can foresee: views that see more than any before.
const UNFORESEEN: u64 = 50;

/// What views need of the scratch, per Gaussian.
#[derive(Debug, Default)]
pub(super) struct Appetite {
    /// The most of any view since the last change, and before it.
    most: [f64; 2],
    frames: u32,
}

impl Appetite {
    /// A view was drawn for training.
    pub(super) fn saw(&mut self, bytes: Bytes, gaussians: usize) {
        self.frames += 1;
        if self.frames >= REMEMBERED / 2 {
            self.most = [0.0, self.most[0]];
            self.frames = 0;
        }
        let each = bytes.0 as f64 / gaussians.max(1) as f64;
        self.most[0] = self.most[0].max(each);
    }

    /// What the hungriest view needs of a model of so many.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bytes of a device's memory, not below 0"
    )]
    fn of(&self, gaussians: usize) -> Bytes {
        let most = self.most[0].max(self.most[1]);
        Bytes((most * gaussians as f64).ceil() as u64)
    }
}

/// What a view needed of the scratch, or would have needed in bands where these are allowed.
pub(super) fn needed(frame: &Frame, heap: &Heap, ladder: &Ladder) -> Bytes {
    let at_once = heap.live_scratch();
    if ladder.precedes(Rung::Bands, Rung::Births) {
        frame.scratch_in_parts(PARTS).min(at_once)
    } else {
        at_once
    }
}

/// Of `wish` births as many as there is memory for when everything is given up that comes before
/// births.
pub(super) fn births(
    appetite: &Appetite,
    (model, wish): (&Model, usize),
    images: &Images,
    (heap, ladder): (&Heap, &Ladder),
) -> usize {
    let mapped = model.mapped();
    let mut others = heap.total().0.saturating_sub(mapped.iter().map(|bytes| bytes.0).sum());
    others = others.saturating_sub(heap.mapped_scratch().0);
    if ladder.precedes(Rung::Photographs, Rung::Births) {
        others = others.saturating_sub(images.resident_bytes().0);
    }
    let growth = Growth {
        budget: heap.budget(),
        others: Bytes(others + heap.budget().0 / UNFORESEEN),
        model: ModelSize {
            gaussians: model.len() as u64,
            sh_degree: model.sh_degree(),
            storage: model.storage(),
            optional: model.optional(),
        },
        mapped,
        iteration_scratch: appetite.of(model.len()),
        granule: Granule(heap.granule()),
        is_virtual: heap.is_virtual(),
    };
    usize::try_from(largest_births(&growth, wish as u64)).unwrap_or(wish).min(wish)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hungriest_of_the_last_views_counts_and_in_the_end_is_forgotten() {
        let mut appetite = Appetite::default();
        appetite.saw(Bytes(1000), 100);
        appetite.saw(Bytes(3000), 200);
        assert_eq!(appetite.of(300), Bytes(4500));
        for _ in 0..REMEMBERED / 2 {
            appetite.saw(Bytes(500), 100);
        }
        assert_eq!(appetite.of(300), Bytes(4500));
        for _ in 0..REMEMBERED / 2 {
            appetite.saw(Bytes(500), 100);
        }
        assert_eq!(appetite.of(300), Bytes(1500));
    }
}
