//! What the traits of a device ask for, each handed to the file that does it.

use std::ops::Range;

use super::frame::{self, Frame, Gradients};
use super::govern::{self, Parts};
use super::model::catch_up::catch_up;
use super::model::tables::Model;
use super::model::transfer::{self, Staging};
use super::photos::{PHOTOGRAPHS_IN_TURN, RESIDENT_PHOTOGRAPHS, Target};
use super::stage::appearance::ColorTables;
use super::stage::losses::PendingLosses;
use super::stage::lpips::LpipsModel;
use super::stage::neighbours::{self, NearestLists};
use super::stage::{densify, relocate, reorder, smooth};
use super::{Cuda, growth};
#[cfg(feature = "bench")]
use crate::backend::Profiler;
use crate::backend::frame_state::{
    Compensated, Drawn, FrameState, Fresh, Scored, Shown, Trainable,
};
use crate::backend::neighbours::list_len;
use crate::backend::{
    AdamStep, Appearance, AppearanceTables, Densified, DensifyRule, Device, DeviceError,
    DeviceInfo, DeviceMemory, Drawing, Edit, Filter3d, Grant, LadderState, Look, Lpips, Measured,
    MemoryEntry, MemoryKind, ModelShape, Neighbours, Objective, Peaks, Photo, RelocateRule, Render,
    RenderSettings, Rendered, Rows, Snapshot, Stay, Store, Survey, TableStep, Wants, chunks,
};
use crate::dataset::View;
use crate::math::morton::Cube;
use crate::memory::{Bytes, Entry, Gain, Holder as _, Kind, Rung};
use crate::model::Gaussians;
use crate::perceptual::LpipsWeights;

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
            Stay::Resident(view) | Stay::Ahead(view) => {
                self.with_images(|images, session| images.send(session, view, image))
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

    fn take_changes(&mut self) -> Option<LadderState> {
        Some(govern::account(&mut self.ladder, &self.session.heap))
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

impl Store<Gaussians> for Cuda {
    type Model = Model;

    fn upload(&mut self, host: &Gaussians) -> Result<Model, DeviceError> {
        self.session.forget_faults()?;
        let model = self.room_for_model(host.sh_degree, host.len())?;
        transfer::upload(&self.session, host, model)
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

    fn sample(&mut self, model: &mut Model, rows: &[usize]) -> Result<Gaussians, DeviceError> {
        catch_up(&self.session, model)?;
        self.with_room(|session| transfer::sample(session, model, rows))
    }

    fn shape(&self, model: &Model) -> ModelShape {
        let [parameters, optimizer] = model.bytes();
        ModelShape { rows: model.len(), optional: model.optional(), parameters, optimizer }
    }

    fn reorder(&mut self, model: &mut Model, cube: &Cube) -> Result<(), DeviceError> {
        // As before density control.
        self.session.check_faults()?;
        catch_up(&self.session, model)?;
        self.with_room(|session| reorder::reorder(session, model, cube))
    }

    fn govern(&mut self, model: &mut Model, iteration: u32) -> Result<(), DeviceError> {
        self.ladder.set_time(iteration.into());
        let before = self.governed_at.replace(iteration);
        if !is_due(self.trim_interval, before, iteration) {
            return Ok(());
        }
        let Self { images, session, ladder, .. } = self;
        govern::between_iterations(ladder, Parts { images, session, model: Some(model) })
    }

    fn relieve(&mut self, model: &mut Model, error: &DeviceError) -> Result<bool, DeviceError> {
        let Self { images, session, ladder, .. } = self;
        govern::relieve(ladder, Parts { images, session, model: Some(model) }, error)
    }

    fn grant_births(&mut self, model: &mut Model, wish: usize) -> Result<usize, DeviceError> {
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
}

/// Whether memory is put in order after `iteration`: at each multiple of the interval, and at the first
/// call after one where steps take several iterations.
fn is_due(interval: u32, before: Option<u32>, iteration: u32) -> bool {
    let interval = interval.max(1);
    match before.filter(|&before| before < iteration) {
        Some(before) => before / interval < iteration / interval,
        None => iteration.is_multiple_of(interval),
    }
}

impl Neighbours<Gaussians> for Cuda {
    type Lists = NearestLists;

    fn neighbours(&mut self, model: &Model, count: u32) -> Result<NearestLists, DeviceError> {
        let found = self.with_room(|session| neighbours::neighbours(session, model, count));
        let refused = found.as_ref().err().map(DeviceError::is_out_of_memory);
        // What is wrong with the question says nothing of memory.
        if refused != Some(false) {
            let count = list_len(count, model.len())?;
            self.session.list_room.asked_for(count, model.len(), refused.is_some());
        }
        found
    }

    fn read_neighbours(
        &mut self,
        lists: &NearestLists,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, DeviceError> {
        lists.read(&self.session, &rows)
    }

    fn max_neighbours(&self) -> u32 {
        self.session.list_room.most()
    }
}

impl Cuda {
    fn draw<S: Fresh>(
        &mut self,
        model: &Model,
        view: &View,
        settings: &Drawing,
    ) -> Result<Frame<S>, DeviceError> {
        let frame: Frame<S> =
            self.with_room(|session| frame::draw(session, model, view, settings))?;
        if frame.is_in_bands() {
            let whole = frame.scratch_in_parts(1);
            self.session.banded_need = self.session.banded_need.max(whole);
            self.ladder.record(Rung::Bands, Bytes(0));
        }
        Ok(frame)
    }
}

impl Render<Gaussians> for Cuda {
    type Frame<S: FrameState> = Frame<S>;
    type Gradients = Gradients;
    type Losses = PendingLosses;

    fn render(
        &mut self,
        model: &Model,
        view: &View,
        settings: &RenderSettings,
        look: Look,
    ) -> Result<Frame<Shown>, DeviceError> {
        self.draw(model, view, &Drawing::shown(settings, look))
    }

    fn render_train(
        &mut self,
        model: &Model,
        view: &View,
        settings: &RenderSettings,
        wants: &Wants,
    ) -> Result<Frame<Drawn>, DeviceError> {
        // What earlier views of a batch left.
        let earlier = self.session.heap.live_scratch();
        let frame = self.draw(model, view, &Drawing::trained(settings, wants))?;
        let memory = (&self.session.heap, &self.ladder);
        self.high_water.observe(&frame, model.len(), earlier, memory);
        Ok(frame)
    }

    fn objective<S: Trainable>(
        &mut self,
        model: &Model,
        frame: Frame<S>,
        objective: &Objective<'_, Target, NearestLists>,
    ) -> Result<(Frame<Scored<S>>, PendingLosses), DeviceError> {
        // No second try: it would give away the photograph that the frame is compared with.
        let (mut frame, losses) = frame.scored(&mut self.session, model, objective)?;
        if let Some(near) = objective.near.filter(|_| objective.terms.sdf_unit().is_some()) {
            self.with_room(|session| frame.compare_sampled_depths(session, model, near))?;
        }
        Ok((frame, losses))
    }

    fn backward(
        &mut self,
        model: &mut Model,
        frame: Frame<Scored<Drawn>>,
        near: Option<&NearestLists>,
        gradients: &mut Gradients,
    ) -> Result<PendingLosses, DeviceError> {
        frame.backward(&mut self.session, model, near, gradients)
    }

    fn step(
        &mut self,
        model: &mut Model,
        gradients: Gradients,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        gradients.step(&mut self.session, model, step)
    }

    fn measure<S: FrameState>(
        &mut self,
        frame: &Frame<S>,
        target: &Target,
    ) -> Result<Measured, DeviceError> {
        frame.measure(&mut self.session, target)
    }

    fn image<S: FrameState>(&mut self, frame: &Frame<S>) -> Result<Rendered, DeviceError> {
        frame.image(&self.session)
    }

    #[cfg(feature = "bench")]
    fn profiler(&mut self) -> Option<&mut dyn Profiler<Model, Frame>> {
        Some(self)
    }
}

impl Edit<Gaussians> for Cuda {
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
        catch_up(&self.session, model)?;
        self.with_room(|session| densify::densify(session, model, rule, grant))
    }

    fn relocate(&mut self, model: &mut Model, rule: &RelocateRule) -> Result<usize, DeviceError> {
        // As before density control.
        self.session.check_faults()?;
        catch_up(&self.session, model)?;
        self.with_room(|session| relocate::relocate(session, model, rule))
    }

    fn multiply(
        &mut self,
        model: &mut Model,
        rule: &RelocateRule,
        births: usize,
    ) -> Result<(), DeviceError> {
        self.session.check_faults()?;
        catch_up(&self.session, model)?;
        self.with_room(|session| relocate::multiply(session, model, rule, births))
    }

    fn reset_opacity(&mut self, model: &mut Model, ceiling: f64) -> Result<(), DeviceError> {
        if model.optional().filter_3d {
            smooth::reset_opacity(&self.session, model, ceiling)
        } else {
            densify::reset_opacity(&self.session, model, ceiling)
        }
    }
}

impl Filter3d for Cuda {
    fn update_filter_3d(
        &mut self,
        model: &mut Model,
        views: &[&View],
        sampled_from: f64,
    ) -> Result<(), DeviceError> {
        self.with_room(|session| smooth::smooth(session, model, views, sampled_from))
    }
}

impl Lpips<Gaussians> for Cuda {
    type Net = LpipsModel;

    fn load_lpips(&mut self, weights: &LpipsWeights) -> Result<LpipsModel, DeviceError> {
        LpipsModel::upload(&self.session, weights)
    }

    fn lpips(
        &mut self,
        net: &LpipsModel,
        frame: &Frame<Shown>,
        target: &Target,
    ) -> Result<f64, DeviceError> {
        frame.perceive(&self.session, net, target)
    }
}

impl Appearance<Gaussians> for Cuda {
    type Tables = ColorTables;

    fn upload_tables(&mut self, tables: &AppearanceTables) -> Result<ColorTables, DeviceError> {
        self.with_room(|session| ColorTables::new(session, tables))
    }

    fn read_tables(&mut self, tables: &ColorTables) -> Result<AppearanceTables, DeviceError> {
        tables.read(&self.session)
    }

    fn compensate(
        &mut self,
        tables: &mut ColorTables,
        frame: Frame<Drawn>,
        step: &TableStep,
    ) -> Result<Frame<Compensated>, DeviceError> {
        frame.compensate(&self.session, tables, step)
    }

    fn learn(
        &mut self,
        tables: &mut ColorTables,
        frame: Frame<Scored<Compensated>>,
        step: &TableStep,
    ) -> Result<Frame<Scored<Drawn>>, DeviceError> {
        frame.learn(&self.session, tables, step)
    }

    fn correct(
        &mut self,
        frame: Frame<Shown>,
        target: &Target,
    ) -> Result<Frame<Shown>, DeviceError> {
        frame.correct(&self.session, target)
    }
}
