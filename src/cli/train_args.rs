//! The arguments of `splat train`.

use std::path::PathBuf;

use clap::Args;

use crate::config::Config;
use crate::telemetry::ProgressStyle;

/// Arguments of `splat train`.
#[derive(Args)]
pub(super) struct TrainArgs {
    /// Make a small synthetic scene in the model folder and train it; implies --eval
    #[arg(long, conflicts_with = "source_path")]
    pub(super) demo: bool,

    /// Options that differ from the defaults, in TOML; flags win over it
    #[arg(long, value_name = "FILE.toml")]
    pub(super) config: Option<PathBuf>,

    /// Built-in options that differ from the defaults; --config and flags win over it
    #[arg(long, value_name = "NAME")]
    pub(super) preset: Option<String>,

    /// Go on from this checkpoint
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(super) start_checkpoint: Option<PathBuf>,

    /// Go on from the newest usable checkpoint of the model folder; without one, start
    #[arg(long, value_name = "auto", num_args = 0..=1, default_missing_value = "auto", value_parser = ["auto"])]
    pub(super) resume: Option<String>,

    /// How progress is shown on stderr
    #[arg(long, value_enum, value_name = "STYLE", default_value_t = ProgressStyle::Bar)]
    progress: ProgressStyle,

    /// Nothing on stderr but warnings and errors
    #[arg(long)]
    pub(super) quiet: bool,

    #[command(flatten)]
    pub(super) options: Config,
}

impl TrainArgs {
    /// How progress is shown.
    pub(super) fn style(&self) -> ProgressStyle {
        if self.quiet { ProgressStyle::None } else { self.progress }
    }
}
