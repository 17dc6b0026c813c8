//! When density control acts, and how many Gaussians it may add. The device does the rest.

use super::adam::{adam_step, rate_factor};
use super::span::Span;
use super::{SceneScale, schedule};
use crate::backend::{
    AdamStep, Criterion, DensifyRule, Grant, Noise, Regularisers, RelocateRule, Statistics, Survey,
};
use crate::config::{Color, Config, DensifyOptions, Strategy};
use crate::math::random::{Purpose, Stream};

/// Opacity below which a Gaussian is removed, or moved to where others are.
const OPACITY_MIN: f64 = 0.005;

/// Share of the extent above which a Gaussian is removed as too large.
const SCALE_MAX_SHARE: f64 = 0.1;

/// Opacity that a reset leaves at most.
pub const RESET_OPACITY: f64 = 0.01;

/// Iterations after which the Gaussians have grown and moved enough to be put in order anew.
const REORDER_INTERVAL: u32 = 1000;

/// Where density control is a Markov chain, Gaussians become more by at most this factor a round
/// (Kheradmand et al. 2024).
const MULTIPLICATION: f64 = 1.05;

/// Gaussians that it makes at most where nothing else is said.
const MOST_BY_DEFAULT: u64 = 1_000_000;

/// A round of density control.
#[derive(Clone, Copy, Debug)]
pub enum Round {
    /// Gaussians are cloned, split and pruned.
    Densify(DensifyRule),
    /// The dead move to where others are, and copies are added.
    Relocate(RelocateRule),
}

/// The round that is due after a step, if one is.
pub fn due(config: &Config, extent: f64, span: Span) -> Option<Round> {
    let options = &config.densify;
    round_in(options, span)?;
    let (iteration, seed) = (span.after, config.run.seed);
    Some(match options.strategy {
        Strategy::Adc | Strategy::Gof => Round::Densify(rule(config, extent, iteration)),
        Strategy::Mcmc => {
            Round::Relocate(RelocateRule { opacity_min: OPACITY_MIN, seed, iteration })
        }
    })
}

fn rule(config: &Config, extent: f64, iteration: u32) -> DensifyRule {
    let options = &config.densify;
    // Before the first reset of the opacities large Gaussians are still finding their place.
    let prunes_large = iteration > options.opacity_reset_interval;
    DensifyRule {
        gradient_min: options.densify_grad_threshold,
        clone_scale_max: options.percent_dense * extent,
        opacity_min: OPACITY_MIN,
        scale_max: prunes_large.then_some(SCALE_MAX_SHARE * extent),
        seed: config.run.seed,
        iteration,
        criterion: match options.strategy {
            Strategy::Gof => Criterion::Quantile,
            Strategy::Adc | Strategy::Mcmc => Criterion::Gradient,
        },
    }
}

/// The iteration among them after which a round comes, if there is one.
fn round_in(options: &DensifyOptions, span: Span) -> Option<u32> {
    let window = options.densify_from_iter.saturating_add(1)..options.densify_until_iter;
    span.multiple(options.densification_interval).filter(|round| window.contains(round))
}

/// Whether Gaussians are put in the order of their places after the round that is due after a step:
/// after the first of every thousand iterations, and after the last of all.
pub fn reorders(config: &Config, span: Span) -> bool {
    let options = &config.densify;
    let interval = options.densification_interval.max(1);
    round_in(options, span).is_some_and(|round| {
        let first = round % REORDER_INTERVAL < interval;
        first || round.saturating_add(interval) >= options.densify_until_iter
    })
}

/// What density control learns of the view of `iteration`: as long as a round may still use it.
pub fn observes(config: &Config, iteration: u32) -> Option<Statistics> {
    let options = &config.densify;
    let statistics = match options.strategy {
        Strategy::Gof => Statistics::Both,
        Strategy::Adc if options.absgrad => Statistics::AbsoluteNorms,
        Strategy::Adc => Statistics::Norms,
        Strategy::Mcmc => return None,
    };
    (iteration < options.densify_until_iter).then_some(statistics)
}

/// Depth above which splats tell density control all they have to, world units. Pixel-GS takes its
/// share of the cameras' extent; where they went far along what they look at, as through a street,
/// that would be more than the scene is deep.
pub fn fade_depth(config: &Config, scene: SceneScale) -> f64 {
    config.densify.near_fade * scene.extent.min(scene.unit)
}

/// The step over these images: what the options add to the gradients, and as long as the run lasts the
/// motion that the Markov chain explores with. Both act as they would in a scene of the unit size:
/// scales are divided by the unit, and a motion by its square, since it goes with covariances.
pub fn step(config: &Config, scene: SceneScale, span: Span) -> AdamStep {
    let options = &config.optimize;
    let SceneScale { extent, unit } = scene;
    let iteration = span.after;
    let rates = schedule::rates(options, extent, iteration);
    let regularisers =
        Regularisers { opacity: options.opacity_reg, scale: options.scale_reg / unit };
    let moves = config.densify.strategy == Strategy::Mcmc && config.densify.noise_lr > 0.0;
    let noise = moves.then(|| Noise {
        // The rate after this iteration's change of it, as gsplat has it.
        rate: schedule::rates(options, extent, iteration.saturating_add(1)).means
            * rate_factor(options, span)
            * config.densify.noise_lr
            / (unit * unit),
        key: Stream::new(config.run.seed, u64::from(iteration), Purpose::Noise).key(),
    });
    AdamStep { regularisers, noise, ..adam_step(options, span, 0, rates) }
}

/// Whether opacities are reset after a step: every interval, and once more where density control begins
/// over a white background, which hides what is behind it.
pub fn resets_opacity(config: &Config, span: Span) -> bool {
    let options = &config.densify;
    let is_white = config.scene.background_color() == Color::WHITE;
    let first = Some(options.densify_from_iter).filter(|&first| is_white && span.hits(first));
    let regular = span.multiple(options.opacity_reset_interval);
    let mut resets = first.into_iter().chain(regular);
    options.strategy != Strategy::Mcmc && resets.any(|reset| reset < options.densify_until_iter)
}

/// Of the births that the survey wishes for, as many as `--max-points` leaves room for.
pub fn grant(config: &Config, gaussians: usize, survey: Survey) -> Grant {
    let room = config.densify.max_points.map_or(usize::MAX, |cap| {
        usize::try_from(cap).unwrap_or(usize::MAX).saturating_sub(gaussians)
    });
    Grant { births: survey.births().min(room) }
}

/// How many copies a round of the Markov chain adds to so many Gaussians.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of Gaussians a little larger"
)]
pub fn births_wanted(config: &Config, gaussians: usize) -> usize {
    let cap = config.densify.max_points.unwrap_or(MOST_BY_DEFAULT);
    let cap = usize::try_from(cap).unwrap_or(usize::MAX);
    let more = (gaussians as f64 * MULTIPLICATION) as usize;
    more.min(cap).saturating_sub(gaussians)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mcmc() -> Config {
        let mut config = Config::default();
        config.densify.strategy = Strategy::Mcmc;
        config
    }

    #[test]
    fn rounds_come_every_hundred_iterations_between_500_and_15000_exclusive() {
        let config = Config::default();
        let rounds: Vec<u32> =
            (1..=30_000).filter(|&i| due(&config, 1.0, Span::of(i)).is_some()).collect();
        assert_eq!((rounds[0], rounds[1], rounds[rounds.len() - 1]), (600, 700, 14_900));
        assert_eq!(rounds.len(), 144);
    }

    #[test]
    fn gaussians_are_reordered_each_thousand_iterations_and_at_the_end() {
        let mut config = Config::default();
        let orders = |config: &Config| -> Vec<u32> {
            (0..=30_000).filter(|&i| reorders(config, Span::of(i))).collect()
        };
        let thousands = (1..=14).map(|i| i * 1000);
        assert_eq!(orders(&config), thousands.chain([14_900]).collect::<Vec<u32>>());
        config.densify.densify_until_iter = 4000;
        config.densify.densification_interval = 300;
        assert_eq!(orders(&config), [1200, 2100, 3000, 3900]);
        config.densify.densification_interval = 1500;
        assert_eq!(orders(&config), [1500, 3000]);
        // There is no round at all.
        config.densify.densify_until_iter = 0;
        assert_eq!(orders(&config), [0; 0]);
    }

    #[test]
    fn large_gaussians_are_pruned_only_after_the_first_reset() {
        let config = Config::default();
        assert_eq!(rule(&config, 2.0, 3000).scale_max, None);
        let rule = rule(&config, 2.0, 3100);
        assert_eq!((rule.scale_max, rule.clone_scale_max), (Some(0.2), 0.02));
    }

    #[test]
    fn opacities_are_reset_every_3000_and_at_the_start_over_white() {
        let mut config = Config::default();
        let resets = |config: &Config| -> Vec<u32> {
            (0..=30_000).filter(|&i| resets_opacity(config, Span::of(i))).collect()
        };
        assert_eq!(resets(&config), [3000, 6000, 9000, 12_000]);
        config.scene.white_background = true;
        assert_eq!(resets(&config), [500, 3000, 6000, 9000, 12_000]);
    }

    #[test]
    fn the_markov_chain_moves_the_dead_and_neither_observes_nor_resets() {
        let config = mcmc();
        let due = |iteration| due(&config, 1.0, Span::of(iteration));
        let Some(Round::Relocate(rule)) = due(600) else { unreachable!() };
        assert_eq!((rule.opacity_min, rule.iteration), (0.005, 600));
        assert!(due(500).is_none() && due(650).is_none());
        assert_eq!(observes(&config, 100), None);
        assert!((1..30_000).all(|i| !resets_opacity(&config, Span::of(i))));
    }

    #[test]
    fn it_adds_a_twentieth_and_never_one_above_the_cap() {
        let mut config = mcmc();
        assert_eq!(births_wanted(&config, 1000), 50);
        assert_eq!(births_wanted(&config, 19), 0);
        assert_eq!(births_wanted(&config, 980_000), 20_000);
        config.densify.max_points = Some(1001);
        assert_eq!([1000, 1001, 2000].map(|count| births_wanted(&config, count)), [1, 0, 0]);
    }

    #[test]
    fn its_noise_follows_the_rate_of_the_centres_and_never_ends() {
        let mut config = mcmc();
        config.optimize.scale_reg = 0.25;
        let scene = SceneScale { extent: 2.0, unit: 4.0 };
        let at = |iteration| step(&config, scene, Span::of(iteration));
        let noise = at(29_999).noise.unwrap();
        // 1.6e-6 times the extent times 500,000 over the unit's square; rounding of exp(ln(x)).
        assert!((noise.rate / 0.1 - 1.0).abs() < 1e-9, "{}", noise.rate);
        assert_ne!(noise.key, at(30_000).noise.unwrap().key);
        assert_eq!(at(1).regularisers, Regularisers { opacity: 0.0, scale: 0.0625 });
        config.densify.noise_lr = 0.0;
        assert!(step(&config, scene, Span::of(1)).noise.is_none());
        assert!(step(&Config::default(), scene, Span::of(1)).noise.is_none());
    }

    #[test]
    fn near_fade_uses_the_smaller_of_extent_and_viewing_distance() {
        let mut config = Config::default();
        let depth = |config: &Config, extent, unit| fade_depth(config, SceneScale { extent, unit });
        assert_eq!(depth(&config, 8.0, 4.0), 0.0);
        config.densify.near_fade = 0.5;
        assert_eq!([depth(&config, 8.0, 4.0), depth(&config, 3.0, 4.0)], [2.0, 1.5]);
    }

    #[test]
    fn each_strategy_gathers_what_its_criterion_asks_for() {
        let mut config = Config::default();
        assert_eq!(observes(&config, 1), Some(Statistics::Norms));
        config.densify.absgrad = true;
        assert_eq!(observes(&config, 1), Some(Statistics::AbsoluteNorms));
        config.densify.strategy = Strategy::Gof;
        assert_eq!(observes(&config, 1), Some(Statistics::Both));
        assert_eq!(rule(&config, 1.0, 600).criterion, Criterion::Quantile);
    }

    #[test]
    fn the_cap_leaves_room_for_the_difference_and_none_when_it_is_passed() {
        let mut config = Config::default();
        let wish = Survey { clones: 4, splits: 3 };
        assert_eq!(grant(&config, 10, wish).births, 7);
        config.densify.max_points = Some(12);
        assert_eq!(grant(&config, 10, wish).births, 2);
        assert_eq!(grant(&config, 15, wish).births, 0);
    }
}
