//! One run: iterations, density control, milestones.

mod appearance;
mod clock;
mod coarse;
mod coarse_state;
mod density;
mod ends;
mod evaluation;
mod govern;
mod last_files;
mod live;
mod milestones;
mod peak_recorder;
mod peaks;
mod pending;
mod reached_psnr;
mod reports;
mod rounds;
mod saving;
mod step;
mod target;
mod triangles;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use self::clock::TrainingClock;
use self::coarse_state::CoarseState;
use self::peak_recorder::PeakRecorder;
use self::pending::PendingStep;
use self::reached_psnr::ReachedPsnr;
use super::appearance::EarlierTables;
use super::background_files::BackgroundFiles;
use super::batches::{Batches, RankImages};
use super::checkpoint::{Checkpoint, CheckpointKeeper, FaceState, StoredCheckpoint};
use super::coarse::CoarseSchedule;
use super::event::{Completion, Event, RunTimes, Sink, Split, Tensors};
use super::feed::Feed;
use super::live::LivePage;
use super::pace::Pace;
use super::passed::{Paced, Passed};
use super::schedule::{self, Milestones};
use super::span::ImageSpan;
use super::strategy::{self, Strategy};
use super::timelapse::Timelapse;
use super::unexplained_growth::UnexplainedGrowth;
use super::views::Views;
use super::{SceneScale, TrainError};
use crate::backend::TrainDevice;
use crate::config::{Config, SugarOptions};
use crate::dataset::{Dataset, ImageLoader};
use crate::math::Divisor;
use crate::model::{Gaussians, TriangleMesh};
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
    /// When the program began.
    pub began: Instant,
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
    coarse: Option<CoarseState<B>>,
    feed: Feed<'a>,
    strategy: Box<dyn Strategy<B>>,
    scale: SceneScale,
    pace: Pace,
    /// Finished iterations of the schedule.
    iteration: u32,
    /// Those that passed with the last step.
    last_step: ImageSpan,
    /// The PSNR that ends the run.
    reached: ReachedPsnr,
    /// By what the sides of its views were divided when that was last reported.
    divisor: Divisor,
    /// The step whose losses have not been read yet.
    pending: Option<PendingStep<B>>,
    tensors: Tensors,
    creep: UnexplainedGrowth,
    /// The view of which pictures are kept.
    timelapse: Option<Timelapse>,
    peaks: PeakRecorder,
    clock: TrainingClock,
    keeper: Arc<Mutex<CheckpointKeeper>>,
    /// What threads write.
    files: BackgroundFiles,
    /// The page that shows the run.
    live: LivePage,
    times: RunTimes,
    /// When the last checkpoint was written, or the run began.
    saved_at: Instant,
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
        Self::begin(setup, device, sink, model)
    }

    /// A run that starts from triangles, which go by the numbers of their vertices.
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

    /// A run that goes on where a checkpoint was written. The host never holds more of it than a
    /// chunk.
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
        // What is due after that step comes at the beginning of the next.
        let after = progress.iteration;
        trainer.last_step = match paced {
            Some(Paced { before, .. }) => ImageSpan { before: before.min(after), after },
            None => Batches::of(&config).ended(after),
        };
        if train_views != trainer.feed.views.names(Split::Train) {
            trainer.warn(
                "the scene's training views are not those of the checkpoint; the views come in \
                 another order than in the run before"
                    .to_owned(),
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
        let views = Views::new(setup.dataset, setup.images);
        let trained = views.names(Split::Train);
        let keeper = CheckpointKeeper::new(setup.model_path, setup.config, &trained);
        let mut feed = Feed::new(views, setup.config.run.seed);
        let pace = Pace::new(setup.config, setup.dataset.train.len(), progress);
        if !pace.has_budget() {
            feed.expect_evaluations(schedule::evaluations(setup.config));
        }
        feed.compare_views(setup.dataset, setup.config);
        if device.world() > 1 {
            feed.share_images(RankImages::of(setup.config, 0, device.world()));
        }
        Self {
            scale,
            strategy: strategy::of(setup.config, scale, setup.dataset),
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
        }
    }

    /// Trains to the last iteration, or until asked to stop.
    pub fn run(mut self) -> Result<Outcome, TrainError> {
        let outcome = self.train();
        if outcome.is_err() {
            self.end_files();
        }
        outcome
    }

    fn train(&mut self) -> Result<Outcome, TrainError> {
        let config = self.setup.config;
        let last = config.last_iteration();
        self.announce_start(last)?;
        self.warn_of_missed_target()?;
        let lasts = [config.optimize.iterations, last];
        self.reserve_checkpoint()?;
        self.save_missing(Milestones::after(&config.output, self.last_step, &lasts))?;
        self.times.start_seconds = self.setup.began.elapsed().as_secs_f64();
        if self.iteration == 0 {
            self.keep_picture()?;
        }
        let begins_at_end = self.iteration >= last;
        let gaussians_before = self.device.len(&self.model);
        let (mut interrupted, mut is_last) = (false, begins_at_end || self.has_reached_psnr()?);
        while !is_last && !interrupted {
            // At the beginning of the next iteration, not at the end of its own: what is evaluated,
            // saved and checkpointed is the model as it was optimised, before opacities are reset.
            if self.is_in_coarse() {
                self.prepare_coarse()?;
            } else {
                self.drop_hidden_in_time()?;
                self.control_density()?;
                self.smooth_in_time()?;
            }
            self.with_memory_retry(Self::iterate)?;
            self.keep_timelapse(self.last_step)?;
            self.govern()?;
            self.settle_written()?;
            if self.iteration == config.optimize.iterations {
                // No density control follows in which it would come.
                self.prune_to_target()?;
                self.drop_hidden_triangles()?;
            }
            let is_reached = self.reaches_psnr()?;
            is_last = is_reached || self.iteration >= last;
            if !is_last {
                self.serve_page()?;
            }
            // Asked to stop after the last iteration, a run is simply done.
            interrupted = !is_last && self.setup.stop.load(Ordering::Relaxed);
            let lasts = if is_reached { &[self.iteration][..] } else { &lasts };
            let mut due = Milestones::after(&config.output, self.last_step, lasts);
            let occasion = self.checkpoint_occasion(due.checkpoint || interrupted);
            due.checkpoint = occasion.is_some();
            self.report_milestones(due, last)?;
            self.meet(due, occasion, is_last || interrupted)?;
        }
        if is_last && !begins_at_end {
            self.warn_of_few_left(gaussians_before)?;
            self.announce_end()?;
        }
        self.wait_for_files(None)?;
        let waited = Instant::now();
        self.sink.written().iter().for_each(Completion::wait);
        self.times.waiting_seconds += waited.elapsed().as_secs_f64();
        self.times.wall_seconds = self.setup.began.elapsed().as_secs_f64();
        self.sink.on(&Event::Finished {
            iteration: self.iteration,
            gaussians: self.device.len(&self.model),
            training_seconds: self.clock.seconds(),
            interrupted,
            peaks: self.peaks.peaks,
            times: self.times,
        })?;
        Ok(if interrupted { Outcome::Interrupted } else { Outcome::Finished })
    }

    fn announce_start(&mut self, last: u32) -> Result<(), TrainError> {
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
        Ok(())
    }
}
