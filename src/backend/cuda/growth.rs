//! How many Gaussians may be born: as many as the iterations that follow have memory for.

use super::dry::scratch as dry_run;
use super::frame::Frame;
use super::memory::heap::Heap;
use super::model::tables::Model;
use super::photos::PhotoStore;
use crate::backend::Inputs;
use crate::backend::frame_state::FrameState;
use crate::layout::MemoryPlace;
use crate::memory::plan::{
    CoarseGrowth, FEWER_NEIGHBOURS, Granule, Growth, HostGrowth, PlannedCoarse, Storage,
    largest_births, view_scratch,
};
use crate::memory::{Bytes, Ladder, Rung};
use crate::model::Primitive;

/// Iterations after which what views needed is no longer looked at, at the latest; at the earliest
/// half as many. Scenes have some hundred views.
const REMEMBERED: u32 = 1000;

/// This part of the budget is left to what nobody can foresee: views that see more than any before.
const UNFORESEEN: u64 = 50;

/// What views need of the scratch, per Gaussian.
#[derive(Debug, Default)]
pub(super) struct ScratchHighWater {
    /// The most of any view since the last change, and before it.
    most: [f64; 2],
    frames: u32,
    /// Gaussians that are left when density control has ended, where they are pruned then.
    target: Option<u64>,
    /// What terms need of views sooner or later.
    inputs: Inputs,
    /// Where a coarse stage will follow.
    coarse: Option<CoarseHighWater>,
}

/// What views would need of the scratch in the coarse stage that will follow, per Gaussian.
#[derive(Clone, Copy, Debug)]
struct CoarseHighWater {
    stage: PlannedCoarse,
    /// The most of any view since the last change, and before it.
    most: [f64; 2],
}

impl ScratchHighWater {
    /// Of a run that is pruned to so many Gaussians, if it is, that this coarse stage follows, if one
    /// does, and whose terms need this of views sooner or later.
    pub(super) fn of_run(
        target: Option<u64>,
        coarse: Option<PlannedCoarse>,
        inputs: Inputs,
    ) -> Self {
        Self {
            target,
            inputs,
            coarse: coarse.map(|stage| CoarseHighWater { stage, most: [0.0; 2] }),
            ..Self::default()
        }
    }

    /// A view was drawn for training, beside what earlier views of its batch hold.
    pub(super) fn observe<S: FrameState, P: Primitive>(
        &mut self,
        frame: &Frame<S, P>,
        gaussians: usize,
        earlier: Bytes,
        heap: &Heap,
        ladder: &Ladder,
    ) {
        self.record(self.needed(frame, gaussians, earlier, heap, ladder), gaussians);
        let inputs = self.inputs;
        if let Some(CoarseHighWater { stage: coarse, most }) = &mut self.coarse {
            let of_frame = |in_bands| {
                let planned = coarse.views(frame.planned(gaussians, inputs, in_bands));
                view_scratch(dry_run, heap.cub_scratch(), gaussians as u64, planned)
            };
            let beside = in_coarse(earlier, coarse);
            let at_once = of_frame(false) + beside;
            if each(at_once, gaussians) > most[0] {
                let in_bands = in_bands(ladder).then(|| of_frame(true) + beside);
                let needed = in_bands.map_or(at_once, |needed| needed.min(at_once));
                most[0] = most[0].max(each(needed, gaussians));
            }
        }
    }

    /// What a view needed of the scratch, or would have needed in bands where these are allowed; one that
    /// is drawn smaller, or without what terms need later, at the size of its photograph and with that.
    fn needed<S: FrameState, P: Primitive>(
        &self,
        frame: &Frame<S, P>,
        gaussians: usize,
        earlier: Bytes,
        heap: &Heap,
        ladder: &Ladder,
    ) -> Bytes {
        let of_frame = |in_bands| {
            let planned = frame.planned(gaussians, self.inputs, in_bands);
            earlier + view_scratch(dry_run, heap.cub_scratch(), gaussians as u64, planned)
        };
        let at_once = match frame.is_divided() || frame.lacks(self.inputs) {
            true => of_frame(false),
            false => heap.live_scratch(),
        };
        // A view that takes no more than earlier ones changes nothing, in bands or not.
        if !in_bands(ladder) || each(at_once, gaussians) <= self.most[0] {
            return at_once;
        }
        of_frame(true).min(at_once)
    }

    fn record(&mut self, bytes: Bytes, gaussians: usize) {
        self.frames += 1;
        if self.frames >= REMEMBERED / 2 {
            self.most = [0.0, self.most[0]];
            if let Some(CoarseHighWater { most, .. }) = &mut self.coarse {
                *most = [0.0, most[0]];
            }
            self.frames = 0;
        }
        self.most[0] = self.most[0].max(each(bytes, gaussians));
    }

    /// What the hungriest view needs of a model of so many.
    fn of(&self, gaussians: usize) -> Bytes {
        all(self.most[0].max(self.most[1]), gaussians)
    }

    /// What the coarse stage will take of a model of so many, with the shortest lists that it may come
    /// to before births are refused.
    fn in_coarse(&self, gaussians: usize, ladder: &Ladder) -> Option<CoarseGrowth> {
        let CoarseHighWater { stage: coarse, most } = self.coarse?;
        let most = most[0].max(most[1]);
        let [.., fewest] = FEWER_NEIGHBOURS;
        let neighbours = if ladder.comes_before(Rung::Neighbours, Rung::Births) {
            coarse.neighbours.min(fewest)
        } else {
            coarse.neighbours
        };
        Some(CoarseGrowth { neighbours, scratch: all(most, gaussians) })
    }
}

fn each(bytes: Bytes, gaussians: usize) -> f64 {
    bytes.0 as f64 / gaussians.max(1) as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes of a device's memory, not below 0"
)]
fn all(each: f64, gaussians: usize) -> Bytes {
    Bytes((each * gaussians as f64).ceil() as u64)
}

/// Whether views are drawn in bands before births are refused.
fn in_bands(ladder: &Ladder) -> bool {
    ladder.comes_before(Rung::Bands, Rung::Births)
}

/// What earlier views of a batch, which hold so much, would hold in the coarse stage at most. Behind
/// their features the place of the splats stays empty: with 4 bytes a Gaussian and 48 a splat, 128 a
/// splat are less than three times as much.
fn in_coarse(earlier: Bytes, coarse: &PlannedCoarse) -> Bytes {
    if coarse.maps.are_drawn() { Bytes(3 * earlier.0) } else { earlier }
}

/// Of `wish` births as many as there is memory for when everything is given up that comes before
/// births.
pub(super) fn births<P: Primitive>(
    high_water: &ScratchHighWater,
    model: &Model<P>,
    wish: usize,
    images: &PhotoStore,
    heap: &Heap,
    ladder: &Ladder,
) -> usize {
    let mapped = model.mapped();
    let mut others = heap.total().0.saturating_sub(mapped.iter().map(|bytes| bytes.0).sum());
    others = others.saturating_sub(heap.mapped_scratch().0);
    if ladder.comes_before(Rung::Photographs, Rung::Births) {
        others = others.saturating_sub(images.resident_bytes().0);
    }
    let growth = Growth {
        budget: heap.budget(),
        others: Bytes(others + heap.budget().0 / UNFORESEEN),
        model: model.size(),
        mapped,
        iteration_scratch: high_water.of(model.len()),
        granule: Granule(heap.granule()),
        is_virtual: heap.is_virtual(),
        target: high_water.target,
        coarse: high_water.in_coarse(model.len(), ladder),
        host: (model.storage() == Storage::Offloaded).then(|| HostGrowth {
            room: Bytes(model.mapped_on_host().0.saturating_add(heap.left_on_host().0)),
            granule: Granule(heap.granule_in(MemoryPlace::Host)),
            is_virtual: heap.is_virtual_in(MemoryPlace::Host),
        }),
        dry_run,
    };
    usize::try_from(largest_births(&growth, wish as u64)).unwrap_or(wish).min(wish)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::plan::Maps;

    #[test]
    fn the_hungriest_of_the_last_views_counts_and_in_the_end_is_forgotten() {
        let mut high_water = ScratchHighWater::default();
        high_water.record(Bytes(1000), 100);
        high_water.record(Bytes(3000), 200);
        assert_eq!(high_water.of(300), Bytes(4500));
        for _ in 0..REMEMBERED / 2 {
            high_water.record(Bytes(500), 100);
        }
        assert_eq!(high_water.of(300), Bytes(4500));
        for _ in 0..REMEMBERED / 2 {
            high_water.record(Bytes(500), 100);
        }
        assert_eq!(high_water.of(300), Bytes(1500));
    }

    #[test]
    fn the_coarse_stage_counts_short_lists_only_if_they_precede_births() {
        let coarse = PlannedCoarse { neighbours: 16, shortens: true, maps: Maps::Undrawn };
        let high_water = ScratchHighWater {
            coarse: Some(CoarseHighWater { stage: coarse, most: [20.0, 70.5] }),
            ..ScratchHighWater::default()
        };
        for (order, neighbours) in [
            (&[Rung::Neighbours, Rung::Births][..], 10),
            (&[Rung::Births, Rung::Neighbours], 16),
            (&[Rung::Births], 16),
        ] {
            let found = high_water.in_coarse(1000, &Ladder::new(order)).unwrap();
            assert_eq!((found.neighbours, found.scratch), (neighbours, Bytes(70_500)));
        }
        let mut high_water = high_water;
        for _ in 0..REMEMBERED / 2 {
            high_water.record(Bytes(500), 100);
        }
        let found = high_water.in_coarse(1000, &Ladder::new(&[])).unwrap();
        assert_eq!(found.scratch, Bytes(20_000), "what was long ago is forgotten");
        let high_water = ScratchHighWater::of_run(None, None, Inputs::NONE);
        assert!(high_water.in_coarse(1000, &Ladder::new(&[])).is_none());
    }
}
