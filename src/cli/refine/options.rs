//! What is typed after `splat refine`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::exit::UsageError;
use crate::cli::scene::ModelArgs;
use crate::math::bound::PerTriangle;
use crate::mesh::{MeshFormat, TextureOptions};
use crate::telemetry::ProgressStyle;

/// How long is refined, in the reference's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RefinementTime {
    /// 2,000 iterations
    Short,
    /// 7,000 iterations
    Medium,
    /// 15,000 iterations
    Long,
}

impl RefinementTime {
    fn iterations(self) -> u32 {
        match self {
            Self::Short => 2_000,
            Self::Medium => 7_000,
            Self::Long => 15_000,
        }
    }
}

/// Arguments of `splat refine`.
#[derive(Args)]
pub(in crate::cli) struct RefineArgs {
    #[command(flatten)]
    pub(in crate::cli) model: ModelArgs,

    /// Mesh to bind Gaussians to (PLY or OBJ) [default: the newest]
    ///
    /// Without it the newest mesh is taken that splat mesh wrote of this iteration of the model. One without vertex colours takes those of the nearest Gaussians.
    #[arg(long, visible_alias = "mesh-path", value_name = "FILE", help_heading = "Refinement")]
    pub(super) mesh: Option<PathBuf>,

    #[command(flatten)]
    bound: BoundOptions,

    /// Iterations, whatever --refinement-time says
    #[arg(short = 'f', long, visible_alias = "refinement-iterations", value_name = "N")]
    #[arg(help_heading = "Refinement")]
    iterations: Option<u32>,

    /// Decimate the mesh to about N vertices first
    #[arg(long, visible_alias = "n-vertices-in-fg", alias = "n-vertices-in-mesh")]
    #[arg(value_name = "N", help_heading = "Refinement")]
    vertices: Option<usize>,

    /// Iterations between two checkpoints
    #[arg(long, value_name = "N", help_heading = "Refinement", default_value_t = 1000)]
    checkpoint_interval: u32,

    /// Refine again what is complete, or with other options
    ///
    /// The earlier refinement is kept beside the new one, as `MESH.previous_1`.
    #[arg(long, help_heading = "Refinement")]
    pub(super) overwrite: bool,

    /// Files of the refined mesh
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FORMATS")]
    #[arg(help_heading = "Refinement", default_values_t = [MeshFormat::Ply, MeshFormat::Glb])]
    pub(super) formats: Vec<MeshFormat>,

    #[command(flatten)]
    pub(super) texture: TextureOptions,

    /// A refinement with other options is moved aside, as with --overwrite.
    #[arg(skip)]
    pub(in crate::cli) replaces_other: bool,

    /// Form of the progress on stderr
    #[arg(long, value_enum, value_name = "STYLE", default_value_t = ProgressStyle::Bar)]
    progress: ProgressStyle,
}

/// What is bound to a mesh, and how it is trained.
#[derive(Args)]
#[command(next_help_heading = "Refinement")]
pub(in crate::cli) struct BoundOptions {
    /// Gaussians on each triangle: 1, 3, 4 or 6 [default: 1]
    #[arg(short = 'g', long, value_name = "N")]
    gaussians_per_triangle: Option<u32>,

    /// Length: 2,000, 7,000 or 15,000 iterations
    #[arg(long, value_enum, value_name = "TIME")]
    #[arg(default_value_t = RefinementTime::Long)]
    refinement_time: RefinementTime,

    /// Few triangles: 200,000 vertices, 6 Gaussians on each triangle
    ///
    /// --vertices and --gaussians-per-triangle win over it.
    #[arg(long, conflicts_with = "high_poly")]
    low_poly: bool,

    /// Many triangles: 1,000,000 vertices, 1 Gaussian on each triangle
    ///
    /// --vertices and --gaussians-per-triangle win over it.
    #[arg(long)]
    high_poly: bool,

    /// Weight of the angles between neighbouring triangles in the loss
    #[arg(short = 'n', long, visible_alias = "normal-consistency-factor", value_name = "WEIGHT")]
    #[arg(default_value_t = 0.1)]
    normal_consistency: f64,
}

/// The options of a refinement, with what presets bring.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct RefineOptions {
    pub(super) per_triangle: PerTriangle,
    pub(super) iterations: u32,
    /// Vertices that the mesh is decimated to, about.
    pub(super) vertices: Option<usize>,
    pub(super) normal_consistency: f64,
    pub(super) checkpoint_interval: u32,
}

impl BoundOptions {
    /// Vertices that a preset decimates to, and Gaussians on each triangle.
    pub(in crate::cli) fn bound(&self) -> Result<(Option<usize>, PerTriangle), UsageError> {
        let (vertices, each) = match (self.low_poly, self.high_poly) {
            (true, _) => (Some(200_000), 6),
            (_, true) => (Some(1_000_000), 1),
            _ => (None, 1),
        };
        let each = self.gaussians_per_triangle.unwrap_or(each);
        let found = PerTriangle::ALL.into_iter().find(|one| one.count() == each as usize);
        match found {
            Some(per_triangle) => Ok((vertices, per_triangle)),
            None => Err(refused("gaussians-per-triangle", &each, "1, 3, 4 and 6")),
        }
    }
}

impl RefineArgs {
    /// How progress is shown.
    pub(in crate::cli) fn style(&self) -> ProgressStyle {
        if self.model.quiet { ProgressStyle::None } else { self.progress }
    }

    /// What the flags come to.
    pub(in crate::cli) fn resolved(&self) -> Result<RefineOptions, UsageError> {
        let bound = &self.bound;
        let (vertices, per_triangle) = bound.bound()?;
        let iterations = self.iterations.unwrap_or(bound.refinement_time.iterations());
        let vertices = self.vertices.or(vertices);
        let weight = bound.normal_consistency;
        if iterations == 0 {
            return Err(refused("iterations", &iterations, "1 and more"));
        }
        if self.checkpoint_interval == 0 {
            return Err(refused("checkpoint-interval", &0, "1 and more"));
        }
        if let Some(few) = vertices.filter(|&vertices| vertices < 4) {
            return Err(refused("vertices", &few, "4 and more"));
        }
        if !(weight.is_finite() && weight >= 0.0) {
            return Err(refused("normal-consistency", &weight, "0 and more"));
        }
        Ok(RefineOptions {
            per_triangle,
            iterations,
            vertices,
            normal_consistency: weight,
            checkpoint_interval: self.checkpoint_interval,
        })
    }
}

/// That an option does not take a value.
fn refused(flag: &str, value: &dyn std::fmt::Display, allowed: &str) -> UsageError {
    UsageError(format!("--{flag} is {value}; allowed: {allowed}"))
}
