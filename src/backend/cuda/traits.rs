//! Implementations of the device traits.

use std::ops::Range;
use std::sync::Arc;

use splat_formats::{CellLists, NearRow};
use splat_mesh::tsdf::{Fusion, Space, Survey, SurveyedBricks};

use super::frame::{self, Frame, Gradients};
use super::govern::{self, Parts};
use super::model::tables::{FaceTables, catch_up};
use super::model::transfer::{self, Staging};
use super::photos::Target;
use super::stage::appearance::ColorTables;
use super::stage::bind::{self, Binding};
use super::stage::contribution::ContributionSums;
use super::stage::fuse::{BrickSurvey, FusedVoxels};
use super::stage::loss::PendingLosses;
use super::stage::lpips::{self, LpipsModel};
use super::stage::neighbours::{self, NearestLists, PaletteRows};
use super::stage::project::{DrawnView, Splats, expect};
use super::stage::{densify, reorder, smooth};
use super::{BandPolicy, Cuda, dry_run};
use crate::backend::cuda::prelude::*;
use crate::backend::neighbours::list_len;
use crate::backend::{
    AdamStep, Appearance, AppearanceTables, Bind, BoundState, BoundStep, Compensated, Contribution,
    Contributions, Device, DeviceInfo, DeviceMemory, DrawSettings, Drawn, FaceStatistics, Faces,
    FallbackState, Filter3d, FrameState, Fresh, Fuse, Inputs, Lpips, MaskedView, Measured,
    MemoryEntry, MemoryKind, ModelShape, Neighbours, Objective, Palettes, Peaks, Photo, Ranks,
    Remesh, Render, RenderRequest, RenderSettings, Rendered, Rows, Scored, Shown, Snapshot, Stay,
    Store, TableStep, TrainRequest, Trainable, Transmittances, check_absent, chunks,
};
use crate::dataset::View;
use crate::layout::{self, BOUND_GRADIENTS, Purpose};
use crate::math::morton::Cube;
use crate::memory::plan::view_scratch;
use crate::memory::{Entry, Fallback, Holder as _, Kind, TrainingScale};
use crate::model::{BoundTopology, Gaussians};
use crate::perceptual::{LpipsInput, LpipsWeights};

#[cfg(feature = "bench")]
use crate::backend::Profiler;

impl Device for Cuda {
    type Target = Target;

    fn info(&self) -> DeviceInfo {
        let device = &self.session.device;
        let name = format!("{}, {:.1} GiB", device.name(), device.memory().gib());
        DeviceInfo { name, uuid: Some(device.uuid().to_owned()) }
    }

    fn upload_target(&mut self, photo: Photo<'_>) -> Result<Target> {
        let Photo { image, stay } = photo;
        match stay {
            Stay::Transient => {
                self.with_images(|images, session| images.upload_streamed(session, None, image))
            }
            Stay::Ahead(view) => {
                self.with_images(|images, session| images.send(session, view, image))
            }
            // The step of this view follows and needs its photograph.
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

    fn synchronize(&mut self) -> Result {
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

    fn aim_below(&mut self, aim: Option<Bytes>) -> Result {
        self.has_aim = aim.is_some();
        let may_band = self.policy.allows(Fallback::Bands);
        match self.session.bands {
            BandPolicy::Never if self.has_aim && may_band => {
                self.session.bands = BandPolicy::WhenNeeded;
            }
            BandPolicy::WhenNeeded
                if !self.has_aim && !self.policy.is_given_up(Fallback::Bands) =>
            {
                self.session.bands = BandPolicy::Never;
            }
            _ => {}
        }
        self.session.heap.set_aim(aim)
    }

    fn training_scale(&self) -> TrainingScale {
        self.session.view_size.allowed()
    }

    fn use_training_scale(&mut self, scale: TrainingScale) -> Result {
        let is_resumed = scale.is_below(self.session.view_size.allowed());
        if is_resumed {
            if !self.policy.allows(Fallback::Resolution) {
                return Ok(());
            }
            self.policy.record_once(Fallback::Resolution);
        }
        self.session.view_size.use_scale(scale);
        self.images.forget_all(&self.session)
    }

    fn take_changes(&mut self) -> Option<FallbackState> {
        let changes = self.policy.take_changes();
        let heap = &self.session.heap;
        Some(FallbackState { changes, held: heap.total(), budget: heap.budget() })
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
        // Only the arena is charged for the memory of all scratch.
        Kind::Scratch if entry.mapped.max(entry.at_peak) > Bytes(0) => MemoryKind::Arena,
        Kind::Scratch => MemoryKind::Block,
        Kind::Pinned => MemoryKind::Pinned,
    }
}

impl Ranks for Cuda {}

impl Filter3d for Cuda {
    fn update_filter_3d(
        &mut self,
        model: &mut Model,
        views: &[&View],
        sampled_from: f64,
    ) -> Result {
        self.with_room(|session| smooth::smooth(session, model, views, sampled_from))
    }
}

impl Transmittances<Gaussians> for Cuda {
    fn transmittances(
        &mut self,
        model: &Model,
        view: &View,
        settings: &RenderSettings,
        places: &[[f32; 3]],
    ) -> Result<Vec<f32>> {
        let drawing = DrawSettings::shown(settings, RenderRequest::IMAGE);
        self.with_room(|session| frame::transmittances(session, model, view, &drawing, places))
    }
}

impl Palettes for Cuda {
    type PaletteRows = PaletteRows;

    fn hold_rows(&mut self, rows: &[f32], width: usize) -> Result<PaletteRows> {
        self.with_room(|session| PaletteRows::new(session, rows, width))
    }

    fn near_entries(
        &mut self,
        rows: &mut PaletteRows,
        centers: &[f32],
        cells: &CellLists<'_>,
    ) -> Result<Vec<NearRow>> {
        self.with_room(|session| rows.near_entries(session, centers, cells))
    }

    fn near_cells(
        &mut self,
        rows: &mut PaletteRows,
        centers: &[f32],
        count: usize,
    ) -> Result<Vec<u32>> {
        self.with_room(|session| rows.near_cells(session, centers, count))
    }
}

impl Contributions<Gaussians> for Cuda {
    type ContributionSums = ContributionSums;

    fn no_contributions(&mut self, model: &Model, absent: &[bool]) -> Result<ContributionSums> {
        check_absent(absent, model.len())?;
        self.with_room(|session| ContributionSums::new(session, absent))
    }

    fn add_contributions(
        &mut self,
        model: &Model,
        view: &View,
        settings: &RenderSettings,
        target: &Target,
        sums: &mut ContributionSums,
    ) -> Result<Measured> {
        let drawing = DrawSettings::shown(settings, RenderRequest::IMAGE);
        self.with_room(|session| {
            frame::add_contributions(session, model, view, &drawing, target, sums)
        })
    }

    fn read_contributions(&mut self, sums: &ContributionSums) -> Result<Vec<Contribution>> {
        sums.read(&self.session)
    }
}

impl Fuse<Gaussians> for Cuda {
    type BrickSurvey = BrickSurvey;
    type FusedVoxels = FusedVoxels;

    fn new_survey(&mut self, space: Space) -> Result<BrickSurvey> {
        self.with_room(|session| BrickSurvey::new(session, space))
    }

    fn survey_depths(
        &mut self,
        survey: &mut BrickSurvey,
        frame: &Frame<Shown>,
        seen: MaskedView<'_>,
    ) -> Result {
        self.with_room(|session| survey.mark(session, &frame.canvas, seen))
    }

    fn read_survey(&mut self, survey: BrickSurvey) -> Result<Survey> {
        survey.read(&self.session)
    }

    fn new_voxels(&mut self, bricks: &Arc<SurveyedBricks>) -> Result<FusedVoxels> {
        self.with_room(|session| FusedVoxels::new(session, bricks))
    }

    fn fuse_depths(
        &mut self,
        voxels: &mut FusedVoxels,
        frame: &Frame<Shown>,
        seen: MaskedView<'_>,
    ) -> Result {
        self.with_room(|session| voxels.fuse(session, &frame.canvas, seen))
    }

    fn read_voxels(&mut self, voxels: FusedVoxels) -> Result<Fusion> {
        voxels.read(&self.session)
    }
}

impl Lpips<Gaussians> for Cuda {
    type Net = LpipsModel;

    fn load_lpips(&mut self, weights: &LpipsWeights) -> Result<LpipsModel> {
        LpipsModel::upload(&self.session, weights)
    }

    fn lpips(
        &mut self,
        net: &LpipsModel,
        frame: &Frame<Shown>,
        target: &Target,
        input: LpipsInput,
    ) -> Result<f64> {
        let Frame { canvas, camera, .. } = frame;
        lpips::perceive(&self.session, net, &canvas.image, camera, target, input)
    }
}

impl Appearance<Gaussians> for Cuda {
    type Tables = ColorTables;

    fn upload_tables(&mut self, tables: &AppearanceTables) -> Result<ColorTables> {
        self.with_room(|session| ColorTables::new(session, tables))
    }

    fn read_tables(&mut self, tables: &ColorTables) -> Result<AppearanceTables> {
        tables.read(&self.session)
    }

    fn compensate(
        &mut self,
        tables: &mut ColorTables,
        frame: Frame<Drawn>,
        step: &TableStep,
    ) -> Result<Frame<Compensated>> {
        let px = frame.camera.size;
        let compensated = frame.compensate(&self.session, tables, step);
        self.note_refusal(px, compensated)
    }

    fn learn(
        &mut self,
        tables: &mut ColorTables,
        frame: Frame<Scored<Compensated>>,
        step: &TableStep,
    ) -> Result<Frame<Scored<Drawn>>> {
        let px = frame.camera.size;
        let learned = frame.learn(&self.session, tables, step);
        self.note_refusal(px, learned)
    }

    fn correct(&mut self, frame: Frame<Shown>, target: &Target) -> Result<Frame<Shown>> {
        frame.correct(&self.session, target)
    }
}

impl Bind for Cuda {
    type Binding = Binding;

    fn bind(
        &mut self,
        model: &mut Model,
        topology: &Arc<BoundTopology>,
        state: &BoundState,
    ) -> Result<Binding> {
        let binding = self.with_room(|session| Binding::new(session, topology, state))?;
        bind::place(&mut self.session, model, &binding)?;
        Ok(binding)
    }

    fn step_bound(
        &mut self,
        model: &mut Model,
        binding: &mut Binding,
        gradients: Gradients,
        step: &BoundStep,
    ) -> Result {
        let sizes = binding.sizes();
        let mut d_geometry =
            self.with_room(|session| session.heap.take(&BOUND_GRADIENTS, &sizes))?;
        let adam = step.of_gaussians();
        gradients.step(&mut self.session, model, Some(&mut d_geometry), &adam)?;
        bind::step(&mut self.session, model, binding, &mut d_geometry, step)
    }

    fn read_binding(&mut self, binding: &Binding) -> Result<BoundState> {
        binding.read(&self.session)
    }
}

impl<P: CudaPrimitive> Neighbours<P> for Cuda {
    type Lists = NearestLists<P>;

    fn neighbours(&mut self, model: &Model<P>, count: u32) -> Result<NearestLists<P>> {
        let found = self.with_room(|session| neighbours::neighbours(session, model, count));
        let refused = found.as_ref().err().map(DeviceError::is_out_of_memory);
        // Other errors say nothing about memory.
        if refused != Some(false) {
            let count = list_len(count, model.len())?;
            self.session.list_room.asked_for(count, model.len(), refused.is_some());
        }
        found
    }

    fn read_neighbours(&mut self, lists: &NearestLists<P>, rows: Range<usize>) -> Result<Vec<u32>> {
        lists.read(&self.session, &rows)
    }

    fn max_neighbours(&self) -> u32 {
        self.session.list_room.most()
    }
}

impl Cuda {
    pub(super) fn draw<S: Fresh, P: CudaPrimitive>(
        &mut self,
        model: &Model<P>,
        view: &View,
        settings: &DrawSettings,
    ) -> Result<Frame<S, P>> {
        let frame: Frame<S, P> =
            self.with_room(|session| frame::draw(session, model, view, settings))?;
        self.note_bands(&frame, model.len());
        Ok(frame)
    }

    /// Draws splats of a view that ranks have projected, with `gaussians` Gaussians on this rank.
    pub(super) fn draw_splats<S: Fresh>(
        &mut self,
        gaussians: usize,
        drawn: DrawnView<'_>,
        splats: Splats,
    ) -> Result<Frame<S>> {
        let earlier = Bytes(self.session.heap.live_scratch().0.saturating_sub(splats.bytes().0));
        let mut splats = Some(splats);
        let frame: Result<Frame<S>, _> =
            self.with_room(|session| frame::draw_splats(session, gaussians, drawn, &mut splats));
        let frame = self.note_refusal(drawn.camera.size, frame)?;
        self.note_bands(&frame, gaussians);
        if drawn.settings.trains {
            let (heap, policy) = (&self.session.heap, &self.policy);
            self.high_water.observe(&frame, gaussians, earlier, heap, policy);
        }
        Ok(frame)
    }

    /// Records that a view is drawn in bands because of a shortage.
    fn note_bands<S: FrameState, P: CudaPrimitive>(
        &mut self,
        frame: &Frame<S, P>,
        gaussians: usize,
    ) {
        // A soft limit is no shortage.
        if frame.is_in_bands() && (!self.has_aim || self.policy.is_given_up(Fallback::Bands)) {
            let planned = frame.planned(gaussians, Inputs::NONE, false);
            let library = self.session.heap.cub_scratch();
            let whole = view_scratch(dry_run, library, gaussians as u64, planned);
            self.session.banded_need = self.session.banded_need.max(whole);
            self.policy.record(Fallback::Bands, Bytes(0));
        }
    }

    /// Records the outcome of a part of a training step: smaller views may help after a refusal.
    pub(super) fn note_refusal<R>(&mut self, px: [u32; 2], done: Result<R>) -> Result<R> {
        let refused = done.as_ref().err().is_some_and(DeviceError::is_out_of_memory);
        self.session.view_size.drawn(px, refused);
        done
    }
}

impl<P: CudaPrimitive> Render<P> for Cuda {
    type Frame<S: FrameState> = Frame<S, P>;
    type Gradients = Gradients<P>;
    type Losses = PendingLosses;

    fn render(
        &mut self,
        model: &Model<P>,
        view: &View,
        settings: &RenderSettings,
        request: RenderRequest,
    ) -> Result<Frame<Shown, P>> {
        self.draw(model, view, &DrawSettings::shown(settings, request))
    }

    fn render_train(
        &mut self,
        model: &Model<P>,
        view: &View,
        settings: &RenderSettings,
        request: &TrainRequest,
    ) -> Result<Frame<Drawn, P>> {
        let earlier = self.session.heap.live_scratch();
        let drawn = self.draw(model, view, &DrawSettings::trained(settings, request));
        let frame = self.note_refusal([view.camera.width, view.camera.height], drawn)?;
        let (heap, policy) = (&self.session.heap, &self.policy);
        self.high_water.observe(&frame, model.len(), earlier, heap, policy);
        Ok(frame)
    }

    fn objective<S: Trainable>(
        &mut self,
        model: &Model<P>,
        frame: Frame<S, P>,
        objective: &Objective<'_, Target, NearestLists<P>>,
    ) -> Result<(Frame<Scored<S>, P>, PendingLosses)> {
        let px = frame.camera.size;
        // No second try: it would evict the photograph that the frame is compared with.
        let scored = frame.scored(&mut self.session, model, objective);
        let (mut frame, losses) = self.note_refusal(px, scored)?;
        if let Some(near) = objective.near.filter(|_| objective.terms.sdf_unit().is_some()) {
            let compared =
                self.with_room(|session| frame.compare_sampled_depths(session, model, near));
            self.note_refusal(px, compared)?;
        }
        Ok((frame, losses))
    }

    fn backward(
        &mut self,
        model: &mut Model<P>,
        frame: Frame<Scored<Drawn>, P>,
        near: Option<&NearestLists<P>>,
        gradients: &mut Gradients<P>,
    ) -> Result<PendingLosses> {
        let px = frame.camera.size;
        let done = frame.backward(&mut self.session, model, near, gradients);
        self.note_refusal(px, done)
    }

    fn expect(&mut self, model: &mut Model<P>, view: &View, settings: &RenderSettings) -> Result {
        expect(
            &self.session,
            model,
            view,
            &DrawSettings::trained(settings, &TrainRequest::default()),
        )
    }

    fn step(&mut self, model: &mut Model<P>, gradients: Gradients<P>, step: &AdamStep) -> Result {
        gradients.step(&mut self.session, model, None, step)
    }

    fn measure<S: FrameState>(&mut self, frame: &Frame<S, P>, target: &Target) -> Result<Measured> {
        frame.measure(&mut self.session, target)
    }

    fn image<S: FrameState>(&mut self, frame: &Frame<S, P>) -> Result<Rendered> {
        frame.image(&self.session)
    }

    #[cfg(feature = "bench")]
    fn profiler(&mut self) -> Option<&mut dyn Profiler<Model<P>, Frame<Drawn, P>>> {
        Some(self)
    }
}

impl<P: CudaPrimitive> Store<P> for Cuda {
    type Model = Model<P>;

    fn upload(&mut self, host: &P) -> Result<Model<P>> {
        self.session.forget_faults()?;
        let model = self.room_for_model(host.sh_degree(), host.len())?;
        transfer::upload(&self.session, host, model)
    }

    fn load<S: Rows<P>>(&mut self, source: &mut S) -> Result<Model<P>, S::Error>
    where
        S::Error: From<DeviceError>,
    {
        self.session.forget_faults()?;
        let (sh_degree, count) = (source.shape()?.sh_degree(), source.len());
        let mut model = self.room_for_model(sh_degree, count)?;
        let mut staging = Staging::new(&self.session)?;
        for rows in chunks(count) {
            let chunk = source.read(rows.clone())?;
            self.with_room(|session| {
                transfer::write(session, &mut model, rows.start, &chunk, &mut staging)
            })?;
        }
        Ok(model)
    }

    fn read_parameters(&mut self, model: &mut Model<P>, rows: Range<usize>) -> Result<P> {
        self.bring_up_to_date(model)?;
        self.with_room(|session| transfer::read_parameters(session, model, &rows))
    }

    fn read(&mut self, model: &mut Model<P>, rows: Range<usize>) -> Result<Snapshot<P>> {
        self.bring_up_to_date(model)?;
        self.with_room(|session| transfer::read(session, model, &rows))
    }

    fn sample(&mut self, model: &mut Model<P>, rows: &[usize]) -> Result<P> {
        catch_up(&self.session, model)?;
        self.with_room(|session| transfer::sample(session, model, rows))
    }

    fn shape(&self, model: &Model<P>) -> ModelShape {
        let [parameters, optimizer] = model.bytes();
        ModelShape { rows: model.len(), optional: model.optional(), parameters, optimizer }
    }

    fn reorder(&mut self, model: &mut Model<P>, cube: &Cube) -> Result {
        // Rows get other numbers, so a fault that names a row must be read before.
        self.bring_up_to_date(model)?;
        self.with_room(|session| reorder::reorder(session, model, cube))
    }

    fn govern(&mut self, model: &mut Model<P>, iteration: u32) -> Result {
        self.policy.set_time(iteration.into());
        let before = self.governed_at.replace(iteration);
        if !is_due(self.trim_interval, before, iteration) {
            return Ok(());
        }
        let Self { images, session, policy, .. } = self;
        govern::between_iterations(policy, Parts { images, session, model: Some(model) })
    }

    fn relieve(&mut self, model: &mut Model<P>, error: &DeviceError) -> Result<bool> {
        let Self { images, session, policy, .. } = self;
        govern::relieve(policy, Parts { images, session, model: Some(model) }, error)
    }

    fn grant_new_gaussians(&mut self, model: &mut Model<P>, wish: usize) -> Result<usize> {
        let Self { images, session, policy, high_water, .. } = self;
        if !policy.allows(Fallback::NewGaussians) {
            return Ok(wish);
        }
        session.heap.update_foreign_use()?;
        model.trim()?;
        let mut granted =
            govern::new_gaussians(high_water, model, wish, images, &session.heap, policy);
        for fallback in policy.in_order(&[Fallback::Compact, Fallback::Offload]) {
            if granted == wish || !policy.comes_before(fallback, Fallback::NewGaussians) {
                break;
            }
            // Offloading is permanent: not if the host would then hold fewer than the device does now.
            let more = model.len() + granted + 1;
            if fallback == Fallback::Offload
                && !govern::has_room_on_host(&session.heap, model, more)
            {
                continue;
            }
            let mut parts = Parts { images, session, model: Some(model) };
            if let Some((fallback, bytes)) = parts.give_up(fallback, Bytes(0))?.of(fallback) {
                policy.record(fallback, bytes);
                granted =
                    govern::new_gaussians(high_water, model, wish, images, &session.heap, policy);
            }
        }
        let each = model.bytes().into_iter().sum::<Bytes>().0 / model.len().max(1) as u64;
        policy.record_grant(wish, granted, Bytes((wish - granted) as u64 * each));
        Ok(granted)
    }
}

/// True if memory is trimmed after `iteration`: when a multiple of the interval was reached since the last call.
fn is_due(interval: u32, before: Option<u32>, iteration: u32) -> bool {
    let interval = interval.max(1);
    match before.filter(|&before| before < iteration) {
        Some(before) => before / interval < iteration / interval,
        None => iteration.is_multiple_of(interval),
    }
}

impl Faces for Cuda {
    fn set_faces(&mut self, model: &mut Model, faces: &[[u32; 3]]) -> Result {
        let vertices = model.len();
        model.faces = None;
        let tables = self.with_room(|session| FaceTables::new(session, faces, vertices))?;
        model.invalidate_rows();
        model.faces = Some(tables);
        Ok(())
    }

    fn faces<'a>(&self, model: &'a Model) -> &'a [[u32; 3]] {
        model.faces.as_ref().map_or(&[], FaceTables::host)
    }

    fn vertices(&mut self, model: &Model) -> Result<Vec<[f32; 4]>> {
        densify::vertices(&self.session, model)
    }

    fn face_statistics(&mut self, model: &Model) -> Result<FaceStatistics> {
        let tables = model.faces.as_ref();
        tables.map_or(Ok(FaceStatistics::default()), |tables| tables.statistics(&self.session))
    }

    fn set_face_statistics(&mut self, model: &mut Model, statistics: &FaceStatistics) -> Result {
        match &mut model.faces {
            Some(tables) => tables.set_statistics(&self.session, statistics),
            None => Ok(()),
        }
    }

    fn remesh(&mut self, model: &mut Model, change: &Remesh<'_>) -> Result {
        // Rows get other numbers, so a fault that names a row must be read before.
        self.bring_up_to_date(model)?;
        self.with_room(|session| densify::remesh(session, model, change))
    }
}
