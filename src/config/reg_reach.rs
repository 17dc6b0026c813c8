//! Gaussians on which the weights of opacity and scale act.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Gaussians on which the weights of opacity and scale act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RegReach {
    /// All Gaussians, in each step
    #[default]
    All,
    /// Gaussians that the views of the step show
    Seen,
    /// Like all if much of the photographs is masked or background, otherwise like seen
    Auto,
}
