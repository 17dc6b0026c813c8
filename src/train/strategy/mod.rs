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
use self::growth::GradientGrowth;
use self::mcmc::Mcmc;
use self::triangles::TriangleGrowth;
use super::SceneScale;
use crate::backend::Faces;
use crate::config::{Config, PrimitiveName, StrategyName};
use crate::dataset::Dataset;

/// Returns the strategy that the options name. `most`: largest number of Gaussians or vertices.
pub fn of<D: Faces>(config: &Config, dataset: &Dataset, most: usize) -> Box<dyn Strategy<D>> {
    let (scene, views) = (SceneScale::of(dataset), dataset.views_to_train().len());
    if config.optimize.primitive == PrimitiveName::Triangles {
        return Box::new(TriangleGrowth::new(config, scene, views, most));
    }
    match config.densify.strategy {
        StrategyName::Adc | StrategyName::Gof => Box::new(GradientGrowth::new(config, scene, most)),
        StrategyName::Budget => {
            let photographs = dataset.train.len();
            Box::new(BudgetGrowth::new(config, scene, [photographs, views], most))
        }
        StrategyName::Mcmc => Box::new(Mcmc::new(config, scene, most)),
    }
}
