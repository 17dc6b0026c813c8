//! The most memory that each phase of a run takes, of the device and of the host.

use crate::memory::{Bytes, peak_resident_memory, resident_memory};
use crate::train::event::{Phase, PhasePeak, PhasePeaks};

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
