//! Where the phases of a run end.

use super::Trainer;
use crate::backend::TrainDevice;
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
}
