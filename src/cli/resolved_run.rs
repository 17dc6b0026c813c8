//! Resolved training run: its options from all sources, its folder and its checkpoint.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ArgMatches;

use super::cfg_args::ConfigText;
use super::check::check;
use super::continued::{
    Handover, check_iterations_left, earlier_options, keep_primitive, named_checkpoint,
    newest_checkpoint, warn_about_longer, warn_about_other_preset,
};
use super::device::resolve_on_device;
use super::exit::{NothingToTrain, UsageError};
use super::folder::{self, TrainedViews};
use super::lpips::LpipsDemand;
use super::output::shell_word;
use super::parser::is_typed;
use super::scene::{absolute, named_or_here};
use super::train_args::TrainArgs;
use crate::config::{
    Config, ConfigLayer, Layers, OptimizeOptions, PrimitiveName, StrategyName, SugarSchedule,
    Typed, resolve, value_name,
};
use crate::dataset::{Dataset, PointCloud, read_test_list};
use crate::export::read_ply_primitive;
use crate::files::{FolderLock, LockError, OutputError, create_folder};
use crate::train::checkpoint::{self, Checkpoint, CheckpointError, StoredCheckpoint};
use crate::train::coarse::CoarseSchedule;

/// Resolved run, before anything is written.
pub(super) struct ResolvedRun {
    /// Resolved options with absolute paths.
    pub(super) config: Config,
    /// Preset that applies by default.
    pub(super) usual: Option<&'static str>,
    pub(super) model_path: PathBuf,
    /// Checkpoint that the run resumes from.
    pub(super) checkpoint: Option<StoredCheckpoint>,
    /// True if the checkpoint lies in the model folder, whose run is resumed.
    pub(super) goes_on: bool,
    /// Lock that is held from reading the checkpoint to the end of the run.
    lock: Option<FolderLock>,
}

impl ResolvedRun {
    /// Resolves the options and reads the checkpoint. Writes only the lock of an existing folder, because a run that
    /// still trains in it may write another checkpoint.
    ///
    /// With several ranks, the default batch has one view per rank.
    pub(super) fn make(args: &TrainArgs, matches: &ArgMatches, ranks: u32) -> anyhow::Result<Self> {
        let given = Layers {
            is_new: true,
            preset: args.preset.named(),
            file: args.config.as_deref(),
            typed: Some(Typed { flags: &args.options, matches }),
            ..Layers::default()
        };
        let demo = args.demo.then(|| resolve(given)).transpose()?;
        let lowest = base_text(demo.as_ref(), ranks);
        let layers = Layers { base: lowest.as_ref().map(ConfigText::layer), ..given };
        let (mut config, layers) = resolve_on_device(layers)?;
        // A resumed run stays in its folder, even if its checkpoint was written elsewhere.
        let settled = resolved_folder(args, &config);
        if let Some(folder) = &settled {
            folder::check_not_file(folder).map_err(|problem| anyhow::anyhow!(problem.0))?;
        }
        let there = settled.as_deref().filter(|folder| folder.is_dir());
        let lock = there.map(FolderLock::take).transpose()?;
        let mut usual = None;
        let mut found = match (&args.start_checkpoint, &settled) {
            (Some(path), _) => Some((path.clone(), named_checkpoint(path)?)),
            (None, Some(folder)) if args.resume.is_some() => newest_checkpoint(folder)?,
            _ => None,
        };
        if let Some((path, checkpoint)) = &mut found {
            let (origin, text) = (path.display().to_string(), checkpoint.about.config.to_toml()?);
            let base = Some(ConfigLayer { origin: &origin, text: &text });
            let before = &checkpoint.about.config;
            if is_typed(matches, "primitive") {
                // Check this before values that go with one primitive are checked against the other.
                keep_primitive(path, before, &config)?;
            }
            config = resolve(Layers { base, is_new: false, ..layers })?;
            read_test_list(&mut config.scene)?;
            keep_primitive(path, before, &config)?;
            // Gaussians trained with the filter are too small and too opaque without it.
            check([(
                before.optimize.filter_3d && !config.optimize.filter_3d,
                format!(
                    "{}: the run was trained with --filter-3d and cannot continue without it. To start from its \
                     Gaussians as they are drawn, use --init with its point_cloud.ply",
                    path.display()
                ),
            )])?;
            keep_origin(before, &mut config, matches);
            keep_start(path, &checkpoint.about, &config)?;
            warn_about_other_preset(before, layers.preset);
            warn_about_longer(before, &config, layers.preset);
            if let Some(problem) = fewer_than_done(path, &checkpoint.about, &config) {
                // A script that is repeated succeeds if its work is done.
                return Err(match &args.start_checkpoint {
                    Some(_) => UsageError(problem).into(),
                    None => NothingToTrain(problem).into(),
                });
            }
            check_iterations_left(path, &checkpoint.about, &config)?;
            fit_degree(checkpoint, config.optimize.sh_degree)?;
            report_resume_point(&origin, checkpoint.about.iteration, &config);
        } else {
            let earlier = match &settled {
                Some(folder) if args.resume.is_some() && !args.demo => earlier_options(folder)?,
                _ => None,
            };
            let base = earlier.as_ref().map(ConfigText::layer).or(layers.base);
            let layers = Layers { base, is_new: layers.is_new && earlier.is_none(), ..layers };
            config = resolve(layers)?;
            usual = layers.usual_preset()?;
            if let Some(handover) = Handover::find(&config.sugar)? {
                config = coarse_stage_config(args, &handover, layers)?;
            }
        }
        if found.is_none() {
            log_budget(&config);
            log_samples(&config, layers, matches);
        }
        config.validate_schedule()?;
        warn_about_idle(&config, matches);
        warn_about_late(&config, usual, matches);
        let model_path = settled
            .or_else(|| config.output.model_path.clone())
            .unwrap_or_else(|| folder::default_path(&config, false));
        if args.demo {
            config.scene.source_path = Some(model_path.join(DEMO_SCENE));
        }
        let scene = named_or_here(&config.scene, ", --demo for a synthetic one")?;
        config.scene.source_path = Some(scene);
        read_test_list(&mut config.scene)?;
        config.optimize.init = config.optimize.init.as_deref().map(absolute);
        let measured = LpipsDemand::of(config.output.enable_lpips, matches) != LpipsDemand::Never;
        let weights = config.output.lpips_weights.take().filter(|_| measured);
        config.output.lpips_weights = weights.as_deref().map(absolute);
        // Absolute, because a checkpoint may be resumed from another working directory.
        config.output.model_path = Some(
            std::path::absolute(&model_path)
                .map_err(|source| OutputError::new(&model_path, source))?,
        );
        let goes_on = found.as_ref().is_some_and(|(path, _)| folder::holds(&model_path, path));
        if let Some((path, checkpoint)) = found.as_ref().filter(|_| !goes_on) {
            check_run_not_empty(path, checkpoint.about.iteration, &config)?;
        }
        if let Some(start) = args.start_checkpoint.as_ref().filter(|_| goes_on) {
            warn_about_newer(start, &model_path);
        }
        let checkpoint = found.map(|(_, found)| found);
        Ok(Self { config, usual, model_path, checkpoint, goes_on, lock })
    }

    pub(super) fn scene(&self) -> anyhow::Result<PathBuf> {
        self.config.scene.source_path.clone().context("an intent always names its scene")
    }

    /// Creates and locks the model folder. Returns an error if another run trains in it.
    pub(super) fn lock_folder(&mut self) -> Result<(), LockError> {
        if self.lock.is_none() {
            create_folder(&self.model_path)?;
            self.lock = Some(FolderLock::take(&self.model_path)?);
        }
        Ok(())
    }

    /// Locks the model folder and writes the files that describe the run. `config`: the configuration that is written, if
    /// it is not the run's.
    pub(super) fn prepare_folder(
        &mut self,
        dataset: &Dataset,
        points: &PointCloud,
        trained: &TrainedViews,
        config: Option<&Config>,
    ) -> anyhow::Result<()> {
        self.lock_folder()?;
        folder::sweep(&self.model_path);
        if !self.goes_on
            && let Some(aside) = folder::set_aside(&self.model_path)?
        {
            let remedy = match checkpoint::list(&aside).is_empty() {
                true => String::new(),
                false => format!(
                    ". To continue that run: splat train --resume -m {}",
                    shell_word(&aside)
                ),
            };
            tracing::warn!(
                "{}: holds an earlier run, which is moved to {}{remedy}",
                self.model_path.display(),
                aside.display()
            );
        }
        let config = config.unwrap_or(&self.config);
        folder::describe(&self.model_path, config, dataset, points, trained, self.goes_on)
    }
}

/// Returns the model folder if it does not depend on a checkpoint.
fn resolved_folder(args: &TrainArgs, config: &Config) -> Option<PathBuf> {
    let typed = config.output.model_path.clone();
    if args.demo {
        return Some(typed.unwrap_or_else(|| Path::new("output").join("demo")));
    }
    if args.resume.is_some() {
        return Some(typed.unwrap_or_else(|| folder::default_path(config, true)));
    }
    typed
}

/// Returns the options of a run whose coarse stage starts from a trained model.
fn coarse_stage_config(
    args: &TrainArgs,
    model: &Handover,
    layers: Layers<'_>,
) -> anyhow::Result<Config> {
    let (primitive, ply) = (read_ply_primitive(&model.ply)?, model.ply.display());
    let unsuited = [
        (primitive == PrimitiveName::Triangles, "triangles"),
        (primitive == PrimitiveName::Surfels, "surfels"),
    ];
    check(unsuited.map(|(applies, name)| {
        let why = format!(
            "-c {ply}: holds {name}, and SuGaR's coarse stage is for 3D Gaussians. To train them further, use \
             --init {ply} with --primitive {name}"
        );
        (applies, why)
    }))?;
    let kept = model.kept()?;
    let base = kept.as_ref().map(ConfigText::layer);
    let mut config = resolve(Layers { base: layers.base.or(base), ..layers })?;
    let other = if args.demo { "--demo" } else { "--init" };
    check([
        (
            !config.has_coarse_stage(),
            format!(
                "-c {ply}: SuGaR's coarse stage needs its terms. Give --regularize density, or use --init to train the \
                 Gaussians further"
            ),
        ),
        (
            args.demo || config.optimize.init.is_some(),
            format!("-c {ply}: the model to start from is named twice. Leave out {other}, or -c"),
        ),
    ])?;
    read_test_list(&mut config.scene)?;
    model.check_split(&config.scene)?;
    config.optimize.init = Some(model.ply.clone());
    config.optimize.iterations = model.iteration;
    // The saved Gaussians already include the filter, and surfaces are made of them as they are.
    config.optimize.filter_3d = false;
    config.sugar.checkpoint_path = config.sugar.checkpoint_path.as_deref().map(absolute);
    tracing::info!("starting the coarse stage from {ply}, iteration {}", model.iteration);
    Ok(config)
}

/// Keeps a resumed run's origin from its checkpoint, whatever a preset or the command line says.
fn keep_origin(before: &Config, config: &mut Config, matches: &ArgMatches) {
    if before.sugar.checkpoint_path.is_some() {
        config.optimize.iterations = before.optimize.iterations;
        config.optimize.init.clone_from(&before.optimize.init);
    }
    if is_typed(matches, "checkpoint_path")
        && config.sugar.checkpoint_path.as_deref().map(absolute) != before.sugar.checkpoint_path
    {
        tracing::warn!("-c has no effect on a resumed run: it continues from its checkpoint");
    }
    if config.triangles.indoor != before.triangles.indoor {
        tracing::warn!(
            "--indoor has no effect on a resumed run: it keeps the values that it began with"
        );
        config.triangles.indoor = before.triangles.indoor;
    }
    let (offset, unit) = (before.scene.offset, before.scene.unit);
    if (config.scene.offset, config.scene.unit) != (offset, unit) {
        tracing::warn!(
            "--offset and --unit have no effect on a resumed run: it keeps its coordinates"
        );
    }
    (config.scene.offset, config.scene.unit) = (offset, unit);
    config.scene.take_kept_frame();
    config.sugar.checkpoint_path.clone_from(&before.sugar.checkpoint_path);
    config.sugar.iteration_to_load = before.sugar.iteration_to_load;
}

/// Rejects options under which the checkpoint would change its stage, or the side of the coarse stage's prune.
fn keep_start(path: &Path, about: &Checkpoint, now: &Config) -> Result<(), UsageError> {
    let place = |config| {
        let schedule =
            CoarseSchedule::of(config).filter(|schedule| schedule.contains(about.iteration))?;
        Some((schedule.start, about.iteration > schedule.prune))
    };
    let (before, place) = (place(&about.config), place(now));
    if place == before {
        return Ok(());
    }
    let (path, iteration) = (path.display(), about.iteration);
    let remedy = match (before, place) {
        (Some(_), _) if !now.has_coarse_stage() => "leave --regularize as it was".to_owned(),
        (Some((start, _)), Some((other, _))) if start == other => {
            "use the same --sugar-iterations and --sugar-schedule as before, so that the prune stays \
             at its iteration"
                .to_owned()
        }
        (Some((start, _)), _) => format!("use --iterations {start}"),
        (None, _) => format!("use --iterations {iteration}"),
    };
    let stage = if before.is_some() { "coarse" } else { "photometric" };
    Err(UsageError(format!(
        "{path}: iteration {iteration} belongs to the {stage} stage of this run, but with these \
         options it would not: {remedy}"
    )))
}

fn report_resume_point(origin: &str, done: u32, config: &Config) {
    tracing::info!("continuing from {origin}, iteration {done}");
    let last = config.last_iteration();
    if done == last {
        tracing::warn!(
            "already trained for {last} iterations. To train longer, give {}",
            lengthening_options(config)
        );
    }
}

/// Returns an error text if the run has more iterations than requested, because continuing would mark it complete at
/// another iteration.
fn fewer_than_done(path: &Path, about: &Checkpoint, now: &Config) -> Option<String> {
    let (done, last, before) =
        (about.iteration, now.last_iteration(), about.config.last_iteration());
    if done <= last {
        return None;
    }
    let remedy = if before > done {
        format!("With the options that it had, the run continues to {before}")
    } else {
        format!("Ask for more with {}", lengthening_options(now))
    };
    Some(format!(
        "{}: {done} iterations are done and {last} requested: nothing to train. {remedy}; to go back, name an earlier \
         checkpoint with --start-checkpoint",
        path.display()
    ))
}

/// Rejects a run in another folder that has nothing to train, because it would only move earlier results aside.
fn check_run_not_empty(path: &Path, done: u32, config: &Config) -> Result<(), UsageError> {
    let last = config.last_iteration();
    if done < last {
        return Ok(());
    }
    Err(UsageError(format!(
        "{}: {done} iterations are done and {last} requested: nothing to train in another folder. Ask for more with {}",
        path.display(),
        lengthening_options(config)
    )))
}

/// Returns the options that make a run longer.
fn lengthening_options(config: &Config) -> &'static str {
    match config.sugar.sugar_schedule {
        _ if config.optimize.time_budget.is_some() => "--iterations and a longer --time-budget",
        SugarSchedule::Relative if config.has_coarse_stage() => "--sugar-iterations",
        SugarSchedule::Absolute if config.has_coarse_stage() => "--sugar-schedule relative",
        _ => "--iterations",
    }
}

/// Warns if a newer checkpoint exists, because a later `--resume` starts from it.
fn warn_about_newer(start: &Path, model_path: &Path) {
    if let Some(newest) = checkpoint::list(model_path).first()
        && newest.file_name() != start.file_name()
    {
        tracing::warn!(
            "{} is newer, and --resume will find it; move it away if this run should replace it",
            newest.display()
        );
    }
}

/// Drops harmonics above the requested degree with a warning. Missing harmonics are an error.
fn fit_degree(checkpoint: &mut StoredCheckpoint, wanted: u32) -> Result<(), CheckpointError> {
    let found = checkpoint.sh_degree();
    checkpoint.lower_sh_degree(wanted)?;
    if wanted < found {
        tracing::warn!(
            "the checkpoint has SH degree {found}; harmonics above --sh-degree {wanted} are \
             dropped, with their moments"
        );
    }
    Ok(())
}

// Base layer of options: the demonstration's, and those of several ranks.

/// Options of the demonstration. The usual preset overrides them except for the length and the opacity weight. More
/// Gaussians would take over two minutes on two cores.
const DEMO: &str = "\
[scene]
eval = true

[optimize]
iterations = 1500
sh_degree_interval = 400
position_lr_max_steps = 1500
opacity_reg = 0

[densify]
densify_from_iter = 200
densify_until_iter = 1000
max_points = 15000

[sugar]
sugar_iterations = 400
n_samples_for_sdf = 10000
";

/// Options of the demonstration with triangles. Their schedules scale with the length, and their iterations are slow.
const TRIANGLE_DEMO: &str = "\
[scene]
eval = true

[optimize]
iterations = 600
";

/// Subfolder of the demonstration's scene in the model folder.
pub(super) const DEMO_SCENE: &str = "scene";

/// Largest default batch, views.
const MAX_BATCH_VIEWS: u32 = 8;

/// Returns the lowest layer of options: the demonstration's, and one view per rank. `demo`: the given options of a
/// demonstration.
pub(super) fn base_text(demo: Option<&Config>, ranks: u32) -> Option<ConfigText> {
    let views = format!("[optimize]\nbatch_views = {}\n", ranks.min(MAX_BATCH_VIEWS));
    let (origin, text) = match demo {
        Some(config) => {
            let is_triangles = config.optimize.primitive == PrimitiveName::Triangles;
            let mut text = if is_triangles { TRIANGLE_DEMO } else { DEMO }.to_owned();
            if config.densify.strategy != StrategyName::Budget {
                // The other strategies need this regularization.
                text = text.replace("opacity_reg = 0\n", "");
            }
            if config.optimize.primitive == PrimitiveName::Surfels {
                // Surfels take longer.
                text = text.replace("max_points = 15000\n", "max_points = 11000\n");
            }
            ("the demonstration", text.replace("[optimize]\n", &views))
        }
        None if ranks > 1 => ("--ranks", views),
        None => return None,
    };
    Some(ConfigText { origin: origin.to_owned(), text })
}

// Notices about options.

/// Logs the schedule of a time budget.
pub(super) fn log_budget(config: &Config) {
    let OptimizeOptions { time_budget: Some(budget), iterations, max_passes, .. } = config.optimize
    else {
        return;
    };
    let strategy = value_name(&config.densify.strategy);
    let most =
        config.densify.max_points.map_or(String::new(), |most| format!(", up to {most} Gaussians"));
    let passes = if max_passes > 0 {
        format!(", at most {max_passes} passes over the views")
    } else {
        String::new()
    };
    tracing::debug!(
        "--time-budget {budget}: a schedule of {iterations} iterations with --strategy {strategy}{most}{passes}"
    );
}

/// Reports the processor's default of `--n-samples-for-sdf`.
fn log_samples(config: &Config, layers: Layers<'_>, matches: &ArgMatches) {
    let samples = config.sugar.n_samples_for_sdf;
    let usual = Config::default().sugar.n_samples_for_sdf;
    let is_given = is_typed(matches, "n_samples_for_sdf") || samples == usual;
    if layers.on_processor && config.has_coarse_stage() && !is_given {
        tracing::info!("on the CPU: --n-samples-for-sdf {samples}; a GPU takes {usual}");
    }
}

/// Reports the preset that a new run uses by default, and the alternative.
pub(super) fn log_usual(usual: Option<&str>) {
    if let Some(preset) = usual {
        tracing::info!(
            "--preset {preset}, the default; --preset reference is 3DGS with its 30,000 iterations"
        );
    }
}

/// Warns about typed options that have no effect.
pub(super) fn warn_about_idle(config: &Config, matches: &ArgMatches) {
    let was_typed = |id: &str| is_typed(matches, id);
    for sentence in config.idle_options(was_typed) {
        tracing::warn!("{sentence}");
    }
}

/// Warns about typed iterations after the end of the run, such as the reference trainer's 30,000.
pub(super) fn warn_about_late(config: &Config, usual: Option<&str>, matches: &ArgMatches) {
    let last = config.last_iteration();
    let reference = i64::from(Config::default().optimize.iterations);
    let output = &config.output;
    // An explicit length replaces the usual preset's passes.
    let has_usual_length = usual.is_some() && config.optimize.min_passes > 0;
    for (id, given) in [
        ("test_iterations", &output.test_iterations),
        ("save_iterations", &output.save_iterations),
        ("checkpoint_iterations", &output.checkpoint_iterations),
    ] {
        let late = given.iter().copied().max().filter(|&iteration| iteration > i64::from(last));
        let Some(late) = late.filter(|_| is_typed(matches, id)) else { continue };
        let remedy = if config.has_coarse_stage() {
            String::new()
        } else if has_usual_length && late <= reference {
            format!(": give --iterations {late}, or --preset reference, which has {reference}")
        } else {
            format!(": give --iterations {late}")
        };
        let flag = id.replace('_', "-");
        tracing::warn!("--{flag} {late} is after the last iteration, {last}{remedy}");
    }
}
