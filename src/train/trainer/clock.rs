//! How long a run has trained: iterations with their reports and the care for memory, and density control.
//! Evaluation and saving do not count.

use std::time::Instant;

/// Seconds of training, and those that reports of iterations have covered.
#[derive(Debug, Default)]
pub(super) struct TrainingClock {
    seconds: f64,
    /// What had passed when the last reported iteration was known to be done.
    reported_seconds: f64,
}

impl TrainingClock {
    /// Counts the time since `started` as training, and as part of the next report.
    pub(super) fn add_since(&mut self, started: Instant) {
        self.seconds += started.elapsed().as_secs_f64();
    }

    /// Counts the time since `started` as training, but as none of an iteration's.
    pub(super) fn add_beside_iterations(&mut self, started: Instant) {
        let seconds = started.elapsed().as_secs_f64();
        self.seconds += seconds;
        self.reported_seconds += seconds;
    }

    /// Milliseconds since the last report.
    pub(super) fn take_report_ms(&mut self) -> f64 {
        let ms = (self.seconds - self.reported_seconds) * 1e3;
        self.reported_seconds = self.seconds;
        ms
    }

    /// Seconds of training.
    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }
}
