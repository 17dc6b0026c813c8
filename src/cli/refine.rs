//! `splat refine`: trains Gaussians on the triangles of a mesh, together with the mesh.

mod record;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ArgMatches;
use splat_mesh::Mesh;
use splat_mesh::clean::CleanError;
use splat_mesh::decimate::{DecimateOptions, decimate};
use splat_mesh::file::read_mesh;

use self::record::{MESH_NAME, Measurement, RefineRecord, RefineSettings};
use super::check::{warn, warn_about_images};
use super::device::{self, DeviceOptions, DeviceRoom, DrawingPlan, Task};
use super::exit::{DataError, DoesNotFit, OutOfMemory};
use super::folder::{self, TrainedViews};
use super::host_limit::{
    BOUND_MESH, HostRoom, OnProcessor, less_host_memory, planned_model, showing,
};
use super::mesh::{exposures, room, texture_described, warn_about_idle_texture};
use super::next::interrupted;
use super::output::{print_paths, shell_word};
use super::parser::command_of;
use super::scene::{ModelArgs, Opened, ReadModel};
use super::signals::stop_on_signals;
use super::stages::{forwarded, shown};
use crate::backend::cpu::WorkKind;
use crate::backend::cuda::dry_run;
use crate::backend::{BoundState, Device, RenderSettings, TrainDevice};
use crate::config::{Config, PrimitiveName};
use crate::dataset::Dataset;
use crate::export::{frame_of_file, read_ply};
use crate::files::{FolderLock, OutputError, create_folder};
use crate::memory::plan::{
    BoundSizes, CONTEXT, Granule, ModelSize, PlannedRefinement, PlannedRow, Storage, ViewGrowth,
};
use crate::memory::{Bytes, Fallback};
use crate::mesh::{
    BindRule, BoundStart, DrawnModel, MeshFiles, MeshTexture, TextureSource, bind_mesh,
    colors_of_model, convert_mesh, placed_gaussians, refined_mesh, texture, write_mesh,
};
use crate::model::Gaussians;
use crate::telemetry::{Sinks, SummaryFile, WorkProgress};
use crate::train::checkpoint::{self, StoredCheckpoint};
use crate::train::eval::{ShownViews, evaluate};
use crate::train::event::{Evaluation, Split};
use crate::train::refine::{BoundMesh, RefineRule, RefineSetup, Refined, Refiner};
use crate::train::save::point_cloud_path;
use crate::train::{
    Outcome, TrainError, Views, forecast, render_footprint, scene_cube, scene_extent,
};

pub(super) use self::record::{BoundOptions, RefineArgs};

/// Scale of Gaussians along their triangle's normal, as a share of the cameras' extent.
const THICKNESS: f64 = 1e-6;

/// Binds Gaussians to a mesh of the model and trains both in the model folder `MODEL/refined/iteration_N/MESH/`. A
/// complete refinement is kept, and an interrupted one continues.
pub(super) fn run(args: &RefineArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    let files = make(args, matches)?;
    Ok(print_paths(&files)?)
}

/// Refines as [`run`] does. Returns the files of the refinement.
pub(super) fn make(args: &RefineArgs, matches: &ArgMatches) -> anyhow::Result<Vec<PathBuf>> {
    let began = Instant::now();
    let options = args.resolved()?;
    args.texture.check()?;
    warn_about_idle_texture(&args.texture, matches);
    let model = args.model.read(matches)?;
    model.check_primitive([
        (
            PrimitiveName::Surfels,
            "splat refine binds 3D Gaussians to a mesh, and the model is of surfels. Mesh it with splat mesh \
             --method tsdf; to refine, train with --primitive gaussians",
        ),
        (
            PrimitiveName::Triangles,
            "splat refine needs 3D Gaussians, and the model is of triangles, a mesh already. Write it with splat export \
             -o mesh.glb, or train with --primitive gaussians",
        ),
    ])?;
    model.check_held_out(&args.model.model_path, "the options of its training")?;
    let trained = model.trained_on();
    let path = mesh_file(&args.model, args.mesh.as_deref(), model.iteration)?;
    let mesh = prepare_mesh(&path, options.vertices, &model)?;
    let settings = RefineSettings::new(&options, &path, &mesh, &model);
    let name = path.file_stem().unwrap_or_default();
    let folder = args.model.model_path.join("refined");
    let folder = folder.join(format!("iteration_{}", model.iteration)).join(name);
    let rule = BindRule {
        per_triangle: options.per_triangle,
        sh_degree: model.config.optimize.sh_degree,
        thickness: THICKNESS * scene_extent(&model.dataset),
        cube: scene_cube(&model.dataset),
    };
    let start = bind_mesh(mesh, &rule)
        .map_err(|error| DataError(format!("{}: {error}", path.display())))?;
    if start.dropped > 0 {
        tracing::info!("{} triangles without an area are left out", start.dropped);
    }
    let room = host_room(&model, &start)?;
    let opened = model.open_within(room)?;
    create_folder(&folder)?;
    let mut lock = FolderLock::take(&folder)?;
    let mut earlier = RefineRecord::read(&folder)?;
    let is_other = earlier.as_ref().is_some_and(|earlier| earlier.is_other(&settings));
    let is_replaced = args.overwrite || (args.replaces_other && is_other);
    if is_replaced && earlier.take().is_some() {
        drop(lock);
        set_aside(&folder)?;
        lock = FolderLock::take(&folder)?;
    }
    if let Some(earlier) = &earlier {
        earlier.check_same_settings(&settings, &folder)?;
        if earlier.is_complete(&folder, &args.formats, &args.texture) {
            tracing::info!(
                "{} is complete already, with these options; --overwrite refines again",
                folder.display()
            );
            return Ok(earlier.files(&folder));
        }
    }
    folder::sweep(&folder);
    let learned = &opened.config.optimize;
    warn([(
        learned.exposure || learned.bilateral_grid,
        "the model was trained with colour changes of the photographs (--exposure, \
         --bilateral-grid), which are not in its Gaussians; it is refined without them",
    )]);
    let record = earlier.unwrap_or_else(|| RefineRecord::new(settings));
    let task = Refining {
        args,
        opened: &opened,
        rule: RefineRule {
            iterations: options.iterations,
            normal_consistency: options.normal_consistency,
            checkpoint_interval: options.checkpoint_interval,
            edge: start.edge,
        },
        start: &start,
        folder: &folder,
        trained,
        record,
        began,
        // `--overwrite` would begin again.
        command: shown(
            "refine",
            &forwarded(&command_of::<RefineArgs>("refine"), matches, |id| id != "overwrite"),
        ),
    };
    let done = device::on(&DeviceOptions::of_surface(&opened.config, matches), task);
    drop(lock);
    done.map_err(|error| explain_shortage(error, &args.model.model_path, &opened.config))
}

/// Moves the results of an earlier refinement aside.
fn set_aside(folder: &Path) -> anyhow::Result<()> {
    let named = |number: u32| {
        let mut name = folder.file_name().unwrap_or_default().to_owned();
        name.push(format!(".previous_{number}"));
        folder.with_file_name(name)
    };
    let free = (1..).map(named).find(|path| !path.exists());
    if let Some(aside) = free {
        fs::rename(folder, &aside).map_err(|source| OutputError::new(folder, source))?;
        tracing::info!("--overwrite: the earlier refinement is moved to {}", aside.display());
    }
    create_folder(folder)?;
    Ok(())
}

struct Refining<'a> {
    args: &'a RefineArgs,
    opened: &'a Opened,
    rule: RefineRule,
    start: &'a BoundStart,
    folder: &'a Path,
    /// Views that the model was trained on.
    trained: TrainedViews,
    record: RefineRecord,
    began: Instant,
    /// Command that continues an interrupted refinement.
    command: String,
}

impl Task for Refining<'_> {
    type Output = Vec<PathBuf>;

    fn run<B: TrainDevice>(self, device: &mut B) -> anyhow::Result<Vec<PathBuf>> {
        let Self { args, opened, rule, start, folder, mut trained, mut record, began, command } =
            self;
        let stop = stop_on_signals()?;
        check_device(device, opened, start, args.texture.texture)?;
        let dataset = &opened.dataset;
        let mut config = rule.config(&opened.config);
        config.output.model_path = Some(folder.to_owned());
        let stored = newest_checkpoint(folder);
        let resumed = stored.as_ref().map(|stored| stored.about.iteration);
        trained.add(dataset.train.iter().map(|&view| dataset.views[view].name.as_str()), 0);
        folder::describe(folder, &config, dataset, &dataset.points, &trained, resumed.is_some())?;
        if record.model.is_none() {
            record.model = measure_model(device, opened)?.as_ref().map(Measurement::of);
        }
        record.write(folder)?;

        let mut sinks = Sinks::for_run(folder, args.style(), resumed)?;
        sinks.add(SummaryFile::new(folder, &config, began)?);
        let setup = RefineSetup {
            dataset,
            images: &opened.images,
            config: &config,
            rule: &rule,
            folder,
            began,
            stop: &stop,
        };
        let topology = &start.topology;
        let mut refiner = match stored {
            Some(stored) => Refiner::resume(setup, device, &mut sinks, topology, stored)?,
            None => {
                let state = BoundState::new(start.columns.clone());
                let mesh = BoundMesh { topology, state: &state };
                Refiner::start(setup, device, &mut sinks, &start.gaussians, mesh)?
            }
        };
        if let Some(before) = refiner.begin()? {
            record.before = Some(Measurement::of(&before));
            record.write(folder)?;
        }
        let Refined { outcome, after, state, sh_dc } = refiner.run()?;
        if outcome == Outcome::Interrupted {
            return Err(interrupted(&command, args.style()).into());
        }
        let mesh = refined_mesh(topology, &state.values.vertices, &sh_dc);
        let ply = point_cloud_path(Path::new(""), rule.iterations);
        let texture = make_texture(device, &read_ply(&folder.join(&ply))?, &mesh, args, opened)?;
        let mut files = vec![ply];
        let made = MeshFiles { formats: &args.formats, frame: &dataset.frame };
        let written = write_mesh(folder, MESH_NAME, &made, &mesh, texture.as_ref())?;
        files.extend(written.iter().filter_map(|path| path.file_name()).map(PathBuf::from));
        let after_columns = &state.values;
        record.complete(topology, &start.columns, after_columns, &args.texture, files, began);
        record.after = after.as_ref().map(Measurement::of);
        record.write(folder)?;
        tracing::info!("{}", record.described());
        Ok(record.files(folder))
    }
}

/// Makes the texture of a refined mesh, if requested.
fn make_texture<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    mesh: &Mesh,
    args: &RefineArgs,
    opened: &Opened,
) -> anyhow::Result<Option<MeshTexture>> {
    let Opened { dataset, images, config, .. } = opened;
    let exposures = exposures(args.texture.texture, &args.model.model_path, opened)?;
    let mut views = Views::new(dataset, images);
    let model = device.upload(gaussians)?;
    let settings = RenderSettings {
        sh_degree: gaussians.sh_degree,
        near: views.near(),
        footprint: render_footprint(config),
        ..RenderSettings::DEFAULT
    };
    let room = room(config.memory.host_limit);
    let progress = WorkProgress::to_stderr();
    let on_progress = &|stage, share| progress.report(stage, share);
    let mut drawn = DrawnModel { device, model: &model, views: &mut views, settings, on_progress };
    let made = texture(&mut drawn, mesh, &args.texture, &exposures, room)?;
    warn_about_images(&mut views);
    if let Some(texture) = &made {
        tracing::info!("{}", texture_described(&texture.figures));
    }
    Ok(made)
}

/// Opens the newest undamaged checkpoint of a folder.
fn newest_checkpoint(folder: &Path) -> Option<StoredCheckpoint> {
    checkpoint::list(folder).into_iter().find_map(|path| match StoredCheckpoint::open(&path) {
        Ok(stored) => {
            tracing::info!("continuing from {}", path.display());
            Some(stored)
        }
        Err(error) => {
            tracing::warn!("{error}. It is passed over");
            None
        }
    })
}

/// Measures the model of the mesh on the held-out views, if there are any.
fn measure_model<B: TrainDevice>(
    device: &mut B,
    opened: &Opened,
) -> anyhow::Result<Option<Evaluation>> {
    if opened.dataset.test.is_empty() {
        return Ok(None);
    }
    let mut views = Views::new(&opened.dataset, &opened.images);
    let model = device.upload(&opened.gaussians)?;
    let request = opened.request(Split::Test, ShownViews::Nothing);
    let found = evaluate(device, &model, &mut views, &request, |_| Ok(()))?;
    warn_about_images(&mut views);
    Ok(found)
}

// Mesh that Gaussians are bound to.

/// Returns the named mesh, or the newest mesh of this iteration of the model.
fn mesh_file(
    model: &ModelArgs,
    named: Option<&Path>,
    iteration: u32,
) -> Result<PathBuf, DataError> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let meshes = model.model_path.join("mesh");
    // Only meshes of this program have a JSON record beside them.
    let is_mesh = |path: &Path| {
        path.extension().is_some_and(|it| it == "ply") && path.with_extension("json").exists()
    };
    let newest = |iteration: u32| {
        folder::newest_file(&meshes.join(format!("iteration_{iteration}")), is_mesh)
    };
    newest(iteration).ok_or_else(|| {
        let others = folder::iterations(&meshes).into_iter();
        let other = others.map(|(other, _)| other).rfind(|&at| newest(at).is_some());
        let advice = other.map_or(String::new(), |other| {
            format!(". There is one of iteration {other}: take it with --iteration {other}")
        });
        DataError(format!(
            "{}: no mesh of iteration {iteration}, as PLY. Make one with splat mesh -m {}, or name one \
             with --mesh FILE{advice}",
            meshes.display(),
            model.model_path.display()
        ))
    })
}

/// Reads a mesh with vertex colours in the model's coordinates and decimates it to about `vertices` vertices.
fn prepare_mesh(path: &Path, vertices: Option<usize>, model: &ReadModel) -> anyhow::Result<Mesh> {
    let ReadModel { dataset, gaussians, .. } = model;
    let mut mesh = read_mesh(path)?;
    convert_mesh(&mut mesh, &frame_of_file(path)?, &dataset.frame);
    if mesh.colors.is_empty() {
        tracing::info!(
            "{}: the mesh has no vertex colours; each takes that of the nearest Gaussian",
            path.display()
        );
        mesh.colors = colors_of_model(gaussians, &mesh.vertices);
    }
    let Some(wanted) = vertices else { return Ok(mesh) };
    let found = mesh.vertices.len();
    if found <= wanted {
        return Ok(mesh);
    }
    let target_faces = (mesh.faces.len() as u128 * wanted as u128 / found as u128).max(1);
    let target_faces = usize::try_from(target_faces).unwrap_or(usize::MAX);
    let decimated = decimate(mesh, &DecimateOptions::to(target_faces));
    let (mesh, _) = decimated.map_err(|error| {
        let remedy = match error {
            CleanError::DecimatedAway { .. } => ", with a larger --vertices",
            _ => "",
        };
        DataError(format!("{}: {error}{remedy}", path.display()))
    })?;
    tracing::info!("decimated from {found} vertices to {}", mesh.vertices.len());
    Ok(mesh)
}

// Memory of a refinement, checked before rendering.

/// Numbers of values: position of a vertex, and shape of a Gaussian on its triangle.
const VERTEX_VALUES: u64 = 3;

const SHAPE_VALUES: u64 = 4;

/// Number of stored copies: value, first and second moment.
const COPIES: u64 = 3;

/// Gradients of a Gaussian's geometry, of its triangle's three corners and of its shape.
const GRADIENT_VALUES: u64 = 11 + 3 * 3 + 4;

/// Returns the host memory of the bound mesh in single precision: one copy beside a GPU. On the processor there are
/// two copies, as read and in training, and gradients.
pub(super) fn bound_bytes(sizes: &BoundSizes, on_processor: bool) -> Bytes {
    let BoundSizes { vertices, gaussians, .. } = *sizes;
    let state = COPIES * (VERTEX_VALUES * vertices + SHAPE_VALUES * gaussians);
    let gradients = GRADIENT_VALUES * gaussians + VERTEX_VALUES * vertices;
    Bytes(4 * if on_processor { 2 * state + gradients } else { state })
}

/// Returns the GPU memory plan of a refinement.
pub(super) fn refining(
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
        bands: give_up.contains(&Fallback::Bands),
        resolution: give_up.contains(&Fallback::Resolution),
        context: CONTEXT,
        granule: Granule::default(),
        dry_run,
    }
}

/// Checks the command against `--host-limit`.
fn host_room(model: &ReadModel, start: &BoundStart) -> Result<HostRoom, DoesNotFit> {
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

/// Returns an error if the refinement does not fit the GPU's memory.
fn check_device(
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

/// Adds the command that continues the refinement to an out-of-memory error.
fn explain_shortage(error: anyhow::Error, model: &Path, config: &Config) -> anyhow::Error {
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
