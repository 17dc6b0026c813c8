//! `splat plan`: forecast of a run's memory, without a GPU.

mod report;

use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args};

use self::report::{
    Budget, PlanReport, PlannedGaussians, PlannedGpus, PlannedHost, PlannedScene, SurfaceArgs,
    within_threshold,
};
use super::exit::{DataError, DoesNotFit, UsageError};
use super::folder;
use super::host_limit::{AT_START, HostRoom, HostRun, OnProcessor, training};
use super::output::print_report;
use super::refine::BoundOptions;
use super::resolved_run::log_usual;
use super::scene::{named_or_here, open_to_train};
use super::settle::{LimitSource, PointLimit};
use super::start::{Start, read_model_file};
use super::train_args::PresetArgs;
use crate::backend::Footprint;
use crate::backend::cuda::dry_run;
use crate::config::{Config, DeviceChoice, Layers, MemoryOptions, PrimitiveName, Typed, resolve};
use crate::dataset::{Dataset, Frame};
use crate::export::{PlyModel, frame_of_file};
use crate::layout::{GAUSSIANS, TRIANGLES};
use crate::memory::plan::{
    self, Granule, ModelSize, PlannedRow, PlannedRun, Storage, ViewGrowth, nccl, nccl_blocks,
};
use crate::memory::{Bytes, Fallback, Limit};
use crate::mesh::MeshOptions;
use crate::train::schedule::view_divisor;
use crate::train::{forecast, render_footprint};

#[derive(Args)]
pub(super) struct PlanArgs {
    /// Options in TOML; flags win over it
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,

    #[command(flatten)]
    preset: PresetArgs,

    /// Gaussians, or vertices of triangles, to plan for
    ///
    /// The default is --max-points, the number of --model, what the training views have room for, or a guess.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)), help_heading = "Forecast")]
    gaussians: Option<u64>,

    /// Count what views see of this model
    ///
    /// A model folder, or a PLY, SPZ, SOG, GLB, .splat or .ksplat. Without it, what views see is estimated.
    #[arg(long, value_name = "FILE|FOLDER", help_heading = "Forecast")]
    model: Option<PathBuf>,

    /// Plan for each of so many GPUs, which share the Gaussians
    ///
    /// As splat train --gpus has them: of each GPU with its share, one view of a step, the splats that it sends, and
    /// NCCL's own memory.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), default_value_t = 1, help_heading = "Forecast")]
    gpus: u32,

    /// GPU memory of context and code
    ///
    /// The context of the driver and the code of the program. The default was measured on an H200.
    #[arg(long, value_name = "SIZE", help_heading = "Forecast", default_value_t = plan::CONTEXT)]
    context: Bytes,

    /// Leave out the refinement, as splat sugar does with it
    #[arg(long, help_heading = "Forecast")]
    skip_refinement: bool,

    /// Print JSON
    #[arg(long, help_heading = "Forecast")]
    json: bool,

    /// Only warnings and errors on stderr
    #[arg(long)]
    pub(super) quiet: bool,

    #[command(flatten)]
    options: Config,

    #[command(flatten)]
    mesh: MeshOptions,

    #[command(flatten)]
    bound: BoundOptions,
}

/// Prints the plan. A plan that does not fit is an error that is returned after printing.
pub(super) fn run(args: &PlanArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    let layers = Layers {
        is_new: true,
        preset: args.preset.named(),
        file: args.config.as_deref(),
        typed: Some(Typed { flags: &args.options, matches }),
        ..Layers::default()
    };
    let mut config = resolve(layers)?;
    let usual = layers.usual_preset()?;
    config.validate_schedule()?;
    args.mesh.check()?;
    if let Some(model) = &config.sugar.checkpoint_path {
        anyhow::bail!(UsageError(format!(
            "-c {}: a plan is made of numbers. Leave out -c, and say with --gaussians how many the \
             model has",
            model.display()
        )));
    }
    config.scene.source_path = Some(named_or_here(&config.scene, "")?);
    let budget = budget(&config)?;
    if args.gpus > 1 {
        // Several GPUs train one model without an ensemble.
        config.optimize.ensemble = 0;
    }
    let dataset = open_to_train(&config)?;
    let start = Start::of(&dataset, &config)?;
    let limit = PointLimit::settle(&mut config, &dataset, start.len() as u64);
    log_usual(usual);
    let mut report = report(args, matches, &config, &dataset, &start, limit, budget)?;
    let on_host = check_host(&config, &dataset, &start, args.gaussians, report.gaussians.count);
    report.host_limit = on_host.as_ref().map(|found| PlannedHost {
        limit: config.memory.host_limit.to_string(),
        needed: found.as_ref().ok().map(|room| room.needed),
        ends_with: found
            .as_ref()
            .ok()
            .and_then(|room| room.gaussians)
            .filter(|&most| most < report.gaussians.count),
        fits: found.is_ok(),
        on_processor: config.run.device == DeviceChoice::Cpu,
    });
    print_report(&report, args.json, report::plan_text)?;
    if let Some(shortage) = report.shortage() {
        return Err(DoesNotFit(shortage).into());
    }
    on_host.transpose()?;
    Ok(())
}

/// Checks a training against `--host-limit`, if that or the processor is requested. Like training, the check lets the
/// model grow from the initial or the `typed` number of Gaussians to `most`.
fn check_host(
    config: &Config,
    dataset: &Dataset,
    start: &Start<'_>,
    typed: Option<u64>,
    most: u64,
) -> Option<Result<HostRoom, DoesNotFit>> {
    let on_processor = config.run.device == DeviceChoice::Cpu;
    if !on_processor && config.memory.host_limit == MemoryOptions::default().host_limit {
        return None;
    }
    let run = HostRun::new(config, dataset)?;
    let count = start.len() as u64;
    if !on_processor {
        let parameters = 4 * u64::from(GAUSSIANS.row_values(config.optimize.sh_degree));
        let row = PlannedRow { label: AT_START, bytes: Bytes(count * parameters) };
        return Some(run.on_gpu(row, most, most));
    }
    Some(run.on_processor(&OnProcessor {
        work: training(config, dataset, typed.unwrap_or(count), count),
        most,
        count_seen: &|| forecast::seen_of_points(dataset, &start.points().positions),
        lpips: None,
        beside: None,
    }))
}

/// Returns the budget of `--vram-limit`, or `None` without it, because a plan inspects no card.
fn budget(config: &Config) -> Result<Option<Budget>, UsageError> {
    let threshold = config.memory.vram_threshold;
    match config.memory.vram_limit {
        None => Ok(None),
        Some(Limit::Bytes(limit)) => {
            Ok(Some(Budget { limit, bytes: within_threshold(limit, threshold) }))
        }
        Some(percent @ Limit::Percent(_)) => Err(UsageError(format!(
            "--vram-limit {percent} is a share of a card, and a plan is made without looking at \
             one. Give a size, for instance 16GiB"
        ))),
    }
}

fn report(
    args: &PlanArgs,
    matches: &ArgMatches,
    config: &Config,
    dataset: &Dataset,
    start: &Start<'_>,
    limit: PointLimit,
    budget: Option<Budget>,
) -> anyhow::Result<PlanReport> {
    let points = start.points();
    let start = points.positions.len() as u64;
    let model = args.model.as_deref().map(|path| read_model(path, &dataset.frame)).transpose()?;
    let seen = match &model {
        Some(PlyModel { gaussians, primitive, .. }) => {
            let footprint = match primitive {
                PrimitiveName::Gaussians | PrimitiveName::Triangles => render_footprint(config),
                PrimitiveName::Surfels => Footprint::Surfel,
            };
            forecast::seen_of_model(dataset, gaussians, footprint)
        }
        None => forecast::seen_of_points(dataset, &points.positions),
    };
    let found = model.as_ref().map(|model| model.gaussians.len());
    let gaussians = gaussians(args, config, start, found, limit);
    let run = PlannedRun {
        model: ModelSize {
            gaussians: gaussians.count,
            schema: match config.optimize.primitive {
                PrimitiveName::Gaussians | PrimitiveName::Surfels => &GAUSSIANS,
                PrimitiveName::Triangles => &TRIANGLES,
            },
            sh_degree: config.optimize.sh_degree,
            storage: config.memory.storage_on_gpu(),
            optional: forecast::optional_columns(config, dataset),
        },
        start: start.min(gaussians.count),
        seen,
        first_divisor: view_divisor(config, 1),
        records: render_footprint(config).records(),
        inputs: forecast::inputs(config, forecast::extras(dataset)),
        photographs: forecast::photographs(dataset),
        colors: forecast::color_tables(config, dataset),
        new_gaussians: None,
        coarse: forecast::coarse(config),
        batch_views: config.optimize.batch_views,
        densify_shape: forecast::strategy(config, dataset).shape(),
        target: config.densify.target_gaussians,
        bands: config.memory.give_up.contains(&Fallback::Bands),
        // Growth may be refused first if the fallbacks include it.
        resolution: config.memory.give_up.contains(&Fallback::Resolution)
            && (!config.memory.give_up.contains(&Fallback::NewGaussians)
                || gaussians.count <= start),
        context: args.context,
        granule: Granule::default(),
        dry_run,
    };
    if args.gpus > 1 && !run.can_be_shared() {
        anyhow::bail!(UsageError(format!(
            "--gpus {}: several GPUs train Gaussians alone, without --regularize, --appearance, surfels and \
             triangles. Leave these out, or --gpus",
            args.gpus
        )));
    }
    let bytes = budget.map(|of| of.bytes);
    let nccl = nccl(args.gpus, nccl_blocks(bytes.unwrap_or(Bytes(u64::MAX))));
    let on_each = run.of_rank(args.gpus, nccl);
    let forecast = on_each.forecast(bytes);
    let fits = report::fits(budget, &forecast);
    let largest = report::largest(&run, args.gpus, budget, config.memory.vram_threshold)?;
    let (mut remedies, mut training_ends_with) = (Vec::new(), None);
    if let Some(bytes) = bytes.filter(|_| fits == Some(false)) {
        remedies = report::remedies(&run, args.gpus, bytes, &smaller_scenes(config, seen)?);
        training_ends_with = with_fallbacks(&config.memory.give_up, &run)
            .and_then(|run| run.largest_shared(args.gpus, bytes))
            // The initial Gaussians exist before growth can be refused.
            .filter(|&most| most >= start);
    }
    let count = gaussians.count;
    let has_triangles = config.optimize.primitive == PrimitiveName::Triangles;
    Ok(PlanReport {
        scene: PlannedScene {
            path: dataset.root.clone(),
            train_views: dataset.train.len(),
            test_views: dataset.test.len(),
            largest_px: seen.px,
        },
        gpus: (args.gpus > 1).then_some(PlannedGpus { count: args.gpus, nccl }),
        sh_degree: run.model.sh_degree,
        storage: run.model.storage,
        // The largest view counts all Gaussians, not one GPU's share.
        view: seen.of(count),
        counted: model.is_some(),
        budget,
        fits,
        forecast,
        largest,
        vertex_budgets: if has_triangles { report::vertex_budgets(&run) } else { Vec::new() },
        training_ends_with,
        remedies,
        host: report::host_rows(
            run.model,
            run.start,
            &run.photographs,
            run.colors,
            config,
            &forecast::full_size(dataset),
        ),
        host_limit: None,
        sugar: report::surface_stages(
            SurfaceArgs {
                mesh: &args.mesh,
                bound: &args.bound,
                skip_refinement: args.skip_refinement,
                context: args.context,
            },
            matches,
            config,
            dataset,
            count,
            seen,
            budget,
        )?,
        gaussians,
    })
}

/// Returns the run after training's fallbacks, if refusing new Gaussians is one of them.
fn with_fallbacks(may: &[Fallback], run: &PlannedRun) -> Option<PlannedRun> {
    let storage = match run.model.storage {
        _ if may.contains(&Fallback::Offload) => Storage::Offloaded,
        Storage::Full | Storage::HalfColors if may.contains(&Fallback::Compact) => Storage::Compact,
        as_it_is => as_it_is,
    };
    let model = ModelSize { storage, ..run.model };
    may.contains(&Fallback::NewGaussians).then(|| PlannedRun { model, ..run.clone() })
}

/// Returns the planned number of Gaussians and its source. `of_model`: number in the model of `--model`.
fn gaussians(
    args: &PlanArgs,
    config: &Config,
    start: u64,
    of_model: Option<usize>,
    limit: PointLimit,
) -> PlannedGaussians {
    let rows = match config.optimize.primitive {
        PrimitiveName::Gaussians => "Gaussians",
        PrimitiveName::Surfels => "surfels",
        PrimitiveName::Triangles => "vertices",
    };
    let counted = |count, from| PlannedGaussians { count, start: start.min(count), from, rows };
    if let Some(count) = args.gaussians {
        return counted(count, "--gaussians");
    }
    // Without density control the number stays the same.
    if !limit.densifies {
        return counted(start, "those at the start: the run has no densification step");
    }
    match (limit.source, of_model) {
        (LimitSource::Option, _) => counted(limit.most, "--max-points"),
        (_, Some(count)) => counted(count as u64, "the model"),
        (LimitSource::Pixels, None) => counted(limit.most, "by the pixels of the training views"),
        (LimitSource::Strategy, None) => {
            counted(forecast::guessed_gaussians(start), "a guess: 17 for each at the start")
        }
    }
}

/// Reads a file, or the last point cloud of a model folder, in the coordinates of a frame.
fn read_model(path: &Path, frame: &Frame) -> anyhow::Result<PlyModel> {
    let read = |file: &Path| -> anyhow::Result<PlyModel> {
        let mut model = read_model_file(file, None)?;
        model.gaussians.convert(&frame_of_file(file)?, frame);
        Ok(model)
    };
    if !path.is_dir() {
        return read(path);
    }
    match folder::point_clouds(path).last() {
        Some((_, ply)) => read(ply),
        None => Err(DataError(format!(
            "--model {}: no point_cloud/iteration_N/point_cloud.ply in it. Name a file of \
             Gaussians, or the folder of a trained model",
            path.display()
        ))
        .into()),
    }
}

/// Loads the scene at each divisor that makes its views smaller.
fn smaller_scenes(config: &Config, seen: ViewGrowth) -> anyhow::Result<Vec<report::Smaller>> {
    let mut smaller = Vec::new();
    for divisor in [2, 4, 8] {
        let mut config = config.clone();
        config.scene.resolution = divisor;
        let dataset = Dataset::load_to_train(&config)?;
        let resized = forecast::resized(seen, &dataset);
        if resized.px[0] < seen.px[0] {
            let photographs = forecast::photographs(&dataset);
            smaller.push(report::Smaller { divisor, seen: resized, photographs });
        }
    }
    Ok(smaller)
}
