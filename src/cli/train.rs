//! `splat train`.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::{ArgMatches, Args};

use super::exit::{DataError, Interrupted, UsageError};
use super::scene::{absolute, open_scene};
use super::{device, folder, print, shell_word};
use crate::config::{Config, Layer, Layers, Typed, resolve};
use crate::dataset::{Dataset, PointCloud};
use crate::files::{OutputError, create_folder};
use crate::memory::{Bytes, host_memory};
use crate::model::{from_points, random_points, thinned};
use crate::synth::{SynthOptions, write_scene};
use crate::telemetry::{ProgressStyle, Sinks};
use crate::train::checkpoint::{self, Checkpoint, CheckpointError};
use crate::train::{Outcome, Trainer, TrainerSetup, scene_extent};

/// Arguments of `splat train`.
#[derive(Args)]
pub(super) struct TrainArgs {
    /// Make a small synthetic scene in the model folder and train it; implies --eval
    #[arg(long, conflicts_with = "source_path")]
    demo: bool,

    /// Options that differ from the defaults, in TOML; flags win over it
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,

    /// Built-in options that differ from the defaults; --config and flags win over it
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,

    /// Go on from this checkpoint
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    start_checkpoint: Option<PathBuf>,

    /// Go on from the newest usable checkpoint of the model folder; without one, start
    #[arg(long, value_name = "auto", num_args = 0..=1, default_missing_value = "auto", value_parser = ["auto"])]
    resume: Option<String>,

    /// How progress is shown on stderr
    #[arg(long, value_enum, value_name = "STYLE", default_value_t = ProgressStyle::Bar)]
    progress: ProgressStyle,

    /// Nothing on stderr but warnings and errors
    #[arg(long)]
    pub(super) quiet: bool,

    #[command(flatten)]
    options: Config,
}

impl TrainArgs {
    /// How progress is shown.
    pub(super) fn style(&self) -> ProgressStyle {
        if self.quiet { ProgressStyle::None } else { self.progress }
    }
}

/// What differs from the defaults in the demonstration.
const DEMO: &str = "\
[scene]
eval = true

[optimize]
iterations = 1500
sh_degree_interval = 400
position_lr_max_steps = 1500

[densify]
densify_from_iter = 200
densify_until_iter = 1000
opacity_reset_interval = 3000
";

/// Folder of the demonstration's scene inside the model folder.
const DEMO_SCENE: &str = "scene";

/// Trains.
pub(super) fn run(args: &TrainArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    let plan = Plan::make(args, matches)?;
    let mut device = device::open(plan.config.run.device)?;
    let stop = stop_on_signals()?;
    if args.demo && plan.checkpoint.is_none() {
        write_scene(&plan.scene()?, &SynthOptions::default())?;
    }
    let (dataset, images) = open_scene(&plan.config)?;
    if dataset.train.is_empty() {
        return Err(DataError(format!(
            "{}: no view is left to train on after holding out every {}th. Use a larger \
             --test-every, or leave out --eval",
            dataset.root.display(),
            plan.config.scene.test_every
        ))
        .into());
    }
    let points = starting_points(&dataset, &plan.config)?;
    plan.prepare_folder(&dataset, &points)?;

    let mut sinks = Sinks::for_run(&plan.model_path, args.style(), plan.goes_on)?;
    let setup = TrainerSetup {
        dataset: &dataset,
        images: &images,
        config: &plan.config,
        model_path: &plan.model_path,
        stop: &stop,
    };
    let trainer = match &plan.checkpoint {
        Some(checkpoint) => Trainer::resume(setup, &mut device, &mut sinks, checkpoint)?,
        None => {
            let gaussians = from_points(&points, plan.config.optimize.sh_degree);
            Trainer::start(setup, &mut device, &mut sinks, &gaussians)?
        }
    };
    match trainer.run()? {
        Outcome::Interrupted => Err(Interrupted(shell_word(&plan.model_path)).into()),
        Outcome::Finished => {
            if args.demo {
                print(&demo_summary(&plan));
            }
            Ok(())
        }
    }
}

/// What is to be done, before anything is written.
struct Plan {
    config: Config,
    model_path: PathBuf,
    checkpoint: Option<Checkpoint>,
    /// The checkpoint is one of the model folder, whose run goes on.
    goes_on: bool,
}

impl Plan {
    fn make(args: &TrainArgs, matches: &ArgMatches) -> anyhow::Result<Self> {
        let demo = args.demo.then_some(Layer { origin: "the demonstration", text: DEMO });
        let layers = Layers {
            base: demo,
            preset: args.preset.as_deref(),
            file: args.config.as_deref(),
            typed: Some(Typed { flags: &args.options, matches }),
        };
        let mut config = resolve(layers)?;
        // A run that goes on stays where it is found, wherever its checkpoint was written.
        let settled = settled_folder(args, &config);
        let found = match (&args.start_checkpoint, &settled) {
            (Some(path), _) => Some((path.clone(), Checkpoint::read(path)?)),
            (None, Some(folder)) if args.resume.is_some() => newest_checkpoint(folder)?,
            _ => None,
        };
        if let Some((path, checkpoint)) = &found {
            let (origin, text) = (path.display().to_string(), checkpoint.config.to_toml()?);
            let base = Some(Layer { origin: &origin, text: &text });
            config = resolve(Layers { base, ..layers })?;
            check_degree(path, checkpoint, &config)?;
            say_where_it_goes_on(&origin, checkpoint.iteration, config.optimize.iterations);
        }
        let model_path = settled
            .or_else(|| config.output.model_path.clone())
            .unwrap_or_else(|| folder::default_path(&config, false));
        if args.demo {
            config.scene.source_path = Some(model_path.join(DEMO_SCENE));
        }
        let Some(scene) = &config.scene.source_path else {
            return Err(UsageError(
                "no scene is named. Use -s SCENE, or --demo for a synthetic one".to_owned(),
            )
            .into());
        };
        config.scene.source_path = Some(absolute(scene));
        // As the scene's: a checkpoint may be resumed from another working directory.
        config.output.model_path = Some(
            std::path::absolute(&model_path)
                .map_err(|source| OutputError::new(&model_path, source))?,
        );
        let goes_on = found.as_ref().is_some_and(|(path, _)| folder::holds(&model_path, path));
        if let Some(start) = args.start_checkpoint.as_ref().filter(|_| goes_on) {
            warn_of_newer(start, &model_path);
        }
        Ok(Self { config, model_path, checkpoint: found.map(|(_, found)| found), goes_on })
    }

    fn scene(&self) -> anyhow::Result<PathBuf> {
        self.config.scene.source_path.clone().context("a plan always names its scene")
    }

    /// Makes the model folder and writes what describes the run.
    fn prepare_folder(&self, dataset: &Dataset, points: &PointCloud) -> anyhow::Result<()> {
        create_folder(&self.model_path)?;
        folder::sweep(&self.model_path);
        if !self.goes_on
            && let Some(aside) = folder::set_aside(&self.model_path)?
        {
            tracing::warn!(
                "{} holds an earlier run; it is moved to {}",
                self.model_path.display(),
                aside.display()
            );
        }
        folder::describe(&self.model_path, &self.config, dataset, points)
    }
}

/// The model folder, where no checkpoint has a say in it.
fn settled_folder(args: &TrainArgs, config: &Config) -> Option<PathBuf> {
    let typed = config.output.model_path.clone();
    if args.demo {
        return Some(typed.unwrap_or_else(|| Path::new("output").join("demo")));
    }
    if args.resume.is_some() {
        return Some(typed.unwrap_or_else(|| folder::default_path(config, true)));
    }
    typed
}

fn say_where_it_goes_on(origin: &str, done: u32, last: u32) {
    tracing::info!("going on from {origin}, iteration {done}");
    if done >= last {
        tracing::warn!(
            "the run ended at iteration {done}, and {last} are asked for: there is nothing to \
             train. Ask for more with --iterations"
        );
    }
}

/// Whoever goes back to an older checkpoint should know what `--resume` will find.
fn warn_of_newer(start: &Path, model_path: &Path) {
    if let Some(newest) = checkpoint::list(model_path).first()
        && newest.file_name() != start.file_name()
    {
        tracing::warn!(
            "{} is newer and will be what --resume finds; move it away if this run is to replace \
             it",
            newest.display()
        );
    }
}

/// The newest checkpoint that can be read; damaged ones are passed over aloud.
fn newest_checkpoint(model_path: &Path) -> anyhow::Result<Option<(PathBuf, Checkpoint)>> {
    let paths = checkpoint::list(model_path);
    let mut first_problem = None;
    for path in &paths {
        match Checkpoint::read(path) {
            Ok(checkpoint) => return Ok(Some((path.clone(), checkpoint))),
            Err(
                problem @ (CheckpointError::Damaged { .. } | CheckpointError::Unreadable { .. }),
            ) => {
                tracing::warn!("{problem}");
                first_problem.get_or_insert(problem);
            }
            Err(problem) => return Err(problem.into()),
        }
    }
    if let Some(problem) = first_problem {
        return Err(problem).context("none of the model folder's checkpoints can be used");
    }
    tracing::info!("{} has no checkpoint; training starts", model_path.display());
    Ok(None)
}

fn check_degree(
    path: &Path,
    checkpoint: &Checkpoint,
    config: &Config,
) -> Result<(), CheckpointError> {
    let (found, wanted) = (checkpoint.snapshot.parameters.sh_degree, config.optimize.sh_degree);
    if found == wanted {
        return Ok(());
    }
    Err(CheckpointError::ShDegree { path: path.to_owned(), found, wanted })
}

/// The points that the Gaussians start from: the scene's, or random ones where it has none; never
/// more than `--max-points`.
fn starting_points<'a>(
    dataset: &'a Dataset,
    config: &Config,
) -> Result<Cow<'a, PointCloud>, UsageError> {
    let options = &config.optimize;
    let cap = config.densify.max_points.unwrap_or(u64::MAX);
    let found = dataset.points.positions.len();
    if found > 0 {
        let Some(cap) = usize::try_from(cap).ok().filter(|&cap| cap < found) else {
            return Ok(Cow::Borrowed(&dataset.points));
        };
        tracing::warn!("the scene has {found} points; {cap} of them are used (--max-points)");
        return Ok(Cow::Owned(thinned(&dataset.points, cap)));
    }
    let count =
        u32::try_from(cap).map_or(options.init_num_pts, |cap| cap.min(options.init_num_pts));
    refuse_more_than_memory(count)?;
    let (centre, half_side) = match dataset.random_half_side {
        Some(half_side) => ([0.0; 3], half_side),
        None => (dataset.centre(), options.init_extent * scene_extent(dataset)),
    };
    tracing::info!(
        "the scene has no points; {count} random ones within {half_side:.3} of {centre:.3?}"
    );
    Ok(Cow::Owned(random_points(count, centre, half_side, config.run.seed)))
}

/// Running out of memory would end the process without a word.
fn refuse_more_than_memory(count: u32) -> Result<(), UsageError> {
    // 59 parameters at most, each with two moments and a gradient.
    let needed = Bytes(u64::from(count) * 59 * 4 * 4);
    match host_memory() {
        Some(host) if needed > host.total => Err(UsageError(format!(
            "--init-num-pts: {count} Gaussians take {:.0} GiB, and this machine has {:.0} GiB. \
             Start with fewer",
            needed.gib(),
            host.total.gib()
        ))),
        _ => Ok(()),
    }
}

/// SIGINT and SIGTERM ask for the end of the run instead of ending the process.
fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .context("signals cannot be handled")?;
    Ok(stop)
}

fn demo_summary(plan: &Plan) -> String {
    let (folder, last) = (plan.model_path.display(), plan.config.optimize.iterations);
    let word = shell_word(&plan.model_path);
    format!(
        "\nThe demonstration is trained.\n\
         \n  scene        {folder}/{DEMO_SCENE}\
         \n  Gaussians    {folder}/point_cloud/iteration_{last}/point_cloud.ply\
         \n  metrics      {folder}/results.json\
         \n\nWhat next:\n\
         \n  drop the PLY onto a splat viewer, such as https://superspl.at/editor\
         \n  splat render -m {word}     writes renders beside the photographs\
         \n  tensorboard --logdir {word}\
         \n  splat train -s SCENE -m MODEL --eval     trains a scene of yours"
    )
}
