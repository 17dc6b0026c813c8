//! The command line of `splat sugar`.

use std::path::PathBuf;

use clap::Args;

use super::super::refine::BoundOptions;
use super::super::train_args::TrainArgs;
use crate::mesh::MeshOptions;

/// Arguments of `splat sugar`.
#[derive(Args)]
#[command(mut_arg("clean", |arg| arg.hide(true)))]
pub(in crate::cli) struct SugarArgs {
    /// Train nothing: mesh a model that has its surface terms already
    ///
    /// The model is that of --coarse-checkpoint, or else the one in -m.
    #[arg(long)]
    pub(in crate::cli) skip_coarse: bool,

    /// The model folder of --skip-coarse, or a point cloud in it
    #[arg(long, value_name = "MODEL", requires = "skip_coarse")]
    pub(in crate::cli) coarse_checkpoint: Option<PathBuf>,

    /// End with the mesh: bind no Gaussians to it
    #[arg(long)]
    pub(in crate::cli) skip_refinement: bool,

    /// Iterations of the refinement, whatever --refinement-time says
    #[arg(long, value_name = "N")]
    pub(in crate::cli) refinement_iterations: Option<u32>,

    /// Also write the mesh as OBJ, with its texture
    #[arg(long, alias = "export-uv-textured-mesh")]
    pub(in crate::cli) export_obj: bool,

    #[command(flatten)]
    pub(in crate::cli) train: TrainArgs,

    #[command(flatten)]
    pub(in crate::cli) mesh: MeshOptions,

    #[command(flatten)]
    pub(in crate::cli) bound: BoundOptions,
}
