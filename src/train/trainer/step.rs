//! One step of a run: its views, what they are drawn and compared by, and the report of their losses.

use std::time::Instant;

use super::Trainer;
use super::appearance::color_step;
use super::coarse_state::CoarseState;
use super::pending::{PendingStep, PendingView};
use crate::backend::{
    AdamStep, DeviceError, Filter3d, Held as _, Pending, RenderSettings, Statistics, Terms, Topic,
    TrainDevice,
};
use crate::dataset::{Dataset, View};
use crate::train::adam::adam_step;
use crate::train::appearance::compensation;
use crate::train::event::{Event, Split, Step, TermValues};
use crate::train::feed::TakenOther;
use crate::train::mean_losses::MeanLosses;
use crate::train::other_views::OtherViews;
use crate::train::pace::Turn;
use crate::train::span::ImageSpan;
use crate::train::strategy::{StepExtras, fade_depth};
use crate::train::terms::{self, TrainingStage, ViewExtras};
use crate::train::train_step::{ViewInputs, ViewOutputs, add_view};
use crate::train::training_background::training_background;
use crate::train::unexplained_growth::UnexplainedGrowth;
use crate::train::view_divisor::view_divisor;
use crate::train::{SceneScale, TrainError, schedule, smoothing};

impl<B: TrainDevice> Trainer<'_, B> {
    /// One step: the views of a batch, and one move of every parameter.
    ///
    /// Where its losses are not there at once they are read when the next step is on its way, so that
    /// the device never waits for the log.
    pub(super) fn iterate(&mut self) -> Result<(), TrainError> {
        let started = Instant::now();
        let turn = self.pace.next(self.iteration, self.clock.seconds());
        let pending = self.train_step(turn);
        self.warn_of_images()?;
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

    /// The step over these images, or over the first of them where there is no memory for all.
    fn train_step(&mut self, turn: Turn) -> Result<PendingStep<B>, TrainError> {
        self.follow_training_scale()?;
        let whole = turn.images;
        self.tell_view_size(turn.iteration_of(whole.before + 1))?;
        // Before a photograph is taken, which may be evicted while neighbours are searched.
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
                    // The views that are there have been observed, and must not be so again.
                    refused = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
            span.after = round.after;
            if span.after < whole.after {
                self.prefetch(span.after + 1)?;
            }
        }
        self.tensors.gradients = gradients.bytes();
        let turn = turn.cut(span);
        let step = self.adam_step(turn);
        self.expect(turn)?;
        self.device.step(&mut self.model, gradients, &step)?;
        if turn.iterations.after < self.setup.config.last_iteration() {
            self.prefetch(span.after + 1)?;
        }
        if let Some(error) = refused {
            self.make_room_for_batch(&error)?;
        }
        let gaussians = self.device.len(&self.model);
        Ok(PendingStep { turn, gaussians, views })
    }

    /// Adds the gradients of the view of an image, which is trained by this iteration, to those of its batch.
    pub(super) fn add_view(
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
            near: self.coarse.as_ref().and_then(CoarseState::near),
            other: other.as_ref().map(TakenOther::as_view),
        };
        let trained = self.feed.views.split(Split::Train);
        let numbers = [image, self.pace.all_images(options.iterations)];
        let colors = color_step(self.appearance.as_mut(), options, trained, view, numbers);
        let model = &mut self.model;
        let outputs = add_view(self.device, model, &target, &inputs, colors, gradients)?;
        let ViewOutputs { pixels, samples, activations } = outputs;
        self.tensors.activations = activations;
        Ok(PendingView { terms, losses: [pixels, samples] })
    }

    /// Tells at what size the view of an iteration is drawn, where that is another than before.
    fn tell_view_size(&mut self, iteration: u32) -> Result<(), TrainError> {
        let divisor = view_divisor(self.setup.config, iteration);
        if divisor != self.divisor {
            self.divisor = divisor;
            // Other views take more memory, and explain it.
            self.creep = UnexplainedGrowth::from(self.iteration);
            let (iteration, divisor) = (self.iteration, divisor.get());
            self.sink.on(&Event::ViewSize { iteration, divisor })?;
        }
        Ok(())
    }

    /// Brings the photograph of an image on its way, while the device works.
    fn prefetch(&mut self, image: u32) -> Result<(), TrainError> {
        match self.feed.prefetch(self.device, image) {
            // What there is no room for now is asked for again when it is needed.
            Err(TrainError::Device(error)) if error.is_out_of_memory() => Ok(()),
            done => done,
        }
    }

    /// Tells the device what the views after this step are.
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

    /// After a batch that had to leave views to the next: gives up what can be given up between two
    /// steps. Where there is nothing, steps go on with fewer views.
    fn make_room_for_batch(&mut self, error: &DeviceError) -> Result<(), TrainError> {
        tracing::debug!("a step takes fewer views: {error}");
        if self.device.relieve(&mut self.model, error)? {
            self.drop_longer_neighbours();
            self.follow_training_scale()?;
        }
        Ok(())
    }

    /// The part of the run that an iteration is of.
    pub(super) fn stage(&self, iteration: u32) -> TrainingStage<'_> {
        let coarse = self.coarse.as_ref().map(|coarse| &coarse.schedule);
        match coarse.filter(|schedule| schedule.contains(iteration)) {
            Some(schedule) => TrainingStage::Coarse { schedule, extent: self.scale.extent },
            None => TrainingStage::Photometric,
        }
    }

    /// The terms of an iteration's loss.
    pub(super) fn terms(&self, iteration: u32, extras: ViewExtras) -> Terms {
        terms::active(self.setup.config, self.stage(iteration), iteration, extras)
    }

    /// What density control learns of an iteration's view.
    pub(super) fn observes(&self, iteration: u32) -> Option<Statistics> {
        match self.stage(iteration) {
            TrainingStage::Photometric => self.strategy.observes(iteration),
            TrainingStage::Coarse { .. } => None,
        }
    }

    /// How parameters move.
    fn adam_step(&self, turn: Turn) -> AdamStep {
        let (config, iteration) = (self.setup.config, turn.iteration());
        match self.stage(iteration) {
            TrainingStage::Photometric => {
                let StepExtras { regularisers, noise } = self.strategy.step_extras(turn);
                let rates =
                    schedule::photometric_rates(&config.optimize, self.scale.extent, iteration);
                let by_size = schedule::rate_by_size(&config.optimize, self.scale.extent);
                let step = adam_step(&config.optimize, turn.images, 0, rates);
                AdamStep { by_size, regularisers, noise, ..step }
            }
            TrainingStage::Coarse { schedule, extent } => {
                schedule.step(config, extent, turn.iterations)
            }
        }
    }

    /// How the view of an iteration is drawn.
    pub(super) fn settings_of(&self, iteration: u32) -> RenderSettings {
        let config = self.setup.config;
        RenderSettings {
            fade_depth: fade_depth(config, self.scale),
            sh_degree: schedule::sh_degree(&config.optimize, iteration),
            background: training_background(config, iteration, iteration),
            near: self.feed.views.near(),
            footprint: self.footprint(iteration, self.iteration),
        }
    }

    /// How the view of an image is drawn that is trained by an iteration.
    pub(super) fn settings_in(&self, image: u32, iteration: u32) -> RenderSettings {
        let background = training_background(self.setup.config, image, iteration);
        RenderSettings { background, ..self.settings_of(iteration) }
    }

    /// Reports a step once it is done; its milliseconds are those since the one before was.
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
        // While it is told the device trains on: that is part of an iteration's time.
        let started = Instant::now();
        self.sink.on(&Event::Step(step))?;
        self.clock.add_since(started);
        self.report_surfaces(span)
    }

    /// Reports the step whose losses have not been read yet, if there is one.
    pub(super) fn report_pending(&mut self) -> Result<(), TrainError> {
        let pending = self.pending.take();
        self.report(pending)
    }
}

// The views that those of a run are compared with, as part of the run.

impl<B: TrainDevice> Trainer<'_, B> {
    /// Warns where views should be compared and no view has another.
    pub(super) fn warn_of_lone_views(&mut self) -> Result<(), TrainError> {
        if self.feed.compared_views().is_some_and(OtherViews::is_empty) {
            self.warn(
                "--multi-view compares nothing: no training view has a neighbour 2 to 30 degrees apart that \
                 sees the same points. Train with more photographs or with COLMAP's points"
                    .to_owned(),
            )?;
        }
        Ok(())
    }
}

// The 3D filter's part in a run.

/// Share of the scene's unit from which on views tell of what they see. Mip-Splatting begins at 0.2,
/// whatever a scene's size is; cameras of common scenes stand 4 from what they look at.
const SAMPLED_SHARE: f64 = 0.05;

/// Smooths a model as far as the views of a scene that are trained on could tell nothing finer.
pub(super) fn smooth<B: Filter3d>(
    device: &mut B,
    model: &mut B::Model,
    dataset: &Dataset,
) -> Result<(), DeviceError> {
    let views: Vec<&View> = dataset.train.iter().map(|&view| &dataset.views[view]).collect();
    device.update_filter_3d(model, &views, SAMPLED_SHARE * SceneScale::of(dataset).unit)
}

impl<B: TrainDevice> Trainer<'_, B> {
    /// Computes the filter where the run has one.
    pub(super) fn smooth(&mut self) -> Result<(), TrainError> {
        if !self.setup.config.optimize.filter_3d {
            return Ok(());
        }
        self.with_memory_retry(|trainer| {
            Ok(smooth(trainer.device, &mut trainer.model, trainer.setup.dataset)?)
        })
    }

    /// The same when it is due between rounds of density control, and where a run begins without one,
    /// as one that a checkpoint without a filter is the start of.
    pub(super) fn smooth_in_time(&mut self) -> Result<(), TrainError> {
        let lacks_one = !self.device.optional(&self.model).filter_3d;
        let is_empty = self.device.len(&self.model) == 0;
        if smoothing::is_due(self.setup.config, self.last_step) || (lacks_one && !is_empty) {
            self.smooth()?;
        }
        Ok(())
    }
}
