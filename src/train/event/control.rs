//! What the page that shows a run may ask of it.

use serde::{Deserialize, Serialize};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlAction {
    /// Wait after this iteration.
    Pause,
    /// Train on.
    Resume,
    /// Write a checkpoint.
    Checkpoint,
    /// End with a checkpoint, as after Ctrl-C.
    Stop,
}

impl ControlAction {
    /// What the run says of it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Pause => "Paused from the page",
            Self::Resume => "Resumed from the page",
            Self::Checkpoint => "Checkpoint asked for from the page",
            Self::Stop => "Stopping from the page, with a checkpoint",
        }
    }
}
