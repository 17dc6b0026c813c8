//! By how much training views are drawn smaller than their photographs at the beginning of a run.

use crate::config::{Config, ResolutionSchedule};
use crate::math::Divisor;

/// Share of a photograph's pixels that the first iterations draw.
const FIRST_SHARE: f64 = 1.0 / 16.0;

/// Part of the photometric iterations after which views have their full size, at the latest.
const GROWTH_PART: f64 = 0.6;

/// By what the sides of the view of `iteration` (from 1) are divided. It changes after multiples of
/// `--densification-interval`, where rounds of most strategies come, so that as a rule what a round has
/// observed is of one size.
///
/// Its pixels grow linearly (`DashGaussian`, Chen et al. 2025, has them grow by what the spectra of
/// the photographs hold): the divisor is the nearest to the one that draws so many. Once they should be
/// all of them, they are, whatever the interval. The coarse stage, which follows the photometric iterations,
/// draws at full size.
pub(crate) fn view_divisor(config: &Config, iteration: u32) -> Divisor {
    match config.optimize.resolution_schedule {
        ResolutionSchedule::None => Divisor::One,
        ResolutionSchedule::Linear => {
            let full = f64::from(config.optimize.iterations) * GROWTH_PART;
            let full = full.min(f64::from(config.densify.densify_until_iter));
            let interval = config.densify.densification_interval.max(1);
            let done = iteration.saturating_sub(1);
            if iteration > config.optimize.iterations || f64::from(done) >= full {
                return Divisor::One;
            }
            let since = f64::from(done / interval * interval);
            let share = FIRST_SHARE + (1.0 - FIRST_SHARE) * since / full;
            Divisor::nearest(1.0 / share.sqrt())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(iterations: u32, until: u32, interval: u32) -> Config {
        let mut config = Config::default();
        config.optimize.resolution_schedule = ResolutionSchedule::Linear;
        config.optimize.iterations = iterations;
        config.densify.densify_until_iter = until;
        config.densify.densification_interval = interval;
        config
    }

    /// The iterations in which a divisor begins, with it.
    fn changes(config: &Config) -> Vec<(u32, u32)> {
        let mut found: Vec<(u32, u32)> = Vec::new();
        for iteration in 1..=config.last_iteration() {
            let divisor = view_divisor(config, iteration).get();
            if found.last().is_none_or(|&(_, before)| before != divisor) {
                found.push((iteration, divisor));
            }
        }
        found
    }

    #[test]
    fn views_are_quartered_halved_and_whole_as_their_pixels_grow() {
        // A ninth of the pixels is reached after 5.2 % of 15,000 iterations, four ninths after 40.7 %.
        assert_eq!(changes(&config(30_000, 15_000, 100)), [(1, 4), (801, 2), (6201, 1)]);
        // As triangles have it.
        assert_eq!(changes(&config(30_000, 10_000, 500)), [(1, 4), (1001, 2), (4501, 1)]);
        // Density control ends later than views have grown: of 6000 iterations.
        assert_eq!(changes(&config(10_000, 9000, 100)), [(1, 4), (401, 2), (2501, 1)]);
        assert_eq!(changes(&config(10_000, 9000, 1000)), [(1, 4), (1001, 2), (3001, 1)]);
    }

    #[test]
    fn views_are_whole_in_time_however_long_the_interval() {
        assert_eq!(changes(&config(30_000, 15_000, 20_000)), [(1, 4), (15_001, 1)]);
        assert_eq!(changes(&config(10_000, 9000, 4000)), [(1, 4), (4001, 1)]);
        let mut coarse = config(1000, 15_000, 5000);
        assert_eq!(changes(&coarse), [(1, 4), (601, 1)]);
        // Its coarse stage has no smaller view even where all of the others are.
        coarse.optimize.iterations = 1;
        coarse.sugar.regularize = crate::config::Regularize::Density;
        assert_eq!(changes(&coarse), [(1, 4), (2, 1)]);
    }

    #[test]
    fn a_view_has_as_many_pixels_as_it_should_up_to_a_divisor() {
        let config = config(3000, 1000, 1);
        for iteration in 1..=3000 {
            let share = FIRST_SHARE + (1.0 - FIRST_SHARE) * f64::from(iteration - 1) / 1000.0;
            let drawn = f64::from(view_divisor(&config, iteration).get()).powi(-2);
            // Divisors change at 1.5 and at 3.
            let ratio = drawn / share.min(1.0);
            assert!((0.5624..=2.2501).contains(&ratio), "{iteration}: {drawn} for {share}");
        }
    }

    #[test]
    fn without_density_control_or_a_schedule_views_are_whole() {
        assert_eq!(changes(&config(1000, 0, 100)), [(1, 1)]);
        assert_eq!(changes(&Config::default()), [(1, 1)]);
        let mut coarse = config(1000, 15_000, 100);
        coarse.sugar.regularize = crate::config::Regularize::Density;
        assert_eq!(changes(&coarse), [(1, 4), (101, 2), (301, 1)]);
    }
}
