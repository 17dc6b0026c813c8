//! The holder of the GPU's memory: what can be given up and how it is restored.

use super::dry::scratch as dry_run;
use super::frame::Frame;
use super::photos::PhotoStore;
use super::primitive::{is_compactable, is_offloadable};
use super::session::BandPolicy;
use crate::backend::cuda::prelude::*;
use crate::backend::{FrameState, Inputs};
use crate::layout::{MemoryPlace, ModelSize, NEIGHBOURS};
use crate::memory::plan::{
    CoarseGrowth, FEWER_NEIGHBOURS, Granule, Growth, HostGrowth, PlannedCoarse, Storage,
    most_new_gaussians, search_scratch, view_scratch,
};
use crate::memory::{Fallback, FallbackPolicy, Gain, Holder, Refusal};
use crate::model::{Gaussians, Primitive};

/// Minimum shortage, used when the driver reports none.
const MIN_MISSING: u64 = 64 << 20;

pub(super) struct Parts<'a, P = Gaussians> {
    pub(super) images: &'a mut PhotoStore,
    pub(super) session: &'a mut Session,
    /// The model; `None` during an iteration.
    pub(super) model: Option<&'a mut Model<P>>,
}

impl<P: CudaPrimitive> Holder for Parts<'_, P> {
    type Error = DeviceError;

    fn missing(&self, error: &DeviceError) -> Option<Bytes> {
        match error {
            DeviceError::Refused(refusal) => {
                let Refusal { wanted, held, budget, .. } = **refusal;
                Some(Bytes(held.0.saturating_add(wanted.0).saturating_sub(budget.0)))
            }
            DeviceError::OutOfMemory { wanted, free, .. } => {
                Some(Bytes(wanted.0.saturating_sub(free.0).max(MIN_MISSING)))
            }
            _ => None,
        }
    }

    fn give_up(&mut self, fallback: Fallback, missing: Bytes) -> Result<Gain> {
        let heap = &self.session.heap;
        let before = heap.total();
        match fallback {
            // Between iterations the slack is gone already, except for the next iteration's. Others could take that.
            Fallback::Slack if self.model.is_none() && heap.excess() == Bytes(0) => {
                heap.trim_scratch()?;
            }
            Fallback::Photographs => match self.images.evict(self.session, missing) {
                // Photographs in use need memory to go to.
                Err(error) if error.is_out_of_memory() => return Ok(Gain::Nothing),
                done => drop(done?),
            },
            // Between iterations there are no lists: bands would free nothing.
            Fallback::Bands if self.model.is_none() && self.session.bands == BandPolicy::Never => {
                self.session.bands = BandPolicy::WhenNeeded;
                return Ok(Gain::Bytes(Bytes(0)));
            }
            // Their holder drops them after a failed iteration or before the next one.
            Fallback::Neighbours => {
                let held = heap.used_by(NEIGHBOURS.label);
                return Ok(self.session.list_room.shorten(held));
            }
            Fallback::Compact => {
                if let Some(model) = &mut self.model
                    && !model.storage().is_compact()
                    && is_compactable::<P>()
                {
                    match model.compact(self.session) {
                        // The conversion itself takes a little scratch.
                        Err(error) if error.is_out_of_memory() => return Ok(Gain::Nothing),
                        done => return Ok(Gain::Bytes(done?)),
                    }
                }
            }
            Fallback::Offload => {
                if let Some(model) = &mut self.model
                    && is_offloadable::<P>()
                    && has_room_on_host(heap, model, model.len())
                {
                    let was_compact = model.storage().is_compact();
                    match model.offload(self.session) {
                        Err(error) if error.is_out_of_memory() => {
                            if was_compact || !model.storage().is_compact() {
                                return Ok(Gain::Nothing);
                            }
                            // A model that was made compact on the way stays so.
                            tracing::warn!("colours stay in the GPU's memory: {error}");
                            let gained = before.0.saturating_sub(heap.total().0);
                            return Ok(Gain::Begun(Fallback::Compact, Bytes(gained)));
                        }
                        done => drop(done?),
                    }
                }
            }
            // Views are drawn smaller from the next step on.
            Fallback::Resolution if self.model.is_some() => {
                return Ok(self.session.view_size.lower());
            }
            Fallback::Slack | Fallback::Bands | Fallback::NewGaussians | Fallback::Resolution => {}
        }
        let gained = before.0.saturating_sub(self.session.heap.total().0);
        Ok(if gained > 0 { Gain::Bytes(Bytes(gained)) } else { Gain::Nothing })
    }

    fn cost(&self, fallback: Fallback) -> Option<Bytes> {
        match fallback {
            Fallback::Photographs => {
                self.images.all_fit(&self.session.heap).then(|| self.images.absent())
            }
            // An eighth more than the largest need, so that the next view does not bring the bands back.
            Fallback::Bands => {
                let need = self.session.banded_need.0;
                Some(Bytes(need + need / 8))
            }
            // Includes the scratch of the search and of the following iterations.
            Fallback::Neighbours => {
                let (lists, heap) = (&self.session.list_room, &self.session.heap);
                let scratch = search_scratch(dry_run, lists.gaussians()).max(heap.recent_scratch());
                Some(lists.missing() + scratch)
            }
            // Includes the photographs, which are uploaded again.
            Fallback::Resolution => {
                let taken = self.session.heap.recent_scratch() + self.images.resident_bytes();
                self.session.view_size.missing(taken)
            }
            Fallback::Slack | Fallback::Compact | Fallback::Offload | Fallback::NewGaussians => {
                None
            }
        }
    }

    fn available_bytes(&self) -> Bytes {
        self.session.heap.available_bytes()
    }

    fn restore(&mut self, fallback: Fallback) -> Result {
        match fallback {
            Fallback::Photographs => self.images.allow_resident(&self.session.heap),
            Fallback::Bands => {
                self.session.bands = BandPolicy::Never;
                self.session.banded_need = Bytes(0);
            }
            Fallback::Neighbours => self.session.list_room.lengthen(),
            Fallback::Resolution => self.session.view_size.restore(),
            Fallback::Slack | Fallback::Compact | Fallback::Offload | Fallback::NewGaussians => {}
        }
        Ok(())
    }
}

/// True if the host has room for the tables of the model with `rows` rows, and the device holds them.
pub(super) fn has_room_on_host<P: CudaPrimitive>(
    heap: &Heap,
    model: &Model<P>,
    rows: usize,
) -> bool {
    if model.storage() == Storage::Offloaded {
        return false;
    }
    let size = ModelSize { storage: Storage::Offloaded, ..model.size().with(rows as u64) };
    let granule = heap.granule_in(MemoryPlace::Host).0;
    let wanted: u64 = size.host_tables().map(|(_, bytes)| bytes.next_multiple_of(granule)).sum();
    wanted <= heap.left_on_host().0
}

/// Runs work that needs memory, and takes fallbacks in order while memory is short.
pub(super) fn with_room<R>(
    policy: &mut FallbackPolicy,
    mut parts: Parts<'_>,
    mut work: impl FnMut(&mut Parts<'_>) -> Result<R>,
) -> Result<R> {
    policy.run(&mut parts, |parts| {
        let done = work(parts);
        if matches!(done, Err(DeviceError::OutOfMemory { .. })) {
            // Another program took memory meanwhile.
            parts.session.heap.update_foreign_use()?;
        }
        done
    })
}

/// Updates the memory that others use, frees what is needed, and restores what fits.
pub(super) fn between_iterations<P: CudaPrimitive>(
    policy: &mut FallbackPolicy,
    mut parts: Parts<'_, P>,
) -> Result {
    parts.session.heap.update_foreign_use()?;
    if let Some(model) = &mut parts.model {
        model.trim()?;
    }
    parts.session.heap.trim_slack()?;
    if parts.images.is_short_of_room(&parts.session.heap) {
        policy.record_once(Fallback::Photographs);
    }
    match policy.run(&mut parts, |parts| within_budget(&parts.session.heap)) {
        // The next iteration will have less memory.
        Err(error) if error.is_out_of_memory() && parts.session.is_waiting() => {}
        // The driver has granted what is held: it stays, and nothing more is taken.
        Err(error) if error.is_out_of_memory() => {
            policy.warn_about_excess(parts.session.heap.excess());
        }
        other => {
            other?;
            policy.warn_about_excess(Bytes(0));
        }
    }
    policy.restore_fallbacks(&mut parts)
}

/// Gives up what is left after an iteration failed. Returns true if memory was gained or will be.
pub(super) fn relieve<P: CudaPrimitive>(
    policy: &mut FallbackPolicy,
    mut parts: Parts<'_, P>,
    error: &DeviceError,
) -> Result<bool> {
    let Some(missing) = parts.missing(error) else { return Ok(false) };
    let may_help = [
        Fallback::Photographs,
        Fallback::Neighbours,
        Fallback::Compact,
        Fallback::Offload,
        Fallback::Resolution,
    ];
    for fallback in policy.in_order(&may_help) {
        // Smaller views reduce their own steps alone.
        if fallback == Fallback::Resolution && !parts.session.view_size.is_refused() {
            continue;
        }
        if let Some((fallback, bytes)) = parts.give_up(fallback, missing)?.of(fallback) {
            policy.record(fallback, bytes);
            return Ok(true);
        }
    }
    Ok(false)
}

/// Fails if others have taken memory that this program had counted on.
fn within_budget(heap: &Heap) -> Result {
    let excess = heap.excess();
    if excess == Bytes(0) {
        return Ok(());
    }
    Err(Refusal {
        label: "other programs",
        wanted: Bytes(0),
        held: heap.total(),
        budget: heap.budget(),
        largest: Vec::new(),
        sharing: None,
    }
    .into())
}

/// Iterations after which the needs of views are forgotten; at the earliest half as many.
const REMEMBERED: u32 = 1000;

/// Reciprocal of the share of the budget that is left for views larger than any before.
const UNFORESEEN: u64 = 50;

/// Scratch of views, per Gaussian.
#[derive(Debug, Default)]
pub(super) struct ScratchHighWater {
    /// Largest needs in bytes per Gaussian, since the last change and before it.
    most: [f64; 2],
    frames: u32,
    /// Number of Gaussians after pruning at the end of density control.
    target: Option<u64>,
    /// Inputs of all terms, now or later.
    inputs: Inputs,
    /// Needs of the coarse stage, if one follows.
    coarse: Option<CoarseHighWater>,
}

/// Scratch of views in the coarse stage, per Gaussian.
#[derive(Clone, Copy, Debug)]
struct CoarseHighWater {
    stage: PlannedCoarse,
    /// Largest needs in bytes per Gaussian, since the last change and before it.
    most: [f64; 2],
}

impl ScratchHighWater {
    /// Creates the record of a run with `target` Gaussians after pruning, followed by `coarse`.
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

    /// Records the needs of a training view, beside the bytes that earlier views of its batch hold.
    pub(super) fn observe<S: FrameState, P: Primitive>(
        &mut self,
        frame: &Frame<S, P>,
        gaussians: usize,
        earlier: Bytes,
        heap: &Heap,
        policy: &FallbackPolicy,
    ) {
        self.record(self.needed(frame, gaussians, earlier, heap, policy), gaussians);
        let inputs = self.inputs;
        if let Some(CoarseHighWater { stage: coarse, most }) = &mut self.coarse {
            let of_frame = |in_bands| {
                let planned = coarse.views(frame.planned(gaussians, inputs, in_bands));
                view_scratch(dry_run, heap.cub_scratch(), gaussians as u64, planned)
            };
            let beside = in_coarse(earlier, coarse);
            let at_once = of_frame(false) + beside;
            if each(at_once, gaussians) > most[0] {
                let in_bands = in_bands(policy).then(|| of_frame(true) + beside);
                let needed = in_bands.map_or(at_once, |needed| needed.min(at_once));
                most[0] = most[0].max(each(needed, gaussians));
            }
        }
    }

    /// Returns the scratch of a view at full size with all inputs, in bands if these are allowed and smaller.
    fn needed<S: FrameState, P: Primitive>(
        &self,
        frame: &Frame<S, P>,
        gaussians: usize,
        earlier: Bytes,
        heap: &Heap,
        policy: &FallbackPolicy,
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
        if !in_bands(policy) || each(at_once, gaussians) <= self.most[0] {
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

    /// Returns the largest need for a model of `gaussians` Gaussians.
    fn of(&self, gaussians: usize) -> Bytes {
        all(self.most[0].max(self.most[1]), gaussians)
    }

    /// Returns the needs of the coarse stage, with the shortest neighbour lists that precede limits of densification.
    fn in_coarse(&self, gaussians: usize, policy: &FallbackPolicy) -> Option<CoarseGrowth> {
        let CoarseHighWater { stage: coarse, most } = self.coarse?;
        let most = most[0].max(most[1]);
        let [.., fewest] = FEWER_NEIGHBOURS;
        let neighbours = if policy.comes_before(Fallback::Neighbours, Fallback::NewGaussians) {
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

/// True if views are drawn in bands before densification is limited.
fn in_bands(policy: &FallbackPolicy) -> bool {
    policy.comes_before(Fallback::Bands, Fallback::NewGaussians)
}

/// Returns an upper bound of what earlier views of a batch hold in the coarse stage: with features, 4 bytes a Gaussian
/// and 48 a splat become at most 128 a splat.
fn in_coarse(earlier: Bytes, coarse: &PlannedCoarse) -> Bytes {
    if coarse.maps.are_drawn() { Bytes(3 * earlier.0) } else { earlier }
}

/// Returns how many of `wish` new Gaussians fit after all earlier fallbacks are taken.
pub(super) fn new_gaussians<P: Primitive>(
    high_water: &ScratchHighWater,
    model: &Model<P>,
    wish: usize,
    images: &PhotoStore,
    heap: &Heap,
    policy: &FallbackPolicy,
) -> usize {
    let mapped = model.mapped();
    let mut others = heap.total().0.saturating_sub(mapped.iter().map(|bytes| bytes.0).sum());
    others = others.saturating_sub(heap.mapped_scratch().0);
    if policy.comes_before(Fallback::Photographs, Fallback::NewGaussians) {
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
        coarse: high_water.in_coarse(model.len(), policy),
        host: (model.storage() == Storage::Offloaded).then(|| HostGrowth {
            room: Bytes(model.mapped_on_host().0.saturating_add(heap.left_on_host().0)),
            granule: Granule(heap.granule_in(MemoryPlace::Host)),
            is_virtual: heap.is_virtual_in(MemoryPlace::Host),
        }),
        dry_run,
    };
    usize::try_from(most_new_gaussians(&growth, wish as u64)).unwrap_or(wish).min(wish)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::plan::Maps;

    #[test]
    fn the_largest_recent_view_counts() {
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
    fn the_coarse_stage_counts_short_lists_only_before_new_gaussians() {
        let coarse = PlannedCoarse { neighbours: 16, shortens: true, maps: Maps::Undrawn };
        let high_water = ScratchHighWater {
            coarse: Some(CoarseHighWater { stage: coarse, most: [20.0, 70.5] }),
            ..ScratchHighWater::default()
        };
        for (order, neighbours) in [
            (&[Fallback::Neighbours, Fallback::NewGaussians][..], 10),
            (&[Fallback::NewGaussians, Fallback::Neighbours], 16),
            (&[Fallback::NewGaussians], 16),
        ] {
            let found = high_water.in_coarse(1000, &FallbackPolicy::new(order)).unwrap();
            assert_eq!((found.neighbours, found.scratch), (neighbours, Bytes(70_500)));
        }
        let mut high_water = high_water;
        for _ in 0..REMEMBERED / 2 {
            high_water.record(Bytes(500), 100);
        }
        let found = high_water.in_coarse(1000, &FallbackPolicy::new(&[])).unwrap();
        assert_eq!(found.scratch, Bytes(20_000), "what was long ago is forgotten");
        let high_water = ScratchHighWater::of_run(None, None, Inputs::NONE);
        assert!(high_water.in_coarse(1000, &FallbackPolicy::new(&[])).is_none());
    }
}
