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
        self.device.aim_below(self.peaks.peaks.vram_of_training())?;
        let done = self.evaluate();
        let aimed = self.device.aim_below(None);
        done.and(Ok(aimed?))
    }
}
