//! When the 3D filter is computed anew beside rounds of density control (Mip-Splatting, Yu et al.
//! 2024, as its authors' program does).

use super::span::ImageSpan;
use crate::config::Config;

/// Iterations between two times once density control has ended.
const INTERVAL: u32 = 100;

/// Whether it is after a step: centres still move when no round comes any more, but the last iterations
/// train what is saved.
pub(super) fn is_due(config: &Config, span: ImageSpan) -> bool {
    let from = config.densify.densify_until_iter;
    let until = config.optimize.iterations.saturating_sub(INTERVAL);
    let in_window = |iteration: u32| iteration > from && iteration < until;
    config.optimize.filter_3d && span.multiple(INTERVAL).is_some_and(in_window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_filters_come_every_hundred_iterations_from_15100_to_29800() {
        let mut config = Config::default();
        let due = |config: &Config| {
            (0..=30_000).filter(|&i| is_due(config, ImageSpan::of(i))).collect::<Vec<_>>()
        };
        assert!(due(&config).is_empty(), "without the filter");
        config.optimize.filter_3d = true;
        let found = due(&config);
        assert_eq!((found[0], found[1], found[found.len() - 1]), (15_100, 15_200, 29_800));
        config.optimize.iterations = 50;
        assert!(due(&config).is_empty());
    }
}
