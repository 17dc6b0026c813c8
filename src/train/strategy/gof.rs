//! The strategy of GOF (Yu et al. 2024): as adaptive density control, with absolute gradients as a
//! second criterion.

use super::growth::GradientGrowth;
use crate::backend::Statistics;
use crate::config::Config;
use crate::train::SceneScale;

/// Candidates are those of high gradients, and as large a share of all by their absolute gradients.
pub(super) fn gof(config: &Config, scene: SceneScale) -> GradientGrowth {
    GradientGrowth::new(config, scene, Statistics::Both)
}
