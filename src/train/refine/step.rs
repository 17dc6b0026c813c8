//! A step of a refinement, and what it does where memory is short.

use std::time::Instant;

use super::{PendingLoss, RefineRule, Refiner};
use crate::backend::{
    AdamStep, BoundStep, DeviceError, Pending as _, RenderSettings, Terms, Topic, TrainDevice,
};
use crate::math::Divisor;
use crate::train::event::{Event, Step, TermValues};
use crate::train::train_step::{ViewInputs, add_view};
use crate::train::{TrainError, checkpoint, render_footprint, schedule};

impl<B: TrainDevice> Refiner<'_, B> {
    /// One step: a view, and one move of all that is learned.
    pub(super) fn iterate(&mut self) -> Result<(), TrainError> {
        let started = Instant::now();
        self.follow_training_scale()?;
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
        let outputs = add_view(self.device, model, &target, &inputs, None, &mut gradients)?;
        let step = self.step_of(iteration);
        self.device.step_bound(&mut self.model, &mut self.binding, gradients, &step)?;
        if iteration < self.setup.rule.iterations {
            match self.feed.prefetch(self.device, iteration + 1) {
                // What there is no room for now is asked for again when it is needed.
                Err(TrainError::Device(error)) if error.is_out_of_memory() => {}
                done => done?,
            }
        }
        self.iteration = iteration;
        self.training_seconds += started.elapsed().as_secs_f64();
        let losses = outputs.pixels;
        let is_ready = losses.is_ready();
        let before = self.pending.replace(PendingLoss { iteration, terms, losses });
        self.report(before)?;
        if is_ready {
            self.report_pending()?;
        }
        self.warn_of_images()
    }

    pub(super) fn step_of(&self, iteration: u32) -> BoundStep {
        let RefineRule { normal_consistency, .. } = *self.setup.rule;
        let unit = self.setup.rule.vertex_unit();
        let rates = schedule::rates(&self.setup.config.optimize, unit, iteration);
        BoundStep { adam: AdamStep::new(iteration, rates), normal_consistency }
    }

    /// Reports a step once its losses are there.
    pub(super) fn report(&mut self, pending: Option<PendingLoss<B>>) -> Result<(), TrainError> {
        let Some(PendingLoss { iteration, terms, losses }) = pending else { return Ok(()) };
        let losses = losses.read()?;
        let ms = self.reported.elapsed().as_secs_f64() * 1e3;
        self.reported = Instant::now();
        self.sink.on(&Event::Step(Step {
            before: iteration.saturating_sub(1),
            iteration,
            images: 1,
            iterations: self.setup.rule.iterations,
            values: TermValues::of(&terms, Topic::Photograph, &losses.pairs),
            total: losses.total,
            gaussians: self.device.len(&self.model),
            ms,
        }))?;
        Ok(())
    }

    pub(super) fn report_pending(&mut self) -> Result<(), TrainError> {
        let pending = self.pending.take();
        self.report(pending)
    }

    pub(super) fn warn_of_images(&mut self) -> Result<(), TrainError> {
        for message in self.feed.views.take_warnings() {
            self.sink.on(&Event::Warning { message })?;
        }
        Ok(())
    }

    /// Does something that leaves all as it was where it fails. Where memory is short, tries again as
    /// long as something can be given up, and then stops with a checkpoint.
    pub(super) fn with_memory_retry<R>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<R, TrainError>,
    ) -> Result<R, TrainError> {
        loop {
            match work(self) {
                Err(TrainError::Device(error)) if error.is_out_of_memory() => {
                    if !self.device.relieve(&mut self.model, &error)? {
                        return Err(self.stop_for_memory(error));
                    }
                }
                other => return other,
            }
        }
    }

    /// Writes a checkpoint, so that nothing is lost, and says what was lacking.
    pub(super) fn stop_for_memory(&mut self, error: DeviceError) -> TrainError {
        let checkpoint = checkpoint::path(self.setup.folder, self.iteration);
        if self.iteration == 0 {
            return error.into();
        }
        let written = self.report_pending().and_then(|()| self.write_checkpoint());
        match written {
            Ok(()) => TrainError::OutOfMemory { source: Box::new(error), checkpoint },
            Err(other) => other,
        }
    }

    pub(super) fn report_memory_changes(&mut self) -> Result<(), TrainError> {
        let Some(state) = self.device.take_changes() else { return Ok(()) };
        let (iteration, held, budget) = (self.iteration, state.held, state.budget);
        for change in state.changes {
            self.sink.on(&Event::Rung { iteration, change, held, budget })?;
        }
        Ok(())
    }

    /// Draws training views at the size that the device has memory for.
    pub(super) fn follow_training_scale(&mut self) -> Result<(), TrainError> {
        let scale = self.device.training_scale();
        if scale != self.feed.views.training_scale() {
            self.device.use_training_scale(scale)?;
            self.feed.set_training_scale(self.device, scale, self.iteration + 1);
        }
        Ok(())
    }
}
