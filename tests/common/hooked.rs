//! A CPU that keeps photographs and runs out of memory, as a device with memory of its own does.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use splat::backend::cpu::Cpu;
use splat::backend::{
    AdamStep, Adjust, Appearance, AppearanceTables, Bind, BoundState, BoundStep, Candidates,
    Compensated, Contribution, Contributions, Device, DeviceError, DeviceInfo, DeviceMemory, Drawn,
    Edit, EditRule, Edited, FaceStatistics, Faces, FallbackState, Filter3d, FrameState, Fuse, Into,
    Lpips, MaskedView, Measured, ModelShape, Neighbours, Objective, Palettes, Peaks, Photo, Pick,
    Ranks, Remesh, Render, RenderRequest, RenderSettings, Rendered, Rows, ScoreRule, Scored, Shown,
    Snapshot, Stay, Store, TableStep, TrainDevice, TrainRequest, Trainable, Transmittances,
};
use splat::dataset::{Image, View};
use splat::math::morton::Cube;
use splat::memory::{
    Bytes, Entry, Fallback, FallbackChange, HostDemand, Kind, Refusal, TrainingScale,
};
use splat::model::{BoundTopology, Gaussians};
use splat::perceptual::{LpipsInput, LpipsWeights};
use splat_formats::{CellLists, NearRow};
use splat_mesh::tsdf::{Fusion, Space, Survey, SurveyedBricks};

type Result<T = (), E = DeviceError> = std::result::Result<T, E>;

/// A device with constraints.
pub struct Constrained<D> {
    pub device: D,
    pub hooks: Constraints,
}

/// The CPU with constraints.
pub type ConstrainedBackend = Constrained<Cpu<f32>>;

/// A device whose photographs can be copied for it.
pub trait Inner: TrainDevice<Target = Arc<Image>> {}

impl Inner for Cpu<f32> {}

/// Limits of the backend under test: room for `room` photographs, and calls that run out of memory. The photograph used
/// longest ago goes first.
#[derive(Default)]
pub struct Constraints {
    pub room: usize,
    pub held: BTreeMap<usize, (u64, Arc<Image>)>,
    pub clock: u64,
    /// Photographs that training had to wait for.
    pub late_uploads: Vec<usize>,
    /// Photographs that were on their way in time.
    pub prefetched: Vec<usize>,
    /// Photographs that were uploaded for one use.
    pub transient_uploads: usize,
    /// Near planes of the frames drawn.
    pub nears: Vec<f64>,
    /// True for the frames that leave out Gaussians far beside the image.
    pub cuts_sides: Vec<bool>,
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
    /// Largest number of new Gaussians that a densification step is granted.
    pub new_gaussians: usize,
    /// Number of densification steps whose new Gaussians are refused for lack of memory.
    pub refused_steps: usize,
    /// Requested new Gaussians of each densification step.
    pub densify_steps: Vec<usize>,
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
    pub changes: Vec<FallbackChange>,
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
            gives_way: usize::MAX,
            new_gaussians: usize::MAX,
            most_neighbours: 32,
            fewer_neighbours: 32,
            full_size_from: usize::MAX,
            ..Constraints::default()
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

    fn record(&mut self, fallback: Fallback, given_up: bool) {
        self.changes.push(FallbackChange { fallback, given_up, bytes: Bytes(1 << 20) });
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

    /// Notes that a view is drawn; refuses the frames that there is no memory for.
    fn render(&mut self, settings: &RenderSettings) -> Result {
        self.nears.push(settings.near);
        self.cuts_sides.push(settings.cuts_sides);
        self.backgrounds.push(settings.background);
        if self.nears.len() == self.full_size_from {
            self.scale = TrainingScale::FULL;
            self.record(Fallback::Resolution, false);
        }
        if self.nears.len() == self.gives_way {
            self.room = 0;
            self.held.clear();
        }
        if self.refused_frames.contains(&self.nears.len()) {
            return Err(self.refusal());
        }
        Ok(())
    }

    /// Notes that a view is drawn to be trained on.
    fn train(&mut self, view: &View) {
        self.trained.push(view.name.clone());
        let px = [view.camera.width, view.camera.height];
        match self.trained_px.last_mut() {
            Some((last, count)) if *last == px => *count += 1,
            _ => self.trained_px.push((px, 1)),
        }
    }
}

/// Implements methods by those of the same names of the device.
macro_rules! forward {
    ($(fn $name:ident(&mut self $(, $argument:ident: $kind:ty)* $(,)?) -> $result:ty;)+) => {
        $(fn $name(&mut self $(, $argument: $kind)*) -> $result {
            self.device.$name($($argument),*)
        })+
    };
}

impl<D: Inner> Device for Constrained<D> {
    type Target = Arc<Image>;

    forward! {
        fn synchronize(&mut self) -> Result;
        fn memory(&mut self, peaks: Peaks) -> Option<DeviceMemory>;
        fn take_peak(&mut self) -> Option<Bytes>;
        fn aim_below(&mut self, aim: Option<Bytes>) -> Result;
    }

    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn upload_target(&mut self, photo: Photo<'_>) -> Result<Arc<Image>> {
        let (Photo { image, stay }, hooks) = (photo, &mut self.hooks);
        Ok(match stay {
            Stay::Transient => {
                hooks.transient_uploads += 1;
                Arc::new(Image::clone(image))
            }
            Stay::Resident(view) => {
                hooks.late_uploads.push(view);
                hooks.keep(view, image)
            }
            Stay::Ahead(view) => {
                hooks.prefetched.push(view);
                hooks.keep(view, image)
            }
        })
    }

    fn resident(&mut self, view: usize) -> Option<Arc<Image>> {
        self.hooks.clock += 1;
        let (used, image) = self.hooks.held.get_mut(&view)?;
        *used = self.hooks.clock;
        Some(Arc::clone(image))
    }

    fn is_resident(&self, view: usize) -> bool {
        self.hooks.held.contains_key(&view)
    }

    fn training_scale(&self) -> TrainingScale {
        self.hooks.scale
    }

    fn use_training_scale(&mut self, scale: TrainingScale) -> Result {
        if !self.hooks.is_ample {
            self.hooks.scale = scale;
            self.hooks.held.clear();
        }
        Ok(())
    }

    fn take_changes(&mut self) -> Option<FallbackState> {
        let changes = std::mem::take(&mut self.hooks.changes);
        Some(FallbackState { changes, held: Bytes(3 << 20), budget: Bytes(4 << 20) })
    }
}

impl<D: Inner> Store<Gaussians> for Constrained<D> {
    type Model = D::Model;

    forward! {
        fn upload(&mut self, host: &Gaussians) -> Result<D::Model>;
        fn sample(&mut self, model: &mut D::Model, rows: &[usize]) -> Result<Gaussians>;
        fn reorder(&mut self, model: &mut D::Model, cube: &Cube) -> Result;
        fn govern(&mut self, model: &mut D::Model, iteration: u32) -> Result;
    }

    fn load<S: Rows<Gaussians>>(&mut self, source: &mut S) -> Result<D::Model, S::Error>
    where
        S::Error: From<DeviceError>,
    {
        self.device.load(source)
    }

    fn read_parameters(&mut self, model: &mut D::Model, rows: Range<usize>) -> Result<Gaussians> {
        sleep(self.hooks.pause);
        self.device.read_parameters(model, rows)
    }

    fn read(&mut self, model: &mut D::Model, rows: Range<usize>) -> Result<Snapshot<Gaussians>> {
        sleep(self.hooks.pause);
        self.device.read(model, rows)
    }

    fn shape(&self, model: &D::Model) -> ModelShape {
        self.device.shape(model)
    }

    fn relieve(&mut self, _model: &mut D::Model, error: &DeviceError) -> Result<bool> {
        assert!(error.is_out_of_memory());
        let hooks = &mut self.hooks;
        if hooks.reliefs == 0 {
            return Ok(false);
        }
        hooks.reliefs -= 1;
        if hooks.smaller_views > 0 {
            hooks.smaller_views -= 1;
            hooks.scale = hooks.scale.smaller().unwrap();
            hooks.record(Fallback::Resolution, true);
            return Ok(true);
        }
        hooks.most_neighbours = hooks.fewer_neighbours;
        hooks.record(Fallback::Compact, true);
        Ok(true)
    }

    fn grant_new_gaussians(&mut self, model: &mut D::Model, requested: usize) -> Result<usize> {
        Ok(self.device.grant_new_gaussians(model, requested)?.min(self.hooks.new_gaussians))
    }
}

impl<D: Inner> Neighbours<Gaussians> for Constrained<D> {
    type Lists = D::Lists;

    forward! {
        fn read_neighbours(&mut self, lists: &D::Lists, rows: Range<usize>) -> Result<Vec<u32>>;
    }

    fn neighbours(&mut self, model: &D::Model, count: u32) -> Result<D::Lists> {
        self.hooks.found_lists.push(count);
        self.device.neighbours(model, count)
    }

    fn max_neighbours(&self) -> u32 {
        self.hooks.most_neighbours
    }
}

impl<D: Inner> Render<Gaussians> for Constrained<D> {
    type Frame<S: FrameState> = D::Frame<S>;
    type Gradients = D::Gradients;
    type Losses = D::Losses;

    forward! {
        fn backward(
            &mut self,
            model: &mut D::Model,
            frame: D::Frame<Scored<Drawn>>,
            near: Option<&D::Lists>,
            gradients: &mut D::Gradients,
        ) -> Result<D::Losses>;
        fn step(
            &mut self,
            model: &mut D::Model,
            gradients: D::Gradients,
            step: &AdamStep,
        ) -> Result;
    }

    fn render(
        &mut self,
        model: &D::Model,
        view: &View,
        settings: &RenderSettings,
        request: RenderRequest,
    ) -> Result<D::Frame<Shown>> {
        self.hooks.render(settings)?;
        self.device.render(model, view, settings, request)
    }

    fn render_train(
        &mut self,
        model: &D::Model,
        view: &View,
        settings: &RenderSettings,
        request: &TrainRequest,
    ) -> Result<D::Frame<Drawn>> {
        self.hooks.train(view);
        self.hooks.render(settings)?;
        self.device.render_train(model, view, settings, request)
    }

    fn objective<S: Trainable>(
        &mut self,
        model: &D::Model,
        frame: D::Frame<S>,
        objective: &Objective<'_, D::Target, D::Lists>,
    ) -> Result<(D::Frame<Scored<S>>, D::Losses)> {
        self.device.objective(model, frame, objective)
    }

    fn expect(&mut self, model: &mut D::Model, view: &View, settings: &RenderSettings) -> Result {
        self.hooks.expected.push((self.hooks.trained.len(), view.name.clone()));
        self.device.expect(model, view, settings)
    }

    fn measure<S: FrameState>(
        &mut self,
        frame: &D::Frame<S>,
        target: &D::Target,
    ) -> Result<Measured> {
        self.device.measure(frame, target)
    }

    fn image<S: FrameState>(&mut self, frame: &D::Frame<S>) -> Result<Rendered> {
        self.device.image(frame)
    }
}

impl<D: Inner> Edit<Gaussians> for Constrained<D> {
    type Selection = D::Selection;

    forward! {
        fn weigh(
            &mut self,
            model: &mut D::Model,
            views: &[&View],
            settings: &RenderSettings,
        ) -> Result;
        fn read_weights(&mut self, model: &D::Model) -> Result<Vec<f32>>;
        fn score(&mut self, model: &D::Model, rule: &ScoreRule) -> Result<Candidates>;
        fn edit(
            &mut self,
            model: &mut D::Model,
            selection: D::Selection,
            rule: &EditRule,
        ) -> Result<Edited>;
        fn adjust(&mut self, model: &mut D::Model, adjust: &Adjust) -> Result;
    }

    fn select(
        &mut self,
        model: &mut D::Model,
        candidates: &Candidates,
        pick: Pick,
    ) -> Result<D::Selection> {
        if let Pick::Best(new_gaussians)
        | Pick::WithReplacement { into: Into::NewRows(new_gaussians), .. } = pick
        {
            self.hooks.densify_steps.push(new_gaussians);
            if new_gaussians > 0 && self.hooks.refused_steps > 0 {
                self.hooks.refused_steps -= 1;
                return Err(self.hooks.refusal());
            }
        }
        self.device.select(model, candidates, pick)
    }
}

impl<D: Inner> Filter3d for Constrained<D> {
    forward! {
        fn update_filter_3d(
            &mut self,
            model: &mut D::Model,
            views: &[&View],
            sampled_from: f64,
        ) -> Result;
    }
}

impl<D: Inner> Transmittances<Gaussians> for Constrained<D> {
    forward! {
        fn transmittances(
            &mut self,
            model: &D::Model,
            view: &View,
            settings: &RenderSettings,
            places: &[[f32; 3]],
        ) -> Result<Vec<f32>>;
    }
}

impl<D: Inner> Contributions<Gaussians> for Constrained<D> {
    type ContributionSums = D::ContributionSums;

    forward! {
        fn no_contributions(&mut self, model: &D::Model, absent: &[bool]) -> Result<D::ContributionSums>;
        fn add_contributions(
            &mut self,
            model: &D::Model,
            view: &View,
            settings: &RenderSettings,
            target: &D::Target,
            sums: &mut D::ContributionSums,
        ) -> Result<Measured>;
        fn read_contributions(&mut self, sums: &D::ContributionSums) -> Result<Vec<Contribution>>;
    }
}

impl<D: Inner> Palettes for Constrained<D> {
    type PaletteRows = D::PaletteRows;

    forward! {
        fn hold_rows(&mut self, rows: &[f32], width: usize) -> Result<D::PaletteRows>;
        fn near_entries(
            &mut self,
            rows: &mut D::PaletteRows,
            centers: &[f32],
            cells: &CellLists<'_>,
        ) -> Result<Vec<NearRow>>;
        fn near_cells(
            &mut self,
            rows: &mut D::PaletteRows,
            centers: &[f32],
            count: usize,
        ) -> Result<Vec<u32>>;
    }
}

impl<D: Inner> Fuse<Gaussians> for Constrained<D> {
    type BrickSurvey = D::BrickSurvey;
    type FusedVoxels = D::FusedVoxels;

    forward! {
        fn new_survey(&mut self, space: Space) -> Result<D::BrickSurvey>;
        fn survey_depths(
            &mut self,
            survey: &mut D::BrickSurvey,
            frame: &D::Frame<Shown>,
            seen: MaskedView<'_>,
        ) -> Result;
        fn read_survey(&mut self, survey: D::BrickSurvey) -> Result<Survey>;
        fn new_voxels(&mut self, bricks: &Arc<SurveyedBricks>) -> Result<D::FusedVoxels>;
        fn fuse_depths(
            &mut self,
            voxels: &mut D::FusedVoxels,
            frame: &D::Frame<Shown>,
            seen: MaskedView<'_>,
        ) -> Result;
        fn read_voxels(&mut self, voxels: D::FusedVoxels) -> Result<Fusion>;
    }
}

impl<D: Inner> Lpips<Gaussians> for Constrained<D> {
    type Net = D::Net;

    forward! {
        fn lpips(
            &mut self,
            net: &D::Net,
            frame: &D::Frame<Shown>,
            target: &D::Target,
            input: LpipsInput,
        ) -> Result<f64>;
    }

    fn load_lpips(&mut self, weights: &LpipsWeights) -> Result<D::Net> {
        if self.hooks.refuses_lpips {
            return Err(self.hooks.refusal());
        }
        self.device.load_lpips(weights)
    }
}

impl<D: Inner> Appearance<Gaussians> for Constrained<D> {
    type Tables = D::Tables;

    forward! {
        fn upload_tables(&mut self, tables: &AppearanceTables) -> Result<D::Tables>;
        fn read_tables(&mut self, tables: &D::Tables) -> Result<AppearanceTables>;
        fn compensate(
            &mut self,
            tables: &mut D::Tables,
            frame: D::Frame<Drawn>,
            step: &TableStep,
        ) -> Result<D::Frame<Compensated>>;
        fn learn(
            &mut self,
            tables: &mut D::Tables,
            frame: D::Frame<Scored<Compensated>>,
            step: &TableStep,
        ) -> Result<D::Frame<Scored<Drawn>>>;
        fn correct(
            &mut self,
            frame: D::Frame<Shown>,
            target: &D::Target,
        ) -> Result<D::Frame<Shown>>;
    }
}

impl<D: Inner> Ranks for Constrained<D> {}

impl<D: Inner> Faces for Constrained<D> {
    forward! {
        fn set_faces(&mut self, model: &mut D::Model, faces: &[[u32; 3]]) -> Result;
        fn vertices(&mut self, model: &D::Model) -> Result<Vec<[f32; 4]>>;
        fn face_statistics(&mut self, model: &D::Model) -> Result<FaceStatistics>;
        fn set_face_statistics(
            &mut self,
            model: &mut D::Model,
            statistics: &FaceStatistics,
        ) -> Result;
        fn remesh(&mut self, model: &mut D::Model, change: &Remesh<'_>) -> Result;
    }

    fn faces<'a>(&self, model: &'a D::Model) -> &'a [[u32; 3]] {
        self.device.faces(model)
    }
}

impl<D: Inner> Bind for Constrained<D> {
    type Binding = D::Binding;

    forward! {
        fn bind(
            &mut self,
            model: &mut D::Model,
            topology: &Arc<BoundTopology>,
            state: &BoundState,
        ) -> Result<D::Binding>;
        fn step_bound(
            &mut self,
            model: &mut D::Model,
            binding: &mut D::Binding,
            gradients: D::Gradients,
            step: &BoundStep,
        ) -> Result;
        fn read_binding(&mut self, binding: &D::Binding) -> Result<BoundState>;
    }
}
