//! Strategies of density control. They choose when and which Gaussians are added, moved and removed, and the device
//! does it. `src/lib.rs` explains how to add a strategy.

mod budget;
mod growth;
mod interface;
mod mcmc;
mod triangles;

pub use growth::fade_depth;
pub use interface::{Site, StepExtras, Strategy, least_images};

use self::budget::BudgetGrowth;
use self::growth::{adc, gof};
use self::mcmc::Mcmc;
use self::triangles::TriangleRounds;
use super::SceneScale;
use crate::backend::Faces;
use crate::config::{Config, PrimitiveName, StrategyName};
use crate::dataset::Dataset;

/// Returns the strategy that the options name, for a scene of this scale.
pub fn of<D: Faces>(config: &Config, scene: SceneScale, dataset: &Dataset) -> Box<dyn Strategy<D>> {
    let views = dataset.train.len();
    if config.optimize.primitive == PrimitiveName::Triangles {
        return Box::new(TriangleRounds::new(config, scene, views));
    }
    match config.densify.strategy {
        StrategyName::Adc => Box::new(adc(config, scene).limited_by_pixels(dataset.train_pixels())),
        StrategyName::Gof => Box::new(gof(config, scene).limited_by_pixels(dataset.train_pixels())),
        StrategyName::Budget => Box::new(BudgetGrowth::new(config, scene, views)),
        StrategyName::Mcmc => Box::new(Mcmc::new(config, scene)),
    }
}
