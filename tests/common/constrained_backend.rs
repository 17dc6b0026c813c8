//! A CPU that keeps photographs and runs out of memory, as a device with memory of its own does.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use splat::backend::cpu::{
    Appearance, Cpu, Frame, Gradients, LpipsModel, Model, Neighbours, Ready, ReadyMean, Selection,
};
use splat::backend::{
    AdamStep, Adjust, AppearanceStep, AppearanceTables, Backend, Candidates, DeviceError, Edit,
    EditRule, Edited, Governed, Into, LossTerms, Measured, NormalRule, Pick, Raster,
    RenderSettings, Rendered, Rows, ScoreRule, Snapshot, Surface, SurfaceMaps, SurfaceRule,
    SurfaceTerms,
};
use splat::dataset::{Image, View};
use splat::math::morton::Cube;
use splat::memory::plan::OptionalColumns;
use splat::memory::{Bytes, Change, Entry, Kind, Refusal, Rung};
use splat::model::Gaussians;
use splat::perceptual::LpipsWeights;

/// The CPU with room of its own for so many photographs; the one used longest ago goes first.
pub struct ConstrainedBackend {
    pub cpu: Cpu<f32>,
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
    /// What it takes to read any rows.
    pub pause: Duration,
    /// Frames that are refused for want of memory, counted from 1 with those refused.
    pub refused_frames: BTreeSet<usize>,
    /// Whether there is too little memory for LPIPS.
    pub refuses_lpips: bool,
    /// How often something can be given up after a refusal.
    pub reliefs: usize,
    /// The most births that a round is granted.
    pub births: usize,
    /// Rounds of density control with births that are refused for want of memory.
    pub refused_rounds: usize,
    /// Births of each round that was asked for.
    pub rounds: Vec<usize>,
    /// The longest lists of neighbours that there is room for.
    pub most_neighbours: u32,
    /// What they are from the first relief on.
    pub fewer_neighbours: u32,
    /// Lengths of the lists that were found.
    pub found_lists: Vec<u32>,
    /// What was given up and not yet told.
    pub changes: Vec<Change>,
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
    Refusal { label: "splats", wanted, held, budget, largest: vec![entry] }.into()
}

impl ConstrainedBackend {
    pub fn new(room: usize) -> Self {
        let (held, late_uploads, prefetched, transient_uploads, nears) = Default::default();
        let (cpu, clock, gives_way, pause) = (Cpu::new(), 0, usize::MAX, Duration::ZERO);
        Self {
            cpu,
            room,
            held,
            clock,
            late_uploads,
            prefetched,
            transient_uploads,
            nears,
            backgrounds: Vec::new(),
            gives_way,
            pause,
            refused_frames: BTreeSet::new(),
            refuses_lpips: false,
            reliefs: 0,
            births: usize::MAX,
            refused_rounds: 0,
            rounds: Vec::new(),
            most_neighbours: 32,
            fewer_neighbours: 32,
            found_lists: Vec::new(),
            changes: Vec::new(),
        }
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

impl Backend for ConstrainedBackend {
    type Target = Arc<Image>;
    type Loss = Ready;

    fn name(&self) -> String {
        "keeper".to_owned()
    }

    fn target(&mut self, view: usize, image: &Arc<Image>) -> Result<Arc<Image>, DeviceError> {
        self.late_uploads.push(view);
        Ok(self.keep(view, image))
    }

    fn glance(&mut self, image: &Arc<Image>) -> Result<Arc<Image>, DeviceError> {
        self.transient_uploads += 1;
        Ok(Arc::new(Image::clone(image)))
    }

    fn prefetch(&mut self, view: usize, image: &Arc<Image>) -> Result<(), DeviceError> {
        self.prefetched.push(view);
        self.keep(view, image);
        Ok(())
    }

    fn resident(&mut self, view: usize) -> Option<Arc<Image>> {
        self.clock += 1;
        let (used, image) = self.held.get_mut(&view)?;
        *used = self.clock;
        Some(Arc::clone(image))
    }

    fn holds(&self, view: usize) -> bool {
        self.held.contains_key(&view)
    }

    fn governed(&mut self) -> Option<Governed> {
        let changes = std::mem::take(&mut self.changes);
        Some(Governed { changes, held: Bytes(3 << 20), budget: Bytes(4 << 20) })
    }
}

impl Raster<Gaussians> for ConstrainedBackend {
    type Model = Model<f32>;
    type Frame = Frame<f32>;
    type Gradients = Gradients<f32>;
    type LpipsModel = LpipsModel;
    type Appearance = Appearance<f32>;

    fn upload(&mut self, host: &Gaussians) -> Result<Model<f32>, DeviceError> {
        self.cpu.upload(host)
    }
    fn read_parameters(
        &mut self,
        model: &mut Model<f32>,
        rows: Range<usize>,
    ) -> Result<Gaussians, DeviceError> {
        sleep(self.pause);
        self.cpu.read_parameters(model, rows)
    }
    fn read(
        &mut self,
        model: &mut Model<f32>,
        rows: Range<usize>,
    ) -> Result<Snapshot<Gaussians>, DeviceError> {
        sleep(self.pause);
        self.cpu.read(model, rows)
    }
    fn load<S: Rows<Gaussians>>(&mut self, source: &mut S) -> Result<Model<f32>, S::Error>
    where
        S::Error: From<DeviceError>,
    {
        self.cpu.load(source)
    }
    fn sample(&mut self, model: &mut Model<f32>, rows: &[usize]) -> Result<Gaussians, DeviceError> {
        self.cpu.sample(model, rows)
    }
    fn len(&self, model: &Model<f32>) -> usize {
        self.cpu.len(model)
    }
    fn optional(&self, model: &Model<f32>) -> OptionalColumns {
        self.cpu.optional(model)
    }
    fn model_bytes(&self, model: &Model<f32>) -> [Bytes; 2] {
        self.cpu.model_bytes(model)
    }
    fn render(
        &mut self,
        model: &Model<f32>,
        view: &View,
        settings: &RenderSettings,
    ) -> Result<Frame<f32>, DeviceError> {
        self.nears.push(settings.near);
        self.backgrounds.push(settings.background);
        if self.nears.len() == self.gives_way {
            self.room = 0;
            self.held.clear();
        }
        if self.refused_frames.contains(&self.nears.len()) {
            return Err(refusal());
        }
        self.cpu.render(model, view, settings)
    }
    fn compare_depths(
        &mut self,
        frame: &mut Frame<f32>,
        target: &Arc<Image>,
        weight: f64,
    ) -> Result<(), DeviceError> {
        self.cpu.compare_depths(frame, target, weight)
    }
    fn loss(
        &mut self,
        frame: &mut Frame<f32>,
        target: &Arc<Image>,
        terms: &LossTerms,
    ) -> Result<Ready, DeviceError> {
        self.cpu.loss(frame, target, terms)
    }
    fn measure(
        &mut self,
        frame: &Frame<f32>,
        target: &Arc<Image>,
    ) -> Result<Measured, DeviceError> {
        self.cpu.measure(frame, target)
    }
    fn perceptual(&mut self, weights: &LpipsWeights) -> Result<LpipsModel, DeviceError> {
        if self.refuses_lpips {
            return Err(refusal());
        }
        self.cpu.perceptual(weights)
    }
    fn perceive(
        &mut self,
        net: &LpipsModel,
        frame: &Frame<f32>,
        target: &Arc<Image>,
    ) -> Result<f64, DeviceError> {
        self.cpu.perceive(net, frame, target)
    }
    fn frame_bytes(&self, frame: &Frame<f32>) -> Bytes {
        self.cpu.frame_bytes(frame)
    }
    fn gradients(&mut self, model: &Model<f32>) -> Result<Gradients<f32>, DeviceError> {
        self.cpu.gradients(model)
    }
    fn backward(
        &mut self,
        model: &mut Model<f32>,
        frame: Frame<f32>,
        gradients: &mut Gradients<f32>,
    ) -> Result<(), DeviceError> {
        self.cpu.backward(model, frame, gradients)
    }
    fn gradient_bytes(&self, gradients: &Gradients<f32>) -> Bytes {
        self.cpu.gradient_bytes(gradients)
    }
    fn step(
        &mut self,
        model: &mut Model<f32>,
        gradients: Gradients<f32>,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        self.cpu.step(model, gradients, step)
    }
    fn relieve(
        &mut self,
        _model: &mut Model<f32>,
        error: &DeviceError,
    ) -> Result<bool, DeviceError> {
        assert!(error.is_out_of_memory());
        if self.reliefs == 0 {
            return Ok(false);
        }
        self.reliefs -= 1;
        self.most_neighbours = self.fewer_neighbours;
        self.changes.push(Change { rung: Rung::Compact, given_up: true, bytes: Bytes(1 << 20) });
        Ok(true)
    }
    fn births(&mut self, _model: &mut Model<f32>, wish: usize) -> Result<usize, DeviceError> {
        Ok(wish.min(self.births))
    }
    fn reorder(&mut self, model: &mut Model<f32>, cube: &Cube) -> Result<(), DeviceError> {
        self.cpu.reorder(model, cube)
    }
    fn smooth(
        &mut self,
        model: &mut Model<f32>,
        views: &[&View],
        sampled_from: f64,
    ) -> Result<(), DeviceError> {
        self.cpu.smooth(model, views, sampled_from)
    }
    fn appearance(&mut self, tables: &AppearanceTables) -> Result<Appearance<f32>, DeviceError> {
        self.cpu.appearance(tables)
    }
    fn read_appearance(
        &mut self,
        appearance: &Appearance<f32>,
    ) -> Result<AppearanceTables, DeviceError> {
        self.cpu.read_appearance(appearance)
    }
    fn compensate(
        &mut self,
        appearance: &mut Appearance<f32>,
        view: usize,
        frame: &mut Frame<f32>,
        step: &AppearanceStep,
    ) -> Result<(), DeviceError> {
        self.cpu.compensate(appearance, view, frame, step)
    }
    fn learn_appearance(
        &mut self,
        appearance: &mut Appearance<f32>,
        view: usize,
        frame: &mut Frame<f32>,
        step: &AppearanceStep,
    ) -> Result<(), DeviceError> {
        self.cpu.learn_appearance(appearance, view, frame, step)
    }
    fn correct_colors(
        &mut self,
        frame: &mut Frame<f32>,
        target: &Arc<Image>,
    ) -> Result<(), DeviceError> {
        self.cpu.correct_colors(frame, target)
    }
    fn image(&mut self, frame: &Frame<f32>) -> Result<Rendered, DeviceError> {
        self.cpu.image(frame)
    }
}

impl Edit<Gaussians> for ConstrainedBackend {
    type Selection = Selection;

    fn score(&mut self, model: &Model<f32>, rule: &ScoreRule) -> Result<Candidates, DeviceError> {
        self.cpu.score(model, rule)
    }
    fn select(
        &mut self,
        model: &mut Model<f32>,
        candidates: &Candidates,
        pick: Pick,
    ) -> Result<Selection, DeviceError> {
        if let Pick::Best(births) | Pick::WithReplacement { into: Into::NewRows(births), .. } = pick
        {
            self.rounds.push(births);
            if births > 0 && self.refused_rounds > 0 {
                self.refused_rounds -= 1;
                return Err(refusal());
            }
        }
        self.cpu.select(model, candidates, pick)
    }
    fn edit(
        &mut self,
        model: &mut Model<f32>,
        selection: Selection,
        rule: &EditRule,
    ) -> Result<Edited, DeviceError> {
        self.cpu.edit(model, selection, rule)
    }
    fn adjust(&mut self, model: &mut Model<f32>, adjust: &Adjust) -> Result<(), DeviceError> {
        self.cpu.adjust(model, adjust)
    }
}

impl Surface for ConstrainedBackend {
    type Neighbours = Neighbours;
    type SurfaceLoss = Ready<SurfaceTerms>;

    fn most_neighbours(&self) -> u32 {
        self.most_neighbours
    }
    fn neighbours(&mut self, model: &Model<f32>, count: u32) -> Result<Neighbours, DeviceError> {
        self.found_lists.push(count);
        self.cpu.neighbours(model, count)
    }
    fn read_neighbours(
        &mut self,
        near: &Neighbours,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, DeviceError> {
        self.cpu.read_neighbours(near, rows)
    }
    fn regularise(
        &mut self,
        model: &Model<f32>,
        near: Option<&Neighbours>,
        gradients: &mut Gradients<f32>,
        rule: &SurfaceRule,
    ) -> Result<Ready<SurfaceTerms>, DeviceError> {
        self.cpu.regularise(model, near, gradients, rule)
    }
}

impl SurfaceMaps for ConstrainedBackend {
    type NormalLoss = ReadyMean;

    fn compare_normals(
        &mut self,
        frame: &mut Frame<f32>,
        weight: f64,
        rule: NormalRule,
    ) -> Result<ReadyMean, DeviceError> {
        self.cpu.compare_normals(frame, weight, rule)
    }
    fn compare_sampled_depths(
        &mut self,
        model: &Model<f32>,
        frame: &mut Frame<f32>,
        near: &Neighbours,
        rule: &SurfaceRule,
    ) -> Result<(), DeviceError> {
        self.cpu.compare_sampled_depths(model, frame, near, rule)
    }
}
