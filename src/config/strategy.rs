//! Names of the strategies of density control, and what each makes of other options.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{ConfigError, preset_text};

/// How Gaussians are added and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Adaptive density control of 3DGS: clones and splits where gradients are high, and prunes
    #[default]
    Adc,
    /// The same with the criterion of GOF and Mip-Splatting: absolute gradients count, too; --densify-grad-threshold is 4e-4 and --near-fade 0.37 then, where none is given
    Gof,
    /// 3DGS-MCMC: up to --max-points, moving what is transparent to where Gaussians are; what is not given takes the values of --preset mcmc
    Mcmc,
}

/// Options that are to be given where nothing is said of them.
pub(super) struct Implied {
    /// Name in messages.
    pub(super) origin: &'static str,
    /// The values, as a layer beneath all that is given.
    pub(super) text: &'static str,
}

impl Strategy {
    /// The options that it brings its own values of, where no layer says otherwise.
    pub(super) fn implied(self, absgrad: bool) -> Result<Option<Implied>, ConfigError> {
        Ok(match self {
            Self::Adc => absgrad.then_some(Implied {
                origin: "absgrad",
                // Sums of absolute values are larger: AbsGS's own threshold (Ye et al. 2024).
                text: "[densify]\ndensify_grad_threshold = 8e-4\n",
            }),
            Self::Gof => Some(Implied {
                origin: "strategy gof",
                // Its authors have 2e-4 and 0. Absolute gradients are largest of what covers most of an
                // image, which is what floats right before the camera (Pixel-GS, Zhang et al. 2024); and
                // they choose as many Gaussians again as 3DGS does.
                text: "[densify]\ndensify_grad_threshold = 4e-4\nnear_fade = 0.37\n",
            }),
            Self::Mcmc => Some(Implied { origin: "preset mcmc", text: preset_text("mcmc")? }),
        })
    }

    /// Whether `absgrad` is an option of it.
    pub(super) fn takes_absgrad(self) -> bool {
        self == Self::Adc
    }

    /// Keys of options that have no effect with it, and when they have none.
    pub fn idle_options(self) -> &'static [(&'static str, &'static str)] {
        const WITH_MCMC: &str = "with --strategy mcmc";
        match self {
            Self::Adc | Self::Gof => &[("noise_lr", "without --strategy mcmc")],
            Self::Mcmc => &[
                ("near_fade", WITH_MCMC),
                ("percent_dense", WITH_MCMC),
                ("densify_grad_threshold", WITH_MCMC),
                ("opacity_reset_interval", WITH_MCMC),
            ],
        }
    }
}
