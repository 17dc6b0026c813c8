//! `splat synth`: a synthetic scene.

use std::path::PathBuf;

use clap::Args;

use super::output::print;
use crate::synth::{SynthOptions, write_scene};

/// Arguments of `splat synth`.
#[derive(Args)]
pub(super) struct SynthArgs {
    /// Folder of the scene; made if it is missing
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    #[command(flatten)]
    options: SynthOptions,
}

/// Writes the scene and says where it is.
pub(super) fn run(args: &SynthArgs) -> anyhow::Result<()> {
    let report = write_scene(&args.output, &args.options)?;
    tracing::info!("{} photographs and {} points written", report.views, report.points);
    print(&args.output.display().to_string())?;
    Ok(())
}
