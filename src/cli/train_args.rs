//! Arguments of `splat train`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::TypedValueParser;

use super::parser::named_values;
use super::rank_launch::{GpuCount, RankCount, is_launched};
use crate::backend::gpu;
use crate::config::{Config, preset_for_card};
use crate::memory::Bytes;
use crate::telemetry::{LogDetail, ProgressStyle};

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches, of which any may be given")]
pub(super) struct TrainArgs {
    /// Make a small synthetic scene and train it
    ///
    /// The scene is written to the model folder. Implies --eval.
    #[arg(long, conflicts_with = "source_path")]
    pub(super) demo: bool,

    /// Options in TOML; flags win over it
    #[arg(long, value_name = "FILE.toml")]
    pub(super) config: Option<PathBuf>,

    #[command(flatten)]
    pub(super) preset: PresetArgs,

    /// Continue from this checkpoint
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(super) start_checkpoint: Option<PathBuf>,

    /// Continue from the newest checkpoint
    ///
    /// Training starts anew if the model folder has no usable checkpoint, with the options of its config.toml if there
    /// is one.
    #[arg(long, value_name = "auto", num_args = 0..=1, default_missing_value = "auto", value_parser = ["auto"])]
    pub(super) resume: Option<String>,

    /// Train on N GPUs, each with a share of the Gaussians
    ///
    /// Each GPU of this machine gets a process, as with --ranks. GPUs exchange splats by NCCL 2.18 or later; see splat
    /// doctor.
    #[arg(long, value_name = "N|all", conflicts_with = "ranks")]
    pub(super) gpus: Option<GpuCount>,

    /// Train in N processes, each with a share of the Gaussians
    ///
    /// Each process draws its own views: --batch-views is the number of ranks by default, at most 8. With N the program
    /// starts the processes itself. With auto, torchrun, SLURM, Open MPI or another launcher with PMI has started them,
    /// on any number of hosts. Refused with SuGaR's coarse stage, triangles, --appearance and --clean, and on GPUs with
    /// surfels.
    #[arg(long, value_name = "N|auto", default_value = "1")]
    ranks: RankCount,

    /// Clean the trained model, into MODEL/clean
    ///
    /// Runs splat clean -m MODEL afterwards. The model itself stays as it is. With --resume, a complete run is
    /// cleaned, too.
    #[arg(long)]
    pub(super) clean: bool,

    /// Form of the progress on stderr
    #[arg(long, value_enum, value_name = "STYLE", default_value_t = ProgressStyle::Bar)]
    progress: ProgressStyle,

    /// Only warnings and errors on stderr
    #[arg(long, overrides_with = "verbose")]
    pub(super) quiet: bool,

    /// All notices and details on stderr
    ///
    /// Otherwise at most four lines come before the progress, and run.jsonl holds the rest.
    #[arg(long, overrides_with = "quiet")]
    verbose: bool,

    #[command(flatten)]
    pub(super) options: Config,
}

impl TrainArgs {
    /// Returns the number of training processes.
    pub(super) fn ranks(&self) -> RankCount {
        self.gpus.map_or(self.ranks, |gpus| gpus.ranks(is_launched()))
    }

    /// Returns the flag for the processes with a leading space. Empty for one process.
    pub(super) fn ranks_flag(&self) -> String {
        self.gpus.map_or_else(|| self.ranks.as_flag(), GpuCount::as_flag)
    }

    /// Returns the detail of the log. `otherwise` applies without a flag.
    pub(super) fn detail(&self, otherwise: LogDetail) -> LogDetail {
        match (self.quiet, self.verbose) {
            (true, _) => LogDetail::Warnings,
            (false, true) => LogDetail::Details,
            (false, false) => otherwise,
        }
    }

    pub(super) fn style(&self) -> ProgressStyle {
        if self.quiet { ProgressStyle::None } else { self.progress }
    }
}

// Presets: named, chosen by GPU or chosen by quality.

/// Name of the preset for this machine's GPU.
const AUTO: &str = "auto";

/// Choice of a preset.
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
    /// draft shows in seconds whether a scene works, normal is --preset fast, and high, --preset best, takes two to eight
    /// times as long as that.
    #[arg(long, value_name = "QUALITY", conflicts_with = "preset", value_parser = quality())]
    quality: Option<&'static str>,
}

/// Parses the quality of a model to the name of its preset.
fn quality() -> impl TypedValueParser<Value = &'static str> {
    named_values([
        ("draft", "A first look", "draft"),
        ("normal", "The preset fast", "fast"),
        ("high", "The preset best", "best"),
    ])
}

impl PresetArgs {
    /// Returns the name of the preset, if any. Logs the choice of `auto`.
    pub(super) fn named(&self) -> Option<&str> {
        self.quality.or_else(|| named(self.preset.as_deref()))
    }
}

/// Returns the preset of this name. Logs the choice of `auto`, which may be none.
fn named(name: Option<&str>) -> Option<&str> {
    if name != Some(AUTO) {
        return name;
    }
    let card = gpu::memory();
    let preset = card.and_then(preset_for_card);
    tracing::info!("--preset auto: {}", choice(card, preset));
    preset
}

/// Describes the choice of `auto`.
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
    fn a_named_preset_is_unchanged() {
        assert_eq!(named(None), None);
        assert_eq!(named(Some("16gb")), Some("16gb"));
        let card = Bytes(16 << 30);
        assert_eq!(choice(Some(card), Some("16gb")), "16gb, for a card of 16.0 GiB");
        assert_eq!(choice(Some(card), None), "none is needed for a card of 16.0 GiB");
    }
}
