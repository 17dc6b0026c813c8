//! Density control as a Markov chain (Kheradmand et al. 2024, "3D Gaussian Splatting as Markov Chain Monte Carlo"):
//! transparent Gaussians move to opaque ones, copies are added up to a limit, and random motion explores.

use super::interface::{DensifySchedule, RandomMotion, Site, StepExtras, Strategy};
use crate::backend::{
    Adjust, Edit, EditRule, Edited, Into, MotionReach, Pick, ScoreRule, Statistics,
};
use crate::config::Config;
use crate::math::random::{RandomStream, RandomUse};
use crate::memory::plan::DensifyShape;
use crate::model::Gaussians;
use crate::train::event::DensifyReport;
use crate::train::pace::Turn;
use crate::train::span::ImageSpan;
use crate::train::{SceneScale, TrainError};

/// Largest growth factor of one densification step.
const MAX_GROWTH: f64 = 1.05;

/// Strategy of the Markov chain.
pub(super) struct Mcmc {
    schedule: DensifySchedule,
    motion: RandomMotion,
    most: usize,
    /// Opacity below which a Gaussian is relocated.
    opacity_min: f64,
    seed: u64,
    extras: StepExtras,
}

impl Mcmc {
    pub(super) fn new(config: &Config, scene: SceneScale, most: usize) -> Self {
        Self {
            schedule: DensifySchedule::new(&config.densify),
            motion: RandomMotion::new(config, scene, config.densify.noise_lr, MotionReach::All),
            most,
            opacity_min: config.densify.min_opacity,
            seed: config.run.seed,
            extras: StepExtras::of(config, scene),
        }
    }

    fn key(&self, iteration: u32, purpose: RandomUse) -> u64 {
        RandomStream::new(self.seed, u64::from(iteration), purpose).key()
    }

    /// Returns the number of copies that a densification step adds to N Gaussians.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of Gaussians a little larger"
    )]
    fn wanted_copies(&self, gaussians: usize) -> usize {
        let more = (gaussians as f64 * MAX_GROWTH) as usize;
        more.min(self.most).saturating_sub(gaussians)
    }

    /// Copies Gaussians drawn in proportion to their opacities. Returns `None` without memory.
    fn copy<D: Edit<Gaussians>>(
        &self,
        site: &mut Site<'_, D>,
        into: Into,
        key: u64,
        what: &str,
    ) -> Result<Option<Edited>, TrainError> {
        let candidates =
            site.device.score(site.model, &ScoreRule::Opacity { min: self.opacity_min })?;
        site.edit(&candidates, &[Pick::WithReplacement { into, key }], &EditRule::Share, what)
    }
}

impl<D: Edit<Gaussians>> Strategy<D> for Mcmc {
    fn observes(&self, _iteration: u32) -> Option<Statistics> {
        None
    }

    /// The motion does not end with density control.
    fn step_extras(&self, turn: Turn) -> StepExtras {
        StepExtras { noise: self.motion.of_step(turn), ..self.extras }
    }

    fn schedule(&self) -> DensifySchedule {
        self.schedule
    }

    /// Relocates transparent Gaussians and adds copies up to the limit and the available memory.
    fn densify(&self, site: &mut Site<'_, D>) -> Result<DensifyReport, TrainError> {
        let key = self.key(site.span.after, RandomUse::Relocate);
        let moved =
            self.copy(site, Into::Dead, key, "transparent Gaussians stay where they are")?;
        let wanted = self.wanted_copies(site.len());
        let granted = site.device.grant_new_gaussians(site.model, wanted)?;
        let key = self.key(site.span.after, RandomUse::Multiply);
        let added = self.copy(site, Into::NewRows(granted), key, "no Gaussians are added")?;
        let counts = vec![
            ("relocated", moved.unwrap_or_default().moved),
            ("born", added.unwrap_or_default().copied),
            // If no copy can be made, no Gaussians are added, but none are refused.
            ("refused", wanted - added.map_or(0, |_| granted)),
        ];
        Ok(DensifyReport { event: "relocated", counts })
    }

    fn adjust(&self, _span: ImageSpan, _images_since: Option<u32>) -> Option<Adjust> {
        None
    }

    fn shape(&self) -> DensifyShape {
        DensifyShape::Relocate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Regularisers;
    use crate::backend::cpu::Cpu;

    const UNIT: SceneScale = SceneScale { extent: 1.0, unit: 1.0 };

    fn mcmc(config: &Config, scene: SceneScale) -> Box<dyn Strategy<Cpu<f32>>> {
        Box::new(Mcmc::new(config, scene, 1_000_000))
    }

    #[test]
    fn the_markov_chain_neither_observes_nor_resets() {
        let mcmc = mcmc(&Config::default(), UNIT);
        let due = |iteration| mcmc.due(ImageSpan::of(iteration));
        assert!(due(600) && !due(500) && !due(650));
        assert_eq!(mcmc.observes(100), None);
        assert!((1..30_000).all(|iteration| mcmc.adjust(ImageSpan::of(iteration), None).is_none()));
    }

    #[test]
    fn mcmc_adds_a_twentieth_up_to_the_cap() {
        let copies = |most, count| Mcmc::new(&Config::default(), UNIT, most).wanted_copies(count);
        assert_eq!([1000, 19, 980_000].map(|count| copies(1_000_000, count)), [50, 0, 20_000]);
        assert_eq!([1000, 1001, 2000].map(|count| copies(1001, count)), [1, 0, 0]);
    }

    #[test]
    fn noise_follows_the_position_rate_and_never_ends() {
        let mut config = Config::default();
        config.optimize.scale_reg = 0.25;
        let scene = SceneScale { extent: 2.0, unit: 4.0 };
        let extras =
            |config: &Config, iteration| mcmc(config, scene).step_extras(Turn::of(iteration));
        let noise = extras(&config, 29_999).noise.unwrap();
        // 1.6e-6 times the extent times 500,000 over the unit's square; rounding of exp(ln(x)).
        assert!((noise.rate / 0.1 - 1.0).abs() < 1e-9, "{}", noise.rate);
        assert_ne!(noise.key, extras(&config, 30_000).noise.unwrap().key);
        let regularisers = Regularisers { scale: 0.0625, ..Default::default() };
        assert_eq!(extras(&config, 1).regularisers, regularisers);
        config.densify.noise_lr = 0.0;
        assert_eq!(extras(&config, 1), StepExtras { regularisers, ..StepExtras::default() });
    }
}
