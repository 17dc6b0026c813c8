//! What may be chosen of a synthetic scene.

use clap::Args;

/// What the scene looks like and how much there is of it.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Scene")]
pub struct SynthOptions {
    /// Seed: the same seed gives the same files
    #[arg(long, value_name = "N", default_value_t = Self::default().seed)]
    pub seed: u64,

    /// Number of photographs
    #[arg(long, value_name = "N", default_value_t = Self::default().views)]
    pub views: u32,

    /// Width of the photographs, px
    #[arg(long, value_name = "PX", default_value_t = Self::default().width)]
    pub width: u32,

    /// Height of the photographs, px
    #[arg(long, value_name = "PX", default_value_t = Self::default().height)]
    pub height: u32,

    /// Number of points on the surfaces
    #[arg(long, value_name = "N", default_value_t = Self::default().points)]
    pub points: u32,
}

impl Default for SynthOptions {
    fn default() -> Self {
        Self { seed: 0, views: 48, width: 160, height: 120, points: 4000 }
    }
}
