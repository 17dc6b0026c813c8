//! A device whose calls can be watched, refused and answered in other ways.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use splat::backend::cpu::{Cpu, Model};
use splat::backend::{
    AdamStep, Adjust, Appearance, AppearanceTables, Bind, BoundState, BoundStep, Candidates,
    Compensated, Device, DeviceError, DeviceInfo, DeviceMemory, Drawn, Edit, EditRule, Edited,
    FaceStatistics, Faces, Filter3d, FrameState, Fuse, Into, LadderState, Look, Lpips, MaskedView,
    Measured, ModelShape, Neighbours, Objective, Palettes, Peaks, Photo, Pick, Ranks, Remesh,
    Render, RenderSettings, Rendered, Rows, ScoreRule, Scored, Shown, Snapshot, Stay, Store,
    TableStep, TrainDevice, Trainable, Transmittances, Wants, Worth, Worths,
};
use splat::dataset::{Image, View};
use splat::math::morton::Cube;
use splat::memory::{Bytes, Entry, HostDemand, Kind, Refusal, Rung, RungChange, TrainingScale};
use splat::model::{BoundTopology, Gaussians};
use splat::perceptual::{LpipsInput, LpipsWeights};
use splat_formats::{CellLists, NearRow};
use splat_mesh::tsdf::{Fusion, Space, Survey, SurveyedBricks};

/// A device with hooks.
pub struct Hooked<D, H> {
    pub device: D,
    pub hooks: H,
}

/// A call that hooks see before the device does.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    Read,
    Render(&'a RenderSettings),
    /// This view is drawn to be trained on; a [`Self::Render`] follows.
    Train(&'a View),
    /// This view is to be drawn after the coming step.
    Expect(&'a View),
    /// A round with so many births.
    Grow(usize),
    Neighbours(u32),
    LoadLpips,
}

/// Functions that run in place of a device, or before it.
pub trait Hooks<D: TrainDevice> {
    fn before(&mut self, _call: Call<'_>) -> Result<(), DeviceError> {
        Ok(())
    }

    fn upload_target(
        &mut self,
        device: &mut D,
        photo: Photo<'_>,
    ) -> Result<D::Target, DeviceError> {
        device.upload_target(photo)
    }

    fn resident(&mut self, device: &mut D, view: usize) -> Option<D::Target> {
        device.resident(view)
    }

    fn is_resident(&self, device: &D, view: usize) -> bool {
        device.is_resident(view)
    }

    fn take_changes(&mut self, device: &mut D) -> Option<LadderState> {
        device.take_changes()
    }

    fn relieve(
        &mut self,
        device: &mut D,
        model: &mut D::Model,
        error: &DeviceError,
    ) -> Result<bool, DeviceError> {
        device.relieve(model, error)
    }

    fn births(&mut self, granted: usize) -> usize {
        granted
    }

    fn max_neighbours(&self, device: &D) -> u32 {
        device.max_neighbours()
    }

    fn training_scale(&self, device: &D) -> TrainingScale {
        device.training_scale()
    }

    fn use_training_scale(
        &mut self,
        device: &mut D,
        scale: TrainingScale,
    ) -> Result<(), DeviceError> {
        device.use_training_scale(scale)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Device for Hooked<D, H> {
    type Target = D::Target;

    fn info(&self) -> DeviceInfo {
        self.device.info()
    }
    fn upload_target(&mut self, photo: Photo<'_>) -> Result<D::Target, DeviceError> {
        self.hooks.upload_target(&mut self.device, photo)
    }
    fn resident(&mut self, view: usize) -> Option<D::Target> {
        self.hooks.resident(&mut self.device, view)
    }
    fn is_resident(&self, view: usize) -> bool {
        self.hooks.is_resident(&self.device, view)
    }
    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.device.synchronize()
    }
    fn memory(&mut self, peaks: Peaks) -> Option<DeviceMemory> {
        self.device.memory(peaks)
    }
    fn take_peak(&mut self) -> Option<Bytes> {
        self.device.take_peak()
    }
    fn aim_below(&mut self, aim: Option<Bytes>) -> Result<(), DeviceError> {
        self.device.aim_below(aim)
    }
    fn training_scale(&self) -> TrainingScale {
        self.hooks.training_scale(&self.device)
    }
    fn use_training_scale(&mut self, scale: TrainingScale) -> Result<(), DeviceError> {
        self.hooks.use_training_scale(&mut self.device, scale)
    }
    fn take_changes(&mut self) -> Option<LadderState> {
        self.hooks.take_changes(&mut self.device)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Store<Gaussians> for Hooked<D, H> {
    type Model = D::Model;

    fn upload(&mut self, host: &Gaussians) -> Result<D::Model, DeviceError> {
        self.device.upload(host)
    }
    fn load<S: Rows<Gaussians>>(&mut self, source: &mut S) -> Result<D::Model, S::Error>
    where
        S::Error: From<DeviceError>,
    {
        self.device.load(source)
    }
    fn read_parameters(
        &mut self,
        model: &mut D::Model,
        rows: Range<usize>,
    ) -> Result<Gaussians, DeviceError> {
        self.hooks.before(Call::Read)?;
        self.device.read_parameters(model, rows)
    }
    fn read(
        &mut self,
        model: &mut D::Model,
        rows: Range<usize>,
    ) -> Result<Snapshot<Gaussians>, DeviceError> {
        self.hooks.before(Call::Read)?;
        self.device.read(model, rows)
    }
    fn sample(&mut self, model: &mut D::Model, rows: &[usize]) -> Result<Gaussians, DeviceError> {
        self.device.sample(model, rows)
    }
    fn shape(&self, model: &D::Model) -> ModelShape {
        self.device.shape(model)
    }
    fn reorder(&mut self, model: &mut D::Model, cube: &Cube) -> Result<(), DeviceError> {
        self.device.reorder(model, cube)
    }
    fn govern(&mut self, model: &mut D::Model, iteration: u32) -> Result<(), DeviceError> {
        self.device.govern(model, iteration)
    }
    fn relieve(&mut self, model: &mut D::Model, error: &DeviceError) -> Result<bool, DeviceError> {
        self.hooks.relieve(&mut self.device, model, error)
    }
    fn grant_births(
        &mut self,
        model: &mut D::Model,
        requested: usize,
    ) -> Result<usize, DeviceError> {
        Ok(self.hooks.births(self.device.grant_births(model, requested)?))
    }
}

impl<D: TrainDevice, H: Hooks<D>> Neighbours<Gaussians> for Hooked<D, H> {
    type Lists = D::Lists;

    fn neighbours(&mut self, model: &D::Model, count: u32) -> Result<D::Lists, DeviceError> {
        self.hooks.before(Call::Neighbours(count))?;
        self.device.neighbours(model, count)
    }
    fn read_neighbours(
        &mut self,
        lists: &D::Lists,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, DeviceError> {
        self.device.read_neighbours(lists, rows)
    }
    fn max_neighbours(&self) -> u32 {
        self.hooks.max_neighbours(&self.device)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Render<Gaussians> for Hooked<D, H> {
    type Frame<S: FrameState> = D::Frame<S>;
    type Gradients = D::Gradients;
    type Losses = D::Losses;

    fn render(
        &mut self,
        model: &D::Model,
        view: &View,
        settings: &RenderSettings,
        look: Look,
    ) -> Result<D::Frame<Shown>, DeviceError> {
        self.hooks.before(Call::Render(settings))?;
        self.device.render(model, view, settings, look)
    }
    fn render_train(
        &mut self,
        model: &D::Model,
        view: &View,
        settings: &RenderSettings,
        wants: &Wants,
    ) -> Result<D::Frame<Drawn>, DeviceError> {
        self.hooks.before(Call::Train(view))?;
        self.hooks.before(Call::Render(settings))?;
        self.device.render_train(model, view, settings, wants)
    }
    fn objective<S: Trainable>(
        &mut self,
        model: &D::Model,
        frame: D::Frame<S>,
        objective: &Objective<'_, D::Target, D::Lists>,
    ) -> Result<(D::Frame<Scored<S>>, D::Losses), DeviceError> {
        self.device.objective(model, frame, objective)
    }
    fn backward(
        &mut self,
        model: &mut D::Model,
        frame: D::Frame<Scored<Drawn>>,
        near: Option<&D::Lists>,
        gradients: &mut D::Gradients,
    ) -> Result<D::Losses, DeviceError> {
        self.device.backward(model, frame, near, gradients)
    }
    fn expect(
        &mut self,
        model: &mut D::Model,
        view: &View,
        settings: &RenderSettings,
    ) -> Result<(), DeviceError> {
        self.hooks.before(Call::Expect(view))?;
        self.device.expect(model, view, settings)
    }
    fn step(
        &mut self,
        model: &mut D::Model,
        gradients: D::Gradients,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        self.device.step(model, gradients, step)
    }
    fn measure<S: FrameState>(
        &mut self,
        frame: &D::Frame<S>,
        target: &D::Target,
    ) -> Result<Measured, DeviceError> {
        self.device.measure(frame, target)
    }
    fn image<S: FrameState>(&mut self, frame: &D::Frame<S>) -> Result<Rendered, DeviceError> {
        self.device.image(frame)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Edit<Gaussians> for Hooked<D, H> {
    type Selection = D::Selection;

    fn weigh(
        &mut self,
        model: &mut D::Model,
        views: &[&View],
        settings: &RenderSettings,
    ) -> Result<(), DeviceError> {
        self.device.weigh(model, views, settings)
    }
    fn read_weights(&mut self, model: &D::Model) -> Result<Vec<f32>, DeviceError> {
        self.device.read_weights(model)
    }
    fn score(&mut self, model: &D::Model, rule: &ScoreRule) -> Result<Candidates, DeviceError> {
        self.device.score(model, rule)
    }
    fn select(
        &mut self,
        model: &mut D::Model,
        candidates: &Candidates,
        pick: Pick,
    ) -> Result<D::Selection, DeviceError> {
        if let Pick::Best(births) | Pick::WithReplacement { into: Into::NewRows(births), .. } = pick
        {
            self.hooks.before(Call::Grow(births))?;
        }
        self.device.select(model, candidates, pick)
    }
    fn edit(
        &mut self,
        model: &mut D::Model,
        selection: D::Selection,
        rule: &EditRule,
    ) -> Result<Edited, DeviceError> {
        self.device.edit(model, selection, rule)
    }
    fn adjust(&mut self, model: &mut D::Model, adjust: &Adjust) -> Result<(), DeviceError> {
        self.device.adjust(model, adjust)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Filter3d for Hooked<D, H> {
    fn update_filter_3d(
        &mut self,
        model: &mut D::Model,
        views: &[&View],
        sampled_from: f64,
    ) -> Result<(), DeviceError> {
        self.device.update_filter_3d(model, views, sampled_from)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Transmittances<Gaussians> for Hooked<D, H> {
    fn transmittances(
        &mut self,
        model: &D::Model,
        view: &View,
        settings: &RenderSettings,
        places: &[[f32; 3]],
    ) -> Result<Vec<f32>, DeviceError> {
        self.device.transmittances(model, view, settings, places)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Worths<Gaussians> for Hooked<D, H> {
    type WorthSums = D::WorthSums;

    fn no_worths(
        &mut self,
        model: &D::Model,
        absent: &[bool],
    ) -> Result<D::WorthSums, DeviceError> {
        self.device.no_worths(model, absent)
    }
    fn add_worths(
        &mut self,
        model: &D::Model,
        view: &View,
        settings: &RenderSettings,
        target: &D::Target,
        sums: &mut D::WorthSums,
    ) -> Result<Measured, DeviceError> {
        self.device.add_worths(model, view, settings, target, sums)
    }
    fn read_worths(&mut self, sums: &D::WorthSums) -> Result<Vec<Worth>, DeviceError> {
        self.device.read_worths(sums)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Palettes for Hooked<D, H> {
    type PaletteRows = D::PaletteRows;

    fn hold_rows(&mut self, rows: &[f32], width: usize) -> Result<D::PaletteRows, DeviceError> {
        self.device.hold_rows(rows, width)
    }
    fn near_entries(
        &mut self,
        rows: &mut D::PaletteRows,
        centers: &[f32],
        cells: &CellLists<'_>,
    ) -> Result<Vec<NearRow>, DeviceError> {
        self.device.near_entries(rows, centers, cells)
    }
    fn near_cells(
        &mut self,
        rows: &mut D::PaletteRows,
        centers: &[f32],
        count: usize,
    ) -> Result<Vec<u32>, DeviceError> {
        self.device.near_cells(rows, centers, count)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Fuse<Gaussians> for Hooked<D, H> {
    type BrickSurvey = D::BrickSurvey;
    type FusedVoxels = D::FusedVoxels;

    fn new_survey(&mut self, space: Space) -> Result<D::BrickSurvey, DeviceError> {
        self.device.new_survey(space)
    }
    fn survey_depths(
        &mut self,
        survey: &mut D::BrickSurvey,
        frame: &D::Frame<Shown>,
        seen: MaskedView<'_>,
    ) -> Result<(), DeviceError> {
        self.device.survey_depths(survey, frame, seen)
    }
    fn read_survey(&mut self, survey: D::BrickSurvey) -> Result<Survey, DeviceError> {
        self.device.read_survey(survey)
    }
    fn new_voxels(&mut self, bricks: &Arc<SurveyedBricks>) -> Result<D::FusedVoxels, DeviceError> {
        self.device.new_voxels(bricks)
    }
    fn fuse_depths(
        &mut self,
        voxels: &mut D::FusedVoxels,
        frame: &D::Frame<Shown>,
        seen: MaskedView<'_>,
    ) -> Result<(), DeviceError> {
        self.device.fuse_depths(voxels, frame, seen)
    }
    fn read_voxels(&mut self, voxels: D::FusedVoxels) -> Result<Fusion, DeviceError> {
        self.device.read_voxels(voxels)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Lpips<Gaussians> for Hooked<D, H> {
    type Net = D::Net;

    fn load_lpips(&mut self, weights: &LpipsWeights) -> Result<D::Net, DeviceError> {
        self.hooks.before(Call::LoadLpips)?;
        self.device.load_lpips(weights)
    }
    fn lpips(
        &mut self,
        net: &D::Net,
        frame: &D::Frame<Shown>,
        target: &D::Target,
        input: LpipsInput,
    ) -> Result<f64, DeviceError> {
        self.device.lpips(net, frame, target, input)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Appearance<Gaussians> for Hooked<D, H> {
    type Tables = D::Tables;

    fn upload_tables(&mut self, tables: &AppearanceTables) -> Result<D::Tables, DeviceError> {
        self.device.upload_tables(tables)
    }
    fn read_tables(&mut self, tables: &D::Tables) -> Result<AppearanceTables, DeviceError> {
        self.device.read_tables(tables)
    }
    fn compensate(
        &mut self,
        tables: &mut D::Tables,
        frame: D::Frame<Drawn>,
        step: &TableStep,
    ) -> Result<D::Frame<Compensated>, DeviceError> {
        self.device.compensate(tables, frame, step)
    }
    fn learn(
        &mut self,
        tables: &mut D::Tables,
        frame: D::Frame<Scored<Compensated>>,
        step: &TableStep,
    ) -> Result<D::Frame<Scored<Drawn>>, DeviceError> {
        self.device.learn(tables, frame, step)
    }
    fn correct(
        &mut self,
        frame: D::Frame<Shown>,
        target: &D::Target,
    ) -> Result<D::Frame<Shown>, DeviceError> {
        self.device.correct(frame, target)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Ranks for Hooked<D, H> {}

impl<D: TrainDevice, H: Hooks<D>> Faces for Hooked<D, H> {
    fn set_faces(&mut self, model: &mut D::Model, faces: &[[u32; 3]]) -> Result<(), DeviceError> {
        self.device.set_faces(model, faces)
    }

    fn faces<'a>(&self, model: &'a D::Model) -> &'a [[u32; 3]] {
        self.device.faces(model)
    }

    fn vertices(&mut self, model: &D::Model) -> Result<Vec<[f32; 4]>, DeviceError> {
        self.device.vertices(model)
    }

    fn face_statistics(&mut self, model: &D::Model) -> Result<FaceStatistics, DeviceError> {
        self.device.face_statistics(model)
    }

    fn set_face_statistics(
        &mut self,
        model: &mut D::Model,
        statistics: &FaceStatistics,
    ) -> Result<(), DeviceError> {
        self.device.set_face_statistics(model, statistics)
    }

    fn remesh(&mut self, model: &mut D::Model, change: &Remesh<'_>) -> Result<(), DeviceError> {
        self.device.remesh(model, change)
    }
}

impl<D: TrainDevice, H: Hooks<D>> Bind for Hooked<D, H> {
    type Binding = D::Binding;

    fn bind(
        &mut self,
        model: &mut D::Model,
        topology: &Arc<BoundTopology>,
        state: &BoundState,
    ) -> Result<D::Binding, DeviceError> {
        self.device.bind(model, topology, state)
    }
    fn step_bound(
        &mut self,
        model: &mut D::Model,
        binding: &mut D::Binding,
        gradients: D::Gradients,
        step: &BoundStep,
    ) -> Result<(), DeviceError> {
        self.device.step_bound(model, binding, gradients, step)
    }
    fn read_binding(&mut self, binding: &D::Binding) -> Result<BoundState, DeviceError> {
        self.device.read_binding(binding)
    }
}

// A CPU that keeps photographs and runs out of memory, as a device with memory of its own does.

/// The CPU with such constraints.
pub type ConstrainedBackend = Hooked<Cpu<f32>, Constraints>;

/// Limits of the backend under test: room for `room` photographs, and calls that run out of memory. The photograph used
/// longest ago goes first.
pub struct Constraints {
    pub room: usize,
    pub held: BTreeMap<usize, (u64, Arc<Image>)>,
    pub clock: u64,
    /// Photographs that training had to wait for.
    pub late_uploads: Vec<usize>,
    /// Photographs that were on their way in time.
    pub prefetched: Vec<usize>,
    /// Photographs that were shown for one look.
    pub transient_uploads: usize,
    /// Near planes of the frames drawn.
    pub nears: Vec<f64>,
    /// Their backgrounds.
    pub backgrounds: Vec<[f32; 3]>,
    /// The frame from which on there is no room at all.
    pub gives_way: usize,
    /// Time that reading any rows takes.
    pub pause: Duration,
    /// Frames that are refused as memory is short, counted from 1 with those refused.
    pub refused_frames: BTreeSet<usize>,
    /// True if the host's memory is short. No fallback frees host memory.
    pub is_host_short: bool,
    /// True if there is too little memory for LPIPS.
    pub refuses_lpips: bool,
    /// Times that something can be given up after a refusal.
    pub reliefs: usize,
    /// The most births that a round is granted.
    pub births: usize,
    /// Rounds of density control with births that are refused as memory is short.
    pub refused_rounds: usize,
    /// Births of each round that was asked for.
    pub rounds: Vec<usize>,
    /// The longest lists of neighbours that there is room for.
    pub most_neighbours: u32,
    /// The longest lists from the first relief on.
    pub fewer_neighbours: u32,
    /// Lengths of the lists that were found.
    pub found_lists: Vec<u32>,
    /// Times that a relief makes training views smaller.
    pub smaller_views: usize,
    /// The frame from which on they have their full size again.
    pub full_size_from: usize,
    /// The size that they are to have.
    pub scale: TrainingScale,
    /// True if there is memory for training views of any size.
    pub is_ample: bool,
    /// Sizes of the views that were trained on, px, each with those that followed.
    pub trained_px: Vec<([u32; 2], usize)>,
    /// Names of the views that were trained on.
    pub trained: Vec<String>,
    /// Views that were expected, each with how many had been trained on before.
    pub expected: Vec<(usize, String)>,
    /// Changes that are not yet reported.
    pub changes: Vec<RungChange>,
}

/// A refusal as of a device whose memory is full.
fn refusal() -> DeviceError {
    let entry = Entry {
        label: "sh",
        kind: Kind::Region,
        used: Bytes(3 << 20),
        mapped: Bytes(3 << 20),
        peak: Bytes(3 << 20),
        at_peak: Bytes(3 << 20),
    };
    let (wanted, held, budget) = (Bytes(2 << 20), Bytes(3 << 20), Bytes(4 << 20));
    Refusal { label: "splats", wanted, held, budget, largest: vec![entry], sharing: None }.into()
}

impl ConstrainedBackend {
    pub fn new(room: usize) -> Self {
        let hooks = Constraints {
            room,
            held: BTreeMap::new(),
            clock: 0,
            late_uploads: Vec::new(),
            prefetched: Vec::new(),
            transient_uploads: 0,
            nears: Vec::new(),
            backgrounds: Vec::new(),
            gives_way: usize::MAX,
            pause: Duration::ZERO,
            refused_frames: BTreeSet::new(),
            is_host_short: false,
            refuses_lpips: false,
            reliefs: 0,
            births: usize::MAX,
            refused_rounds: 0,
            rounds: Vec::new(),
            most_neighbours: 32,
            fewer_neighbours: 32,
            found_lists: Vec::new(),
            smaller_views: 0,
            full_size_from: usize::MAX,
            scale: TrainingScale::FULL,
            is_ample: false,
            trained_px: Vec::new(),
            trained: Vec::new(),
            expected: Vec::new(),
            changes: Vec::new(),
        };
        Self { device: Cpu::new(), hooks }
    }
}

impl Constraints {
    fn refusal(&self) -> DeviceError {
        if !self.is_host_short {
            return refusal();
        }
        let (label, wanted, demand) = ("sh", Bytes(4 << 20), Some(HostDemand::Growth));
        DeviceError::OutOfHostMemory { label, wanted, demand }
    }

    fn tell(&mut self, rung: Rung, given_up: bool) {
        self.changes.push(RungChange { rung, given_up, bytes: Bytes(1 << 20) });
    }

    /// A copy, as on a device: the host's may go.
    fn keep(&mut self, view: usize, image: &Image) -> Arc<Image> {
        self.clock += 1;
        let copy = Arc::new(image.clone());
        self.held.insert(view, (self.clock, Arc::clone(&copy)));
        while self.held.len() > self.room {
            let oldest = self.held.iter().min_by_key(|(_, (used, _))| *used).unwrap();
            let oldest = *oldest.0;
            self.held.remove(&oldest);
        }
        copy
    }
}

impl Hooks<Cpu<f32>> for Constraints {
    fn before(&mut self, call: Call<'_>) -> Result<(), DeviceError> {
        match call {
            Call::Train(view) => {
                self.trained.push(view.name.clone());
                let px = [view.camera.width, view.camera.height];
                match self.trained_px.last_mut() {
                    Some((last, count)) if *last == px => *count += 1,
                    _ => self.trained_px.push((px, 1)),
                }
            }
            Call::Expect(view) => self.expected.push((self.trained.len(), view.name.clone())),
            Call::Read => sleep(self.pause),
            Call::Neighbours(count) => self.found_lists.push(count),
            Call::LoadLpips if self.refuses_lpips => return Err(self.refusal()),
            Call::LoadLpips => {}
            Call::Grow(births) => {
                self.rounds.push(births);
                if births > 0 && self.refused_rounds > 0 {
                    self.refused_rounds -= 1;
                    return Err(self.refusal());
                }
            }
            Call::Render(settings) => {
                self.nears.push(settings.near);
                self.backgrounds.push(settings.background);
                if self.nears.len() == self.full_size_from {
                    self.scale = TrainingScale::FULL;
                    self.tell(Rung::Resolution, false);
                }
                if self.nears.len() == self.gives_way {
                    self.room = 0;
                    self.held.clear();
                }
                if self.refused_frames.contains(&self.nears.len()) {
                    return Err(self.refusal());
                }
            }
        }
        Ok(())
    }

    fn upload_target(
        &mut self,
        _cpu: &mut Cpu<f32>,
        photo: Photo<'_>,
    ) -> Result<Arc<Image>, DeviceError> {
        let Photo { image, stay } = photo;
        Ok(match stay {
            Stay::Transient => {
                self.transient_uploads += 1;
                Arc::new(Image::clone(image))
            }
            Stay::Resident(view) => {
                self.late_uploads.push(view);
                self.keep(view, image)
            }
            Stay::Ahead(view) => {
                self.prefetched.push(view);
                self.keep(view, image)
            }
        })
    }

    fn resident(&mut self, _cpu: &mut Cpu<f32>, view: usize) -> Option<Arc<Image>> {
        self.clock += 1;
        let (used, image) = self.held.get_mut(&view)?;
        *used = self.clock;
        Some(Arc::clone(image))
    }

    fn is_resident(&self, _cpu: &Cpu<f32>, view: usize) -> bool {
        self.held.contains_key(&view)
    }

    fn take_changes(&mut self, _cpu: &mut Cpu<f32>) -> Option<LadderState> {
        let changes = std::mem::take(&mut self.changes);
        Some(LadderState { changes, held: Bytes(3 << 20), budget: Bytes(4 << 20) })
    }

    fn relieve(
        &mut self,
        _cpu: &mut Cpu<f32>,
        _model: &mut Model<f32>,
        error: &DeviceError,
    ) -> Result<bool, DeviceError> {
        assert!(error.is_out_of_memory());
        if self.reliefs == 0 {
            return Ok(false);
        }
        self.reliefs -= 1;
        if self.smaller_views > 0 {
            self.smaller_views -= 1;
            self.scale = self.scale.smaller().unwrap();
            self.tell(Rung::Resolution, true);
            return Ok(true);
        }
        self.most_neighbours = self.fewer_neighbours;
        self.tell(Rung::Compact, true);
        Ok(true)
    }

    fn births(&mut self, granted: usize) -> usize {
        granted.min(self.births)
    }

    fn max_neighbours(&self, _cpu: &Cpu<f32>) -> u32 {
        self.most_neighbours
    }

    fn training_scale(&self, _cpu: &Cpu<f32>) -> TrainingScale {
        self.scale
    }

    fn use_training_scale(
        &mut self,
        _cpu: &mut Cpu<f32>,
        scale: TrainingScale,
    ) -> Result<(), DeviceError> {
        if self.is_ample {
            return Ok(());
        }
        self.scale = scale;
        self.held.clear();
        Ok(())
    }
}
