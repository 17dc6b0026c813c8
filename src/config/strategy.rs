//! Strategies of density control and the options that they imply.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{ConfigError, preset_text};

/// Options that apply unless a layer overrides them.
pub(super) struct Implied {
    /// Name in messages.
    pub(super) origin: &'static str,
    /// TOML text of the values, the lowest layer.
    pub(super) text: &'static str,
}

/// Strategy of density control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StrategyName {
    /// As 3DGS: clone and split Gaussians with high gradients, prune the transparent
    #[default]
    Adc,
    /// As adc, with GOF's criterion; see --densify-grad-threshold (4e-4) and --near-fade (0.37)
    Gof,
    /// Up to --max-points, where pixels disagree about an opacity; prune what no view shows
    Budget,
    /// 3DGS-MCMC, up to --max-points; what is not given is that of --preset mcmc
    Mcmc,
}

impl StrategyName {
    /// Returns the options that the strategy implies unless a layer overrides them.
    pub(super) fn implied(self, absgrad: bool) -> Result<Option<Implied>, ConfigError> {
        Ok(match self {
            Self::Adc => absgrad.then_some(Implied {
                origin: "absgrad",
                // Sums of absolute values are larger. This is AbsGS's own threshold (Ye et al. 2024).
                text: "[densify]\ndensify_grad_threshold = 8e-4\n",
            }),
            Self::Gof => Some(Implied {
                origin: "strategy gof",
                // Its authors use 2e-4 and 0. Absolute gradients are largest for Gaussians that cover most of an
                // image, which float right before the camera (Pixel-GS, Zhang et al. 2024), and they add as many
                // candidates again as in 3DGS.
                text: "[densify]\ndensify_grad_threshold = 4e-4\nnear_fade = 0.37\n",
            }),
            Self::Budget => Some(Implied {
                origin: "strategy budget",
                text: "[densify]\nopacity_reset_interval = 500\n",
            }),
            Self::Mcmc => Some(Implied { origin: "preset mcmc", text: preset_text("mcmc")? }),
        })
    }

    /// True if the strategy has the option `absgrad`.
    pub(super) fn takes_absgrad(self) -> bool {
        self == Self::Adc
    }

    /// True if the strategy adds Gaussians by gradients and resets opacities.
    pub(super) fn grows_by_gradient(self) -> bool {
        matches!(self, Self::Adc | Self::Gof)
    }

    /// True if the strategy grows to `--max-points` instead of only respecting it.
    pub fn grows_to_a_number(self) -> bool {
        matches!(self, Self::Budget | Self::Mcmc)
    }

    /// True if the strategy splits large Gaussians and resets opacities at intervals.
    pub(super) fn splits_and_resets(self) -> bool {
        self != Self::Mcmc
    }

    /// True if the strategy moves Gaussians at random after a step.
    pub(super) fn moves_at_random(self) -> bool {
        self == Self::Mcmc
    }
}
