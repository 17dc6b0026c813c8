//! Training on an NVIDIA GPU.
//!
//! Work is put on one stream in the order of the calls, so that buffers may be used again without
//! waiting. The module exists where nvcc compiled the kernels.

mod copy;
mod device;
mod frame;
mod govern;
mod growth;
mod memory;
mod model;
mod photos;
pub mod session;
mod stage;
#[cfg(test)]
mod trace_tests;
mod work;

use std::ops::Range;
use std::sync::Arc;

pub(super) use device::launch::{ARCHS, NVCC};
pub use device::{driver, stream, timers};
pub use frame::{Frame, Gradients};
pub use memory::{heap, sort};
pub use model::tables::Model;
pub use photos::Target;
pub use stage::appearance::Appearance;
pub use stage::bands::BandPolicy;
pub use stage::loss::PendingLoss;
pub use stage::lpips::Perceptual;
pub use stage::neighbours::Neighbours;
pub use stage::normals::PendingNormals;
pub use stage::probe;
pub use stage::surface::PendingSurface;

use self::govern::Parts;
use self::growth::Appetite;
use self::model::transfer::Staging;
use self::model::{tables, transfer};
use self::photos::Images;
use self::session::Session;
use self::stage::{adam, densify, relocate, reorder, smooth};
use super::{
    AdamStep, AppearanceStep, AppearanceTables, Backend, CopySpeed, Densified, DensifyRule,
    DeviceError, Governed, Grant, LossTerms, Measured, MemoryEntry, MemoryKind, Pass, Raster,
    RelocateRule, RenderSettings, Rendered, Rows, Snapshot, StageTime, Survey, Work, chunks,
};
use crate::config::MemoryOptions;
use crate::dataset::{Image, View};
use crate::math::morton::Cube;
use crate::memory::plan::{Coarse, OptionalColumns, Storage};
use crate::memory::{Bytes, Entry, Gain, Holder as _, Kind, Ladder, Limit, Rung};
use crate::model::Gaussians;
use crate::perceptual::LpipsWeights;

/// Label of the photographs that stay.
const RESIDENT_PHOTOGRAPHS: &str = "photographs";

/// Label of the places that the others take in turns.
const PHOTOGRAPHS_IN_TURN: &str = "photographs in turn";

/// What a GPU is opened with.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// What the program may take of the card's memory; without it, all.
    pub vram_limit: Option<Limit>,
    /// Share of that limit that is never exceeded.
    pub vram_threshold: f64,
    /// What may be given up where memory is short, the first first.
    pub give_up: Vec<Rung>,
    /// Iterations between two times that memory which is not in use goes back to the driver.
    pub trim_interval: u32,
    /// How models keep their state.
    pub storage: Storage,
    /// Seed of the random numbers that a compact model rounds with.
    pub seed: u64,
    /// SuGaR's coarse stage, where it will follow: births leave it its memory.
    pub coarse: Option<Coarse>,
}

impl Default for CudaOptions {
    /// As the options of a run are by default.
    fn default() -> Self {
        let options = MemoryOptions::default();
        Self {
            vram_limit: options.vram_limit,
            vram_threshold: options.vram_threshold,
            give_up: options.give_up,
            trim_interval: options.fragmentation.interval(),
            storage: Storage::default(),
            seed: 0,
            coarse: None,
        }
    }
}

/// An NVIDIA GPU.
pub struct Cuda {
    images: Images,
    session: Session,
    ladder: Ladder,
    trim_interval: u32,
    appetite: Appetite,
}

impl Cuda {
    /// Opens the first GPU that the driver shows (`CUDA_VISIBLE_DEVICES` chooses).
    pub fn open(options: &CudaOptions) -> Result<Self, DeviceError> {
        Self::over(Session::open_limited(options.vram_limit, options.vram_threshold)?, options)
    }

    fn over(mut session: Session, options: &CudaOptions) -> Result<Self, DeviceError> {
        (session.storage, session.seed) = (options.storage, options.seed);
        // Until the ladder says otherwise.
        session.bands = BandPolicy::Never;
        Ok(Self {
            images: Images::new(&session)?,
            session,
            ladder: Ladder::new(&options.give_up),
            trim_interval: options.trim_interval.max(1),
            appetite: Appetite::of_run(options.coarse),
        })
    }

    /// When views are drawn in bands from now on.
    pub fn set_bands(&mut self, bands: BandPolicy) {
        self.session.bands = bands;
    }

    /// Its memory.
    pub fn heap(&self) -> &heap::Heap {
        &self.session.heap
    }

    /// Has the model's tables hold what dense Adam would; fails where a parameter is not finite.
    fn bring_up_to_date(&mut self, model: &mut Model) -> Result<(), DeviceError> {
        self.session.check_faults()?;
        adam::catch_up(&self.session, model)
    }

    /// A model of so many Gaussians, all zero: compact where there is no room for full precision and
    /// the ladder allows it, as that of a run which has gone over to it and is taken up again.
    fn room_for_model(&mut self, sh_degree: u32, count: usize) -> Result<Model, DeviceError> {
        match self.with_room(|session| tables::zeros(session, sh_degree, count)) {
            Err(error)
                if error.is_want_of_memory()
                    && self.session.storage == Storage::Full
                    && self.ladder.allows(Rung::Compact) =>
            {
                self.session.storage = Storage::Compact;
                let model = self.with_room(|session| tables::zeros(session, sh_degree, count))?;
                self.ladder.note(Rung::Compact, Bytes(0));
                Ok(model)
            }
            done => done,
        }
    }

    /// Does what needs memory; where there is too little, gives up one thing after the other.
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
        let Self { images, session, ladder, .. } = self;
        let parts = Parts { images, session, model: None };
        govern::with_room(ladder, parts, |parts| work(parts.images, parts.session))
    }
}

impl Backend for Cuda {
    type Target = Target;
    type Loss = PendingLoss;

    fn name(&self) -> String {
        let device = &self.session.device;
        format!("{}, {:.1} GiB", device.name(), device.memory().gib())
    }

    fn uuid(&self) -> Option<String> {
        Some(self.session.device.uuid().to_owned())
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

    fn scratch_needed(&self) -> Bytes {
        self.session.heap.recent_scratch()
    }

    fn memory_budget(&self) -> Option<Bytes> {
        Some(self.session.heap.budget())
    }

    fn governed(&mut self) -> Option<Governed> {
        Some(govern::account(&mut self.ladder, &self.session.heap))
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
    type Perceptual = Perceptual;
    type Appearance = Appearance;

    fn upload(&mut self, host: &Gaussians) -> Result<Model, DeviceError> {
        self.session.forget_faults()?;
        let model = self.room_for_model(host.sh_degree, host.len())?;
        transfer::upload(&self.session, host, model)
    }

    fn read_parameters(
        &mut self,
        model: &mut Model,
        rows: Range<usize>,
    ) -> Result<Gaussians, DeviceError> {
        self.bring_up_to_date(model)?;
        self.with_room(|session| transfer::read_parameters(session, model, &rows))
    }

    fn read(
        &mut self,
        model: &mut Model,
        rows: Range<usize>,
    ) -> Result<Snapshot<Gaussians>, DeviceError> {
        self.bring_up_to_date(model)?;
        self.with_room(|session| transfer::read(session, model, &rows))
    }

    fn load<S: Rows<Gaussians>>(&mut self, source: &mut S) -> Result<Model, S::Error>
    where
        S::Error: From<DeviceError>,
    {
        self.session.forget_faults()?;
        let (sh_degree, count) = (source.shape()?.sh_degree, source.len());
        let mut model = self.room_for_model(sh_degree, count)?;
        let mut staging = Staging::new(&self.session)?;
        for rows in chunks(count) {
            let chunk = source.read(rows.clone())?;
            let chunk = (rows.start, &chunk);
            self.with_room(|session| transfer::write(session, &mut model, chunk, &mut staging))?;
        }
        Ok(model)
    }

    fn sample(&mut self, model: &mut Model, rows: &[usize]) -> Result<Gaussians, DeviceError> {
        adam::catch_up(&self.session, model)?;
        self.with_room(|session| transfer::sample(session, model, rows))
    }

    fn len(&self, model: &Model) -> usize {
        model.len()
    }

    fn optional(&self, model: &Model) -> OptionalColumns {
        model.optional()
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
        let frame = self.with_room(|session| frame::render(session, model, view, settings))?;
        if frame.is_in_bands() {
            let whole = frame.scratch_in_parts(1);
            self.session.banded_need = self.session.banded_need.max(whole);
            self.ladder.note(Rung::Bands, Bytes(0));
        }
        if matches!(settings.pass, Pass::Train | Pass::Observe) {
            self.appetite.saw(&frame, model.len(), (&self.session.heap, &self.ladder));
        }
        Ok(frame)
    }

    fn work(&mut self, model: &Model, frame: &Frame) -> Result<Option<Work>, DeviceError> {
        frame.work(&self.session, model)
    }

    fn compare_depths(
        &mut self,
        frame: &mut Frame,
        target: &Target,
        weight: f64,
    ) -> Result<(), DeviceError> {
        frame.compare_depths(&mut self.session, target, weight)
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

    fn perceptual(&mut self, weights: &LpipsWeights) -> Result<Perceptual, DeviceError> {
        Perceptual::upload(&self.session, weights)
    }

    fn perceive(
        &mut self,
        net: &Perceptual,
        frame: &Frame,
        target: &Target,
    ) -> Result<f64, DeviceError> {
        frame.perceive(&self.session, net, target)
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

    fn govern(&mut self, model: &mut Model, iteration: u32) -> Result<(), DeviceError> {
        self.ladder.set_time(iteration.into());
        if !iteration.is_multiple_of(self.trim_interval) {
            return Ok(());
        }
        let Self { images, session, ladder, .. } = self;
        govern::between_iterations(ladder, Parts { images, session, model: Some(model) })
    }

    fn relieve(&mut self, model: &mut Model, error: &DeviceError) -> Result<bool, DeviceError> {
        let Self { images, session, ladder, .. } = self;
        govern::relieve(ladder, Parts { images, session, model: Some(model) }, error)
    }

    fn births(&mut self, model: &mut Model, wish: usize) -> Result<usize, DeviceError> {
        let Self { images, session, ladder, appetite, .. } = self;
        if !ladder.allows(Rung::Births) {
            return Ok(wish);
        }
        session.heap.look_around()?;
        model.trim()?;
        let mut granted = growth::births(appetite, (model, wish), images, (&session.heap, ladder));
        if granted < wish && ladder.precedes(Rung::Compact, Rung::Births) {
            let mut parts = Parts { images, session, model: Some(model) };
            if let Gain::Bytes(bytes) = parts.give_up(Rung::Compact, Bytes(0))? {
                ladder.note(Rung::Compact, bytes);
                granted = growth::births(appetite, (model, wish), images, (&session.heap, ladder));
            }
        }
        let each = model.bytes().into_iter().sum::<Bytes>().0 / model.len().max(1) as u64;
        ladder.granted(wish, granted, Bytes((wish - granted) as u64 * each));
        Ok(granted)
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

    fn relocate(&mut self, model: &mut Model, rule: &RelocateRule) -> Result<usize, DeviceError> {
        // As before density control.
        self.session.check_faults()?;
        adam::catch_up(&self.session, model)?;
        self.with_room(|session| relocate::relocate(session, model, rule))
    }

    fn multiply(
        &mut self,
        model: &mut Model,
        rule: &RelocateRule,
        births: usize,
    ) -> Result<(), DeviceError> {
        self.session.check_faults()?;
        adam::catch_up(&self.session, model)?;
        self.with_room(|session| relocate::multiply(session, model, rule, births))
    }

    fn reorder(&mut self, model: &mut Model, cube: &Cube) -> Result<(), DeviceError> {
        // As before density control.
        self.session.check_faults()?;
        adam::catch_up(&self.session, model)?;
        self.with_room(|session| reorder::reorder(session, model, cube))
    }

    fn smooth(
        &mut self,
        model: &mut Model,
        views: &[&View],
        sampled_from: f64,
    ) -> Result<(), DeviceError> {
        self.with_room(|session| smooth::smooth(session, model, views, sampled_from))
    }

    fn reset_opacity(&mut self, model: &mut Model, ceiling: f64) -> Result<(), DeviceError> {
        if model.optional().filter_3d {
            smooth::reset_opacity(&self.session, model, ceiling)
        } else {
            densify::reset_opacity(&self.session, model, ceiling)
        }
    }

    fn appearance(&mut self, tables: &AppearanceTables) -> Result<Appearance, DeviceError> {
        self.with_room(|session| Appearance::new(session, tables))
    }

    fn read_appearance(
        &mut self,
        appearance: &Appearance,
    ) -> Result<AppearanceTables, DeviceError> {
        appearance.read(&self.session)
    }

    fn compensate(
        &mut self,
        appearance: &mut Appearance,
        view: usize,
        frame: &mut Frame,
        step: &AppearanceStep,
    ) -> Result<(), DeviceError> {
        frame.compensate(&self.session, appearance, view, step)
    }

    fn learn_appearance(
        &mut self,
        appearance: &mut Appearance,
        view: usize,
        frame: &mut Frame,
        step: &AppearanceStep,
    ) -> Result<(), DeviceError> {
        frame.learn_appearance(&self.session, appearance, view, step)
    }

    fn correct_colors(&mut self, frame: &mut Frame, target: &Target) -> Result<(), DeviceError> {
        frame.correct_colors(&self.session, target)
    }

    fn image(&mut self, frame: &Frame) -> Result<Rendered, DeviceError> {
        frame.image(&self.session)
    }
}
