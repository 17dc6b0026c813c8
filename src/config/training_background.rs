//! What is behind the training views while density control runs.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::Color;

/// What is behind the training views until density control ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrainingBackground {
    /// The background
    #[default]
    Same,
    /// Grey
    Grey,
    /// Grey, unless photographs show much of the background's colour
    Auto,
}

impl TrainingBackground {
    /// The grey.
    pub const GREY: Color = Color([0.5; 3]);
}
