//! Growth by gradients as in 3DGS (Kerbl et al. 2023, section 5) and GOF: small candidates are cloned, large ones
//! split, transparent or too large Gaussians removed, and opacities reset.

use super::interface::{DensifySchedule, Site, StepExtras, Strategy};
use crate::backend::{Adjust, Candidates, Edit, EditRule, Grow, Keep, Pick, ScoreRule, Statistics};
use crate::config::{Color, Config, RESET_OPACITY, StrategyName};
use crate::math::random::{RandomStream, RandomUse};
use crate::model::Gaussians;
use crate::train::event::DensifyReport;
use crate::train::pace::Turn;
use crate::train::span::ImageSpan;
use crate::train::{SceneScale, TrainError};

/// Factor by which the children of a split are smaller than their parent.
pub(super) const SPLIT_SHRINK: f64 = 1.6;

/// Returns the depth from which on splats report their full gradient to density control, world units. Pixel-GS takes
/// a share of the cameras' extent, but on a street the extent may exceed the depth of the scene.
pub fn fade_depth(config: &Config, scene: SceneScale) -> f64 {
    config.densify.near_fade * scene.extent.min(scene.unit)
}

/// Strategy that grows by gradients.
#[derive(Clone, Debug)]
pub(super) struct GradientGrowth {
    schedule: DensifySchedule,
    statistics: Statistics,
    extras: StepExtras,
    rule: ScoreRule,
    /// Smallest opacity that is kept.
    opacity_min: f64,
    /// Largest scale once large Gaussians are removed, world units.
    scale_max: f64,
    /// Largest number of Gaussians.
    most: usize,
    seed: u64,
    reset_interval: u32,
    /// Iteration of an additional reset: the start of density control on a white background, which
    /// hides what is behind it.
    first_reset: Option<u32>,
}

impl GradientGrowth {
    /// Creates adc, optionally with the gradients of AbsGS (Ye et al. 2024), or GOF (Yu et al. 2024). GOF adds, by
    /// absolute gradients, as large a share of candidates as have high gradients.
    pub(super) fn new(config: &Config, scene: SceneScale, most: usize) -> Self {
        let options = &config.densify;
        let statistics = match (options.strategy, options.absgrad) {
            (StrategyName::Gof, _) => Statistics::Both,
            (_, true) => Statistics::AbsoluteNorms,
            (_, false) => Statistics::Norms,
        };
        let is_white = config.scene.background_color() == Color::WHITE;
        let min = options.densify_grad_threshold;
        let small_max = options.percent_dense * scene.extent;
        Self {
            schedule: DensifySchedule::new(options),
            statistics,
            extras: StepExtras::of(config, scene),
            rule: match statistics {
                Statistics::Both => ScoreRule::GradientOrQuantile { min, small_max },
                Statistics::Norms | Statistics::AbsoluteNorms | Statistics::Disagreement => {
                    ScoreRule::Gradient { min, small_max }
                }
            },
            opacity_min: options.min_opacity,
            scale_max: options.prune_scale * scene.extent,
            most,
            seed: config.run.seed,
            reset_interval: options.opacity_reset_interval,
            first_reset: is_white.then_some(options.densify_from_iter),
        }
    }

    /// Returns the number of Gaussians that may be added.
    fn room(&self, gaussians: usize) -> usize {
        self.most.saturating_sub(gaussians)
    }

    fn edit_rule(&self, iteration: u32) -> EditRule {
        let key = RandomStream::new(self.seed, u64::from(iteration), RandomUse::Split).key();
        // Before the first opacity reset large Gaussians are still finding their place.
        let prunes_large = iteration > self.reset_interval;
        EditRule::Grow {
            large: Grow::SplitRandom { shrink: SPLIT_SHRINK, key },
            keep: Keep {
                opacity_min: self.opacity_min,
                scale_max: prunes_large.then_some(self.scale_max),
                unseen: true,
            },
        }
    }
}

/// Densifies up to `wanted` candidates, as far as `most` and memory allow. If memory is still short, prunes only, and
/// skips the step if that fails too.
pub(super) fn grow<D: Edit<Gaussians>>(
    site: &mut Site<'_, D>,
    candidates: &Candidates,
    wanted: usize,
    most: usize,
    rule: &EditRule,
) -> Result<DensifyReport, TrainError> {
    let new_gaussians = site.device.grant_new_gaussians(site.model, wanted.min(most))?;
    let picks = [Pick::Best(new_gaussians), Pick::Best(0)];
    let picks = if new_gaussians > 0 { &picks[..] } else { &picks[1..] };
    let done = site.edit(candidates, picks, rule, "a round of density control is left out")?;
    let refused = done.map_or(0, |done| wanted - done.copied - done.split);
    let done = done.unwrap_or_default();
    let counts = vec![
        ("cloned", done.copied),
        ("split", done.split),
        ("refused", refused),
        ("pruned", done.removed),
    ];
    Ok(DensifyReport { event: "densified", counts })
}

impl<D: Edit<Gaussians>> Strategy<D> for GradientGrowth {
    fn observes(&self, iteration: u32) -> Option<Statistics> {
        self.schedule.may_follow(iteration).then_some(self.statistics)
    }

    fn step_extras(&self, _turn: Turn) -> StepExtras {
        self.extras
    }

    fn schedule(&self) -> DensifySchedule {
        self.schedule
    }

    fn densify(&self, site: &mut Site<'_, D>) -> Result<DensifyReport, TrainError> {
        let candidates = site.device.score(site.model, &self.rule)?;
        let (room, rule) = (self.room(site.len()), self.edit_rule(site.span.after));
        grow(site, &candidates, candidates.count(), room, &rule)
    }

    /// Resets opacities every interval, and once when density control begins on a white background.
    fn adjust(&self, span: ImageSpan, _images_since: Option<u32>) -> Option<Adjust> {
        let first = self.first_reset.filter(|&first| span.hits(first));
        let mut resets = first.into_iter().chain(span.multiple(self.reset_interval));
        let is_due = resets.any(|reset| self.schedule.may_follow(reset));
        is_due.then_some(Adjust::ResetOpacity(RESET_OPACITY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::train::strategy::Strategy;

    fn growth(config: &Config, extent: f64) -> GradientGrowth {
        GradientGrowth::new(config, SceneScale { extent, unit: 1.0 }, 12)
    }

    #[test]
    fn large_gaussians_are_pruned_only_after_the_first_reset() {
        let growth = growth(&Config::default(), 2.0);
        let scale_max = |iteration| match growth.edit_rule(iteration) {
            EditRule::Grow { keep, .. } => keep.scale_max,
            EditRule::Share | EditRule::Retain => unreachable!(),
        };
        assert_eq!((scale_max(3000), scale_max(3100)), (None, Some(0.2)));
        assert_eq!(growth.rule, ScoreRule::Gradient { min: 2e-4, small_max: 0.02 });
    }

    #[test]
    fn opacities_are_reset_every_3000_and_at_the_start_over_white() {
        let mut config = Config::default();
        let resets = |config: &Config| -> Vec<u32> {
            let growth = growth(config, 1.0);
            (0..=30_000)
                .filter(|&i| {
                    Strategy::<Cpu<f32>>::adjust(&growth, ImageSpan::of(i), None).is_some()
                })
                .collect()
        };
        assert_eq!(resets(&config), [3000, 6000, 9000, 12_000]);
        config.scene.white_background = true;
        assert_eq!(resets(&config), [500, 3000, 6000, 9000, 12_000]);
    }

    #[test]
    fn gradients_fade_by_the_smaller_of_extent_and_viewing_distance() {
        let mut config = Config::default();
        let depth = |config: &Config, extent, unit| fade_depth(config, SceneScale { extent, unit });
        assert_eq!(depth(&config, 8.0, 4.0), 0.0);
        config.densify.near_fade = 0.5;
        assert_eq!([depth(&config, 8.0, 4.0), depth(&config, 3.0, 4.0)], [2.0, 1.5]);
    }

    #[test]
    fn the_cap_limits_the_number_of_new_gaussians() {
        let growth = growth(&Config::default(), 1.0);
        assert_eq!([growth.room(10), growth.room(15)], [2, 0]);
    }

    #[test]
    fn gradients_or_absolute_ones_are_observed_until_the_last_densification_step() {
        let mut config = Config::default();
        let observed = |config: &Config, iteration| {
            Strategy::<Cpu<f32>>::observes(&growth(config, 1.0), iteration)
        };
        assert_eq!(observed(&config, 14_999), Some(Statistics::Norms));
        assert_eq!(observed(&config, 15_000), None);
        config.densify.absgrad = true;
        assert_eq!(observed(&config, 1), Some(Statistics::AbsoluteNorms));
    }
}
