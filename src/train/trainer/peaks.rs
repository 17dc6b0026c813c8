//! Where the phases of a run end, and how much memory evaluation may take.

use super::Trainer;
use crate::backend::TrainDevice;
use crate::train::TrainError;
use crate::train::event::Phase;

impl<B: TrainDevice> Trainer<'_, B> {
    /// What iterations are at present.
    pub(super) fn phase(&self) -> Phase {
        let is_coarse = self.coarse.as_ref().is_some_and(|coarse| coarse.has_begun);
        if is_coarse { Phase::Coarse } else { Phase::Training }
    }

    /// What memory was taken for since the phase before has ended.
    pub(super) fn end_phase(&mut self, phase: Phase) {
        let vram = self.device.take_peak();
        self.peaks.end(phase, vram);
    }

    /// Evaluates with no more of the device's memory than training has taken, as far as that can be.
    pub(super) fn evaluate_within_training(&mut self) -> Result<(), TrainError> {
        self.within_training(Self::evaluate)
    }

    /// Has the device hold no more than it did in training, where less will do.
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
