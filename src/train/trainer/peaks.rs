//! Where the phases of a run end, and how much memory evaluation may take.

use super::Trainer;
use crate::backend::TrainDevice;
use crate::memory::{Bytes, peak_resident_memory, resident_memory};
use crate::train::TrainError;
use crate::train::event::{Phase, PhasePeak, PhasePeaks};

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

// The most memory that each phase of a run takes, of the device and of the host.

/// Peaks of the phases that have ended, and what is needed to tell those of the host apart.
#[derive(Debug, Default)]
pub(super) struct PeakRecorder {
    pub(super) peaks: PhasePeaks,
    /// The most that the program ever had in RAM when a phase ended last.
    host_most: Option<Bytes>,
    /// What it had in RAM then.
    host_before: Option<Bytes>,
}

impl PeakRecorder {
    /// Takes in what was taken of the device since the phase before had ended.
    pub(super) fn end(&mut self, phase: Phase, vram: Option<Bytes>) {
        let (now, most) = (resident_memory(), peak_resident_memory());
        // The system has one peak, of the whole program: it is of this phase if it has risen.
        let host = if most > self.host_most { most } else { now.max(self.host_before) };
        (self.host_most, self.host_before) = (most, now);
        self.peaks.raise(phase, PhasePeak { vram, host });
    }
}
