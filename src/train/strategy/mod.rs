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
use self::triangles::TriangleRounds;
use super::SceneScale;
use crate::backend::Faces;
use crate::config::{Config, PrimitiveName, StrategyName};
use crate::dataset::Dataset;

/// Training pixels per Gaussian of adc and gof without `--max-points`.
const PIXELS_PER_GAUSSIAN: u64 = 40;

/// Smallest such limit, for scenes with few pixels, and the largest.
const LIMITS: [u64; 2] = [100_000, 5_000_000];

/// Limit of mcmc without `--max-points`.
const MCMC_LIMIT: u64 = 1_000_000;

/// Returns the largest number of Gaussians or vertices: `--max-points`, or the default of the strategy.
fn most_rows(config: &Config, train_pixels: u64) -> usize {
    let by_default = || match (config.optimize.primitive, config.densify.strategy) {
        (PrimitiveName::Triangles, _) | (_, StrategyName::Budget) => u64::MAX,
        (_, StrategyName::Mcmc) => MCMC_LIMIT,
        (_, StrategyName::Adc | StrategyName::Gof) => {
            (train_pixels / PIXELS_PER_GAUSSIAN).clamp(LIMITS[0], LIMITS[1])
        }
    };
    usize::try_from(config.densify.max_points.unwrap_or_else(by_default)).unwrap_or(usize::MAX)
}

/// Returns the strategy that the options name, for a scene of this scale.
pub fn of<D: Faces>(config: &Config, scene: SceneScale, dataset: &Dataset) -> Box<dyn Strategy<D>> {
    let (views, most) = (dataset.train.len(), most_rows(config, dataset.train_pixels()));
    if config.optimize.primitive == PrimitiveName::Triangles {
        return Box::new(TriangleRounds::new(config, scene, views, most));
    }
    match config.densify.strategy {
        StrategyName::Adc | StrategyName::Gof => Box::new(GradientGrowth::new(config, scene, most)),
        StrategyName::Budget => Box::new(BudgetGrowth::new(config, scene, views, most)),
        StrategyName::Mcmc => Box::new(Mcmc::new(config, scene, most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_options_or_the_strategys() {
        let mut config = Config::default();
        for (strategy, pixels, limit) in [
            (StrategyName::Adc, 36_000_000, 900_000),
            (StrategyName::Gof, 400_000, 100_000),
            (StrategyName::Adc, 8_000_000_000, 5_000_000),
            (StrategyName::Mcmc, 400_000, 1_000_000),
            (StrategyName::Budget, 400_000, usize::MAX),
        ] {
            config.densify.strategy = strategy;
            assert_eq!(most_rows(&config, pixels), limit, "{strategy:?}");
        }
        config.densify.max_points = Some(12);
        assert_eq!(most_rows(&config, 36_000_000), 12);
        config.densify.max_points = None;
        config.optimize.primitive = PrimitiveName::Triangles;
        assert_eq!(most_rows(&config, 400_000), usize::MAX);
    }
}
