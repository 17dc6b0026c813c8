//! Refinement: trains Gaussians that are bound to a mesh, together with the mesh (SuGaR, Guédon and Lepetit 2024,
//! section 4.3).
//!
//! The vertices are learned, and the shape of each Gaussian on its triangle, its opacity and its colours. No
//! Gaussians are added or removed. Randomness depends on seed and iteration, so that a resumed run continues as if
//! never stopped.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::checkpoint::{self, Checkpoint, CheckpointError, Occasion, StoredCheckpoint};
use super::eval::{EvalRequest, ShownSurface, ShownViews, evaluate};
use super::event::{
    Evaluation, Event, Phase, PhasePeak, PhasePeaks, RunTimes, Saved, Sink, Split, Step, TermValues,
};
use super::feed::{Feed, Views};
use super::save::{DeviceModel, new_point_cloud, render_mode, write_point_cloud};
use super::trainer::Outcome;
use super::view_step::{ViewInputs, add_gradients};
use super::{MemoryFallbacks, TrainError, render_footprint, schedule};
use crate::backend::{
    AdamStep, BoundState, BoundStep, DeviceError, Pending as _, RenderSettings, Terms, Topic,
    TrainDevice,
};
use crate::config::{Config, SugarOptions};
use crate::dataset::{Dataset, ImageLoader};
use crate::export::PlyStyle;
use crate::math::Divisor;
use crate::memory::{TrainingScale, peak_resident_memory};
use crate::model::{BoundTopology, Gaussians};

/// Iterations between two SH degrees, as in the reference.
const SH_INTERVAL: u32 = 1000;

/// Divisor of a short run for the interval between two SH degrees: the first half of the run learns all degrees.
const SH_SHARE: u32 = 8;

/// Ratio of a vertex's learning rate to a centre's, in edge lengths. The reference divides 10 extents by the root of
/// the number of vertices, which equals this for a ball as large as the extent but moves the vertices of smaller
/// objects farther.
const RATE_EDGES: f64 = 2.6;

/// Number of iterations for which this rate is right.
const RATE_ITERATIONS: f64 = 15_000.0;

/// Largest factor on the rate of shorter runs, whose vertices have to move as far. 120 iterations with a factor of 12
/// were 0.3 dB better than without.
const MAX_RATE_FACTOR: f64 = 8.0;

/// Options of a refinement.
#[derive(Clone, Copy, Debug)]
pub struct RefineRule {
    /// Number of iterations.
    pub iterations: u32,
    /// Weight of the mean of 1 - cos of the angle over all pairs of neighbouring triangles.
    pub normal_consistency: f64,
    /// Iterations between two checkpoints.
    pub checkpoint_interval: u32,
    /// Initial mean edge length, unit of the vertices' learning rate, world units.
    pub edge: f64,
}

impl RefineRule {
    /// Returns the unit of the vertices' learning rate, world units.
    fn vertex_unit(&self) -> f64 {
        let faster =
            (RATE_ITERATIONS / f64::from(self.iterations.max(1))).clamp(1.0, MAX_RATE_FACTOR);
        faster * RATE_EDGES * self.edge
    }

    /// Derives the configuration of the stage from that of the training, without colour tables, density control and
    /// other stages.
    pub fn config(&self, trained: &Config) -> Config {
        let mut config = trained.clone();
        let optimize = &mut config.optimize;
        optimize.iterations = self.iterations;
        optimize.position_lr_max_steps = self.iterations;
        optimize.sh_degree_interval = SH_INTERVAL.min(self.iterations / SH_SHARE).max(1);
        optimize.init = None;
        optimize.batch_views = 1;
        (optimize.exposure, optimize.bilateral_grid) = (false, false);
        config.sugar = SugarOptions::default();
        config.densify.target_gaussians = None;
        config
    }
}

/// Inputs of a refinement.
#[derive(Clone, Copy)]
pub struct RefineSetup<'a> {
    /// Scene.
    pub dataset: &'a Dataset,
    /// Images of the scene.
    pub images: &'a ImageLoader,
    /// Configuration of [`RefineRule::config`].
    pub config: &'a Config,
    /// Options of the refinement.
    pub rule: &'a RefineRule,
    /// Existing folder of checkpoints and results.
    pub folder: &'a Path,
    /// Start of the program.
    pub began: Instant,
    /// Flag that ends the run after its iteration.
    pub stop: &'a AtomicBool,
}

/// Mesh that Gaussians are bound to, with its learned state.
#[derive(Clone, Copy)]
pub struct BoundMesh<'a> {
    /// Fixed part of the model.
    pub topology: &'a Arc<BoundTopology>,
    /// Learned part of the model.
    pub state: &'a BoundState,
}

/// Result of a refinement.
#[derive(Clone, Debug)]
pub struct Refined {
    /// Outcome of the run.
    pub outcome: Outcome,
    /// Evaluation after the last iteration.
    pub after: Option<Evaluation>,
    /// Learned state of the mesh.
    pub state: BoundState,
    /// Degree-0 SH coefficients of the Gaussians.
    pub sh_dc: Vec<f32>,
}

/// Refinement on a device.
pub struct Refiner<'a, B: TrainDevice> {
    setup: RefineSetup<'a>,
    device: &'a mut B,
    sink: &'a mut dyn Sink,
    model: B::Model,
    binding: B::Binding,
    feed: Feed<'a>,
    /// Finished iterations.
    iteration: u32,
    /// Iteration, terms and losses of the step whose losses are not read yet.
    pending: Option<(u32, Terms, B::Losses)>,
    training_seconds: f64,
    reported: Instant,
    times: RunTimes,
}

impl<'a, B: TrainDevice> Refiner<'a, B> {
    /// Starts the refinement of newly bound Gaussians.
    pub fn start(
        setup: RefineSetup<'a>,
        device: &'a mut B,
        sink: &'a mut dyn Sink,
        gaussians: &Gaussians,
        mesh: BoundMesh<'_>,
    ) -> Result<Self, TrainError> {
        let model = device.upload(gaussians)?;
        Self::new(setup, device, sink, model, mesh, 0)
    }

    /// Resumes a refinement from a checkpoint of the same mesh.
    pub fn resume(
        setup: RefineSetup<'a>,
        device: &'a mut B,
        sink: &'a mut dyn Sink,
        topology: &Arc<BoundTopology>,
        mut stored: StoredCheckpoint,
    ) -> Result<Self, TrainError> {
        let fits = |state: &BoundState| {
            state.values.vertices.len() == 3 * topology.vertices()
                && state.values.turns.len() == 2 * topology.gaussians()
        };
        let Some(state) = stored.bound()?.filter(fits) else {
            let problem = "it is not of Gaussians that are bound to this mesh".to_owned();
            return Err(CheckpointError::Damaged { path: stored.path().to_owned(), problem }.into());
        };
        let model = device.load(&mut stored)?;
        let Checkpoint { iteration, training_scale, .. } = stored.about;
        device.use_training_scale(training_scale)?;
        let mesh = BoundMesh { topology, state: &state };
        let mut this = Self::new(setup, device, sink, model, mesh, iteration)?;
        this.feed.views.set_training_scale(this.device.training_scale());
        Ok(this)
    }

    fn new(
        setup: RefineSetup<'a>,
        device: &'a mut B,
        sink: &'a mut dyn Sink,
        mut model: B::Model,
        mesh: BoundMesh<'_>,
        iteration: u32,
    ) -> Result<Self, TrainError> {
        let binding = device.bind(&mut model, mesh.topology, mesh.state)?;
        let mut feed = Feed::new(Views::new(setup.dataset, setup.images), setup.config.run.seed);
        feed.evaluations = vec![setup.rule.iterations];
        Ok(Self {
            setup,
            device,
            sink,
            model,
            binding,
            feed,
            iteration,
            pending: None,
            training_seconds: 0.0,
            reported: Instant::now(),
            times: RunTimes::default(),
        })
    }

    /// Reports the start of the run, and evaluates the model if it has not moved yet.
    pub fn begin(&mut self) -> Result<Option<Evaluation>, TrainError> {
        let info = self.device.info();
        self.sink.on(&Event::Started {
            model_path: self.setup.folder.to_owned(),
            device: info.name,
            gpu: info.uuid,
            train_views: self.setup.dataset.train.len(),
            test_views: self.setup.dataset.test.len(),
            gaussians: self.device.len(&self.model),
            iteration: self.iteration,
            iterations: self.setup.rule.iterations,
        })?;
        if self.iteration == 0 { self.measure() } else { Ok(None) }
    }

    /// Trains to the last iteration or until stopped, and writes the Gaussians at the end.
    pub fn run(mut self) -> Result<Refined, TrainError> {
        let last = self.setup.rule.iterations;
        self.times.start_seconds = self.setup.began.elapsed().as_secs_f64();
        let mut outcome = Outcome::Finished;
        self.feed.schedule_decoding(self.device, self.iteration + 1);
        self.reported = Instant::now();
        while self.iteration < last {
            self.with_memory_retry(Self::iterate)?;
            self.device.govern(&mut self.model, self.iteration)?;
            self.report_memory_changes()?;
            if self.setup.stop.load(Ordering::Relaxed) && self.iteration < last {
                outcome = Outcome::Interrupted;
                break;
            }
            if self.iteration < last
                && self.iteration.is_multiple_of(self.setup.rule.checkpoint_interval)
            {
                self.write_checkpoint()?;
            }
        }
        self.report_pending()?;
        let is_written = checkpoint::path(self.setup.folder, self.iteration).exists();
        if self.iteration > 0 && !is_written {
            self.write_checkpoint()?;
        }
        let after = match outcome {
            Outcome::Finished => {
                self.save_point_cloud()?;
                self.measure()?
            }
            Outcome::Interrupted => None,
        };
        let state = self.device.read_binding(&self.binding)?;
        let sh_dc = self.device.download(&mut self.model)?.sh_dc;
        self.finish(outcome)?;
        Ok(Refined { outcome, after, state, sh_dc })
    }
}

// Steps and fallbacks of a refinement.

impl<B: TrainDevice> Refiner<'_, B> {
    /// Trains one step on one view.
    fn iterate(&mut self) -> Result<(), TrainError> {
        let started = Instant::now();
        self.feed.follow_training_scale(self.device, self.iteration + 1)?;
        let config = self.setup.config;
        let iteration = self.iteration + 1;
        let (view, target) = self.feed.take(self.device, iteration)?;
        let terms = Terms::photometric(config.optimize.lambda_dssim);
        let inputs = ViewInputs {
            view: self.feed.views.training_view(view),
            settings: RenderSettings {
                sh_degree: schedule::sh_degree(&config.optimize, iteration),
                background: config.scene.background_color().0,
                near: self.feed.views.near(),
                footprint: render_footprint(config),
                ..RenderSettings::DEFAULT
            },
            observe: None,
            divisor: Divisor::One,
            compensation: None,
            terms: &terms,
            near: None,
            other: None,
        };
        let mut gradients = B::Gradients::default();
        let model = &mut self.model;
        let outputs = add_gradients(self.device, model, &target, &inputs, None, &mut gradients)?;
        let rates = schedule::rates(&config.optimize, self.setup.rule.vertex_unit(), iteration);
        let normal_consistency = self.setup.rule.normal_consistency;
        let step = BoundStep { adam: AdamStep::new(iteration, rates), normal_consistency };
        self.device.step_bound(&mut self.model, &mut self.binding, gradients, &step)?;
        if iteration < self.setup.rule.iterations {
            self.feed.prefetch(self.device, iteration + 1)?;
        }
        self.iteration = iteration;
        self.training_seconds += started.elapsed().as_secs_f64();
        let losses = outputs.pixels;
        let is_ready = losses.is_ready();
        let before = self.pending.replace((iteration, terms, losses));
        self.report(before)?;
        if is_ready {
            self.report_pending()?;
        }
        self.warn_about_images()
    }

    /// Reports a step once its losses are available.
    fn report(&mut self, pending: Option<(u32, Terms, B::Losses)>) -> Result<(), TrainError> {
        let Some((iteration, terms, losses)) = pending else { return Ok(()) };
        let losses = losses.read()?;
        let ms = self.reported.elapsed().as_secs_f64() * 1e3;
        self.reported = Instant::now();
        Ok(self.sink.on(&Event::Step(Step {
            before: iteration.saturating_sub(1),
            iteration,
            images: 1,
            iterations: self.setup.rule.iterations,
            values: TermValues::of(&terms, Topic::Photograph, &losses.pairs),
            total: losses.total,
            gaussians: self.device.len(&self.model),
            ms,
        }))?)
    }

    fn report_pending(&mut self) -> Result<(), TrainError> {
        let pending = self.pending.take();
        self.report(pending)
    }

    fn warn_about_images(&mut self) -> Result<(), TrainError> {
        for message in self.feed.views.take_warnings() {
            self.sink.on(&Event::Warning { message })?;
        }
        Ok(())
    }

    fn report_memory_changes(&mut self) -> Result<(), TrainError> {
        let Some(state) = self.device.take_changes() else { return Ok(()) };
        let (iteration, held, budget) = (self.iteration, state.held, state.budget);
        for change in state.changes {
            self.sink.on(&Event::Fallback { iteration, change, held, budget })?;
        }
        Ok(())
    }

    /// Writes a checkpoint and removes the earlier ones.
    fn write_checkpoint(&mut self) -> Result<(), TrainError> {
        let started = Instant::now();
        self.report_pending()?;
        let state = self.device.read_binding(&self.binding)?;
        let (setup, iteration) = (self.setup, self.iteration);
        let about = Checkpoint {
            paced: None,
            iteration,
            config: setup.config.clone(),
            train_views: self.feed.views.names(Split::Train),
            occasion: Occasion::Requested,
            training_scale: self.feed.views.training_scale(),
        };
        let mut rows = DeviceModel { device: &mut *self.device, model: &mut self.model };
        let path = about.write_bound(setup.folder, &mut rows, &state)?;
        for earlier in checkpoint::list(setup.folder).into_iter().filter(|other| *other != path) {
            // A leftover does no harm, because the newest checkpoint counts.
            fs::remove_file(earlier).ok();
        }
        self.sink.on(&Event::Saved { iteration, what: Saved::Checkpoint, path })?;
        self.times.saving_seconds += started.elapsed().as_secs_f64();
        self.reported = Instant::now();
        Ok(())
    }

    fn save_point_cloud(&mut self) -> Result<(), TrainError> {
        let (config, iteration) = (self.setup.config, self.iteration);
        let path = new_point_cloud(self.setup.folder, iteration)?;
        let style = PlyStyle { mode: render_mode(config), frame: self.setup.dataset.frame };
        write_point_cloud(&path, style, self.device, &mut self.model, &[])?;
        Ok(self.sink.on(&Event::Saved { iteration, what: Saved::PointCloud, path })?)
    }

    /// Evaluates the held-out views, or else some training views.
    fn measure(&mut self) -> Result<Option<Evaluation>, TrainError> {
        let started = Instant::now();
        let config = self.setup.config;
        let has_test = !self.setup.dataset.test.is_empty();
        let request = EvalRequest {
            split: if has_test { Split::Test } else { Split::EvalTrain },
            most: (!has_test).then_some(MEASURED_WITHOUT_TEST),
            iteration: self.iteration,
            sh_degree: schedule::sh_degree(&config.optimize, self.iteration),
            background: config.scene.background_color().0,
            footprint: render_footprint(config),
            compensation: None,
            shown: ShownViews::Nothing,
            metrics: config.output.metrics,
            surface: ShownSurface::None,
            lpips: None,
        };
        let views = &mut self.feed.views;
        let is_full = views.training_scale() == TrainingScale::FULL;
        let found = match evaluate(self.device, &self.model, views, &request, |_| Ok(())) {
            // If training needs smaller views, full-size evaluation may run out of memory.
            Err(TrainError::Device(error)) if error.is_out_of_memory() && !is_full => None,
            done => done?,
        };
        self.warn_about_images()?;
        if let Some(evaluation) = &found {
            self.sink.on(&Event::Evaluated(evaluation.clone()))?;
        }
        self.times.evaluation_seconds += started.elapsed().as_secs_f64();
        Ok(found)
    }

    fn finish(&mut self, outcome: Outcome) -> Result<(), TrainError> {
        self.times.wall_seconds = self.setup.began.elapsed().as_secs_f64();
        let mut peaks = PhasePeaks::default();
        let peak = PhasePeak { vram: self.device.take_peak(), host: peak_resident_memory() };
        peaks.raise(Phase::Training, peak);
        Ok(self.sink.on(&Event::Finished {
            iteration: self.iteration,
            gaussians: self.device.len(&self.model),
            training_seconds: self.training_seconds,
            interrupted: outcome == Outcome::Interrupted,
            peaks,
            times: self.times,
        })?)
    }
}

impl<B: TrainDevice> MemoryFallbacks for Refiner<'_, B> {
    fn relieve(&mut self, error: &DeviceError) -> Result<bool, TrainError> {
        Ok(self.device.relieve(&mut self.model, error)?)
    }

    fn stop_for_memory(&mut self, error: DeviceError) -> TrainError {
        let checkpoint = checkpoint::path(self.setup.folder, self.iteration);
        if self.iteration == 0 {
            return error.into();
        }
        match self.write_checkpoint() {
            Ok(()) => TrainError::OutOfMemory { source: Box::new(error), checkpoint },
            Err(other) => other,
        }
    }
}

// Evaluation of a refinement.

/// Number of evaluated training views if no view is held out.
const MEASURED_WITHOUT_TEST: usize = 5;
