//! What the traits of a device ask for, each handed to the file that does it.

use std::ops::Range;
use std::sync::Arc;

use super::frame::{self, Frame, Gradients};
use super::govern::{self, Parts};
use super::model::catch_up::catch_up;
use super::model::tables::Model;
use super::model::transfer::{self, Staging};
use super::photos::{PHOTOGRAPHS_IN_TURN, RESIDENT_PHOTOGRAPHS, Target};
use super::stage::appearance::Appearance;
use super::stage::loss::PendingLoss;
use super::stage::lpips::LpipsModel;
use super::stage::neighbours::{self, Neighbours};
use super::stage::normals::PendingNormals;
use super::stage::surface::PendingSurface;
use super::stage::{reorder, smooth};
use super::{Cuda, growth};
#[cfg(feature = "bench")]
use crate::backend::Profiler;
use crate::backend::surface::list_len;
use crate::backend::{
    AdamStep, AppearanceStep, AppearanceTables, Backend, DeviceError, Governed, LossTerms,
    Measured, MemoryEntry, MemoryKind, NormalRule, Pass, Raster, RenderSettings, Rendered, Rows,
    Snapshot, Surface, SurfaceMaps, SurfaceRule, chunks,
};
use crate::dataset::{Image, View};
use crate::math::morton::Cube;
use crate::memory::plan::OptionalColumns;
use crate::memory::{Bytes, Entry, Gain, Holder as _, Kind, Rung};
use crate::model::Gaussians;
use crate::perceptual::LpipsWeights;
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
        self.with_images(|images, session| images.upload_transient(session, image))
    }

    fn prefetch(&mut self, view: usize, image: &Arc<Image>) -> Result<(), DeviceError> {
        self.target(view, image).map(drop)
    }

    fn resident(&mut self, view: usize) -> Option<Target> {
        self.images.held(view)
    }

    fn holds(&self, view: usize) -> bool {
        self.images.is_resident(view)
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.session.stream.synchronize()
    }

    fn memory(&self) -> Vec<MemoryEntry> {
        let entries = self.session.heap.ledger().into_iter();
        let reported = |entry: Entry| {
            let Entry { label, used, mapped, peak, at_peak, .. } = entry;
            MemoryEntry { label, kind: kind(&entry), bytes: used, mapped, peak, at_peak }
        };
        entries.map(reported).collect()
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
    type LpipsModel = LpipsModel;
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
        catch_up(&self.session, model)?;
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
            self.ladder.record(Rung::Bands, Bytes(0));
        }
        if matches!(settings.pass, Pass::Train | Pass::Observe) {
            self.high_water.observe(&frame, model.len(), (&self.session.heap, &self.ladder));
        }
        Ok(frame)
    }

    #[cfg(feature = "bench")]
    fn profiler(&mut self) -> Option<&mut dyn Profiler<Model, Frame>> {
        Some(self)
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

    fn perceptual(&mut self, weights: &LpipsWeights) -> Result<LpipsModel, DeviceError> {
        LpipsModel::upload(&self.session, weights)
    }

    fn perceive(
        &mut self,
        net: &LpipsModel,
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
        let Self { images, session, ladder, high_water, .. } = self;
        if !ladder.allows(Rung::Births) {
            return Ok(wish);
        }
        session.heap.update_foreign_use()?;
        model.trim()?;
        let mut granted =
            growth::births(high_water, (model, wish), images, (&session.heap, ladder));
        if granted < wish && ladder.comes_before(Rung::Compact, Rung::Births) {
            let mut parts = Parts { images, session, model: Some(model) };
            if let Gain::Bytes(bytes) = parts.give_up(Rung::Compact, Bytes(0))? {
                ladder.record(Rung::Compact, bytes);
                granted =
                    growth::births(high_water, (model, wish), images, (&session.heap, ladder));
            }
        }
        let each = model.bytes().into_iter().sum::<Bytes>().0 / model.len().max(1) as u64;
        ladder.record_grant(wish, granted, Bytes((wish - granted) as u64 * each));
        Ok(granted)
    }

    fn reorder(&mut self, model: &mut Model, cube: &Cube) -> Result<(), DeviceError> {
        // As before density control.
        self.session.check_faults()?;
        catch_up(&self.session, model)?;
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

impl Surface for Cuda {
    type Neighbours = Neighbours;
    type SurfaceLoss = PendingSurface;

    fn neighbours(&mut self, model: &Model, count: u32) -> Result<Neighbours, DeviceError> {
        let found = self.with_room(|session| neighbours::neighbours(session, model, count));
        let refused = found.as_ref().err().map(DeviceError::is_out_of_memory);
        // What is wrong with the question says nothing of memory.
        if refused != Some(false) {
            let count = list_len(count, model.len())?;
            self.session.list_room.asked_for(count, model.len(), refused.is_some());
        }
        found
    }

    fn most_neighbours(&self) -> u32 {
        self.session.list_room.most()
    }

    fn read_neighbours(
        &mut self,
        near: &Neighbours,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, DeviceError> {
        near.read(&self.session, &rows)
    }

    fn regularise(
        &mut self,
        model: &Model,
        near: Option<&Neighbours>,
        gradients: &mut Gradients,
        rule: &SurfaceRule,
    ) -> Result<PendingSurface, DeviceError> {
        self.with_room(|session| gradients.regularise(session, model, near, rule))
    }
}

impl SurfaceMaps for Cuda {
    type NormalLoss = PendingNormals;

    fn compare_normals(
        &mut self,
        frame: &mut Frame,
        weight: f64,
        rule: NormalRule,
    ) -> Result<PendingNormals, DeviceError> {
        frame.compare_normals(&mut self.session, weight, rule)
    }

    fn compare_sampled_depths(
        &mut self,
        model: &Model,
        frame: &mut Frame,
        near: &Neighbours,
        rule: &SurfaceRule,
    ) -> Result<(), DeviceError> {
        self.with_room(|session| frame.compare_sampled_depths(session, model, near, rule))
    }
}
