//! One run: iterations, density control, milestones.

mod appearance;
mod clock;
mod coarse;
mod govern;
mod smooth;
mod step;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use self::clock::TrainingClock;
use self::coarse::Coarse;
use self::step::PendingStep;
use super::appearance::compensation;
use super::batches::Batches;
use super::checkpoint::{Checkpoint, StoredCheckpoint};
use super::coarse::CoarseSchedule;
use super::eval::{EvalRequest, Shown, evaluate};
use super::event::{Buffers, Event, Phase, Saved, Sink, Split, Tensors};
use super::feed::Feed;
use super::report;
use super::save::{DeviceModel, render_mode, write_point_cloud};
use super::schedule::{self, Milestones};
use super::span::Span;
use super::unexplained_growth::UnexplainedGrowth;
use super::views::Views;
use super::{SceneScale, TrainError, densify, render_filter};
use crate::backend::{ModelShape, Peaks, TrainDevice};
use crate::config::{Config, SugarOptions};
use crate::dataset::{Dataset, ImageLoader};
use crate::files::{OutputError, create_folder};
use crate::memory::Bytes;
use crate::model::Gaussians;
use crate::perceptual::LpipsWeights;

/// What a run is made of.
#[derive(Clone, Copy)]
pub struct TrainerSetup<'a> {
    /// The scene.
    pub dataset: &'a Dataset,
    /// Its pixels.
    pub images: &'a ImageLoader,
    /// Everything resolved.
    pub config: &'a Config,
    /// Weights of the network whose LPIPS evaluations measure.
    pub lpips: Option<&'a LpipsWeights>,
    /// Model folder; it exists.
    pub model_path: &'a Path,
    /// Set from outside when the run should end after its iteration.
    pub stop: &'a AtomicBool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The last iteration is done.
    Finished,
    /// It was asked to stop; a checkpoint is written.
    Interrupted,
}

/// A model in training on a device.
pub struct Trainer<'a, B: TrainDevice> {
    setup: TrainerSetup<'a>,
    device: &'a mut B,
    sink: &'a mut dyn Sink,
    model: B::Model,
    /// What was learned of the photographs' colours, where that is wanted.
    appearance: Option<B::Tables>,
    /// SuGaR's coarse stage, of a run that has one.
    coarse: Option<Coarse<B>>,
    feed: Feed<'a>,
    scale: SceneScale,
    batches: Batches,
    /// Finished iterations.
    iteration: u32,
    /// Those of the last step.
    last_step: Span,
    /// The step whose losses have not been read yet.
    pending: Option<PendingStep<B>>,
    tensors: Tensors,
    creep: UnexplainedGrowth,
    clock: TrainingClock,
}

impl<'a, B: TrainDevice> Trainer<'a, B> {
    /// A run that starts from these Gaussians: at its first iteration, or, where they are a model to
    /// load, at its coarse stage.
    pub fn start(
        setup: TrainerSetup<'a>,
        device: &'a mut B,
        sink: &'a mut dyn Sink,
        gaussians: &Gaussians,
    ) -> Result<Self, TrainError> {
        let mut model = device.upload(gaussians)?;
        match device.reorder(&mut model, &super::scene_cube(setup.dataset)) {
            // That costs speed, and nothing else.
            Err(error) if error.is_out_of_memory() => {}
            done => done?,
        }
        let SugarOptions { checkpoint_path, .. } = &setup.config.sugar;
        let done = if checkpoint_path.is_some() { setup.config.optimize.iterations } else { 0 };
        let mut trainer = Self::new(setup, device, sink, (model, done));
        trainer.begin_appearance(None)?;
        Ok(trainer)
    }

    /// A run that goes on where a checkpoint was written. The host never holds more of it than a
    /// chunk.
    pub fn resume(
        setup: TrainerSetup<'a>,
        device: &'a mut B,
        sink: &'a mut dyn Sink,
        mut checkpoint: StoredCheckpoint,
    ) -> Result<Self, TrainError> {
        let model = device.load(&mut checkpoint)?;
        let tables = checkpoint.appearance()?;
        let Checkpoint { iteration, train_views, config } = checkpoint.about;
        let mut trainer = Self::new(setup, device, sink, (model, iteration));
        // What is due after that step comes at the beginning of the next.
        trainer.last_step = Batches::of(&config).ended(iteration);
        if train_views != trainer.feed.views.names(Split::Train) {
            trainer.warn(
                "the scene's training views are not those of the checkpoint; the views come in \
                 another order than in the run before"
                    .to_owned(),
            )?;
        }
        trainer.begin_appearance(tables.as_ref().map(|tables| (&train_views[..], tables)))?;
        Ok(trainer)
    }

    fn new(
        setup: TrainerSetup<'a>,
        device: &'a mut B,
        sink: &'a mut dyn Sink,
        (model, iteration): (B::Model, u32),
    ) -> Self {
        let views = Views::new(setup.dataset, setup.images);
        let feed = Feed::new(views, setup.config.run.seed);
        Self {
            scale: SceneScale::of(setup.dataset),
            setup,
            device,
            sink,
            model,
            appearance: None,
            coarse: CoarseSchedule::of(setup.config).map(Coarse::new),
            feed,
            batches: Batches::of(setup.config),
            iteration,
            last_step: Span::of(iteration),
            pending: None,
            tensors: Tensors::default(),
            creep: UnexplainedGrowth::from(iteration),
            clock: TrainingClock::default(),
        }
    }

    /// Trains to the last iteration, or until asked to stop.
    pub fn run(mut self) -> Result<Outcome, TrainError> {
        let config = self.setup.config;
        let last = config.last_iteration();
        self.announce_start(last)?;
        let mut interrupted = false;
        while self.iteration < last && !interrupted {
            // At the beginning of the next iteration, not at the end of its own: what is evaluated,
            // saved and checkpointed is the model as it was optimised, before opacities are reset.
            if self.is_in_coarse() {
                self.prepare_coarse()?;
            } else {
                self.control_density()?;
                self.smooth_in_time()?;
            }
            self.with_memory_retry(Self::iterate)?;
            self.govern()?;
            // Asked to stop after the last iteration, a run is simply done.
            interrupted = self.iteration < last && self.setup.stop.load(Ordering::Relaxed);
            let lasts = [config.optimize.iterations, last];
            let mut due = Milestones::after(&config.output, self.last_step, &lasts);
            due.checkpoint |= interrupted;
            self.report_milestones(due, last)?;
            if due.evaluate {
                self.with_memory_retry(Self::evaluate)?;
                self.profile(Phase::Evaluation)?;
            }
            if due.save {
                self.with_memory_retry(Self::save_point_cloud)?;
            }
            if due.checkpoint {
                self.write_checkpoint()?;
                // A run that goes on from it has none.
                self.drop_neighbours();
            }
            if due.save || due.checkpoint {
                self.profile(Phase::Saving)?;
            }
            if due.evaluate || due.save {
                self.feed.schedule_decoding(self.device, self.iteration + 1);
            }
        }
        self.sink.on(&Event::Finished {
            iteration: self.iteration,
            gaussians: self.device.len(&self.model),
            training_seconds: self.clock.seconds(),
            interrupted,
        })?;
        Ok(if interrupted { Outcome::Interrupted } else { Outcome::Finished })
    }

    fn announce_start(&mut self, last: u32) -> Result<(), TrainError> {
        self.feed.schedule_decoding(self.device, self.iteration + 1);
        let info = self.device.info();
        self.sink.on(&Event::Started {
            model_path: self.setup.model_path.to_owned(),
            device: info.name,
            gpu: info.uuid,
            train_views: self.setup.dataset.train.len(),
            test_views: self.setup.dataset.test.len(),
            gaussians: self.device.len(&self.model),
            iteration: self.iteration,
            iterations: last,
        })?;
        Ok(())
    }

    /// Tells of the images that turned out to be undecodable.
    fn warn_of_images(&mut self) -> Result<(), TrainError> {
        for message in self.feed.views.take_warnings() {
            self.warn(message)?;
        }
        Ok(())
    }

    /// Tells of all iterations so far, and at intervals of memory and distributions.
    fn report_milestones(&mut self, due: Milestones, last: u32) -> Result<(), TrainError> {
        let iteration = self.iteration;
        let memory = self.last_step.crosses(report::MEMORY_INTERVAL) || iteration == last;
        if memory || due.any() {
            self.report_pending()?;
        }
        if due.any() {
            // What follows is not training, and must not wait for it on its own account.
            let started = Instant::now();
            self.device.synchronize()?;
            self.clock.add_since(started);
        }
        if memory {
            self.report_memory()?;
            self.profile(Phase::Training)?;
        }
        if self.last_step.crosses(report::DISTRIBUTION_INTERVAL) {
            self.with_memory_retry(Self::report_distributions)?;
        }
        Ok(())
    }

    fn report_memory(&mut self) -> Result<(), TrainError> {
        let ModelShape { parameters, optimizer, .. } = self.device.shape(&self.model);
        let images = self.feed.views.held();
        let memory = self.device.memory(Peaks::Keep);
        let inputs = report::MemoryInputs {
            iteration: self.iteration,
            tensors: Tensors { parameters, optimizer, images, ..self.tensors },
            device: memory.as_ref().map_or(&[], |memory| &memory.entries),
            scratch_needed: memory.as_ref().map_or(Bytes(0), |memory| memory.recent_scratch),
            budget: memory.as_ref().map(|memory| memory.budget),
        };
        self.sink.on(&report::memory(&inputs, &mut self.creep))?;
        Ok(())
    }

    /// With `--profile-tensors`, tells the size of every buffer, and what it grew to since it was
    /// told last.
    fn profile(&mut self, after: Phase) -> Result<(), TrainError> {
        if !self.setup.config.memory.profile_tensors {
            return Ok(());
        }
        let Some(memory) = self.device.memory(Peaks::Reset) else { return Ok(()) };
        let gaussians = self.device.len(&self.model);
        let (iteration, entries) = (self.iteration, memory.entries);
        self.sink.on(&Event::Buffers(Buffers { iteration, after, gaussians, entries }))?;
        Ok(())
    }

    fn report_distributions(&mut self) -> Result<(), TrainError> {
        let count = self.device.len(&self.model);
        let rows = report::sample(count, self.setup.config.run.seed, self.iteration);
        let sample = self.device.sample(&mut self.model, &rows)?;
        self.sink.on(&report::distributions(&sample, count, self.iteration))?;
        Ok(())
    }

    /// Compares the held-out views, where there are any, with their photographs.
    fn evaluate(&mut self) -> Result<(), TrainError> {
        let config = self.setup.config;
        if self.setup.dataset.test.is_empty() {
            return Ok(());
        }
        let request = EvalRequest {
            split: Split::Test,
            iteration: self.iteration,
            sh_degree: schedule::sh_degree(&config.optimize, self.iteration),
            background: config.scene.background_color().0,
            screen_filter: render_filter(config),
            compensation: compensation(&config.optimize),
            shown: Shown::First(report::PICTURED_VIEWS),
            lpips: self.setup.lpips,
        };
        let (device, sink) = (&mut *self.device, &mut *self.sink);
        let evaluation = evaluate(device, &self.model, &mut self.feed.views, &request, |view| {
            Ok(sink.on(&report::pictures(&request, view))?)
        })?;
        self.warn_of_images()?;
        match evaluation {
            Some(evaluation) => self.sink.on(&Event::Evaluated(evaluation))?,
            None => {
                self.warn("no held-out image can be decoded; nothing is evaluated".to_owned())?
            }
        }
        if !self.last_step.crosses(report::DISTRIBUTION_INTERVAL) {
            self.with_memory_retry(Self::report_distributions)?;
        }
        Ok(())
    }

    fn save_point_cloud(&mut self) -> Result<(), TrainError> {
        let folder = self.setup.model_path.join("point_cloud");
        let folder = create_folder(&folder.join(format!("iteration_{}", self.iteration)))?;
        let path = folder.join("point_cloud.ply");
        let mode = render_mode(self.setup.config);
        write_point_cloud(&path, mode, self.device, &mut self.model)?;
        self.write_exposures()?;
        self.saved(Saved::PointCloud, path)
    }

    fn write_checkpoint(&mut self) -> Result<(), TrainError> {
        let checkpoint = Checkpoint {
            iteration: self.iteration,
            config: self.setup.config.clone(),
            train_views: self.feed.views.names(Split::Train),
        };
        let tables = self.read_appearance()?;
        let mut model = DeviceModel { device: &mut *self.device, model: &mut self.model };
        let path = checkpoint.write_with(self.setup.model_path, &mut model, tables.as_ref())?;
        self.saved(Saved::Checkpoint, path)
    }

    /// What the iteration before this one asks of the number of Gaussians and their opacities.
    fn control_density(&mut self) -> Result<(), TrainError> {
        let (config, iteration, span) = (self.setup.config, self.iteration, self.last_step);
        let round = densify::due(config, self.scale.extent, span);
        let resets = densify::resets_opacity(config, span);
        if round.is_some() || resets {
            self.report_pending()?;
        }
        if let Some(round) = round {
            let started = Instant::now();
            // So that the time of the round is the round's, and not that of the step before.
            self.device.synchronize()?;
            let begun = Instant::now();
            let before = self.device.len(&self.model);
            let done = self.run_round(&round, before)?;
            if densify::reorders(config, span) {
                self.reorder()?;
            }
            self.smooth()?;
            self.device.synchronize()?;
            let round_ms = begun.elapsed().as_secs_f64() * 1e3;
            let gaussians = self.device.len(&self.model);
            self.clock.add_beside_iterations(started);
            self.sink.on(&done.to_event(iteration, gaussians, round_ms))?;
            self.creep = UnexplainedGrowth::from(iteration);
            self.profile(Phase::DensityControl)?;
            if gaussians == 0 && before > 0 {
                self.warn(format!(
                    "iteration {iteration}: density control removed the last Gaussian; the model \
                     is empty. Check the cameras, or start with a lower --opacity-lr"
                ))?;
            }
        }
        if resets {
            self.device.reset_opacity(&mut self.model, densify::RESET_OPACITY)?;
            self.sink.on(&Event::OpacityReset { iteration })?;
        }
        Ok(())
    }

    fn saved(&mut self, what: Saved, path: std::path::PathBuf) -> Result<(), TrainError> {
        self.sink.on(&Event::Saved { iteration: self.iteration, what, path })?;
        Ok(())
    }

    fn warn(&mut self, message: String) -> Result<(), OutputError> {
        self.sink.on(&Event::Warning { message })
    }
}
