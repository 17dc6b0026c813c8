//! `splat train`: trains a model.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Instant;

use clap::ArgMatches;

use super::check::check;
use super::clean::clean_trained;
use super::device::{self, DeviceOptions, REBUILD, Task};
use super::ensemble::{
    copy_pseudo_views, model_of_checkpoint, open_with_pseudo_views, settle_ensemble,
};
use super::exit::{EnsembleInterrupted, NothingToTrain, OutOfMemory, OutOfSpace, UsageError};
use super::folder::{TrainedViews, write_config};
use super::held_out::check_held_out;
use super::host_limit::{AT_START, HostRoom, HostRun, OnProcessor, less_memory, training};
use super::lpips::{self, LpipsDemand, Sources};
use super::next::{demo_summary, interrupted, print_next};
use super::output::{print, shell_word};
use super::parser::is_typed;
use super::ranks::{self, RankGroup, RankRole};
use super::resolved_run::ResolvedRun;
use super::scene::{absolute, check_not_all_hidden, open_images};
use super::settle::{
    LimitSource, PointLimit, relax_if_views_agree, settle_by_photographs, settle_passes,
    warn_of_empty_weight,
};
use super::signals::stop_on_signals;
use super::start::{First, Start};
use super::train_args::TrainArgs;
use crate::abi::{SHORT_KEYS_MAX, TILE};
use crate::backend::{Rows, TrainDevice};
use crate::config::{
    Config, DeviceChoice, Offset, PrimitiveName, RegReach, TrainSample, TrainingBackground,
    keys_of_file,
};
use crate::dataset::{AlphaMeaning, Dataset, Frame, ImageLoader, ImageSource, View};
use crate::layout::GAUSSIANS;
use crate::memory::Bytes;
use crate::memory::plan::{PlannedRow, ViewGrowth};
use crate::perceptual::LpipsWeights;
use crate::synth::{SynthOptions, write_scene};
use crate::telemetry::{Sinks, SummaryFile, grouped, release_notices};
use crate::train::checkpoint::StoredCheckpoint;
use crate::train::ensemble::{EnsembleSetup, draw_pseudo_views};
use crate::train::follower::fingerprint;
use crate::train::{Outcome, TrainError, Trainer, TrainerSetup, forecast, render_footprint};

#[cfg(test)]
pub(super) use self::tests::samples as run_lines;

/// Folder and options of a finished training run.
type TrainedModel = (PathBuf, Config);

/// Trains, cleans the model if requested and prints the next commands.
pub(super) fn run(args: &TrainArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    let trained = match RankRole::of(args)? {
        RankRole::Alone => train(args, matches, None)?,
        RankRole::Supervisor(world) => {
            // Rank 0 prints the first lines of the run.
            release_notices();
            return ranks::supervise(world, args);
        }
        RankRole::Rank(launch) if launch.rank > 0 => return ranks::follow(&launch, args),
        RankRole::Rank(launch) => {
            ranks::lead(&launch, args, |group| train(args, matches, Some(group)))?
        }
    };
    let Some((model_path, config)) = trained else { return Ok(()) };
    let cleaned = if args.clean { Some(clean_trained(&model_path)?) } else { None };
    if args.demo {
        return Ok(print(&demo_summary(&model_path))?);
    }
    let model = cleaned.as_deref().unwrap_or(&model_path);
    print_next(model, &config, args.style());
    Ok(())
}

/// Trains, with other ranks if `group` is given. Returns `None` if a resumed run is already complete.
pub(super) fn train(
    args: &TrainArgs,
    matches: &ArgMatches,
    group: Option<&mut RankGroup>,
) -> anyhow::Result<Option<TrainedModel>> {
    let started = Instant::now();
    let world = group.as_ref().map_or(1, |group| group.world());
    let mut resolved = match ResolvedRun::make(args, matches, world) {
        Err(error) if error.is::<NothingToTrain>() => {
            tracing::warn!("{error}");
            return Ok(None);
        }
        made => made?,
    };
    let primitive = resolved.config.optimize.primitive;
    check([
        (
            args.gpus.is_some() && resolved.config.run.device == DeviceChoice::Cpu,
            "--gpus trains on GPUs, and --device cpu on none: give one of both",
        ),
        (
            args.clean && primitive == PrimitiveName::Triangles,
            "--clean removes Gaussians, and --primitive triangles removes hidden triangles by itself. Leave --clean \
             out",
        ),
    ])?;
    if args.gpus.is_some() {
        resolved.config.run.device = DeviceChoice::Cuda;
    }
    if world > 1 && resolved.config.distils() {
        if is_typed(matches, "ensemble") {
            tracing::warn!("--ensemble has no effect: several ranks train one model");
        }
        resolved.config.optimize.ensemble = 0;
    }
    if args.demo && device::demo_lacks_kernels(resolved.config.run.device) {
        tracing::warn!(
            "trains on the processor, far slower than the GPU: the program has no CUDA kernels. {REBUILD}"
        );
        // The configuration stores it, so that eval, render and --resume use the processor too.
        resolved.config.run.device = DeviceChoice::Cpu;
    }
    // Find the weights before training: a long run must not end without its metric.
    let output = &resolved.config.output;
    let path = output.lpips_weights.as_deref();
    let is_earlier = resolved.checkpoint.is_some() && args.options.output.lpips_weights.is_none();
    let (named, earlier) = if is_earlier { (None, path) } else { (path, None) };
    let demand = LpipsDemand::of(output.enable_lpips, matches);
    let metrics = output.metrics;
    let lpips = lpips::weights(&Sources { named, earlier, demand, metrics })?;
    // The configuration stores the file, so that eval and --resume use the same weights.
    if let Some(network) = lpips.as_ref().and_then(|weights| weights.files().first()) {
        resolved.config.output.lpips_weights = Some(absolute(network));
    }
    let Some(group) = group else {
        // Options of a preset are not typed, and cause no notices.
        let options = DeviceOptions::of_earlier(&resolved.config, matches);
        return device::on(&options, Training { args, matches, resolved, lpips, started })
            .map(Some);
    };
    group.check(&resolved.config)?;
    let options = group.device_options(&resolved.config);
    group.on_all(&options, Training { args, matches, resolved, lpips, started }).map(Some)
}

struct Training<'a> {
    args: &'a TrainArgs,
    matches: &'a ArgMatches,
    resolved: ResolvedRun,
    lpips: Option<LpipsWeights>,
    /// Start of the program.
    started: Instant,
}

impl Task for Training<'_> {
    type Output = TrainedModel;

    fn run<B: TrainDevice>(self, device: &mut B) -> anyhow::Result<TrainedModel> {
        let Self { args, matches, mut resolved, lpips, started } = self;
        let stop = stop_on_signals()?;
        let in_file = args.config.as_deref().map(keys_of_file).transpose()?.unwrap_or_default();
        if args.demo && resolved.checkpoint.is_none() {
            resolved.lock_folder()?;
            write_scene(&resolved.scene()?, &SynthOptions::default())?;
        }
        let has_other_folder = args.start_checkpoint.is_some() && !resolved.goes_on;
        let model_before = match &args.start_checkpoint {
            Some(checkpoint) if has_other_folder => model_of_checkpoint(checkpoint),
            _ => resolved.model_path.clone(),
        };
        let dataset = open_with_pseudo_views(&mut resolved, matches, &model_before)?;
        let photographs = if dataset.pseudo.is_empty() {
            Cow::Borrowed(&dataset)
        } else {
            Cow::Owned(dataset.photographs())
        };
        let Frame { offset, unit } = dataset.frame;
        resolved.config.scene.keep_frame(offset, unit);
        log_frame(&dataset.frame);
        if dataset.test.is_empty() && resolved.config.output.eval_train == TrainSample::Views(0) {
            tracing::warn!(
                "--eval-train 0: no view is held out, so that nothing is measured. Hold some out with \
                 --eval"
            );
        }
        check_timelapse(args, &mut resolved, &photographs)?;
        let start = match &resolved.checkpoint {
            None => Start::of(&dataset, &resolved.config)?,
            Some(_) => Start::Points(Cow::Borrowed(&dataset.points)),
        };
        let now =
            resolved.checkpoint.as_ref().map_or(start.len(), |checkpoint| checkpoint.len()) as u64;
        let before_passes = resolved.config.clone();
        let views = dataset.views_to_train().len();
        let pixels = dataset.train_pixels() * views as u64 / dataset.train.len() as u64;
        settle_passes(&mut resolved.config, views, pixels);
        let limit = PointLimit::settle(&mut resolved.config, &dataset, now);
        log_run(&resolved, &dataset, limit, now);
        warn_about_background(&dataset, &resolved.config);
        let done = resolved.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.about.iteration);
        let is_typed = |option: &str| is_typed(matches, option);
        let was_auto = resolved.config.optimize.reg_reach == RegReach::Auto;
        let before = resolved.checkpoint.as_ref().map(|checkpoint| checkpoint.about.config.clone());
        let settle = |config: &mut Config, images: Option<&ImageLoader>| {
            settle_by_photographs(config, &dataset, done, is_typed);
            let is_given = |option: &str| is_typed(option) || in_file.contains(option);
            relax_if_views_agree(config, &dataset, images, before.clone(), is_given);
        };
        if device.world() > 1 {
            // The other ranks receive the settled options.
            settle(&mut resolved.config, None);
            if device.info().uuid.is_some() {
                check_tile_count(&dataset)?;
            }
            device.begin(resolved.config.to_toml()?, fingerprint(&dataset))?;
        }
        let mut trained = TrainedViews::of_start(&resolved.config, resolved.checkpoint.as_ref())?;
        check_held_out(&trained, resolved.checkpoint.as_ref(), &resolved.config, &dataset)?;
        let room = host_room(device, &resolved, &dataset, &start, limit, lpips.as_ref())?;
        if let Some(most) = room.gaussians {
            device.limit_rows(usize::try_from(most).unwrap_or(usize::MAX));
        }
        let mut images = open_images(&photographs, &resolved.config.memory, room.taken)?;
        check_not_all_hidden(&dataset, &images)?;
        // A single run decodes photographs here, after the memory check, because decoding is not
        // part of the run's memory. Only silhouettes of a scene without points were read before.
        settle(&mut resolved.config, Some(&images));
        if is_typed("empty_weight") {
            warn_of_empty_weight(&resolved.config, &dataset, was_auto);
        }
        let is_new = resolved.checkpoint.is_none();
        let of_ensemble = (resolved.config.distils() && is_new).then(|| {
            let views = photographs.train.len();
            let mut config = resolved.config.of_ensemble_model(&before_passes, views);
            settle_passes(&mut config, views, photographs.train_pixels());
            config
        });
        let names = dataset.train.iter().map(|&view| dataset.views[view].name.as_str());
        let has_new_views = names.clone().any(|name| !trained.contains(name));
        trained.add(names, done);
        // Until training ends, config.toml holds the options from which the models of the ensemble follow: a run that
        // is killed before its first checkpoint trains the same ones again.
        let until_ensemble =
            of_ensemble.is_some().then(|| resolved.config.until_ensemble(&before_passes));
        let stored = until_ensemble.as_ref();
        resolved.prepare_folder(&photographs, &start.points(), &trained, stored)?;
        if !dataset.pseudo.is_empty() && has_other_folder {
            copy_pseudo_views(&dataset, &model_before, &absolute(&resolved.model_path))?;
        }

        let mut sinks =
            Sinks::for_run(&resolved.model_path, args.style(), resolved.goes_on.then_some(done))?;
        if resolved.config.output.timelapse.is_some() {
            sinks.add_timelapse(&resolved.model_path)?;
        }
        let checkpoint = resolved.checkpoint.take();
        let command = resume_command(args, &resolved);
        let begin = match checkpoint {
            Some(checkpoint) => Begin::Checkpoint(Box::new(checkpoint)),
            None => Begin::Model(start.first(&resolved.config, &dataset)),
        };
        let most = usize::try_from(limit.most).unwrap_or(usize::MAX);
        let mut ensemble_seconds = 0.0;
        if let Some(config) = &of_ensemble
            && let Begin::Model(First::Gaussians(first)) = &begin
        {
            let model = TrainerSetup {
                dataset: &photographs,
                images: &images,
                config,
                most,
                lpips: None,
                model_path: &resolved.model_path,
                began: started,
                stop: &stop,
            };
            let final_images = resolved.config.optimize.most_images(views);
            let models = resolved.config.optimize.ensemble;
            let ensemble = EnsembleSetup { model, models, dataset: &dataset, final_images };
            let done = draw_pseudo_views(&ensemble, device, &mut sinks, first)
                .map_err(|error| add_command(error, &resolved, &command))?;
            let Some(seconds) = settle_ensemble(
                &mut resolved.config,
                done,
                &before_passes,
                &photographs,
                is_typed("ensemble"),
            ) else {
                return Err(EnsembleInterrupted { command }.into());
            };
            ensemble_seconds = seconds;
        }
        let dataset: &Dataset = if resolved.config.distils() { &dataset } else { &photographs };
        if !dataset.pseudo.is_empty() {
            // The renders are there only now, and some loaders decode all images when they are opened.
            drop(images);
            images = open_images(dataset, &resolved.config.memory, room.taken)?;
        }
        let summary = SummaryFile::new(&resolved.model_path, &resolved.config, started)?;
        sinks.add(summary.with_new_training_views(has_new_views));
        let setup = TrainerSetup {
            dataset,
            images: &images,
            config: &resolved.config,
            most,
            lpips: lpips.as_ref(),
            model_path: &resolved.model_path,
            began: started,
            stop: &stop,
        };
        let trainer = match begin {
            Begin::Checkpoint(checkpoint) => {
                Trainer::resume(setup, device, &mut sinks, *checkpoint)?
            }
            Begin::Model(First::Gaussians(gaussians)) => {
                Trainer::start(setup, device, &mut sinks, &gaussians)?
            }
            Begin::Model(First::Triangles(mesh)) => {
                Trainer::start_triangles(setup, device, &mut sinks, &mesh)?
            }
        };
        let outcome = trainer
            .after_ensemble(ensemble_seconds)
            .run()
            .map_err(|error| add_command(error, &resolved, &command))?;
        if of_ensemble.is_some() {
            write_config(&resolved.model_path, &resolved.config)?;
        }
        match outcome {
            Outcome::Interrupted => Err(interrupted(&command, args.style()).into()),
            Outcome::Finished => {
                let ResolvedRun { model_path, mut config, .. } = resolved;
                // Messages show the path as it was typed.
                config.scene.source_path = args.options.scene.source_path.clone();
                Ok((model_path, config))
            }
        }
    }
}

/// State with which training begins.
enum Begin {
    Checkpoint(Box<StoredCheckpoint>),
    Model(First),
}

/// Logs a frame that differs from the scene's.
fn log_frame(frame: &Frame) {
    let Frame { offset, unit } = *frame;
    if offset != [0.0; 3] {
        tracing::info!(
            "the scene is far from its origin: files hold coordinates minus {} (--offset)",
            Offset(offset)
        );
    }
    if unit != 1.0 {
        tracing::info!("trained with a unit of {unit} scene units (--unit)");
    }
}

/// Returns an error for views with too many tiles: GPUs that share a view send tile counts in 16 bits.
fn check_tile_count(dataset: &Dataset) -> Result<(), UsageError> {
    let size = |view: &View| [view.camera.width, view.camera.height];
    let tiles =
        |view: &View| size(view).map(|side| u64::from(side.div_ceil(TILE))).iter().product::<u64>();
    let large = dataset.views.iter().find(|view| tiles(view) > u64::from(SHORT_KEYS_MAX));
    let Some(view) = large else { return Ok(()) };
    let ([width, height], name) = (size(view), &view.name);
    Err(UsageError(format!(
        "{name}: {width} x {height} px are more than {SHORT_KEYS_MAX} tiles of 16 x 16 px, which several GPUs do not share. \
         Give -r 2, or train on one GPU"
    )))
}

/// Checks the run against `--host-limit`.
fn host_room<B: TrainDevice>(
    device: &B,
    ResolvedRun { config, checkpoint, .. }: &ResolvedRun,
    dataset: &Dataset,
    first: &Start<'_>,
    limit: PointLimit,
    lpips: Option<&LpipsWeights>,
) -> anyhow::Result<HostRoom> {
    let Some(run) = HostRun::new(config, dataset) else { return Ok(HostRoom::default()) };
    // A checkpoint is read in chunks.
    let start = if checkpoint.is_some() { 0 } else { first.len() as u64 };
    let gaussians = checkpoint.as_ref().map_or(start, |checkpoint| checkpoint.len() as u64);
    let most = match limit.source {
        _ if !limit.densifies => gaussians,
        LimitSource::Option | LimitSource::Pixels => limit.most.max(gaussians),
        LimitSource::Strategy => {
            forecast::guessed_gaussians(dataset.points.positions.len() as u64).max(gaussians)
        }
    };
    if device.info().uuid.is_some() {
        let parameters = 4 * u64::from(GAUSSIANS.row_values(config.optimize.sh_degree));
        let share = |all: u64| all.div_ceil(u64::from(device.world()).max(1));
        let row = PlannedRow { label: AT_START, bytes: Bytes(start * parameters) };
        return Ok(run.on_gpu(row, share(gaussians), share(most))?);
    }
    let count_seen = || -> ViewGrowth {
        match (checkpoint, first) {
            (None, Start::Model(model)) => {
                forecast::seen_of_model(dataset, model, render_footprint(config))
            }
            _ => forecast::seen_of_points(dataset, &first.points().positions),
        }
    };
    Ok(run.on_processor(&OnProcessor {
        work: training(config, dataset, gaussians, start),
        most,
        count_seen: &count_seen,
        lpips,
        beside: None,
    })?)
}

fn resume_command(args: &TrainArgs, resolved: &ResolvedRun) -> String {
    let clean = if args.clean { " --clean" } else { "" };
    let ranks = args.ranks_flag();
    format!("splat train --resume -m {}{ranks}{clean}", shell_word(&resolved.model_path))
}

/// Adds the command that resumes the run to errors about GPU memory and disk space.
fn add_command(error: TrainError, resolved: &ResolvedRun, command: &str) -> anyhow::Error {
    let command = command.to_owned();
    match error {
        TrainError::NoSpace { .. } => OutOfSpace { stopped: error, command }.into(),
        TrainError::OutOfMemory { .. } => {
            let less = less_memory(&error, &resolved.config);
            OutOfMemory { stopped: error, command, less }.into()
        }
        other => other.into(),
    }
}

// Notices before training.

/// Warns if photographs are blended over one colour while the training background is another.
fn warn_about_background(dataset: &Dataset, config: &Config) {
    let blended = |source: &ImageSource| matches!(source.alpha, AlphaMeaning::BlendOver(_));
    let flag = if config.optimize.random_background {
        "--random-background"
    } else if config.densify.training_background == TrainingBackground::Grey {
        "--training-background grey"
    } else {
        return;
    };
    if dataset.sources.iter().any(blended) {
        tracing::warn!(
            "{flag}: the photographs' transparent parts are blended over one colour, \
             and the model will learn to be opaque there"
        );
    }
}

/// Warns about a `--max-points` that the run does not keep or reach. Logs the first line of the run: length, growth and
/// preset.
fn log_run(resolved: &ResolvedRun, dataset: &Dataset, limit: PointLimit, now: u64) {
    let ResolvedRun { config, checkpoint, .. } = resolved;
    let PointLimit { most, source, densifies } = limit;
    let is_trained = config.sugar.checkpoint_path.is_some();
    let (is_new, is_given) = (checkpoint.is_none(), source == LimitSource::Option);
    if !is_new && is_given && most < now {
        tracing::warn!(
            "the checkpoint has {now} Gaussians, more than --max-points {most}: none are removed \
             for that, and none are added"
        );
    }
    let is_goal = config.densify.strategy.grows_to_a_number() && most > now;
    if is_new && is_given && is_goal && !densifies && !is_trained {
        tracing::warn!(
            "--max-points {most} is not reached: no densification step falls between --densify-from-iter {} and \
             iteration {}; the run keeps its {now} Gaussians",
            config.densify.densify_from_iter,
            config.densify.densify_until_iter.min(config.optimize.iterations)
        );
    }
    let is_given = is_new && source == LimitSource::Pixels && densifies && !is_trained;
    let views = u32::try_from(dataset.views_to_train().len()).unwrap_or(u32::MAX);
    let line = run_line(config, views, now, is_given.then_some(most), resolved.usual);
    tracing::info!(is_headline = true, "{line}");
}

fn run_line(
    config: &Config,
    views: u32,
    now: u64,
    goal: Option<u64>,
    preset: Option<&str>,
) -> String {
    let number = |count: u64| grouped(usize::try_from(count).unwrap_or(usize::MAX));
    let iterations = |count: u32| format!("{} iterations", number(count.into()));
    let length = match config.optimize.time_budget {
        Some(budget) => format!("{budget} of training"),
        None if config.has_coarse_stage() => format!(
            "{}, coarse stage to {}",
            iterations(config.optimize.iterations),
            number(config.last_iteration().into())
        ),
        None => {
            let (all, images) = (config.optimize.iterations, config.optimize.images(views));
            // Pass limits shorten or lengthen the run.
            let images = match images == all {
                true => String::new(),
                false => format!(" ({} images)", number(images.into())),
            };
            format!("{}{images}", iterations(all))
        }
    };
    let rows = match config.optimize.primitive {
        PrimitiveName::Triangles => "vertices",
        PrimitiveName::Gaussians | PrimitiveName::Surfels => "Gaussians",
    };
    let growth = match goal {
        Some(goal) if goal > now => format!(", up to {} {rows}", number(goal)),
        Some(_) => format!(", {} {rows} throughout (raise --max-points)", number(now)),
        None => String::new(),
    };
    let preset = preset.map_or(String::new(), |preset| format!(" (--preset {preset})"));
    format!("{length}{growth}{preset}")
}

/// Returns an error if the scene lacks the typed view, or a resumed run has pictures of another. A view that vanished
/// from the scene only ends the timelapse.
pub(super) fn check_timelapse(
    args: &TrainArgs,
    resolved: &mut ResolvedRun,
    dataset: &Dataset,
) -> Result<(), UsageError> {
    let earlier = resolved.checkpoint.as_ref().filter(|_| resolved.goes_on);
    let earlier = earlier.and_then(|found| found.about.config.output.timelapse.clone());
    let Some(name) = resolved.config.output.timelapse.clone() else { return Ok(()) };
    if let Some(earlier) = earlier.filter(|earlier| *earlier != name) {
        return Err(UsageError(format!(
            "--timelapse {name}: this run keeps pictures of {earlier}. Leave it out, or train into another folder"
        )));
    }
    if dataset.views.iter().any(|view| view.name == name) {
        return Ok(());
    }
    let is_typed = args.options.output.timelapse.is_some();
    let some: Vec<&str> = dataset.views.iter().take(3).map(|view| view.name.as_str()).collect();
    let problem = format!("--timelapse {name}: the scene has no such photograph");
    if is_typed {
        let like = some.join(", ");
        return Err(UsageError(format!("{problem}. Name one as the scene does, like {like}")));
    }
    tracing::warn!("{problem} any more: no pictures are kept");
    resolved.config.output.timelapse = None;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns sample first lines.
    pub(in crate::cli) fn samples() -> Vec<String> {
        let mut config = Config::default();
        config.optimize.iterations = 6000;
        let line = |config: &Config, goal, preset| run_line(config, 26, 12_449, goal, preset);
        let mut lines = vec![
            line(&config, Some(246_768), Some("fast")),
            line(&config, Some(12_449), None),
            line(&config, None, None),
        ];
        config.optimize.max_passes = 100;
        lines.push(line(&config, Some(246_768), Some("fast")));
        config.optimize.max_passes = 0;
        config.optimize.time_budget = "90s".parse().ok();
        lines.push(line(&config, Some(246_768), Some("fast")));
        config.optimize.time_budget = None;
        config.sugar.regularize = crate::config::Regularize::Density;
        lines.push(line(&config, None, None));
        config.sugar.regularize = crate::config::Regularize::None;
        config.optimize.primitive = PrimitiveName::Triangles;
        lines.push(line(&config, Some(879_106), None));
        lines
    }
}
