//! How far a run has come.

/// How far a run has come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passed {
    /// Finished iterations of the schedule.
    pub iteration: u32,
    /// Images trained on.
    pub images: u32,
    /// Seconds of training.
    pub seconds: f64,
}

/// How far a run with a time budget, or with a limit of passes over few views, had come beside its iterations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paced {
    /// Images trained on.
    pub images: u32,
    /// Finished iterations before the last step.
    pub before: u32,
    /// Seconds of training, where the run has a time budget.
    pub seconds: Option<f64>,
}
