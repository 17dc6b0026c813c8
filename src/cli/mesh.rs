//! `splat mesh`: a triangle mesh of a trained model.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{ArgMatches, Args};
use serde::Serialize;
use splat_mesh::MeshReport;

use super::check::{check, warn, warn_about_images};
use super::device::{self, DeviceOptions, DeviceRoom, DrawingPlan, Task};
use super::exit::{DoesNotFit, UsageError};
use super::host_limit::{SURFACE_MAPS, planned_model};
use super::output::print_paths;
use super::parser::{command_of, is_typed, typed_flags};
use super::scene::{ModelArgs, Opened, ReadModel};
use crate::backend::cuda::dry_run;
use crate::backend::{Compensation, Device, RenderSettings, TrainDevice};
use crate::config::{Config, PrimitiveName};
use crate::dataset::Frame;
use crate::files::{WorkFolder, check_writable, create_folder, write_text};
use crate::memory::plan::{CONTEXT, Granule, ModelSize, PlannedMeshing, PlannedRow, ViewGrowth};
use crate::memory::{Bytes, Fallback, Limit, host_memory};
use crate::mesh::{
    AtlasKind, Consistency, DrawnModel, Exposures, ExtractionFigures, Finished, FinishingWork,
    Focus, MeshFiles, MeshMethod, MeshOptions, MeshTexture, PoissonOptions, StepSeconds,
    TetrahedraOptions, TextureFigures, TextureOptions, TextureSource, TsdfOptions, WorldBox,
    check_consistency, cut_tetrahedra, finish, fit, fuse, meshed_box, postprocess, texture,
    view_maps, write_mesh,
};
use crate::telemetry::WorkProgress;
use crate::train::appearance::compensation;
use crate::train::{Views, forecast, render_footprint};

#[derive(Args)]
pub(super) struct MeshArgs {
    #[command(flatten)]
    pub(super) model: ModelArgs,

    #[command(flatten)]
    pub(super) options: MeshOptions,
}

/// Makes the mesh and prints the paths of its files.
pub(super) fn run(args: &MeshArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    let files = make(args, matches)?;
    Ok(print_paths(&files)?)
}

/// Writes `MODEL/mesh/iteration_N/METHOD.{ply,glb,obj}` and the record `METHOD.json`. Returns the mesh files.
pub(super) fn make(args: &MeshArgs, matches: &ArgMatches) -> anyhow::Result<Vec<PathBuf>> {
    let started = Instant::now();
    args.options.check()?;
    warn_about_idle(&args.options, matches);
    let model = args.model.read(matches)?;
    model.check_primitive([(
        PrimitiveName::Triangles,
        "the model is of triangles, and a mesh already. Write it with splat export -m MODEL -o mesh.glb, or \
         as .obj or .ply",
    )])?;
    check_surfels(&args.options, &model)?;
    let largest: u64 = forecast::seen_at_most(&model.dataset).px.map(u64::from).iter().product();
    // Each method checks its own memory.
    let maps = PlannedRow { label: SURFACE_MAPS, bytes: view_maps(largest) };
    let room = model.room(None, Some(maps))?;
    let opened = model.open_within(room)?;
    check_writable(&args.model.model_path)?;
    let mut options = args.options.clone();
    if device::is_on_processor(&opened.config) {
        options.tsdf.fit_processor();
    }
    let options = &options;
    let exposures = exposures(options.texture.texture, &args.model.model_path, &opened)?;
    let made = device::on(
        &DeviceOptions::of_surface(&opened.config, matches),
        Meshing { options, opened: &opened, exposures: &exposures },
    )?;
    let MadeMesh { figures, extraction_seconds, world_box, finished, texture } = made;
    let _work = WorkFolder::open(&args.model.model_path);
    let folder = args.model.model_path.join("mesh").join(format!("iteration_{}", opened.iteration));
    create_folder(&folder)?;
    let name = options.method.name();
    let frame = opened.dataset.frame;
    let made = MeshFiles { formats: &options.formats, frame: &frame };
    let files = write_mesh(&folder, name, &made, &finished.mesh, texture.as_ref())?;
    let record = MeshRecord {
        method: options.method,
        iteration: opened.iteration,
        bbox: world_box.map(|world_box| {
            let WorldBox { low, high } = world_box.converted(&frame, &Frame::SCENE);
            [low, high]
        }),
        offset: frame.offset,
        extraction: &figures,
        extraction_seconds,
        seconds: started.elapsed().as_secs_f64(),
        work: &finished.work,
        mesh: &finished.report,
        texture: texture.as_ref().map(|texture| &texture.figures),
    };
    write_text(&folder.join(name).with_extension("json"), &serde_json::to_string_pretty(&record)?)?;
    tracing::info!("{}", described(&finished, extraction_seconds, started.elapsed().as_secs_f64()));
    if let Some(texture) = &texture {
        tracing::info!("{}", texture_described(&texture.figures));
    }
    Ok(files)
}

/// Rejects options that need a density in space, which surfels lack.
fn check_surfels(options: &MeshOptions, model: &ReadModel) -> Result<(), UsageError> {
    let is_surfels = model.config.optimize.primitive == PrimitiveName::Surfels;
    check([
        (
            is_surfels && options.method != MeshMethod::Tsdf,
            format!(
                "--method {}: the model is of surfels, which have no density in space. Use --method tsdf, \
                 which fuses the depths that they show",
                options.method.name()
            ),
        ),
        (
            is_surfels && options.postprocess.postprocess_mesh,
            "--postprocess-mesh: the model is of surfels, which have no density in space. Leave it out"
                .to_owned(),
        ),
    ])?;
    warn([(
        is_surfels && options.force,
        "--force has no effect: surfels are meshed whether or not their normals agree",
    )]);
    Ok(())
}

/// Returns the learned exposures if the texture comes from photographs.
pub(super) fn exposures(
    source: TextureSource,
    model_path: &Path,
    opened: &Opened,
) -> anyhow::Result<Exposures> {
    if source != TextureSource::Photographs {
        return Ok(Exposures::default());
    }
    match compensation(&opened.config.optimize) {
        None => Ok(Exposures::default()),
        Some(Compensation::Exposure) => Ok(Exposures::read(model_path)?),
        Some(Compensation::BilateralGrid) => {
            tracing::warn!(
                "the texture has the photographs' colours as they are: what a bilateral grid has \
                 learned of them cannot be undone. With --texture gaussians it has the model's"
            );
            Ok(Exposures::default())
        }
    }
}

/// Mesh and how it was made.
struct MadeMesh {
    figures: ExtractionFigures,
    extraction_seconds: f64,
    /// Meshed box. `None` for an unbounded surface.
    world_box: Option<WorldBox>,
    finished: Finished,
    texture: Option<MeshTexture>,
}

struct Meshing<'a> {
    options: &'a MeshOptions,
    opened: &'a Opened,
    exposures: &'a Exposures,
}

impl Task for Meshing<'_> {
    type Output = MadeMesh;

    fn run<B: TrainDevice>(self, device: &mut B) -> anyhow::Result<MadeMesh> {
        let mut views = Views::new(&self.opened.dataset, &self.opened.images);
        let made = self.make(device, &mut views);
        warn_about_images(&mut views);
        made
    }
}

impl Meshing<'_> {
    /// Returns an error if drawing the model does not fit the GPU's memory.
    fn check_device(
        &self,
        device: &mut impl Device,
        world_box: Option<&WorldBox>,
    ) -> Result<(), DoesNotFit> {
        let Some(room) = DeviceRoom::of(device) else { return Ok(()) };
        let Opened { dataset, gaussians, config, .. } = self.opened;
        let footprint = render_footprint(config);
        let fitted = world_box.map(|world_box| self.options.fitted_to(world_box));
        let options = fitted.as_ref().unwrap_or(self.options);
        let plan = DrawingPlan {
            what: "drawing the model for its mesh",
            remedy: "draw smaller views with -r 2, 4 or 8",
            seen_at_most: forecast::seen_at_most(dataset),
            count_seen: &|| forecast::seen_of_model(dataset, gaussians, footprint),
        };
        room.check(&plan, |seen, budget| {
            let of_model = planned_model(config, gaussians.sh_degree, gaussians.len() as u64);
            let meshing = PlannedMeshing {
                context: room.context,
                ..meshing(options, config, of_model, seen)
            };
            meshing.forecast(Some(budget))
        })
    }

    fn make<B: TrainDevice>(
        &self,
        device: &mut B,
        views: &mut Views<'_>,
    ) -> anyhow::Result<MadeMesh> {
        let &Self { options, opened, exposures } = self;
        let Opened { dataset, gaussians, config, .. } = opened;
        let training = || dataset.train.iter().map(|&index| &dataset.views[index]);
        let focus = Focus::of(training());
        let is_unbounded = options.method == MeshMethod::Tsdf && options.tsdf.unbounded;
        let world_box = if is_unbounded {
            None
        } else {
            let world_box = meshed_box(dataset, gaussians, options)?;
            let of_scene = world_box.converted(&dataset.frame, &Frame::SCENE);
            tracing::info!("meshing the box {of_scene}{}", detail(options));
            Some(world_box)
        };
        self.check_device(device, world_box.as_ref())?;
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
        let mut drawn = DrawnModel { device, model: &model, views, settings, on_progress };
        let started = Instant::now();
        let seed = config.run.seed;
        // Poisson checks its own points, and surfels have no density to check.
        let is_unchecked = options.method != MeshMethod::Poisson
            && config.optimize.primitive == PrimitiveName::Gaussians;
        if is_unchecked && options.consistency() == Consistency::Required {
            check_consistency(&mut drawn, gaussians, seed)?;
        }
        let extracted = match (options.method, &world_box) {
            (MeshMethod::Poisson, Some(world_box)) => {
                fit(&mut drawn, gaussians, world_box, options, seed, room)
            }
            (MeshMethod::Tetrahedra, Some(world_box)) => {
                cut_tetrahedra(&mut drawn, gaussians, world_box, &options.tetrahedra, room)
            }
            (_, world_box) => fuse(&mut drawn, world_box.as_ref(), &focus, &options.tsdf, room),
        }?;
        let extraction_seconds = started.elapsed().as_secs_f64();
        let eyes: Vec<_> = training().map(|view| view.pose.centre_world()).collect();
        let finished = finish(extracted.surfaces, &eyes, options)?;
        let finished = postprocess(finished, gaussians, &options.postprocess)?;
        let texture = texture(&mut drawn, &finished.mesh, &options.texture, exposures, room)?;
        Ok(MadeMesh {
            figures: extracted.figures,
            extraction_seconds,
            world_box,
            finished,
            texture,
        })
    }
}

/// Describes the resolution of the fused depths, to follow the box in the log.
fn detail(options: &MeshOptions) -> String {
    match (options.method, options.tsdf.voxel) {
        (MeshMethod::Tsdf, None) => {
            format!(", {} voxels along it (--mesh-resolution)", options.tsdf.resolution())
        }
        _ => String::new(),
    }
}

/// Returns the GPU memory plan of drawing a model for its mesh.
pub(super) fn meshing(
    options: &MeshOptions,
    config: &Config,
    model: ModelSize,
    seen: ViewGrowth,
) -> PlannedMeshing {
    PlannedMeshing {
        model,
        records: render_footprint(config).records(),
        seen,
        drawing: options.drawing(),
        textured: options.texture.texture == TextureSource::Gaussians,
        bands: config.memory.give_up.contains(&Fallback::Bands),
        context: CONTEXT,
        granule: Granule::default(),
        dry_run,
    }
}

/// Returns half of the memory that `--host-limit` leaves. The other half is for later steps on the surface.
pub(super) fn room(limit: Limit) -> Bytes {
    let Some(host) = host_memory() else { return Bytes(u64::MAX) };
    Bytes(limit.on(host.total).0.saturating_sub(host.resident.0) / 2)
}

/// Content of the JSON file beside a mesh.
#[derive(Serialize)]
struct MeshRecord<'a> {
    method: MeshMethod,
    iteration: u32,
    /// Opposite corners of the box, scene coordinates.
    bbox: Option<[[f64; 3]; 2]>,
    /// Offset from the vertices to scene coordinates.
    offset: [f64; 3],
    extraction: &'a ExtractionFigures,
    extraction_seconds: f64,
    /// Seconds from the start of the command.
    seconds: f64,
    work: &'a FinishingWork,
    mesh: &'a MeshReport,
    texture: Option<&'a TextureFigures>,
}

/// Describes a texture in one line.
pub(super) fn texture_described(figures: &TextureFigures) -> String {
    let [width, height] = figures.size;
    let seen = 100.0 * figures.bake.seen_texels as f64 / figures.bake.texels.max(1) as f64;
    format!(
        "texture of {width} x {height} texels in {} charts, {seen:.1} % of it seen by {} views, {:.1} s",
        figures.charts,
        figures.bake.views,
        figures.atlas_seconds + figures.bake_seconds
    )
}

/// Describes a mesh in one line.
fn described(finished: &Finished, extraction_seconds: f64, seconds: f64) -> String {
    let Finished { report, work, .. } = finished;
    let mut text = format!("{} triangles, {} vertices", report.faces, report.vertices);
    if let Some(faces) = work.decimated_from {
        write!(text, " (decimated from {faces} triangles)").ok();
    }
    if work.peeled > 0 {
        write!(text, " ({} taken off the border)", work.peeled).ok();
    }
    if report.watertight {
        text.push_str(", watertight");
    } else {
        write!(text, ", open: {} boundary edges", report.boundary_edges).ok();
    }
    let pieces = if report.components == 1 { "piece" } else { "pieces" };
    let StepSeconds { cleaning, decimation } = work.seconds;
    write!(
        text,
        ", {} {pieces}, {seconds:.1} s (extraction {extraction_seconds:.1} s, cleaning {cleaning:.1} s, \
         decimation {decimation:.1} s)",
        report.components
    )
    .ok();
    text
}

/// Warns about options of other methods, replaced options and options of a missing texture.
fn warn_about_idle(options: &MeshOptions, matches: &ArgMatches) {
    let method = options.method;
    let of_methods = [
        (MeshMethod::Tsdf, command_of::<TsdfOptions>("tsdf")),
        (MeshMethod::Poisson, command_of::<PoissonOptions>("poisson")),
        (MeshMethod::Tetrahedra, command_of::<TetrahedraOptions>("tetrahedra")),
    ];
    for (of, command) in of_methods.iter().filter(|(of, _)| *of != method) {
        for (_, flag) in typed_flags(command, matches) {
            tracing::warn!(
                "--{flag} has no effect with --method {}: it is an option of --method {}",
                method.name(),
                of.name()
            );
        }
    }
    let is_tsdf = method == MeshMethod::Tsdf;
    let replaced = [
        ("mesh_resolution", is_tsdf && options.tsdf.voxel.is_some(), "--voxel"),
        ("center_bbox", is_tsdf && options.tsdf.unbounded, "--unbounded"),
        ("center_bbox", options.bbox_min.is_some(), "--bbox-min and --bbox-max"),
    ];
    for (id, _, by) in replaced.into_iter().filter(|(id, is, _)| *is && is_typed(matches, id)) {
        tracing::warn!("--{} has no effect with {by}", id.replace('_', "-"));
    }
    warn_about_idle_texture(&options.texture, matches);
}

/// Warns about options of a missing texture or of another atlas layout.
pub(super) fn warn_about_idle_texture(options: &TextureOptions, matches: &ArgMatches) {
    if options.texture == TextureSource::None {
        let command = command_of::<TextureOptions>("texture");
        for (_, flag) in typed_flags(&command, matches).filter(|&(_, flag)| flag != "texture") {
            tracing::warn!("--{flag} has no effect without --texture gaussians or photographs");
        }
    } else if options.atlas != AtlasKind::Squares && is_typed(matches, "square_size") {
        tracing::warn!("--square-size has no effect without --atlas squares");
    }
}
