//! What the prune to `--target-gaussians` reports.

use serde::{Deserialize, Serialize};

/// The prune to `--target-gaussians`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    /// Finished iterations.
    pub iteration: u32,
    /// Gaussians that were to stay.
    pub target: usize,
    /// Gaussians removed; none where there were no more than were to stay.
    pub pruned: usize,
    /// Gaussians afterwards.
    pub gaussians: usize,
    /// What it cost. Absent where none was removed, or no view could be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psnr: Option<TargetPsnr>,
}

/// PSNR of the same views before and after the prune.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetPsnr {
    /// `test` or `eval_train`: which views were measured.
    pub split: String,
    /// Mean over the views in dB; nothing where it is not finite.
    pub before: Option<f64>,
    /// The same after the prune.
    pub after: Option<f64>,
}
