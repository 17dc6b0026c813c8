//! What a refinement takes of memory, looked at before anything is drawn.

use std::path::Path;

use crate::backend::Device;
use crate::backend::cpu::WorkKind;
use crate::backend::cuda::dry_run;
use crate::cli::device_limit::{DeviceRoom, DrawingPlan};
use crate::cli::exit::{DoesNotFit, OutOfMemory};
use crate::cli::host_limit::{BOUND_MESH, HostRoom, OnProcessor, showing};
use crate::cli::less_memory::less_host_memory;
use crate::cli::mesh::planned_model;
use crate::cli::output::shell_word;
use crate::cli::scene::{Opened, ReadModel};
use crate::config::Config;
use crate::dataset::Dataset;
use crate::memory::plan::{
    BoundSizes, CONTEXT, Granule, ModelSize, PlannedRefinement, PlannedRow, Storage, ViewGrowth,
};
use crate::memory::{Bytes, Rung};
use crate::mesh::{BoundStart, TextureSource, placed_gaussians};
use crate::train::{TrainError, forecast, render_footprint};

/// Values of a vertex, and of a Gaussian's form on its triangle.
const VERTEX_VALUES: u64 = 3;
const FORM_VALUES: u64 = 4;

/// Values, first and second moments.
const PARTS: u64 = 3;

/// Gradients of a Gaussian's geometry, and what becomes of them: of three corners and of its form.
const GRADIENT_VALUES: u64 = 11 + 3 * 3 + 4;

/// What is learned of a mesh on the host, in its single precision: once beside a GPU, and on the processor
/// as it is read and as it is trained, with gradients.
pub(in crate::cli) fn bound_bytes(sizes: &BoundSizes, on_processor: bool) -> Bytes {
    let BoundSizes { vertices, gaussians, .. } = *sizes;
    let state = PARTS * (VERTEX_VALUES * vertices + FORM_VALUES * gaussians);
    let gradients = GRADIENT_VALUES * gaussians + VERTEX_VALUES * vertices;
    Bytes(4 * if on_processor { 2 * state + gradients } else { state })
}

/// What a refinement takes of a GPU.
pub(in crate::cli) fn refining(
    config: &Config,
    dataset: &Dataset,
    model: ModelSize,
    bound: BoundSizes,
    seen: ViewGrowth,
) -> PlannedRefinement {
    let give_up = &config.memory.give_up;
    PlannedRefinement {
        model,
        bound,
        seen,
        measured: None,
        photographs: forecast::photographs(dataset),
        textured: false,
        bands: give_up.contains(&Rung::Bands),
        resolution: give_up.contains(&Rung::Resolution),
        context: CONTEXT,
        granule: Granule::default(),
        dry_run,
    }
}

/// How the command keeps `--host-limit`.
pub(super) fn host_room(model: &ReadModel, start: &BoundStart) -> Result<HostRoom, DoesNotFit> {
    let ReadModel { config, dataset, .. } = model;
    let sizes = start.topology.sizes();
    let mut work = showing(config, sizes.gaussians);
    work.kind = WorkKind::Trained {
        start: 0,
        batch_views: 1,
        surface: false,
        inverse_depths: false,
        distortion: false,
        neighbours: 0,
    };
    let on_processor = model.is_on_processor();
    let beside = PlannedRow { label: BOUND_MESH, bytes: bound_bytes(&sizes, on_processor) };
    let footprint = render_footprint(config);
    let count_seen = &|| forecast::seen_of_model(dataset, &placed_gaussians(start), footprint);
    let most = work.gaussians;
    model.room_for(&OnProcessor { work, most, count_seen, lpips: None, beside: Some(beside) })
}

/// Refuses what does not fit a GPU's memory.
pub(super) fn check_device(
    device: &mut impl Device,
    opened: &Opened,
    start: &BoundStart,
    texture: TextureSource,
) -> Result<(), DoesNotFit> {
    let Some(room) = DeviceRoom::of(device) else { return Ok(()) };
    let Opened { config, dataset, gaussians, .. } = opened;
    let footprint = render_footprint(config);
    let bound = start.topology.sizes();
    let seen_at_most = forecast::seen_at_most(dataset);
    let plan = DrawingPlan {
        what: "the refinement",
        remedy: "bind fewer Gaussians: with fewer --vertices or --gaussians-per-triangle",
        seen_at_most,
        count_seen: &|| forecast::seen_of_model(dataset, &placed_gaussians(start), footprint),
    };
    room.check(&plan, |seen, budget| {
        let model = planned_model(config, start.gaussians.sh_degree, bound.gaussians);
        let of_mesh = planned_model(config, gaussians.sh_degree, gaussians.len() as u64);
        let seen_of_mesh = match seen == seen_at_most {
            true => seen,
            false => forecast::seen_of_model(dataset, gaussians, footprint),
        };
        let refinement = PlannedRefinement {
            measured: Some((of_mesh, seen_of_mesh)),
            textured: texture == TextureSource::Gaussians,
            context: room.context,
            ..refining(config, dataset, model, bound, seen)
        };
        refinement.forecast(Some(budget))
    })
}

/// Names the command that continues the refinement, if it ran out of GPU memory.
pub(super) fn explained(error: anyhow::Error, model: &Path, config: &Config) -> anyhow::Error {
    let stopped = match error.downcast::<TrainError>() {
        Ok(stopped @ TrainError::OutOfMemory { .. }) => stopped,
        Ok(other) => return other.into(),
        Err(other) => return other,
    };
    let less = less_host_memory(&stopped).unwrap_or(match config.memory.storage_on_gpu() {
        Storage::Full | Storage::HalfColors => "--optimize-memory",
        Storage::Compact => "--offload sh",
        Storage::Offloaded => "--vram-limit SIZE, more than now, or when other programs have ended",
    });
    let command = format!("splat refine -m {}", shell_word(model));
    OutOfMemory { stopped, command, less: less.to_owned() }.into()
}
