//! Where a run meets the limits of the device's memory: it asks before it grows, gives things up
//! rather than fail, and where nothing is left to give up it stops with a checkpoint.

use std::time::Instant;

use super::Trainer;
use crate::backend::{DeviceError, LadderState, TrainDevice};
use crate::memory::Rung;
use crate::train::event::{Event, RoundReport};
use crate::train::strategy::Site;
use crate::train::unexplained_growth::UnexplainedGrowth;
use crate::train::{TrainError, checkpoint, scene_cube};

impl<B: TrainDevice> Trainer<'_, B> {
    /// Lets the device put its memory in order, and tells what was given up or taken back.
    pub(super) fn govern(&mut self) -> Result<(), TrainError> {
        let started = Instant::now();
        self.device.govern(&mut self.model, self.iteration)?;
        // Done at every iteration, while the device trains on.
        self.clock.add_since(started);
        self.report_memory_changes()
    }

    fn report_memory_changes(&mut self) -> Result<(), TrainError> {
        let Some(LadderState { changes, held, budget }) = self.device.take_changes() else {
            return Ok(());
        };
        let iteration = self.iteration;
        for change in changes {
            if matches!(change.rung, Rung::Compact | Rung::Offload) {
                // The model takes less from now on.
                self.creep = UnexplainedGrowth::from(iteration);
            }
            self.sink.on(&Event::Rung { iteration, change, held, budget })?;
        }
        Ok(())
    }

    /// Does something that leaves the model as it was where it fails. Where memory is short, tries
    /// again as long as something can be given up between two iterations, and then stops the run.
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
                    self.drop_longer_neighbours();
                    self.follow_training_scale()?;
                }
                other => return other,
            }
        }
    }

    /// Draws training views at the size that the device has memory for.
    pub(super) fn follow_training_scale(&mut self) -> Result<(), TrainError> {
        let (scale, before) = (self.device.training_scale(), self.feed.views.training_scale());
        if scale == before {
            return Ok(());
        }
        self.device.use_training_scale(scale)?;
        self.feed.set_training_scale(self.device, scale, self.pace.next_image());
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

    /// Writes a checkpoint, so that nothing is lost, and says what the run lacked.
    fn stop_for_memory(&mut self, error: DeviceError) -> TrainError {
        let reported = self.report_pending().and_then(|()| self.report_memory_changes());
        match reported.and_then(|()| self.write_checkpoint_now()) {
            Ok(_) => TrainError::OutOfMemory {
                source: Box::new(error),
                checkpoint: checkpoint::path(self.setup.model_path, self.iteration),
            },
            // Ranks that wait within a step send no rows: what counts is why.
            Err(TrainError::Device(DeviceError::OfRank { .. })) => error.into(),
            Err(other) => other,
        }
    }

    /// A round of density control.
    pub(super) fn run_round(&mut self) -> Result<RoundReport, TrainError> {
        let images = self.pace.images_per_iteration(self.iteration);
        let site = Site::new(&mut *self.device, &mut self.model, self.last_step);
        let mut site = site.with_pace(images);
        let report = self.strategy.round(&mut site);
        let left_out = site.into_left_out();
        self.report_memory_changes()?;
        for message in left_out {
            self.warn(message)?;
        }
        report
    }

    /// Puts the Gaussians in the order of their places. That costs speed where there is no memory for
    /// it, and nothing else.
    pub(super) fn reorder(&mut self) -> Result<(), TrainError> {
        match self.device.reorder(&mut self.model, &scene_cube(self.setup.dataset)) {
            Err(error) if error.is_out_of_memory() => {
                tracing::debug!("the Gaussians are not put in order: {error}");
                Ok(())
            }
            other => Ok(other?),
        }
    }
}
