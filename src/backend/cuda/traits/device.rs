//! The GPU as a device: what it is, its photographs and its memory.

use crate::backend::cuda::photos::Target;
use crate::backend::cuda::{BandPolicy, Cuda, govern};
use crate::backend::{
    Device, DeviceError, DeviceInfo, DeviceMemory, LadderState, MemoryEntry, MemoryKind, Peaks,
    Photo, Stay,
};
use crate::layout::{self, Purpose};
use crate::memory::{Bytes, Entry, Kind, Rung, TrainingScale};

impl Device for Cuda {
    type Target = Target;

    fn info(&self) -> DeviceInfo {
        let device = &self.session.device;
        let name = format!("{}, {:.1} GiB", device.name(), device.memory().gib());
        DeviceInfo { name, uuid: Some(device.uuid().to_owned()) }
    }

    fn upload_target(&mut self, photo: Photo<'_>) -> Result<Target, DeviceError> {
        let Photo { image, stay } = photo;
        match stay {
            Stay::Transient => {
                self.with_images(|images, session| images.upload_transient(session, image))
            }
            Stay::Ahead(view) => {
                self.with_images(|images, session| images.send(session, view, image))
            }
            // The step of this view follows, and has none without its photograph.
            Stay::Resident(view) => {
                let sent = self.with_images(|images, session| images.send(session, view, image));
                self.note_refusal([image.width, image.height], sent)
            }
        }
    }

    fn resident(&mut self, view: usize) -> Option<Target> {
        self.images.held(view)
    }

    fn is_resident(&self, view: usize) -> bool {
        self.images.is_resident(view)
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.session.stream.synchronize()
    }

    fn memory(&mut self, peaks: Peaks) -> Option<DeviceMemory> {
        let heap = &self.session.heap;
        let entry = |entry: Entry| {
            let Entry { label, used, mapped, peak, at_peak, .. } = entry;
            MemoryEntry { label, kind: kind(&entry), bytes: used, mapped, peak, at_peak }
        };
        let memory = DeviceMemory {
            entries: heap.ledger().into_iter().map(entry).collect(),
            recent_scratch: heap.recent_scratch(),
            budget: heap.budget(),
        };
        if peaks == Peaks::Reset {
            heap.reset_peak();
        }
        Some(memory)
    }

    fn take_peak(&mut self) -> Option<Bytes> {
        Some(self.session.heap.take_phase_peak())
    }

    fn aim_below(&mut self, aim: Option<Bytes>) -> Result<(), DeviceError> {
        self.has_aim = aim.is_some();
        let may_band = self.ladder.allows(Rung::Bands);
        match self.session.bands {
            BandPolicy::Never if self.has_aim && may_band => {
                self.session.bands = BandPolicy::WhenNeeded;
            }
            BandPolicy::WhenNeeded if !self.has_aim && !self.ladder.is_given_up(Rung::Bands) => {
                self.session.bands = BandPolicy::Never;
            }
            _ => {}
        }
        self.session.heap.set_aim(aim)
    }

    fn training_scale(&self) -> TrainingScale {
        self.session.view_size.allowed()
    }

    fn use_training_scale(&mut self, scale: TrainingScale) -> Result<(), DeviceError> {
        let is_resumed = scale.is_below(self.session.view_size.allowed());
        if is_resumed {
            if !self.ladder.allows(Rung::Resolution) {
                return Ok(());
            }
            self.ladder.record_once(Rung::Resolution);
        }
        self.session.view_size.use_scale(scale);
        self.images.forget_all(&self.session)
    }

    fn take_changes(&mut self) -> Option<LadderState> {
        Some(govern::account(&mut self.ladder, &self.session.heap))
    }
}

fn is_photographs(label: &str) -> bool {
    layout::named(label).is_some_and(|slot| slot.purpose == Purpose::Photographs)
}

fn kind(entry: &Entry) -> MemoryKind {
    match entry.kind {
        Kind::Fixed => MemoryKind::Context,
        Kind::Region if is_photographs(entry.label) => MemoryKind::Photographs,
        Kind::Region => MemoryKind::Region,
        // Of all scratch, only the arena is ever charged for memory.
        Kind::Scratch if entry.mapped.max(entry.at_peak) > Bytes(0) => MemoryKind::Arena,
        Kind::Scratch => MemoryKind::Block,
        Kind::Pinned => MemoryKind::Pinned,
    }
}
