//! When density control acts, and how many Gaussians it may add. The device does the rest.

use crate::backend::{DensifyRule, Grant, Pass, Survey};
use crate::config::{Config, DensifyOptions};

/// Opacity below which a Gaussian is removed.
const OPACITY_MIN: f64 = 0.005;

/// Share of the extent above which a Gaussian is removed as too large.
const SCALE_MAX_SHARE: f64 = 0.1;

/// Opacity that a reset leaves at most.
pub const RESET_OPACITY: f64 = 0.01;

/// Iterations after which the Gaussians have grown and moved enough to be put in order anew.
const REORDER_INTERVAL: u32 = 1000;

/// The rule of the round that is due after `iteration`, if one is.
pub fn due(config: &Config, extent: f64, iteration: u32) -> Option<DensifyRule> {
    let options = &config.densify;
    if !is_round(options, iteration) {
        return None;
    }
    // Before the first reset of the opacities large Gaussians are still finding their place.
    let prunes_large = iteration > options.opacity_reset_interval;
    Some(DensifyRule {
        gradient_min: options.densify_grad_threshold,
        clone_scale_max: options.percent_dense * extent,
        opacity_min: OPACITY_MIN,
        scale_max: prunes_large.then_some(SCALE_MAX_SHARE * extent),
        seed: config.run.seed,
        iteration,
        criterion: crate::backend::Criterion::Gradient,
    })
}

fn is_round(options: &DensifyOptions, iteration: u32) -> bool {
    let in_window = iteration > options.densify_from_iter && iteration < options.densify_until_iter;
    in_window && iteration.is_multiple_of(options.densification_interval.max(1))
}

/// Whether Gaussians are put in the order of their places after the round that is due after
/// `iteration`: after the first of every thousand iterations, and after the last of all.
pub fn reorders(config: &Config, iteration: u32) -> bool {
    let options = &config.densify;
    let interval = options.densification_interval.max(1);
    let first = iteration % REORDER_INTERVAL < interval;
    let last = iteration.saturating_add(interval) >= options.densify_until_iter;
    is_round(options, iteration) && (first || last)
}

/// What the frame of `iteration` is for: statistics are gathered while a round may still use them.
pub fn pass(config: &Config, iteration: u32) -> Pass {
    if iteration < config.densify.densify_until_iter { Pass::Observe } else { Pass::Train }
}

/// Whether opacities are reset after `iteration`: every interval, and once more where density
/// control begins over a white background, which hides what is behind it.
pub fn resets_opacity(config: &Config, iteration: u32) -> bool {
    let options = &config.densify;
    let regular = iteration.is_multiple_of(options.opacity_reset_interval.max(1));
    let first = config.scene.white_background && iteration == options.densify_from_iter;
    iteration > 0 && iteration < options.densify_until_iter && (regular || first)
}

/// Of the births that the survey wishes for, as many as `--max-points` leaves room for.
pub fn grant(config: &Config, gaussians: usize, survey: Survey) -> Grant {
    let room = config.densify.max_points.map_or(usize::MAX, |cap| {
        usize::try_from(cap).unwrap_or(usize::MAX).saturating_sub(gaussians)
    });
    Grant { births: survey.births().min(room) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_come_every_hundred_iterations_between_500_and_15000_exclusive() {
        let config = Config::default();
        let rounds: Vec<u32> = (1..=30_000).filter(|&i| due(&config, 1.0, i).is_some()).collect();
        assert_eq!((rounds[0], rounds[1], rounds[rounds.len() - 1]), (600, 700, 14_900));
        assert_eq!(rounds.len(), 144);
    }

    #[test]
    fn gaussians_are_put_in_order_after_the_first_round_of_a_thousand_iterations_and_the_last() {
        let mut config = Config::default();
        let orders = |config: &Config| -> Vec<u32> {
            (0..=30_000).filter(|&i| reorders(config, i)).collect()
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
        assert_eq!(due(&config, 2.0, 3000).unwrap().scale_max, None);
        let rule = due(&config, 2.0, 3100).unwrap();
        assert_eq!((rule.scale_max, rule.clone_scale_max), (Some(0.2), 0.02));
    }

    #[test]
    fn opacities_are_reset_every_3000_and_at_the_start_over_white() {
        let mut config = Config::default();
        let resets = |config: &Config| -> Vec<u32> {
            (0..=30_000).filter(|&i| resets_opacity(config, i)).collect()
        };
        assert_eq!(resets(&config), [3000, 6000, 9000, 12_000]);
        config.scene.white_background = true;
        assert_eq!(resets(&config), [500, 3000, 6000, 9000, 12_000]);
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
