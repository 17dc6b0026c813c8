//! The scene that a model was trained on, to fit colours to its photographs.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::ArgMatches;

use super::args::ExportArgs;
use crate::cli::scene::{ModelArgs, Opened};
use crate::config::{MemoryOptions, RunOptions, SceneOptions};

/// Opens the scene with the views alone that the model has seen. Errors begin with the flag that asks for it.
pub(super) fn open(
    args: &ExportArgs,
    model_path: PathBuf,
    run: RunOptions,
    flag: &'static str,
    matches: &ArgMatches,
) -> anyhow::Result<Opened> {
    let named = ModelArgs {
        model_path,
        iteration: args.iteration,
        quiet: args.quiet,
        scene: SceneOptions {
            source_path: args.sog.source_path.clone(),
            ..SceneOptions::default()
        },
        memory: MemoryOptions::default(),
        run,
    };
    let mut model = named.read(matches).context(flag)?;
    model.train_only_seen();
    model.open(None).context(flag)
}
