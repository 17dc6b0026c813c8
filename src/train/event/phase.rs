//! What a run is doing while memory is taken.

use serde::Serialize;

/// What a run was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Iterations, but for those of the coarse stage.
    Training,
    /// A round of density control.
    DensityControl,
    /// A comparison of views with their photographs.
    Evaluation,
    /// Writing a PLY or a checkpoint.
    Saving,
    /// Iterations of SuGaR's coarse stage.
    Coarse,
}

impl Phase {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 5] =
        [Self::Training, Self::DensityControl, Self::Coarse, Self::Evaluation, Self::Saving];

    /// As tags and keys spell it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::DensityControl => "density_control",
            Self::Evaluation => "evaluation",
            Self::Saving => "saving",
            Self::Coarse => "coarse",
        }
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::DensityControl => "density control",
            Self::Coarse => "coarse training",
            Self::Training | Self::Evaluation | Self::Saving => self.key(),
        }
    }
}
