//! Adaptive density control of 3DGS (Kerbl et al. 2023, section 5), with the gradients of AbsGS (Ye et
//! al. 2024) where the options ask for them.

use super::growth::GradientGrowth;
use super::interface::{Site, StepExtras, Strategy};
use crate::backend::{Adjust, Edit, ScoreRule, Statistics};
use crate::config::Config;
use crate::memory::plan::RoundShape;
use crate::model::Gaussians;
use crate::train::event::RoundReport;
use crate::train::span::Span;
use crate::train::{SceneScale, TrainError};

/// Candidates are those of high gradients.
pub(super) struct Adc {
    growth: GradientGrowth,
    statistics: Statistics,
    extras: StepExtras,
}

impl Adc {
    pub(super) fn new(config: &Config, scene: SceneScale) -> Self {
        Self {
            growth: GradientGrowth::new(config, scene),
            statistics: match config.densify.absgrad {
                true => Statistics::AbsoluteNorms,
                false => Statistics::Norms,
            },
            extras: StepExtras::of(config, scene),
        }
    }
}

impl<D: Edit<Gaussians>> Strategy<D> for Adc {
    fn observes(&self, iteration: u32) -> Option<Statistics> {
        self.growth.rounds.may_follow(iteration).then_some(self.statistics)
    }

    fn step_extras(&self, _span: Span) -> StepExtras {
        self.extras
    }

    fn due(&self, span: Span) -> bool {
        self.growth.rounds.is_due(span)
    }

    fn round(&self, site: &mut Site<'_, D>) -> Result<RoundReport, TrainError> {
        let GradientGrowth { gradient_min: min, small_max, .. } = self.growth;
        self.growth.round(site, &ScoreRule::Gradient { min, small_max })
    }

    fn adjust(&self, span: Span) -> Option<Adjust> {
        self.growth.adjust(span)
    }

    fn shape(&self) -> RoundShape {
        RoundShape::Grow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;

    #[test]
    fn gradients_are_observed_until_the_last_round_as_absolute_ones_where_these_count() {
        let mut config = Config::default();
        let observed = |config: &Config, iteration| {
            let adc = Adc::new(config, SceneScale { extent: 1.0, unit: 1.0 });
            Strategy::<Cpu<f32>>::observes(&adc, iteration)
        };
        assert_eq!(observed(&config, 14_999), Some(Statistics::Norms));
        assert_eq!(observed(&config, 15_000), None);
        config.densify.absgrad = true;
        assert_eq!(observed(&config, 1), Some(Statistics::AbsoluteNorms));
    }
}
