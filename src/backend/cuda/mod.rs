//! Training on an NVIDIA GPU.
//!
//! Work is put on one stream in the order of the calls, so that buffers may be used again without
//! waiting. The module exists where nvcc compiled the kernels.

mod adam;
mod bin;
mod blend;
mod copy;
mod densify;
pub mod driver;
mod frame;
pub mod heap;
mod images;
mod lanes;
mod launch;
mod loss;
mod model;
mod momentum;
pub mod probe;
mod project;
mod reorder;
pub mod session;
pub mod sort;
mod status;
pub mod stream;
mod threshold;
pub mod timers;
mod work;

use std::sync::Arc;

pub use frame::{Frame, Gradients};
pub use images::Target;
pub(super) use launch::{ARCHS, NVCC};
pub use loss::PendingLoss;
pub use model::Model;

use self::images::Images;
use self::session::Session;
use super::{
    AdamStep, Backend, CopySpeed, Densified, DensifyRule, DeviceError, Grant, LossTerms, Measured,
    MemoryEntry, MemoryKind, Raster, RenderSettings, Rendered, Snapshot, StageTime, Survey, Work,
};
use crate::dataset::{Image, View};
use crate::math::morton::Cube;
use crate::memory::{Bytes, Entry, Kind, Limit};
use crate::model::Gaussians;

/// Label of the photographs that stay.
const RESIDENT_PHOTOGRAPHS: &str = "photographs";

/// Label of the places that the others take in turns.
const PHOTOGRAPHS_IN_TURN: &str = "photographs in turn";

/// What a GPU is opened with.
#[derive(Clone, Copy, Debug)]
pub struct CudaOptions {
    /// What the program may take of the card's memory; without it, all.
    pub vram_limit: Option<Limit>,
    /// Share of that limit that is never exceeded.
    pub vram_threshold: f64,
}

/// An NVIDIA GPU.
pub struct Cuda {
    images: Images,
    session: Session,
}

impl Cuda {
    /// Opens the first GPU that the driver shows (`CUDA_VISIBLE_DEVICES` chooses).
    pub fn open(options: &CudaOptions) -> Result<Self, DeviceError> {
        let session = Session::open_limited(options.vram_limit, options.vram_threshold)?;
        Ok(Self { images: Images::new(&session)?, session })
    }

    /// Does what needs memory; where the budget refuses it, once more without the resident
    /// photographs.
    fn with_room<R>(
        &mut self,
        mut work: impl FnMut(&mut Session) -> Result<R, DeviceError>,
    ) -> Result<R, DeviceError> {
        self.with_images(|_, session| work(session))
    }

    /// The same for what sends photographs.
    fn with_images<R>(
        &mut self,
        mut work: impl FnMut(&mut Images, &mut Session) -> Result<R, DeviceError>,
    ) -> Result<R, DeviceError> {
        match work(&mut self.images, &mut self.session) {
            Err(refusal @ (DeviceError::Refused(_) | DeviceError::OutOfMemory { .. })) => {
                if !self.images.evict(&self.session)? {
                    return Err(refusal);
                }
                tracing::info!(
                    "the photographs leave the GPU's memory, which something else needs; they are \
                     sent anew for each iteration from now on"
                );
                work(&mut self.images, &mut self.session)
            }
            done => done,
        }
    }
}

impl Backend for Cuda {
    type Target = Target;
    type Loss = PendingLoss;

    fn name(&self) -> String {
        let device = &self.session.device;
        format!("{}, {:.1} GiB", device.name(), device.memory().gib())
    }

    fn target(&mut self, view: usize, image: &Arc<Image>) -> Result<Target, DeviceError> {
        self.with_images(|images, session| images.send(session, view, image))
    }

    fn glance(&mut self, image: &Arc<Image>) -> Result<Target, DeviceError> {
        self.with_images(|images, session| images.send_for_a_look(session, image))
    }

    fn prefetch(&mut self, view: usize, image: &Arc<Image>) -> Result<(), DeviceError> {
        self.target(view, image).map(drop)
    }

    fn resident(&mut self, view: usize) -> Option<Target> {
        self.images.held(view)
    }

    fn holds(&self, view: usize) -> bool {
        self.images.stays(view)
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.session.stream.synchronize()
    }

    fn time_stages(&mut self, on: bool) {
        if let Err(error) = self.session.time_stages(on) {
            tracing::warn!("the stages are not timed: {error}");
        }
    }

    fn stage_times(&mut self) -> Result<Vec<StageTime>, DeviceError> {
        let times = self.session.timers.take()?;
        Ok(times.into_iter().map(|(stage, ms)| StageTime { stage, ms }).collect())
    }

    fn copy_speed(&mut self) -> Result<Option<CopySpeed>, DeviceError> {
        copy::speed(&self.session)
    }

    fn memory(&self) -> Vec<MemoryEntry> {
        let entries = self.session.heap.ledger().into_iter();
        let told = |entry: Entry| {
            let Entry { label, used, mapped, peak, at_peak, .. } = entry;
            MemoryEntry { label, kind: kind(&entry), bytes: used, mapped, peak, at_peak }
        };
        entries.map(told).collect()
    }

    fn trim_memory(&mut self) -> Result<(), DeviceError> {
        self.session.heap.trim_scratch()
    }

    fn reset_memory_peaks(&mut self) {
        self.session.heap.reset_peak();
    }
}

fn kind(entry: &Entry) -> MemoryKind {
    match entry.kind {
        Kind::Fixed => MemoryKind::Context,
        Kind::Region if [RESIDENT_PHOTOGRAPHS, PHOTOGRAPHS_IN_TURN].contains(&entry.label) => {
            MemoryKind::Photographs
        }
        Kind::Region => MemoryKind::Region,
        // Of all scratch, only the arena is ever charged for memory.
        Kind::Scratch if entry.mapped.max(entry.at_peak) > Bytes(0) => MemoryKind::Arena,
        Kind::Scratch => MemoryKind::Block,
        Kind::Pinned => MemoryKind::Pinned,
    }
}

impl Raster<Gaussians> for Cuda {
    type Model = Model;
    type Frame = Frame;
    type Gradients = Gradients;

    fn upload(&mut self, host: &Gaussians) -> Result<Model, DeviceError> {
        self.session.forget_faults()?;
        let model = self.with_room(|session| model::zeros(session, host))?;
        model::upload(&self.session, host, model)
    }

    fn download(&mut self, model: &mut Model) -> Result<Gaussians, DeviceError> {
        self.session.check_faults()?;
        adam::catch_up(&self.session, model)?;
        model::download(&self.session, model)
    }

    fn sample(&mut self, model: &mut Model, rows: &[usize]) -> Result<Gaussians, DeviceError> {
        adam::catch_up(&self.session, model)?;
        self.with_room(|session| model::sample(session, model, rows))
    }

    fn snapshot(&mut self, model: &mut Model) -> Result<Snapshot<Gaussians>, DeviceError> {
        self.session.check_faults()?;
        adam::catch_up(&self.session, model)?;
        model::snapshot(&self.session, model)
    }

    fn restore(&mut self, snapshot: Snapshot<Gaussians>) -> Result<Model, DeviceError> {
        self.session.forget_faults()?;
        // Room first: the snapshot is used up, so that there is no second try with it.
        let model = self.with_room(|session| model::zeros(session, &snapshot.parameters))?;
        model::restore(&self.session, snapshot, model)
    }

    fn len(&self, model: &Model) -> usize {
        model.len()
    }

    fn model_bytes(&self, model: &Model) -> [Bytes; 2] {
        model.bytes()
    }

    fn render(
        &mut self,
        model: &Model,
        view: &View,
        settings: &RenderSettings,
    ) -> Result<Frame, DeviceError> {
        self.with_room(|session| frame::render(session, model, view, settings))
    }

    fn work(&mut self, model: &Model, frame: &Frame) -> Result<Option<Work>, DeviceError> {
        frame.work(&self.session, model)
    }

    fn loss(
        &mut self,
        frame: &mut Frame,
        target: &Target,
        terms: &LossTerms,
    ) -> Result<PendingLoss, DeviceError> {
        // No second try: it would give away the photograph that the frame is compared with.
        frame.loss(&mut self.session, target, terms)
    }

    fn measure(&mut self, frame: &Frame, target: &Target) -> Result<Measured, DeviceError> {
        frame.measure(&mut self.session, target)
    }

    fn frame_bytes(&self, frame: &Frame) -> Bytes {
        frame.bytes()
    }

    fn gradients(&mut self, _model: &Model) -> Result<Gradients, DeviceError> {
        Ok(Gradients::default())
    }

    fn backward(
        &mut self,
        model: &mut Model,
        frame: Frame,
        gradients: &mut Gradients,
    ) -> Result<(), DeviceError> {
        frame.backward(&mut self.session, model, gradients)
    }

    fn gradient_bytes(&self, gradients: &Gradients) -> Bytes {
        gradients.bytes()
    }

    fn step(
        &mut self,
        model: &mut Model,
        gradients: Gradients,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        gradients.step(&mut self.session, model, step)
    }

    fn survey(&mut self, model: &Model, rule: &DensifyRule) -> Result<Survey, DeviceError> {
        self.with_room(|session| densify::survey(session, model, rule))
    }

    fn densify(
        &mut self,
        model: &mut Model,
        rule: &DensifyRule,
        grant: Grant,
    ) -> Result<Densified, DeviceError> {
        // Rows get other numbers: the one that a fault names would be another Gaussian's afterwards.
        self.session.check_faults()?;
        adam::catch_up(&self.session, model)?;
        self.with_room(|session| densify::densify(session, model, rule, grant))
    }

    fn reorder(&mut self, model: &mut Model, cube: &Cube) -> Result<(), DeviceError> {
        // As before density control.
        self.session.check_faults()?;
        adam::catch_up(&self.session, model)?;
        self.with_room(|session| reorder::reorder(session, model, cube))
    }

    fn reset_opacity(&mut self, model: &mut Model, ceiling: f64) -> Result<(), DeviceError> {
        densify::reset_opacity(&self.session, model, ceiling)
    }

    fn image(&mut self, frame: &Frame) -> Result<Rendered, DeviceError> {
        frame.image(&self.session)
    }
}
