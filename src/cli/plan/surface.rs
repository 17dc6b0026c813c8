//! The stages of `splat sugar` after training: its mesh, and what is bound to that.

use clap::ArgMatches;

use super::report::{Budget, PlanReport, SurfaceStage};
use crate::backend::CHUNK_ROWS;
use crate::cli::exit::UsageError;
use crate::cli::host_limit::BOUND_MESH;
use crate::cli::mesh::{meshing, planned_model};
use crate::cli::parser::is_typed;
use crate::cli::refine::{BoundOptions, bound_bytes, refining};
use crate::cli::sugar::{SUGAR_METHOD, SUGAR_TEXTURE};
use crate::config::{Config, DeviceChoice};
use crate::dataset::Dataset;
use crate::memory::Bytes;
use crate::memory::plan::{
    BoundSizes, Forecast, Host, PlannedMeshing, PlannedRefinement, PlannedRow,
};
use crate::mesh::{Corner, MeshOptions, MeshedScene, TextureSource, WorldBox, mesh_host_rows};
use crate::train::forecast;

/// Triangles of a mesh that is not decimated: as many as one is decimated to otherwise.
const UNDECIMATED: u64 = 1_000_000;

/// Triangles of a closed mesh for each of its vertices, nearly.
const FACES_OF_VERTEX: u64 = 2;

/// What is typed of these stages.
pub(super) struct SurfaceOptions<'a> {
    pub(super) mesh: &'a MeshOptions,
    pub(super) bound: &'a BoundOptions,
    /// Whether nothing is bound to the mesh.
    pub(super) skip_refinement: bool,
    /// Context and code.
    pub(super) context: Bytes,
}

/// The stages; none where no surface terms are named, after which there is no mesh.
pub(super) fn stages(
    typed: &SurfaceOptions<'_>,
    matches: &ArgMatches,
    config: &Config,
    dataset: &Dataset,
    report: &PlanReport,
) -> Result<Vec<SurfaceStage>, UsageError> {
    let Some(seen) = report.seen.filter(|_| config.has_coarse_stage()) else {
        return Ok(Vec::new());
    };
    let mut options = typed.mesh.clone();
    // As `splat sugar` has them where they are not named.
    if !is_typed(matches, "method") {
        options.method = SUGAR_METHOD;
    }
    if !is_typed(matches, "texture") {
        options.texture.texture = SUGAR_TEXTURE;
    }
    // A plan is for a GPU unless --device cpu is given, even on a machine without a GPU.
    if config.run.device == DeviceChoice::Cpu {
        options.tsdf.fit_processor();
    }
    if let (Some(Corner(low)), Some(Corner(high))) = (options.bbox_min, options.bbox_max) {
        options = options.fitted_to(&WorldBox { low, high });
    }
    let count = report.gaussians.count;
    let gaussians = config.densify.target_gaussians.map_or(count, |target| target.min(count));
    let (least_vertices, per_triangle) = typed.bound.bound()?;
    let extracted = match options.decimation_target as u64 {
        0 => UNDECIMATED,
        target => target,
    };
    let refined_texture = options.texture.texture;
    let mut stages = Vec::new();
    if !typed.skip_refinement {
        // The mesh has vertices' colours until it is refined.
        options.texture.texture = TextureSource::None;
    }
    let scene = MeshedScene {
        largest: seen.px.map(u64::from).iter().product(),
        pixels: dataset.train.iter().map(|&view| dataset.views[view].camera.pixels() as u64).sum(),
        gaussians,
        triangles: extracted,
    };
    let model = planned_model(config, config.optimize.sh_degree, gaussians);
    let drawing =
        PlannedMeshing { context: typed.context, ..meshing(&options, config, model, seen) };
    stages.push(mesh_stage(&drawing, &options, &scene, report.budget));
    if typed.skip_refinement {
        return Ok(stages);
    }
    let faces =
        least_vertices.map_or(extracted, |most| extracted.min(FACES_OF_VERTEX * most as u64));
    let bound = BoundSizes::closed(faces, per_triangle.count() as u64);
    let refinement = PlannedRefinement {
        measured: Some((model, seen)),
        textured: refined_texture == TextureSource::Gaussians,
        context: typed.context,
        ..refining(config, dataset, model.with(bound.gaussians), bound, seen)
    };
    let forecast = refinement.forecast(report.budget.map(|budget| budget.bytes));
    stages.push(SurfaceStage {
        command: "splat refine",
        with: format!("{} Gaussians on {faces} triangles", bound.gaussians),
        fits: fits(report.budget, &forecast),
        forecast,
        host: refinement_host(&refinement, config, dataset, &bound),
        remedy: "bind fewer Gaussians: with a smaller --decimation-target or \
                 --gaussians-per-triangle",
    });
    Ok(stages)
}

fn fits(budget: Option<Budget>, forecast: &Forecast) -> Option<bool> {
    budget.map(|budget| forecast.least <= budget.bytes)
}

fn mesh_stage(
    planned: &PlannedMeshing,
    options: &MeshOptions,
    scene: &MeshedScene,
    budget: Option<Budget>,
) -> SurfaceStage {
    let forecast = planned.forecast(budget.map(|budget| budget.bytes));
    SurfaceStage {
        command: "splat mesh",
        with: format!("--method {}, {} triangles", options.method.name(), scene.triangles),
        fits: fits(budget, &forecast),
        forecast,
        host: mesh_host_rows(options, scene),
        remedy: "draw smaller views with -r 2, 4 or 8",
    }
}

/// What a refinement takes of the host: as training, with the mesh.
fn refinement_host(
    refinement: &PlannedRefinement,
    config: &Config,
    dataset: &Dataset,
    bound: &BoundSizes,
) -> Vec<PlannedRow> {
    let memory = &config.memory;
    let full_size = forecast::full_size(dataset);
    let host = Host {
        model: refinement.model,
        start: refinement.model.gaussians,
        photographs: &refinement.photographs,
        full_size: &full_size,
        colors: None,
        cache: (!memory.high_dram).then_some(memory.image_cache),
        chunk_rows: CHUNK_ROWS as u64,
    };
    let mut rows = host.rows();
    rows.push(PlannedRow { label: BOUND_MESH, bytes: bound_bytes(bound, false) });
    rows
}
