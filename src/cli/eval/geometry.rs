//! `splat eval --geometry`: how far a mesh is from the true surface.

use std::io;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, ValueEnum};
use splat_mesh::compare::{Alignment, CompareOptions, Viewpoint, compare};
use splat_mesh::file::read_mesh;

use super::figures::{GeometryReport, table};
use super::newest::newest_mesh;
use crate::cli::folder;
use crate::cli::output::print;
use crate::cli::scene::ModelArgs;
use crate::dataset::{Dataset, View};
use crate::export::frame_of_file;
use crate::files::{WorkFolder, check_writable, write_atomically};
use crate::mesh::convert_mesh;

/// The file of the figures in the model folder.
const FIGURES: &str = "geometry.json";

/// Files of meshes that can be read.
const EXTENSIONS: [&str; 2] = ["ply", "obj"];

/// What to measure of a mesh.
#[derive(Args)]
#[command(next_help_heading = "Geometry")]
pub(super) struct GeometryArgs {
    /// True mesh (.ply or .obj): measure the model's mesh, not its renders
    ///
    /// Prints Chamfer distance and F-score of the newest mesh that `splat mesh` wrote, over both whole
    /// surfaces, over what training cameras see, and over a virtual scan from these cameras. It needs
    /// no GPU, and the figures are also written to MODEL/geometry.json.
    #[arg(long, value_name = "TRUTH")]
    pub(super) geometry: Option<PathBuf>,

    /// Mesh to measure [default: the model's newest]
    ///
    /// A PLY or OBJ; with --mesh-images also a GLB that `splat mesh` wrote.
    #[arg(long, value_name = "FILE")]
    pub(super) mesh: Option<PathBuf>,

    /// Draw the mesh from the views of --split and measure its images
    ///
    /// Prints PSNR and SSIM of the mesh by itself, with its texture or the colours of its vertices,
    /// against the photographs. The newest GLB is taken, or else the newest PLY. It needs no GPU, and the
    /// figures are also written to `MODEL/mesh_images.json`.
    #[arg(long, conflicts_with = "geometry")]
    pub(super) mesh_images: bool,

    /// A further distance at which surfaces agree, in the scene's unit
    ///
    /// F-scores are measured at 0.2, 0.5 and 1 % of the truth's diagonal, and at this distance. Distances
    /// beyond 20 times this, or else 10 % of the diagonal, count as that.
    #[arg(long, value_name = "X", requires = "geometry")]
    threshold: Option<f64>,

    /// Move, turn and scale the mesh onto the truth first
    #[arg(long, value_enum, value_name = "HOW", requires = "geometry")]
    align: Option<AlignBy>,
}

/// How a mesh is moved onto the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AlignBy {
    /// Iterated closest points
    Icp,
}

/// Measures the mesh, prints the figures and keeps them in the model folder.
pub(super) fn run(
    args: &GeometryArgs,
    truth_path: &Path,
    model: &ModelArgs,
    json: bool,
    matches: &ArgMatches,
) -> anyhow::Result<()> {
    let model_path = &model.model_path;
    if let Some(problem) = folder::not_a_folder(model_path) {
        return Err(problem.into());
    }
    if !json {
        check_writable(model_path)?;
    }
    let mesh_path = match &args.mesh {
        Some(named) => named.clone(),
        None => newest_mesh(model_path, model.wanted_iteration(), &EXTENSIONS)?,
    };
    let frame = frame_of_file(&mesh_path)?;
    let mesh = read_mesh(&mesh_path)?;
    let mut truth = read_mesh(truth_path)?;
    convert_mesh(&mut truth, &frame_of_file(truth_path)?, &frame);
    let viewpoints = viewpoints(&model.read_scene(&frame, matches)?);
    tracing::info!(
        "comparing {} faces with the truth's {}, as {} cameras see them",
        mesh.faces.len(),
        truth.faces.len(),
        viewpoints.len()
    );
    let alignment = match args.align {
        None => Alignment::Given,
        Some(AlignBy::Icp) => Alignment::Icp,
    };
    let options =
        CompareOptions { threshold: args.threshold, alignment, ..CompareOptions::default() };
    let comparison = compare(&mesh, &truth, &viewpoints, &options)?;
    let report = GeometryReport {
        mesh: mesh_path,
        truth: truth_path.to_owned(),
        cameras: viewpoints.len(),
        comparison,
    };
    let text = if json { serde_json::to_string_pretty(&report)? } else { table(&report) };
    let printed = print(&text);
    let _work = WorkFolder::open(model_path);
    let written = write_atomically(&model_path.join(FIGURES), |out| {
        serde_json::to_writer_pretty(out, &report).map_err(io::Error::from)
    });
    match written {
        // Who asks for JSON reads it from stdout.
        Err(error) if json => tracing::warn!("{FIGURES} is left as it was: {error}"),
        done => done?,
    }
    Ok(printed?)
}

/// The training cameras.
fn viewpoints(dataset: &Dataset) -> Vec<Viewpoint> {
    dataset.train.iter().map(|&index| viewpoint(&dataset.views[index])).collect()
}

fn viewpoint(view: &View) -> Viewpoint {
    Viewpoint {
        size_px: [view.camera.width, view.camera.height].map(f64::from),
        focal_px: view.camera.focal_px,
        centre_px: view.camera.centre_px,
        rotation: view.pose.rotation,
        translation: view.pose.translation,
    }
}
