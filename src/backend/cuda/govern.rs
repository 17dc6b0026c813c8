//! The governor's hands: what the GPU holds that can be given up, and how it comes back.

use super::dry::scratch as dry_run;
use super::memory::heap::Heap;
use super::model::tables::Model;
use super::photos::PhotoStore;
use super::primitive::{CudaPrimitive, is_compactable, is_offloadable};
use super::session::{BandPolicy, Session};
use crate::backend::{DeviceError, LadderState};
use crate::layout::{MemoryPlace, ModelSize, NEIGHBOURS};
use crate::memory::plan::{Storage, search_scratch};
use crate::memory::{Bytes, Gain, Holder, Ladder, Refusal, Rung};
use crate::model::Gaussians;

/// What is missing where the driver says no more than that there is none left.
const AT_LEAST: u64 = 64 << 20;

/// Everything of the GPU that takes memory, as far as it is at hand.
pub(super) struct Parts<'a, P = Gaussians> {
    pub(super) images: &'a mut PhotoStore,
    pub(super) session: &'a mut Session,
    /// The model, between two iterations.
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
                Some(Bytes(wanted.0.saturating_sub(free.0).max(AT_LEAST)))
            }
            _ => None,
        }
    }

    fn give_up(&mut self, rung: Rung, missing: Bytes) -> Result<Gain, DeviceError> {
        let heap = &self.session.heap;
        let before = heap.total();
        match rung {
            // Between iterations it has gone already, but for what the next one needs, which could not
            // be had again while others hold what this program had counted on.
            Rung::Slack if self.model.is_none() && heap.excess() == Bytes(0) => {
                heap.trim_scratch()?;
            }
            Rung::Photographs => match self.images.evict(self.session, missing) {
                // Those in use need a place to go to.
                Err(error) if error.is_out_of_memory() => return Ok(Gain::Nothing),
                done => drop(done?),
            },
            // Between iterations nothing is listed: bands would bring nothing.
            Rung::Bands if self.model.is_none() && self.session.bands == BandPolicy::Never => {
                self.session.bands = BandPolicy::WhenNeeded;
                return Ok(Gain::Bytes(Bytes(0)));
            }
            // They go when whoever holds them hears of it, which is when an iteration has failed, or
            // before the next one.
            Rung::Neighbours => {
                let held = heap.used_by(NEIGHBOURS.label);
                return Ok(self.session.list_room.shorten(held));
            }
            Rung::Compact => {
                if let Some(model) = &mut self.model
                    && !model.storage().is_compact()
                    && is_compactable::<P>()
                {
                    match model.compact(self.session) {
                        // It takes a little scratch itself.
                        Err(error) if error.is_out_of_memory() => return Ok(Gain::Nothing),
                        done => return Ok(Gain::Bytes(done?)),
                    }
                }
            }
            Rung::Offload => {
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
                            // What was made compact on the way stays so.
                            tracing::warn!("colours stay in the GPU's memory: {error}");
                            let gained = before.0.saturating_sub(heap.total().0);
                            return Ok(Gain::Begun(Rung::Compact, Bytes(gained)));
                        }
                        done => drop(done?),
                    }
                }
            }
            // They are drawn smaller from the next step on.
            Rung::Resolution if self.model.is_some() => return Ok(self.session.view_size.lower()),
            Rung::Slack | Rung::Bands | Rung::Births | Rung::Resolution => {}
        }
        let gained = before.0.saturating_sub(self.session.heap.total().0);
        Ok(if gained > 0 { Gain::Bytes(Bytes(gained)) } else { Gain::Nothing })
    }

    fn cost(&self, rung: Rung) -> Option<Bytes> {
        match rung {
            Rung::Photographs => {
                self.images.all_fit(&self.session.heap).then(|| self.images.absent())
            }
            // An eighth more than the view that needed most, so that the next does not bring it back.
            Rung::Bands => {
                let need = self.session.banded_need.0;
                Some(Bytes(need + need / 8))
            }
            // With room to find them in, and for the iterations after that.
            Rung::Neighbours => {
                let (lists, heap) = (&self.session.list_room, &self.session.heap);
                let scratch = search_scratch(dry_run, lists.gaussians()).max(heap.recent_scratch());
                Some(lists.missing() + scratch)
            }
            // With the photographs, which are sent anew.
            Rung::Resolution => {
                let taken = self.session.heap.recent_scratch() + self.images.resident_bytes();
                self.session.view_size.missing(taken)
            }
            Rung::Slack | Rung::Compact | Rung::Offload | Rung::Births => None,
        }
    }

    fn available_bytes(&self) -> Bytes {
        self.session.heap.available_bytes()
    }

    fn restore(&mut self, rung: Rung) -> Result<(), DeviceError> {
        match rung {
            Rung::Photographs => self.images.allow_resident(&self.session.heap),
            Rung::Bands => {
                self.session.bands = BandPolicy::Never;
                self.session.banded_need = Bytes(0);
            }
            Rung::Neighbours => self.session.list_room.lengthen(),
            Rung::Resolution => self.session.view_size.restore(),
            Rung::Slack | Rung::Compact | Rung::Offload | Rung::Births => {}
        }
        Ok(())
    }
}

/// Whether tables of a model are on the device that the host has room for when it has so many rows.
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

/// Does what needs memory. Where there is too little, gives up one thing after the other.
pub(super) fn with_room<R>(
    ladder: &mut Ladder,
    mut parts: Parts<'_>,
    mut work: impl FnMut(&mut Parts<'_>) -> Result<R, DeviceError>,
) -> Result<R, DeviceError> {
    ladder.climb(&mut parts, |parts| {
        let done = work(parts);
        if matches!(done, Err(DeviceError::OutOfMemory { .. })) {
            // Another program was quicker: the plan has to know.
            parts.session.heap.update_foreign_use()?;
        }
        done
    })
}

/// Looks how much of the card others use, gives back what is not needed, and more where others need
/// it, and takes back what there is room for.
pub(super) fn between_iterations<P: CudaPrimitive>(
    ladder: &mut Ladder,
    mut parts: Parts<'_, P>,
) -> Result<(), DeviceError> {
    parts.session.heap.update_foreign_use()?;
    if let Some(model) = &mut parts.model {
        model.trim()?;
    }
    parts.session.heap.trim_slack()?;
    if parts.images.is_short_of_room(&parts.session.heap) {
        ladder.record_once(Rung::Photographs);
    }
    match ladder.climb(&mut parts, |parts| within_budget(&parts.session.heap)) {
        // Before the next iteration there will be less.
        Err(error) if error.is_out_of_memory() && parts.session.is_waiting() => {}
        // What is held stays, and nothing more is taken: the driver has granted it.
        Err(error) if error.is_out_of_memory() => {
            ladder.warn_of_excess(parts.session.heap.excess());
        }
        other => {
            other?;
            ladder.warn_of_excess(Bytes(0));
        }
    }
    ladder.restore_rungs(&mut parts)
}

/// After a failure of what asked for no room itself, or that all which can be given up within an
/// iteration did not prevent: gives up what is left. Says whether anything was gained, or will be when
/// lists of neighbours become as short, and training views as small, as they may be.
pub(super) fn relieve<P: CudaPrimitive>(
    ladder: &mut Ladder,
    mut parts: Parts<'_, P>,
    error: &DeviceError,
) -> Result<bool, DeviceError> {
    let Some(missing) = parts.missing(error) else { return Ok(false) };
    let may_help =
        [Rung::Photographs, Rung::Neighbours, Rung::Compact, Rung::Offload, Rung::Resolution];
    for rung in ladder.in_order(&may_help) {
        // Smaller views help their own steps alone.
        if rung == Rung::Resolution && !parts.session.view_size.is_refused() {
            continue;
        }
        if let Some((rung, bytes)) = parts.give_up(rung, missing)?.of(rung) {
            ladder.record(rung, bytes);
            return Ok(true);
        }
    }
    Ok(false)
}

/// Others may have taken memory that this program had counted on.
fn within_budget(heap: &Heap) -> Result<(), DeviceError> {
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

/// What became of it.
pub(super) fn account(ladder: &mut Ladder, heap: &Heap) -> LadderState {
    LadderState { changes: ladder.take_changes(), held: heap.total(), budget: heap.budget() }
}
