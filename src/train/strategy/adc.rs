//! Adaptive density control of 3DGS (Kerbl et al. 2023, section 5), with the gradients of AbsGS (Ye et
//! al. 2024) where the options ask for them.

use super::growth::GradientGrowth;
use crate::backend::Statistics;
use crate::config::Config;
use crate::train::SceneScale;

/// Candidates are those of high gradients.
pub(super) fn adc(config: &Config, scene: SceneScale) -> GradientGrowth {
    let statistics = match config.densify.absgrad {
        true => Statistics::AbsoluteNorms,
        false => Statistics::Norms,
    };
    GradientGrowth::new(config, scene, statistics)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::train::strategy::Strategy;

    #[test]
    fn gradients_or_absolute_ones_are_observed_until_the_last_round() {
        let mut config = Config::default();
        let observed = |config: &Config, iteration| {
            let adc = adc(config, SceneScale { extent: 1.0, unit: 1.0 });
            Strategy::<Cpu<f32>>::observes(&adc, iteration)
        };
        assert_eq!(observed(&config, 14_999), Some(Statistics::Norms));
        assert_eq!(observed(&config, 15_000), None);
        config.densify.absgrad = true;
        assert_eq!(observed(&config, 1), Some(Statistics::AbsoluteNorms));
    }
}
