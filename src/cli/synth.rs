//! `splat synth`: a synthetic scene.

mod flat_model;

use std::path::PathBuf;

use clap::Args;

use super::output::print;
use crate::synth::{SynthOptions, surfels, write_scene, write_truth};

/// Arguments of `splat synth`.
#[derive(Args)]
pub(super) struct SynthArgs {
    /// Folder of the scene; made if it is missing
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    #[command(flatten)]
    options: SynthOptions,

    /// Also write a model folder of flat Gaussians on the true surfaces
    ///
    /// Nothing is trained. `splat eval`, `render` and `mesh` open it with -m. An earlier model there moves
    /// to `previous_N`, as with `splat train`.
    #[arg(long, value_name = "MODEL", help_heading = "Model")]
    gaussians: Option<PathBuf>,

    /// Number of these Gaussians
    #[arg(long, value_name = "N", help_heading = "Model", requires = "gaussians",
        default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    gaussian_count: u32,
}

/// Writes the scene with its true mesh and says where it is.
pub(super) fn run(args: &SynthArgs) -> anyhow::Result<()> {
    let report = write_scene(&args.output, &args.options)?;
    tracing::info!("{} photographs and {} points written", report.views, report.points);
    let truth = write_truth(&args.output, &args.options)?;
    tracing::info!("truth.ply written, the true mesh in {} faces", truth.faces.len());
    if let Some(model) = &args.gaussians {
        let surfels = surfels(&args.options, &truth, args.gaussian_count as usize);
        flat_model::write(model, &args.output, &surfels)?;
        tracing::info!("{} flat Gaussians written to {}", surfels.len(), model.display());
    }
    print(&args.output.display().to_string())?;
    Ok(())
}
