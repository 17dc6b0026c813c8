//! When the Gaussians are pruned to `--target-gaussians`.

use super::span::ImageSpan;
use crate::config::Config;

/// The prune to `--target-gaussians`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TargetPrune {
    /// The iteration that it comes after: that at which density control ends.
    pub(super) iteration: u32,
    /// Gaussians that stay.
    pub(super) target: usize,
}

impl TargetPrune {
    /// That of a run, if it has one.
    pub(super) fn of(config: &Config) -> Option<Self> {
        let target = usize::try_from(config.densify.target_gaussians?).unwrap_or(usize::MAX);
        // Where there is no density control, at the first opportunity.
        Some(Self { iteration: config.densify.densify_until_iter.max(1), target })
    }

    /// Whether it comes after a step.
    pub(super) fn is_due(self, span: ImageSpan) -> bool {
        span.hits(self.iteration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_once_when_density_control_ends() {
        let mut config = Config::default();
        assert_eq!(TargetPrune::of(&config), None);
        config.densify.target_gaussians = Some(7);
        let prune = TargetPrune::of(&config).unwrap();
        let due = |prune: TargetPrune| -> Vec<u32> {
            (0..=30_000).filter(|&i| prune.is_due(ImageSpan::of(i))).collect()
        };
        assert_eq!((prune.target, due(prune)), (7, vec![15_000]));
        assert!(prune.is_due(ImageSpan { before: 14_998, after: 15_002 }));
        config.densify.densify_until_iter = 0;
        assert_eq!(due(TargetPrune::of(&config).unwrap()), [1]);
    }
}
