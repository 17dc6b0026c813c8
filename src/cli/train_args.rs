//! The arguments of `splat train`.

use std::path::PathBuf;

use clap::Args;

use super::preset::PresetArgs;
use super::ranks::{GpuCount, RankCount, is_launched};
use crate::config::Config;
use crate::telemetry::{LogDetail, ProgressStyle};

/// Arguments of `splat train`.
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
    /// How many processes train.
    pub(super) fn ranks(&self) -> RankCount {
        self.gpus.map_or(self.ranks, |gpus| gpus.ranks(is_launched()))
    }

    /// The flag that asks for them, with a space before it; nothing for one process.
    pub(super) fn ranks_flag(&self) -> String {
        self.gpus.map_or_else(|| self.ranks.as_flag(), GpuCount::as_flag)
    }

    /// Detail of the log; `otherwise` applies without a flag.
    pub(super) fn detail(&self, otherwise: LogDetail) -> LogDetail {
        match (self.quiet, self.verbose) {
            (true, _) => LogDetail::Warnings,
            (false, true) => LogDetail::Details,
            (false, false) => otherwise,
        }
    }

    /// Style of the progress.
    pub(super) fn style(&self) -> ProgressStyle {
        if self.quiet { ProgressStyle::None } else { self.progress }
    }
}
