//! How training views grow to their full size.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// At what size training views are drawn at the beginning of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResolutionSchedule {
    /// Always at full size
    #[default]
    None,
    /// At a quarter, then half of their sides; their pixels grow linearly
    Linear,
}
