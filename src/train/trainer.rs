//! The training loop.
//!
//! ```text
//! begin_run
//!   |
//!   v
//! prepare_step       density control, prunes, 3D filter; in the coarse stage its prune, and removal of old neighbours
//!   |
//! iterate            views of a batch -> losses -> gradients -> one Adam step
//!   |
//! follow_step        timelapse, device memory, files that threads have written; prunes after the last iteration
//!   |
//! reaches_psnr, serve_page, report_milestones
//!   |
//! save_and_evaluate  PLY, evaluation, checkpoint, as due -- next step --> prepare_step
//!   |
//!   v
//! end_run
//! ```
//!
//! `state.rs` holds the run's state besides the model. The other files are parts of the run: `coarse.rs`,
//! `evaluation.rs`, `live.rs` (page and timelapse), `removal.rs` (prunes), `reports.rs` and `saving.rs`.

mod coarse;
mod evaluation;
mod live;
mod removal;
mod reports;
mod saving;
mod state;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use self::state::{
    CoarseState, PeakRecorder, PendingStep, PendingView, ReachedPsnr, Timelapse, TrainingClock,
    WritingMode,
};
use super::appearance::{EarlierTables, color_step, compensation};
use super::batches::{Batches, RankImages};
use super::checkpoint::{
    self, Checkpoint, CheckpointKeeper, FaceState, Occasion, StoredCheckpoint,
};
use super::coarse::CoarseSchedule;
use super::event::{
    Completion, DensifyReport, DensifyStep, Event, Phase, Picture, RunTimes, Sink, Split, Step,
    Tensors, TermValues,
};
use super::feed::{Feed, TakenOther, Views};
use super::live::LivePage;
use super::pace::{Pace, Paced, Passed, Turn};
use super::pictures::render_picture;
use super::report::UnexplainedGrowth;
use super::save::BackgroundFiles;
use super::schedule::{self, Milestones, leaves_gaussians_out, training_background, view_divisor};
use super::span::ImageSpan;
use super::strategy::{self, Site, StepExtras, Strategy, fade_depth};
use super::terms::{self, TrainingStage, ViewExtras};
use super::view_step::{MeanLosses, ViewInputs, ViewOutputs, adam_step, add_gradients};
use super::{MemoryFallbacks, SceneScale, TrainError, least_near, scene_cube};
use crate::backend::{
    AdamStep, Adjust, DeviceError, FallbackState, Held as _, Pending, RankOutcome, RankView,
    RenderRequest, RenderSettings, Statistics, Terms, Topic, TrainDevice, ViewSetup,
};
use crate::config::{Config, PrimitiveName, SugarOptions};
use crate::dataset::{Dataset, ImageLoader, View};
use crate::math::Divisor;
use crate::memory::Fallback;
use crate::model::{Gaussians, TriangleMesh};
use crate::perceptual::LpipsWeights;

/// Nearest depth at which views limit the 3D filter, as a share of the scene's unit. Mip-Splatting uses 0.2 world
/// units; cameras of common scenes stand 4 units from their subject.
const SAMPLED_SHARE: f64 = 0.05;

/// Inputs of a run.
#[derive(Clone, Copy)]
pub struct TrainerSetup<'a> {
    /// Scene.
    pub dataset: &'a Dataset,
    /// Images of the scene.
    pub images: &'a ImageLoader,
    /// Resolved configuration.
    pub config: &'a Config,
    /// Largest number of Gaussians or vertices, from `--max-points` or the scene.
    pub most: usize,
    /// Network weights for LPIPS in evaluations.
    pub lpips: Option<&'a LpipsWeights>,
    /// Existing model folder.
    pub model_path: &'a Path,
    /// Start of the program.
    pub began: Instant,
    /// Flag that ends the run after its iteration.
    pub stop: &'a AtomicBool,
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The last iteration is done.
    Finished,
    /// The run was stopped and wrote a checkpoint.
    Interrupted,
}

/// A model in training on a device.
pub struct Trainer<'a, B: TrainDevice> {
    setup: TrainerSetup<'a>,
    device: &'a mut B,
    sink: &'a mut dyn Sink,
    model: B::Model,
    /// Learned colour changes of the photographs, if the run learns them.
    appearance: Option<B::Tables>,
    /// State of SuGaR's coarse stage, if the run has one.
    coarse: Option<CoarseState<B>>,
    feed: Feed<'a>,
    strategy: Box<dyn Strategy<B>>,
    scale: SceneScale,
    pace: Pace,
    /// Finished iterations of the schedule.
    iteration: u32,
    /// Iterations of the last step.
    last_step: ImageSpan,
    /// State of the target PSNR.
    reached: ReachedPsnr,
    /// Last reported divisor of the views' sides.
    divisor: Divisor,
    /// Step whose losses are not read yet.
    pending: Option<PendingStep<B>>,
    tensors: Tensors,
    creep: UnexplainedGrowth,
    /// View whose pictures are kept.
    timelapse: Option<Timelapse>,
    peaks: PeakRecorder,
    clock: TrainingClock,
    keeper: Arc<Mutex<CheckpointKeeper>>,
    /// Files that threads write.
    files: BackgroundFiles,
    live: LivePage,
    times: RunTimes,
    /// Time of the last checkpoint, or of the run's start.
    saved_at: Instant,
    /// False in a model of an ensemble, which has no files.
    writes: bool,
}

impl<'a, B: TrainDevice> Trainer<'a, B> {
    /// Starts a run from Gaussians: at its first iteration, or at its coarse stage if they are a model of `-c`.
    pub fn start(
        setup: TrainerSetup<'a>,
        device: &'a mut B,
        sink: &'a mut dyn Sink,
        gaussians: &Gaussians,
    ) -> Result<Self, TrainError> {
        let mut model = device.upload(gaussians)?;
        match device.reorder(&mut model, &scene_cube(setup.dataset)) {
            // Unsorted Gaussians only cost speed.
            Err(error) if error.is_out_of_memory() => {}
            done => done?,
        }
        Self::begin(setup, device, sink, model)
    }

    /// Starts a run from triangles. Their vertices stay in order, because triangles refer to them by index.
    pub fn start_triangles(
        setup: TrainerSetup<'a>,
        device: &'a mut B,
        sink: &'a mut dyn Sink,
        TriangleMesh { vertices, faces }: &TriangleMesh,
    ) -> Result<Self, TrainError> {
        let mut model = device.upload(vertices)?;
        device.set_faces(&mut model, faces)?;
        Self::begin(setup, device, sink, model)
    }

    fn begin(
        setup: TrainerSetup<'a>,
        device: &'a mut B,
        sink: &'a mut dyn Sink,
        model: B::Model,
    ) -> Result<Self, TrainError> {
        let SugarOptions { checkpoint_path, .. } = &setup.config.sugar;
        let done = if checkpoint_path.is_some() { setup.config.optimize.iterations } else { 0 };
        let progress = Passed { iteration: done, images: done, seconds: 0.0 };
        let mut trainer = Self::new(setup, device, sink, model, progress);
        trainer.begin_appearance(None)?;
        Ok(trainer)
    }

    /// Resumes a run from a checkpoint, which is read in chunks.
    pub fn resume(
        setup: TrainerSetup<'a>,
        device: &'a mut B,
        sink: &'a mut dyn Sink,
        mut checkpoint: StoredCheckpoint,
    ) -> Result<Self, TrainError> {
        let mut model = device.load(&mut checkpoint)?;
        if let Some(FaceState { faces, statistics }) = checkpoint.faces()? {
            device.set_faces(&mut model, &faces)?;
            device.set_face_statistics(&mut model, &statistics)?;
        }
        let tables = checkpoint.appearance()?;
        let progress = checkpoint.about.progress();
        let Checkpoint { paced, train_views, config, training_scale, .. } = checkpoint.about;
        device.use_training_scale(training_scale)?;
        let scale = device.training_scale();
        let mut trainer = Self::new(setup, device, sink, model, progress);
        trainer.feed.views.set_training_scale(scale);
        // Work that is due after that step comes at the start of the next.
        let after = progress.iteration;
        trainer.last_step = match paced {
            Some(Paced { before, .. }) => ImageSpan { before: before.min(after), after },
            None => Batches::of(&config).ended(after),
        };
        if train_views != trainer.feed.views.names(Split::Train) {
            trainer.warn(
                "the scene's training views are not those of the checkpoint; the views come in \
                 another order than in the run before",
            )?;
        }
        let earlier = |tables| EarlierTables { views: &train_views, tables };
        trainer.begin_appearance(tables.as_ref().map(earlier))?;
        Ok(trainer)
    }

    fn new(
        setup: TrainerSetup<'a>,
        device: &'a mut B,
        sink: &'a mut dyn Sink,
        model: B::Model,
        progress: Passed,
    ) -> Self {
        let iteration = progress.iteration;
        let scale = SceneScale::of(setup.dataset);
        let views =
            Views::new(setup.dataset, setup.images).with_near_share(setup.config.scene.near_share);
        let trained = views.names(Split::Train);
        let keeper = CheckpointKeeper::new(setup.model_path, setup.config, &trained);
        let mut feed = Feed::new(views, setup.config.run.seed);
        let pace = Pace::new(setup.config, setup.dataset.views_to_train().len(), progress);
        if !pace.has_budget() {
            feed.evaluations = schedule::evaluations(setup.config);
        }
        feed.compare_views(setup.dataset, setup.config);
        if device.world() > 1 {
            feed.own = Some(RankImages::of(setup.config, 0, device.world()));
        }
        Self {
            scale,
            strategy: strategy::of(setup.config, setup.dataset, setup.most),
            setup,
            device,
            sink,
            model,
            appearance: None,
            coarse: CoarseSchedule::of(setup.config).map(CoarseState::new),
            feed,
            pace,
            iteration,
            last_step: ImageSpan::of(iteration),
            reached: ReachedPsnr::default(),
            divisor: Divisor::One,
            pending: None,
            tensors: Tensors::default(),
            creep: UnexplainedGrowth::from(iteration),
            timelapse: Timelapse::of(setup.config, setup.dataset),
            peaks: PeakRecorder::default(),
            clock: TrainingClock::default(),
            keeper: Arc::new(Mutex::new(keeper)),
            files: BackgroundFiles::default(),
            live: LivePage::new(
                setup.model_path,
                &setup.config.output,
                setup.config.optimize.primitive,
            ),
            times: RunTimes::default(),
            saved_at: Instant::now(),
            writes: true,
        }
    }

    /// Trains to the last iteration or until stopped.
    pub fn run(mut self) -> Result<Outcome, TrainError> {
        let outcome = self.train();
        if outcome.is_err() {
            self.end_files();
        }
        outcome
    }

    /// Trains without evaluations and files until `ends` is true of the number of images, or to the last iteration.
    /// Returns false if it was stopped.
    pub fn train_alone(&mut self, mut ends: impl FnMut(u32) -> bool) -> Result<bool, TrainError> {
        if self.writes {
            self.writes = false;
            self.feed.evaluations.clear();
            self.feed.schedule_decoding(self.device, self.pace.next_image());
        }
        while self.iteration < self.setup.config.last_iteration() {
            self.prepare_step()?;
            self.with_memory_retry(Self::iterate)?;
            self.follow_step()?;
            if self.setup.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if ends(self.images_done()) {
                break;
            }
        }
        self.settle_step()?;
        Ok(true)
    }

    /// Returns the number of images so far.
    pub fn images_done(&self) -> u32 {
        self.pace.next_image() - 1
    }

    /// Returns the number of images after which the run ends at the latest.
    pub fn most_images(&self) -> u32 {
        self.pace.most_images().unwrap_or(u32::MAX)
    }

    /// Returns the number of Gaussians.
    pub fn gaussians(&self) -> usize {
        self.device.len(&self.model)
    }

    /// Draws these views as evaluations do, and passes their positions and pictures to `visit`. Returns false if it was
    /// stopped.
    pub fn draw(
        &mut self,
        views: &[&View],
        mut visit: impl FnMut(usize, Picture) -> Result<(), TrainError>,
    ) -> Result<bool, TrainError> {
        let settings = RenderSettings {
            sh_degree: self.setup.config.optimize.sh_degree,
            background: self.setup.config.scene.background_color().0,
            near: self.feed.views.near(),
            footprint: self.shown_footprint(),
            ..RenderSettings::DEFAULT
        };
        for (at, view) in views.iter().enumerate() {
            if self.setup.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let picture = self.with_memory_retry(|run| {
                let image = RenderRequest::IMAGE;
                let frame = run.device.render(&run.model, view, &settings, image)?;
                Ok(render_picture(&run.device.image(&frame)?))
            })?;
            visit(at, picture)?;
        }
        Ok(true)
    }

    /// Counts the seconds of the run's ensemble as training.
    pub fn after_ensemble(mut self, seconds: f64) -> Self {
        self.times.ensemble_seconds = seconds;
        self.pace.begins_after(seconds);
        self
    }

    /// Runs the loop of the diagram above.
    fn train(&mut self) -> Result<Outcome, TrainError> {
        let config = self.setup.config;
        let last = config.last_iteration();
        let lasts = [config.optimize.iterations, last];
        self.begin_run(last, &lasts)?;
        let begins_at_end = self.iteration >= last;
        let gaussians_before = self.device.len(&self.model);
        let is_resumed = self.iteration > 0 && !self.is_in_coarse();
        let (mut interrupted, mut is_last) =
            (false, begins_at_end || is_resumed && self.has_psnr()?);
        while !is_last && !interrupted {
            self.prepare_step()?;
            self.with_memory_retry(Self::iterate)?;
            self.follow_step()?;
            let is_reached = self.reaches_psnr()?;
            is_last = is_reached || self.iteration >= last;
            if !is_last {
                self.serve_page()?;
            }
            // A stop after the last iteration is a normal end.
            interrupted = !is_last && self.setup.stop.load(Ordering::Relaxed);
            let lasts = if is_reached { &[self.iteration][..] } else { &lasts };
            let mut due = Milestones::after(&config.output, self.last_step, lasts);
            let occasion = self.checkpoint_occasion(due.checkpoint || interrupted);
            due.checkpoint = occasion.is_some();
            self.report_milestones(due, last)?;
            self.save_and_evaluate(due, occasion, is_last || interrupted)?;
        }
        if is_last && !begins_at_end {
            self.warn_about_few_left(gaussians_before)?;
            self.announce_end()?;
        }
        self.end_run(interrupted)?;
        Ok(if interrupted { Outcome::Interrupted } else { Outcome::Finished })
    }

    /// Announces the run, reserves space for a checkpoint and writes files that an earlier run could not.
    fn begin_run(&mut self, last: u32, lasts: &[u32]) -> Result<(), TrainError> {
        self.feed.schedule_decoding(self.device, self.pace.next_image());
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
        self.warn_about_missed_target()?;
        self.reserve_checkpoint()?;
        self.save_missing(Milestones::after(&self.setup.config.output, self.last_step, lasts))?;
        self.times.start_seconds =
            self.setup.began.elapsed().as_secs_f64() - self.times.ensemble_seconds;
        if self.iteration == 0 {
            self.keep_picture()?;
        }
        Ok(())
    }

    /// Changes the model before a step: density control, prunes and the 3D filter, or the coarse stage's prune.
    ///
    /// This comes at the start of the next iteration, so that the model is evaluated, saved and checkpointed as it
    /// was optimised, before opacities are reset.
    fn prepare_step(&mut self) -> Result<(), TrainError> {
        if self.is_in_coarse() {
            return self.prepare_coarse();
        }
        self.drop_hidden_in_time()?;
        self.control_density()?;
        self.smooth_in_time()
    }

    /// Finishes a step: its picture, the device's memory, written files, and the prunes after the last iteration.
    fn follow_step(&mut self) -> Result<(), TrainError> {
        if self.timelapse.as_ref().is_some_and(|timelapse| timelapse.is_due(self.last_step)) {
            self.keep_picture()?;
        }
        self.govern()?;
        self.settle_written()?;
        if self.iteration == self.setup.config.optimize.iterations {
            // No later densification step would prune.
            self.prune_to_target()?;
            self.drop_hidden_triangles()?;
        }
        Ok(())
    }

    /// Waits for all files and reports the end of the run.
    fn end_run(&mut self, interrupted: bool) -> Result<(), TrainError> {
        self.wait_for_files(None)?;
        let waited = Instant::now();
        self.sink.written().iter().for_each(Completion::wait);
        self.times.waiting_seconds += waited.elapsed().as_secs_f64();
        self.times.wall_seconds = self.setup.began.elapsed().as_secs_f64();
        Ok(self.sink.on(&Event::Finished {
            iteration: self.iteration,
            gaussians: self.device.len(&self.model),
            training_seconds: self.times.ensemble_seconds + self.clock.seconds(),
            interrupted,
            peaks: self.peaks.peaks,
            times: self.times,
        })?)
    }
}

// One step and the changes of the model between steps.

impl<B: TrainDevice> Trainer<'_, B> {
    /// Trains one step: the views of a batch, and one Adam step of every parameter.
    ///
    /// Losses that are not ready are read after the next step is queued, so that the device never waits for the log.
    fn iterate(&mut self) -> Result<(), TrainError> {
        let started = Instant::now();
        let turn = self.pace.next(self.iteration, self.clock.seconds());
        let pending = self.train_step(turn);
        self.warn_about_images()?;
        let pending = pending?;
        self.pace.trained(pending.turn.images);
        self.last_step = pending.turn.iterations;
        self.iteration = self.last_step.after;
        self.clock.add_since(started);
        let is_ready = pending.is_ready();
        let before = self.pending.replace(pending);
        self.report(before)?;
        if is_ready {
            self.report_pending()?;
        }
        Ok(())
    }

    /// Trains a step over these images, or over the first of them if memory is short.
    fn train_step(&mut self, turn: Turn) -> Result<PendingStep<B>, TrainError> {
        self.follow_training_scale()?;
        let whole = turn.images;
        self.report_view_size(turn.iteration_of(whole.before + 1))?;
        // The search may evict a photograph, so it comes before photographs are uploaded.
        for image in whole.each() {
            let terms = self.terms(turn.iteration_of(image), ViewExtras::default());
            if terms.has_topic(Topic::Surface) {
                self.find_neighbours(&terms)?;
            }
        }
        let mut gradients = B::Gradients::default();
        let mut views = Vec::new();
        let (mut span, mut refused) = (ImageSpan { after: whole.before, ..whole }, None);
        for round in whole.rounds(self.device.world()) {
            match self.add_round(round, turn, &mut gradients) {
                Ok(of_round) => views.extend(of_round),
                Err(TrainError::Device(error)) if error.is_out_of_memory() && !views.is_empty() => {
                    // Density control must not count the finished views again.
                    refused = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
            span.after = round.after;
            if span.after < whole.after {
                self.feed.prefetch(self.device, span.after + 1)?;
            }
        }
        self.tensors.gradients = gradients.bytes();
        let turn = turn.cut(span);
        let step = self.adam_step(turn);
        self.expect(turn)?;
        self.device.step(&mut self.model, gradients, &step)?;
        if turn.iterations.after < self.setup.config.last_iteration() {
            self.feed.prefetch(self.device, span.after + 1)?;
        }
        if let Some(error) = refused {
            // If no fallback is left, steps continue with fewer views.
            tracing::debug!("a step takes fewer views: {error}");
            self.relieve(&error)?;
        }
        let gaussians = self.device.len(&self.model);
        Ok(PendingStep { turn, gaussians, views })
    }

    /// Adds the gradients of one image's view to its batch.
    fn add_view(
        &mut self,
        image: u32,
        iteration: u32,
        gradients: &mut B::Gradients,
    ) -> Result<PendingView<B>, TrainError> {
        let options = &self.setup.config.optimize;
        let (observe, settings) = (self.observes(iteration), self.settings_in(image, iteration));
        let (view, target) = self.feed.take(self.device, image)?;
        let other = self.feed.take_other(self.device, image, view)?;
        let extras = ViewExtras {
            other_view: other.is_some(),
            ..ViewExtras::of(&self.setup.dataset.sources[view])
        };
        let terms = self.terms(iteration, extras);
        let divisor = view_divisor(self.setup.config, iteration);
        let (drawn, divisor) = self.feed.views.divided_view(view, divisor);
        let inputs = ViewInputs {
            view: &drawn,
            settings,
            observe,
            divisor,
            compensation: compensation(options),
            terms: &terms,
            near: self.coarse.as_ref().and_then(|coarse| coarse.near.as_ref()),
            other: other.as_ref().map(TakenOther::as_view),
        };
        let trained = self.feed.views.split(Split::Train);
        let numbers = [image, self.pace.all_images(options.iterations)];
        let colors = color_step(self.appearance.as_mut(), options, trained, view, numbers);
        let model = &mut self.model;
        let outputs = add_gradients(self.device, model, &target, &inputs, colors, gradients)?;
        let ViewOutputs { pixels, samples, activations } = outputs;
        self.tensors.activations = activations;
        Ok(PendingView { terms, losses: [pixels, samples] })
    }

    /// Reports the size of an iteration's views if it has changed.
    fn report_view_size(&mut self, iteration: u32) -> Result<(), TrainError> {
        let divisor = view_divisor(self.setup.config, iteration);
        if divisor != self.divisor {
            self.divisor = divisor;
            // Views of another size explain a change of memory.
            self.creep = UnexplainedGrowth::from(self.iteration);
            let (iteration, divisor) = (self.iteration, divisor.get());
            self.sink.on(&Event::ViewSize { iteration, divisor })?;
        }
        Ok(())
    }

    /// Announces the views of the next step to the device.
    fn expect(&mut self, turn: Turn) -> Result<(), TrainError> {
        if turn.iterations.after >= self.setup.config.last_iteration() {
            return Ok(());
        }
        let (after, images) = (turn.images.after, turn.images.images());
        for image in after + 1..=after + images {
            let iteration = turn.iterations.after + 1;
            let view = self.feed.assigned(image)?;
            let divisor = view_divisor(self.setup.config, iteration);
            let (drawn, _) = self.feed.views.divided_view(view, divisor);
            let settings = self.settings_in(image, iteration);
            self.device.expect(&mut self.model, &drawn, &settings)?;
        }
        Ok(())
    }

    fn stage(&self, iteration: u32) -> TrainingStage<'_> {
        let coarse = self.coarse.as_ref().map(|coarse| &coarse.schedule);
        match coarse.filter(|schedule| schedule.contains(iteration)) {
            Some(schedule) => TrainingStage::Coarse { schedule, extent: self.scale.extent },
            None => TrainingStage::Photometric,
        }
    }

    fn terms(&self, iteration: u32, extras: ViewExtras) -> Terms {
        terms::active(self.setup.config, self.stage(iteration), iteration, extras)
    }

    /// Returns the statistics that density control gathers in an iteration.
    fn observes(&self, iteration: u32) -> Option<Statistics> {
        match self.stage(iteration) {
            TrainingStage::Photometric => self.strategy.observes(iteration),
            TrainingStage::Coarse { .. } => None,
        }
    }

    /// Returns the rates and extras of the Adam step after a batch.
    fn adam_step(&self, turn: Turn) -> AdamStep {
        let (config, iteration) = (self.setup.config, turn.iteration());
        match self.stage(iteration) {
            TrainingStage::Photometric => {
                let StepExtras { regularisers, noise, sh_decay_rate, scale_limit } =
                    self.strategy.step_extras(turn);
                let rates =
                    schedule::photometric_rates(&config.optimize, self.scale.extent, iteration);
                let by_size = schedule::rate_by_size(&config.optimize, self.scale.extent);
                let step = adam_step(&config.optimize, turn.images, 0, rates);
                let sh_decay = (sh_decay_rate * step.rates.sh_rest).min(1.0);
                AdamStep { by_size, regularisers, noise, sh_decay, scale_limit, ..step }
            }
            TrainingStage::Coarse { schedule, extent } => {
                schedule.step(config, extent, turn.iterations)
            }
        }
    }

    /// Returns the render settings of an image's view in an iteration.
    fn settings_in(&self, image: u32, iteration: u32) -> RenderSettings {
        let config = self.setup.config;
        let leaves_out = leaves_gaussians_out(config, image);
        RenderSettings {
            fade_depth: fade_depth(config, self.scale),
            sh_degree: schedule::sh_degree(&config.optimize, iteration),
            background: training_background(config, image, iteration),
            near: if leaves_out { self.feed.views.near() } else { least_near(self.scale.extent) },
            footprint: self.footprint(iteration, self.iteration),
            cuts_sides: leaves_out && config.optimize.primitive == PrimitiveName::Gaussians,
        }
    }

    /// Returns the render settings of measurements over all training views, with the near plane of evaluations.
    fn settings_of_all(&self) -> RenderSettings {
        let now = self.iteration.max(1);
        let near = self.feed.views.near();
        RenderSettings { near, cuts_sides: false, ..self.settings_in(now, now) }
    }

    /// Reads the losses of a step and reports it with the milliseconds since the last report.
    fn report(&mut self, pending: Option<PendingStep<B>>) -> Result<(), TrainError> {
        let Some(PendingStep { turn, gaussians, views }) = pending else {
            return Ok(());
        };
        let started = Instant::now();
        let mut mean = MeanLosses::default();
        for PendingView { terms, losses: [pixels, samples] } in views {
            mean.add(terms, [pixels.read()?, samples.read()?]);
        }
        self.clock.add_since(started);
        let (span, images) = (turn.iterations, turn.images.images());
        let ms = self.clock.take_report_ms() / f64::from(images.max(1));
        let (before, iteration, pairs) = (span.before, span.after, mean.pairs());
        self.keep_surface_losses(iteration, &mean.terms, &pairs);
        let photometric = self.setup.config.optimize.iterations;
        let iterations =
            if iteration <= photometric { photometric } else { self.setup.config.last_iteration() };
        let values = match self.stage(iteration) {
            TrainingStage::Photometric => TermValues(pairs),
            TrainingStage::Coarse { .. } => TermValues::of(&mean.terms, Topic::Photograph, &pairs),
        };
        let total = mean.total();
        let step = Step { before, iteration, images, iterations, values, total, gaussians, ms };
        // The device trains on during the report, so its duration counts as training.
        let started = Instant::now();
        self.sink.on(&Event::Step(step))?;
        self.clock.add_since(started);
        self.report_surfaces(span)
    }

    /// Reports the pending step, if any.
    fn report_pending(&mut self) -> Result<(), TrainError> {
        let pending = self.pending.take();
        self.report(pending)
    }

    /// Updates the 3D filter if the run has one, so that no Gaussian is finer than the training views resolve.
    fn smooth(&mut self) -> Result<(), TrainError> {
        if !self.setup.config.optimize.filter_3d {
            return Ok(());
        }
        self.with_memory_retry(|trainer| {
            let dataset = trainer.setup.dataset;
            let views: Vec<&View> =
                dataset.train.iter().map(|&view| &dataset.views[view]).collect();
            let nearest = SAMPLED_SHARE * trainer.scale.unit;
            Ok(trainer.device.update_filter_3d(&mut trainer.model, &views, nearest)?)
        })
    }

    /// Updates the 3D filter if it is due between densification steps, or if the model comes from a
    /// checkpoint without one.
    fn smooth_in_time(&mut self) -> Result<(), TrainError> {
        let lacks_one = !self.device.optional(&self.model).filter_3d;
        let is_empty = self.device.len(&self.model) == 0;
        if schedule::is_due(self.setup.config, self.last_step) || (lacks_one && !is_empty) {
            self.smooth()?;
        }
        Ok(())
    }

    // Views of a step, one per rank at a time.

    /// Adds the gradients of these images to their step: the first on this rank, the others on one rank each. A view
    /// that its rank cannot decode is left out.
    fn add_round(
        &mut self,
        round: ImageSpan,
        turn: Turn,
        gradients: &mut B::Gradients,
    ) -> Result<Vec<PendingView<B>>, TrainError> {
        let others = (round.before + 2)..=round.after;
        let others: Vec<RankView> = others
            .map(|image| self.rank_view(image, turn.iteration_of(image)))
            .collect::<Result<_, _>>()?;
        let known: Vec<_> = others.iter().map(|view| (view.index, view.terms.clone())).collect();
        let first = round.before + 1;
        self.device.share_views(first, others);
        let mut views = vec![self.add_view(first, turn.iteration_of(first), gradients)?];
        for (outcome, (index, terms)) in self.device.take_shared().into_iter().zip(known) {
            match outcome {
                RankOutcome::Added(losses) => views.push(PendingView { terms, losses }),
                RankOutcome::Undecodable(why) => self.feed.views.leave_out(index, &why),
            }
        }
        Ok(views)
    }

    /// Describes the view of an image for another rank, which does not compare neighbour views.
    fn rank_view(&mut self, image: u32, iteration: u32) -> Result<RankView, TrainError> {
        let index = self.feed.assigned(image)?;
        let terms = self.terms(iteration, ViewExtras::of(&self.setup.dataset.sources[index]));
        let (settings, observe) = (self.settings_in(image, iteration), self.observes(iteration));
        let divisor = view_divisor(self.setup.config, iteration);
        let (view, divisor) = self.feed.views.divided_view(index, divisor);
        let (view, surface) = (view.into_owned(), terms.needs().maps);
        Ok(RankView {
            image,
            iteration,
            index,
            setup: ViewSetup { view, settings, surface, observe, divisor },
            terms,
        })
    }

    /// Runs the densification step and changes all opacities, as due after the last step.
    fn control_density(&mut self) -> Result<(), TrainError> {
        let (iteration, span) = (self.iteration, self.last_step);
        let options = &self.setup.config.densify;
        let least = self
            .strategy
            .images_of_window(self.pace.images_per_iteration(iteration))
            .unwrap_or_else(|| strategy::least_images(options, self.setup.dataset.train.len()));
        let is_due = self.strategy.due(span) && self.pace.takes_densify_step(least);
        // A raised opacity floor carries its own values and is never skipped.
        let adjust =
            self.strategy.adjust(span, self.pace.images_since_adjustment()).filter(|adjust| {
                matches!(adjust, Adjust::RaiseOpacityFloor { .. })
                    || self.pace.takes_adjustment(options.densification_interval)
            });
        if is_due || adjust.is_some() {
            self.report_pending()?;
        }
        if is_due {
            let started = Instant::now();
            // Synchronize, so that the measured time does not include the previous step.
            self.device.synchronize()?;
            let begun = Instant::now();
            let before = self.device.len(&self.model);
            self.end_phase(Phase::Training);
            let report = self.run_densify_step()?;
            if self.strategy.reorders(span) {
                self.reorder()?;
            }
            self.smooth()?;
            self.device.synchronize()?;
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            let gaussians = self.device.len(&self.model);
            self.clock.add_beside_iterations(started);
            self.sink.on(&Event::Densify(DensifyStep { iteration, report, gaussians, ms }))?;
            self.end_density_control()?;
            if gaussians == 0 && before > 0 {
                return Err(TrainError::Emptied { iteration });
            }
        }
        // Prune before opacities are lowered, which would hide a Gaussian's contribution.
        self.prune_to_target()?;
        if let Some(adjust) = adjust {
            self.device.adjust(&mut self.model, &adjust)?;
            match adjust {
                Adjust::ResetOpacity(_) | Adjust::DecayOpacity { .. } => {
                    self.sink.on(&Event::OpacityReset { iteration })?;
                }
                Adjust::RaiseOpacityFloor { .. } => {}
            }
        }
        Ok(())
    }

    /// Saves, evaluates and writes a checkpoint, as due. `is_over`: no step follows.
    fn save_and_evaluate(
        &mut self,
        due: Milestones,
        occasion: Option<Occasion>,
        is_over: bool,
    ) -> Result<(), TrainError> {
        if due.any() {
            self.end_phase(self.phase());
        }
        let last_files = occasion.filter(|_| is_over && due.save);
        if due.save && last_files.is_none() {
            // Save first, so that the file is written during the evaluation.
            self.save_point_cloud()?;
            self.end_saving()?;
        }
        if due.evaluate {
            let started = Instant::now();
            self.within_training(Self::evaluate)?;
            self.times.evaluation_seconds += started.elapsed().as_secs_f64();
            self.profile(Phase::Evaluation)?;
            self.end_phase(Phase::Evaluation);
        }
        if let Some(occasion) = last_files
            && self.write_last_files(occasion)?
        {
            return self.end_saving();
        }
        if last_files.is_some() {
            self.save_point_cloud()?;
            self.end_saving()?;
        }
        if let Some(occasion) = occasion {
            if is_over {
                // No checkpoint follows, so no space is reserved.
                self.write_checkpoint(occasion, WritingMode::OnThread)?;
                self.end_saving()?;
            } else {
                self.write_checkpoint_between(occasion)?;
            }
        }
        if due.evaluate || due.save {
            self.feed.schedule_decoding(self.device, self.pace.next_image());
        }
        Ok(())
    }

    /// Writes a checkpoint of a run that continues.
    fn write_checkpoint_between(&mut self, occasion: Occasion) -> Result<(), TrainError> {
        self.write_checkpoint(occasion, WritingMode::OnThread)?;
        self.reserve_checkpoint()?;
        // A resumed run finds its neighbours again, and this run must do the same.
        self.drop_neighbours();
        self.end_saving()
    }

    fn end_saving(&mut self) -> Result<(), TrainError> {
        self.profile(Phase::Saving)?;
        self.end_phase(Phase::Saving);
        Ok(())
    }

    /// Ends the phase of density control, whose memory changes are explained.
    fn end_density_control(&mut self) -> Result<(), TrainError> {
        self.creep = UnexplainedGrowth::from(self.iteration);
        self.profile(Phase::DensityControl)?;
        self.end_phase(Phase::DensityControl);
        Ok(())
    }

    /// Lets the device adjust its memory, and reports fallbacks that were taken or undone.
    fn govern(&mut self) -> Result<(), TrainError> {
        let started = Instant::now();
        self.device.govern(&mut self.model, self.iteration)?;
        // This happens in every iteration while the device trains on.
        self.clock.add_since(started);
        self.report_memory_changes()
    }

    fn report_memory_changes(&mut self) -> Result<(), TrainError> {
        let Some(FallbackState { changes, held, budget }) = self.device.take_changes() else {
            return Ok(());
        };
        let iteration = self.iteration;
        for change in changes {
            if matches!(change.fallback, Fallback::Compact | Fallback::Offload) {
                // The model takes less memory from now on.
                self.creep = UnexplainedGrowth::from(iteration);
            }
            self.sink.on(&Event::Fallback { iteration, change, held, budget })?;
        }
        Ok(())
    }

    /// Sets the scale of the training views that fits the device's memory.
    fn follow_training_scale(&mut self) -> Result<(), TrainError> {
        let next = self.pace.next_image();
        let Some(before) = self.feed.follow_training_scale(self.device, next)? else {
            return Ok(());
        };
        let scale = self.feed.views.training_scale();
        self.creep = UnexplainedGrowth::from(self.iteration);
        if scale.is_below(before) {
            self.warn(format!(
                "GPU memory is short: training views are drawn at {:.2} of their size after iteration \
                 {} (--give-up resolution)",
                scale.factor(),
                self.iteration
            ))?;
        }
        Ok(())
    }

    /// Runs one densification step.
    fn run_densify_step(&mut self) -> Result<DensifyReport, TrainError> {
        let images = self.pace.images_per_iteration(self.iteration);
        let mut site = Site {
            device: &mut *self.device,
            model: &mut self.model,
            span: self.last_step,
            images_per_iteration: images,
            left_out: Vec::new(),
        };
        let report = self.strategy.densify(&mut site);
        let left_out = site.left_out;
        self.report_memory_changes()?;
        for message in left_out {
            self.warn(message)?;
        }
        report
    }

    /// Sorts the Gaussians along the Z-curve. Skipped without memory, which only costs speed.
    fn reorder(&mut self) -> Result<(), TrainError> {
        match self.device.reorder(&mut self.model, &scene_cube(self.setup.dataset)) {
            Err(error) if error.is_out_of_memory() => {
                tracing::debug!("the Gaussians are not put in order: {error}");
                Ok(())
            }
            other => Ok(other?),
        }
    }
}

impl<B: TrainDevice> MemoryFallbacks for Trainer<'_, B> {
    fn relieve(&mut self, error: &DeviceError) -> Result<bool, TrainError> {
        let is_taken = self.device.relieve(&mut self.model, error)?;
        if is_taken {
            let most = self.device.max_neighbours();
            self.coarse.iter_mut().for_each(|coarse| coarse.drop_longer_lists(most));
            self.follow_training_scale()?;
        }
        Ok(is_taken)
    }

    fn stop_for_memory(&mut self, error: DeviceError) -> TrainError {
        if !self.writes {
            return error.into();
        }
        let reported = self.report_pending().and_then(|()| self.report_memory_changes());
        match reported
            .and_then(|()| self.write_checkpoint(Occasion::Requested, WritingMode::AtOnce))
        {
            Ok(_) => TrainError::OutOfMemory {
                source: Box::new(error),
                checkpoint: checkpoint::path(self.setup.model_path, self.iteration),
            },
            // Ranks that wait within a step cannot send rows. Return the original error.
            Err(TrainError::Device(DeviceError::OfRank { .. })) => error.into(),
            Err(other) => other,
        }
    }
}
