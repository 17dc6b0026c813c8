//! The preset that a command line names: by its name, for a GPU, or for a quality.

use clap::{Args, ValueEnum};

use crate::backend::gpu;
use crate::config::preset_for_card;
use crate::memory::Bytes;

/// The name that stands for the preset of this machine's GPU.
const AUTO: &str = "auto";

/// Which built-in options a command takes.
#[derive(Args)]
pub(super) struct PresetArgs {
    /// Built-in options; --config and flags win over it
    ///
    /// A run of splat train or splat plan of which nothing else is said takes fast. It takes reference, which is 3DGS,
    /// where it has another --strategy than budget, --primitive, --regularize, -c, or what only adc and gof have:
    /// --absgrad, --densify-grad-threshold, --near-fade, --prune-scale. The name auto takes the preset for this
    /// machine's GPU, which splat doctor names.
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,

    /// The preset for a quality: draft, normal or high
    ///
    /// draft shows in seconds whether a scene works, normal is --preset fast, and high, --preset best, takes about four
    /// times as long as that.
    #[arg(long, value_enum, value_name = "QUALITY", conflicts_with = "preset")]
    quality: Option<Quality>,
}

/// What quality a model is to have, without numbers.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Quality {
    /// A first look
    Draft,
    /// The preset fast
    Normal,
    /// The preset best
    High,
}

impl PresetArgs {
    /// The name of the preset; `None` where none is named. That for the GPU is said.
    pub(super) fn named(&self) -> Option<&str> {
        match self.quality {
            Some(Quality::Draft) => Some("draft"),
            Some(Quality::Normal) => Some("fast"),
            Some(Quality::High) => Some("best"),
            None => named(self.preset.as_deref()),
        }
    }
}

/// The preset of this name. That for the GPU is said; `None` where it needs none.
fn named(name: Option<&str>) -> Option<&str> {
    if name != Some(AUTO) {
        return name;
    }
    let card = gpu::memory();
    let preset = card.and_then(preset_for_card);
    tracing::info!("--preset auto: {}", choice(card, preset));
    preset
}

/// What is taken for a card, in words.
pub(super) fn choice(card: Option<Bytes>, preset: Option<&str>) -> String {
    match (card, preset) {
        (Some(card), Some(preset)) => {
            format!("{preset}, for a card of {:.1} GiB", card.gib())
        }
        (Some(card), None) => {
            format!("none is needed for a card of {:.1} GiB", card.gib())
        }
        (None, _) => "none, since this machine has no NVIDIA GPU that can be asked".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_by_its_name_is_taken_as_it_is() {
        assert_eq!(named(None), None);
        assert_eq!(named(Some("16gb")), Some("16gb"));
        let card = Bytes(16 << 30);
        assert_eq!(choice(Some(card), Some("16gb")), "16gb, for a card of 16.0 GiB");
        assert_eq!(choice(Some(card), None), "none is needed for a card of 16.0 GiB");
    }
}
