//! Reports of a run: memory, model, phases and warnings.

use std::time::Instant;

use super::Trainer;
use crate::backend::{ModelShape, Peaks, TrainDevice};
use crate::files::OutputError;
use crate::train::event::{Buffers, Event, Phase, Tensors};
use crate::train::schedule::Milestones;
use crate::train::{MemoryFallbacks as _, TrainError, report};

/// Divisor of the initial number of Gaussians. A run warns if fewer are left at its end.
const FEW_LEFT: usize = 20;

impl<B: TrainDevice> Trainer<'_, B> {
    /// Reports warnings about images.
    pub(super) fn warn_about_images(&mut self) -> Result<(), TrainError> {
        for message in self.feed.views.take_warnings() {
            self.warn(message)?;
        }
        Ok(())
    }

    /// Reports the last step and waits for the device, since no training follows.
    pub(super) fn settle_step(&mut self) -> Result<(), TrainError> {
        self.report_pending()?;
        let started = Instant::now();
        self.device.synchronize()?;
        self.clock.add_since(started);
        Ok(())
    }

    /// Reports all iterations so far and, at intervals, memory and distributions.
    pub(super) fn report_milestones(
        &mut self,
        due: Milestones,
        last: u32,
    ) -> Result<(), TrainError> {
        let iteration = self.iteration;
        let memory = self.last_step.crosses(report::MEMORY_INTERVAL) || iteration == last;
        if due.any() {
            // The following work is no training and must not wait for it.
            self.settle_step()?;
        } else if memory {
            self.report_pending()?;
        }
        if memory {
            self.report_memory()?;
            self.reserve_checkpoint()?;
            self.profile(self.phase())?;
        }
        if self.distributions_are_due() {
            self.with_memory_retry(Self::report_distributions)?;
        }
        Ok(())
    }

    /// True if distributions are due after the last step: at intervals and at the run's end.
    pub(super) fn distributions_are_due(&self) -> bool {
        self.last_step.crosses(report::DISTRIBUTION_INTERVAL)
            || self.iteration == self.setup.config.last_iteration()
    }

    fn report_memory(&mut self) -> Result<(), TrainError> {
        let ModelShape { parameters, optimizer, .. } = self.device.shape(&self.model);
        let images = self.feed.views.held();
        self.end_phase(self.phase());
        let memory = self.device.memory(Peaks::Keep);
        let report = report::memory(
            self.iteration,
            Tensors { parameters, optimizer, images, ..self.tensors },
            self.peaks.peaks,
            memory.as_ref(),
            self.files.held() + self.live.held(),
            self.setup.config.memory.host_limit,
            &mut self.creep,
        );
        Ok(self.sink.on(&report)?)
    }

    /// Reports the sizes of all buffers and their peaks since the last report, with `--profile-tensors`.
    pub(super) fn profile(&mut self, after: Phase) -> Result<(), TrainError> {
        if !self.setup.config.memory.profile_tensors {
            return Ok(());
        }
        let Some(memory) = self.device.memory(Peaks::Reset) else { return Ok(()) };
        let gaussians = self.device.len(&self.model);
        let (iteration, entries) = (self.iteration, memory.entries);
        Ok(self.sink.on(&Event::Buffers(Buffers { iteration, after, gaussians, entries }))?)
    }

    pub(super) fn report_distributions(&mut self) -> Result<(), TrainError> {
        let count = self.device.len(&self.model);
        let rows = report::sample(count, self.setup.config.run.seed, self.iteration);
        let sample = self.device.sample(&mut self.model, &rows)?;
        Ok(self.sink.on(&report::distributions(&sample, count, self.iteration))?)
    }

    /// Warns if the run has removed most Gaussians without `--target-gaussians`.
    pub(super) fn warn_about_few_left(&mut self, before: usize) -> Result<(), TrainError> {
        let left = self.device.len(&self.model);
        let densify = &self.setup.config.densify;
        if densify.target_gaussians.is_some() || left >= before / FEW_LEFT {
            return Ok(());
        }
        let iterations = u64::from(self.iteration).saturating_mul(10).max(6000);
        self.warn(format!(
            "density control has left {left} of {before} Gaussians. Check the cameras with splat view, or train longer: \
             --iterations {iterations}"
        ))?;
        Ok(())
    }

    pub(super) fn warn(&mut self, message: impl Into<String>) -> Result<(), OutputError> {
        self.sink.on(&Event::Warning { message: message.into() })
    }

    // Phases of a run, and evaluation within the memory of training.

    /// Returns the phase of the present iterations.
    pub(super) fn phase(&self) -> Phase {
        let is_coarse = self.coarse.as_ref().is_some_and(|coarse| coarse.has_begun);
        if is_coarse { Phase::Coarse } else { Phase::Training }
    }

    /// Ends a phase: peaks since the last phase belong to it.
    pub(super) fn end_phase(&mut self, phase: Phase) {
        let vram = self.device.take_peak();
        self.peaks.end(phase, vram);
    }

    /// Runs `work` while the device avoids exceeding the memory of training.
    pub(super) fn within_training<R>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<R, TrainError>,
    ) -> Result<R, TrainError> {
        self.device.aim_below(self.peaks.peaks.vram_of_training())?;
        let done = work(self);
        self.device.aim_below(None)?;
        done
    }
}
