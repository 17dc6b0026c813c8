//! `splat synth`: writes a synthetic scene.

use std::path::{Path, PathBuf, absolute};

use clap::Args;

use super::folder::{self, TrainedViews};
use super::output::print;
use super::scene::open_scene;
use crate::config::Config;
use crate::export::write_ply;
use crate::files::{WorkFolder, create_folder};
use crate::math::Real as _;
use crate::math::linalg::Vec3;
use crate::math::sh::C0;
use crate::model::Gaussians;
use crate::synth::{SurfaceDisc, SynthOptions, surfels, write_scene, write_truth};
use crate::train::save::new_point_cloud;

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

/// Writes the scene with its true mesh and prints the folder.
pub(super) fn run(args: &SynthArgs) -> anyhow::Result<()> {
    let report = write_scene(&args.output, &args.options)?;
    tracing::info!("{} photographs and {} points written", report.views, report.points);
    let truth = write_truth(&args.output, &args.options)?;
    tracing::info!("truth.ply written, the true mesh in {} faces", truth.faces.len());
    if let Some(model) = &args.gaussians {
        let surfels = surfels(&args.options, &truth, args.gaussian_count as usize);
        write(model, &args.output, &surfels)?;
        tracing::info!("{} flat Gaussians written to {}", surfels.len(), model.display());
    }
    print(&args.output.display().to_string())?;
    Ok(())
}

// Model folder of flat Gaussians on known surfaces.

/// Standard deviation along the surface, in sides of the square that a Gaussian covers. Large
/// enough to leave no gaps.
const ALONG: f64 = 0.75;

/// Standard deviation across the surface, relative to that along it.
const FLATNESS: f64 = 0.1;

/// Opacity at the centre of a Gaussian.
const OPACITY: f64 = 0.95;

/// Iteration in the folder's name.
const ITERATION: u32 = 1;

/// Writes the Gaussians and the other files of a model folder.
fn write(model_path: &Path, scene: &Path, surfels: &[SurfaceDisc]) -> anyhow::Result<()> {
    let mut config = Config::default();
    config.scene.source_path = Some(absolute(scene)?);
    config.scene.eval = true;
    config.optimize.sh_degree = 0;
    let dataset = open_scene(&config.scene)?;
    folder::check_not_file(model_path)?;
    create_folder(model_path)?;
    let _work = WorkFolder::open(model_path);
    if let Some(aside) = folder::set_aside(model_path)? {
        tracing::info!("the earlier model is now in {}", aside.display());
    }
    let trained = TrainedViews::default();
    folder::describe(model_path, &config, &dataset, &dataset.points, &trained, false)?;
    write_ply(&new_point_cloud(model_path, ITERATION)?, &gaussians(surfels))?;
    Ok(())
}

fn gaussians(surfels: &[SurfaceDisc]) -> Gaussians {
    let mut gaussians = Gaussians { sh_degree: 0, ..Gaussians::default() };
    for surfel in surfels {
        let along = (ALONG * surfel.area.sqrt()).ln();
        let scales = [along, along, along + FLATNESS.ln()];
        gaussians.means.extend(surfel.position.map(f64::to_f32));
        gaussians.log_scales.extend(scales.map(f64::to_f32));
        gaussians.quats.extend(turn_to(surfel.normal).map(f64::to_f32));
        gaussians.opacity_logits.push((OPACITY / (1.0 - OPACITY)).ln().to_f32());
        gaussians.sh_dc.extend(surfel.color.map(|channel| ((channel - 0.5) / C0).to_f32()));
    }
    gaussians
}

/// Returns a quaternion (w, x, y, z), not normalized, that turns the z axis to a unit direction.
fn turn_to([x, y, z]: Vec3<f64>) -> [f64; 4] {
    // The shortest turn to the opposite direction is not unique.
    if z < -1.0 + 1e-9 { [0.0, 1.0, 0.0, 0.0] } else { [1.0 + z, -y, x, 0.0] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::linalg::{normalize, rotation};

    #[test]
    fn the_third_axis_of_a_gaussian_is_the_normal() {
        for direction in [[0.0, 0.0, -1.0], [0.0, 0.0, 1.0], [0.3, -0.8, -0.2], [1.0, 0.0, 0.0]] {
            let normal = normalize(direction);
            let turn = rotation(turn_to(normal));
            for (row, expected) in turn.iter().zip(normal) {
                assert!((row[2] - expected).abs() < 1e-12, "{direction:?}: {turn:?}");
            }
        }
    }
}
