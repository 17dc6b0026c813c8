//! What a model is made of.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What is trained, and drawn of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrimitiveName {
    /// 3D Gaussians, as 3DGS
    #[default]
    Gaussians,
    /// Flat Gaussians that rays meet: discs, as 2DGS
    Surfels,
}
