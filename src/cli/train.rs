//! `splat train`.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::{ArgMatches, Args};

use super::device::{self, DeviceOptions, Task};
use super::exit::{Exit, Interrupted, OutOfMemory, UsageError};
use super::intent::{DEMO_SCENE, Intent};
use super::lpips::{self, Sources};
use super::scene::open_scene;
use super::{print, shell_word};
use crate::backend::{Raster, Rows};
use crate::config::Config;
use crate::dataset::{AlphaMeaning, Dataset, ImageSource, PointCloud};
use crate::memory::{Bytes, Rung, host_memory};
use crate::model::{Gaussians, from_points, random_points, thinned};
use crate::perceptual::LpipsWeights;
use crate::synth::{SynthOptions, write_scene};
use crate::telemetry::{ProgressStyle, Sinks};
use crate::train::checkpoint::StoredCheckpoint;
use crate::train::{Outcome, TrainError, Trainer, TrainerSetup, scene_extent};

/// Arguments of `splat train`.
#[derive(Args)]
pub(super) struct TrainArgs {
    /// Make a small synthetic scene in the model folder and train it; implies --eval
    #[arg(long, conflicts_with = "source_path")]
    pub(super) demo: bool,

    /// Options that differ from the defaults, in TOML; flags win over it
    #[arg(long, value_name = "FILE.toml")]
    pub(super) config: Option<PathBuf>,

    /// Built-in options that differ from the defaults; --config and flags win over it
    #[arg(long, value_name = "NAME")]
    pub(super) preset: Option<String>,

    /// Go on from this checkpoint
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(super) start_checkpoint: Option<PathBuf>,

    /// Go on from the newest usable checkpoint of the model folder; without one, start
    #[arg(long, value_name = "auto", num_args = 0..=1, default_missing_value = "auto", value_parser = ["auto"])]
    pub(super) resume: Option<String>,

    /// How progress is shown on stderr
    #[arg(long, value_enum, value_name = "STYLE", default_value_t = ProgressStyle::Bar)]
    progress: ProgressStyle,

    /// Nothing on stderr but warnings and errors
    #[arg(long)]
    pub(super) quiet: bool,

    #[command(flatten)]
    pub(super) options: Config,
}

impl TrainArgs {
    /// How progress is shown.
    pub(super) fn style(&self) -> ProgressStyle {
        if self.quiet { ProgressStyle::None } else { self.progress }
    }
}

/// Trains.
pub(super) fn run(args: &TrainArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    let intent = Intent::make(args, matches)?;
    // Before anything is begun: who waited for a run should not miss its metric.
    let output = &intent.config.output;
    let path = output.lpips_weights.as_deref();
    let is_earlier = intent.checkpoint.is_some() && args.options.output.lpips_weights.is_none();
    let (named, earlier) = if is_earlier { (None, path) } else { (path, None) };
    let lpips = lpips::weights(&Sources { named, earlier, insists: output.enable_lpips })?;
    device::on(&DeviceOptions::of(&intent.config), Training { args, intent, lpips })
}

/// A run that is intended.
struct Training<'a> {
    args: &'a TrainArgs,
    intent: Intent,
    lpips: Option<LpipsWeights>,
}

impl Task for Training<'_> {
    type Output = ();

    fn run<B: Raster<Gaussians>>(self, device: &mut B) -> anyhow::Result<()> {
        let Self { args, mut intent, lpips } = self;
        let stop = stop_on_signals()?;
        if args.demo && intent.checkpoint.is_none() {
            write_scene(&intent.scene()?, &SynthOptions::default())?;
        }
        let (dataset, images) = open_scene(&intent.config)?;
        warn_of_background(&dataset, &intent.config);
        let points = match &intent.checkpoint {
            None => starting_points(&dataset, &intent.config)?,
            Some(checkpoint) => {
                warn_of_cap(checkpoint, &intent.config);
                Cow::Borrowed(&dataset.points)
            }
        };
        intent.prepare_folder(&dataset, &points)?;

        let mut sinks = Sinks::for_run(&intent.model_path, args.style(), intent.goes_on)?;
        let checkpoint = intent.checkpoint.take();
        let setup = TrainerSetup {
            dataset: &dataset,
            images: &images,
            config: &intent.config,
            lpips: lpips.as_ref(),
            model_path: &intent.model_path,
            stop: &stop,
        };
        let trainer = match checkpoint {
            Some(checkpoint) => Trainer::resume(setup, device, &mut sinks, checkpoint)?,
            None => {
                let gaussians =
                    from_points(&points, intent.config.optimize.sh_degree, intent.config.run.seed);
                Trainer::start(setup, device, &mut sinks, &gaussians)?
            }
        };
        match trainer.run().map_err(|error| explained(error, &intent))? {
            Outcome::Interrupted => Err(Interrupted(shell_word(&intent.model_path)).into()),
            Outcome::Finished => {
                if args.demo {
                    print(&demo_summary(&intent));
                }
                Ok(())
            }
        }
    }
}

/// Names the command that goes on with less, where a run ended for want of the GPU's memory.
fn explained(error: TrainError, intent: &Intent) -> anyhow::Error {
    if !matches!(error, TrainError::OutOfMemory { .. }) {
        return error.into();
    }
    let Config { memory, scene, .. } = &intent.config;
    let may_be_compact = memory.optimize_memory || memory.give_up.contains(&Rung::Compact);
    let less = match scene.resolution {
        _ if !may_be_compact => "--optimize-memory".to_owned(),
        divisor @ (1 | 2 | 4) => format!("-r {}", 2 * divisor),
        -1 => "-r 4".to_owned(),
        // Nothing is left but more memory.
        _ => "--vram-limit SIZE, more than now, or when other programs have ended".to_owned(),
    };
    OutOfMemory { stopped: error, model: shell_word(&intent.model_path), less }.into()
}

/// The points that the Gaussians start from: the scene's, or random ones where it has none; never
/// more than `--max-points`.
pub(super) fn starting_points<'a>(
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

/// Photographs that are blended over one colour teach the model that colour.
fn warn_of_background(dataset: &Dataset, config: &Config) {
    let blended = |source: &ImageSource| matches!(source.alpha, AlphaMeaning::BlendOver(_));
    if config.optimize.random_background && dataset.sources.iter().any(blended) {
        tracing::warn!(
            "--random-background: the photographs' transparent parts are blended over one colour, \
             and the model will learn to be opaque there"
        );
    }
}

/// A smaller `--max-points` than the checkpoint has Gaussians stops their growth and no more.
fn warn_of_cap(checkpoint: &StoredCheckpoint, config: &Config) {
    let found = checkpoint.len();
    if let Some(cap) = config.densify.max_points.filter(|&cap| cap < found as u64) {
        tracing::warn!(
            "the checkpoint has {found} Gaussians, more than --max-points {cap}: none are removed \
             for that, and none are added"
        );
    }
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

/// SIGINT and SIGTERM ask for the end of the run; the second ends the process.
#[expect(clippy::exit, reason = "who asks twice does not want to wait for anything")]
fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
        tracing::info!(
            "stopping after this iteration, with a checkpoint; once more stops at once, without"
        );
    })
    .context("signals cannot be handled")?;
    Ok(stop)
}

fn demo_summary(intent: &Intent) -> String {
    let (folder, last) = (intent.model_path.display(), intent.config.optimize.iterations);
    let word = shell_word(&intent.model_path);
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
