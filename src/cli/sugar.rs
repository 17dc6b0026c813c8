//! `splat sugar`: from photographs to a mesh, stage by stage.

mod args;
mod idle;
mod surface_stages;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
pub(super) use args::SugarArgs;
use clap::ArgMatches;
use idle::warn_of_idle;
use surface_stages::{MeshedModel, meshing, refinement_on_processor, refining};
pub(super) use surface_stages::{SUGAR_METHOD, SUGAR_TEXTURE};

use super::device::resolve_on_device;
use super::exit::{DataError, UsageError};
use super::file_kind::model_folder_of;
use super::folder;
use super::output::{print_paths, shell_word};
use super::parser::{command_of, is_typed, parse};
use super::scene::{absolute, refuse_surfels};
use super::stages::{CommandStage, StageRecords, StageState, flag, forwarded};
use super::train;
use super::train_args::TrainArgs;
use super::triangles::refuse_triangles;
use crate::config::{Config, Layers, PrimitiveName, Regularize, StrategyName, Typed, resolve};
use crate::export::read_ply_primitive;
use crate::files::FolderLock;

/// Lengths of a run where none are given.
struct Lengths {
    /// Iterations before the coarse stage.
    photometric: u32,
    /// Iterations of the coarse stage.
    coarse: u32,
}

/// As in SuGaR (Guédon and Lepetit 2024).
const ON_GPU: Lengths = Lengths { photometric: 7000, coarse: 8000 };

/// Defaults of a run on the CPU.
const ON_PROCESSOR: Lengths = Lengths { photometric: 800, coarse: 200 };

/// Surface terms where none are named: of SuGaR's those with the best meshes.
const TERMS: &str = "--regularize=dn-consistency";

/// Why surfels are not flattened and bound to a mesh.
const OF_SURFELS: &str = "splat sugar needs 3D Gaussians, and these are surfels. Train with splat train \
                          --primitive surfels, then: splat mesh --method tsdf";

const OF_TRIANGLES: &str = "splat sugar needs 3D Gaussians, and these are triangles, a mesh already. Train with \
                            splat train --primitive triangles, then: splat export -o mesh.glb";

/// Options of training that choose where and how it runs, not what becomes of the model.
const OF_A_MACHINE: [&str; 3] = ["memory", "output", "run"];

/// Runs the stages that are not complete, each as the command that it is, and prints what they wrote.
pub(super) fn run(args: &SugarArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    args.mesh.check()?;
    if args.train.start_checkpoint.is_some() {
        return Err(UsageError(
            "--start-checkpoint: splat sugar continues by itself from the newest checkpoint of -m. \
             Leave it out, or use splat train"
                .to_owned(),
        )
        .into());
    }
    if args.train.ranks().may_be_several() {
        return Err(UsageError(
            "--ranks: splat sugar trains in one process, since its coarse stage compares each Gaussian with its \
             neighbours. Leave it out"
                .to_owned(),
        )
        .into());
    }
    if args.train.clean {
        return Err(UsageError(
            "--clean: splat sugar makes its mesh of the model as it is trained. Leave it out; splat clean -m \
             MODEL cleans the model afterwards"
                .to_owned(),
        )
        .into());
    }
    let (model, mut stages, mut told) = if args.skip_coarse {
        (coarse_model(args)?, Vec::new(), Vec::new())
    } else {
        let (model_path, train, told) = training(args, matches)?;
        (MeshedModel::Trained(model_path), vec![train], told)
    };
    stages.push(meshing(&model, args, matches));
    if !args.skip_refinement {
        let flags = refinement_on_processor(args, matches);
        stages.push(refining(&model, args, matches, &flags)?);
        told.extend(flags);
    }
    if !told.is_empty() {
        tracing::info!("defaults on the CPU: {}. A GPU takes more of each", told.join(" "));
    }
    warn_of_idle(args, matches);
    let written = follow(&stages, model.path())?;
    Ok(print_paths(&written)?)
}

/// Runs the stages from the first that is not complete; returns the files of all.
fn follow(stages: &[CommandStage], model_path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut records = StageRecords::read(model_path)?;
    let mut is_unchanged = true;
    let mut written = Vec::new();
    let mut before: Vec<PathBuf> = Vec::new();
    for (index, stage) in stages.iter().enumerate() {
        let number = format!("stage {} of {}", index + 1, stages.len());
        let state = records.state(stage);
        if is_unchanged && state == StageState::Complete {
            tracing::info!("{number}: complete already: {}", stage.shown());
        } else {
            is_unchanged = false;
            tracing::info!("{number}: {}", stage.shown());
            if stage.name == TRAIN {
                make_room(state, stage, model_path)?;
            }
            records.begin(stage, model_path)?;
            let files = (stage.run)(&stage.line, &before).inspect_err(|_| {
                tracing::warn!("{number} is not complete; the same command again continues it");
            })?;
            records.complete(&files, model_path)?;
        }
        before = records.files(stage);
        written.extend(before.iter().cloned());
    }
    Ok(written)
}

/// The name of the stage that trains.
const TRAIN: &str = "train";

/// Has the run find its own folder: one of other options is moved away, one of `splat train` is not taken
/// for it.
fn make_room(state: StageState, stage: &CommandStage, model_path: &Path) -> anyhow::Result<()> {
    let _lock = FolderLock::take(model_path)?;
    match state {
        StageState::Begun | StageState::Complete => Ok(()),
        StageState::New if !folder::holds_run(model_path) => Ok(()),
        StageState::New if options_of_folder(model_path)? == stage.options => Ok(()),
        StageState::New => {
            let model = shell_word(model_path);
            Err(UsageError(format!(
                "{model}: holds a run of splat train with other options. Start from its Gaussians with -c {model} and \
                 another -m, or mesh it as it is with --skip-coarse"
            ))
            .into())
        }
        StageState::Other => {
            if let Some(aside) = folder::set_aside(model_path)? {
                tracing::warn!(
                    "{} holds a run with other options; it is moved to {}",
                    model_path.display(),
                    aside.display()
                );
            }
            Ok(())
        }
    }
}

/// The options of the run in a model folder.
fn options_of_folder(model_path: &Path) -> anyhow::Result<Vec<String>> {
    let Some(text) = folder::read_config(model_path)? else { return Ok(Vec::new()) };
    options_of(&Config::from_toml(&text.origin, &text.text)?)
}

/// What the result of training depends on.
fn options_of(config: &Config) -> anyhow::Result<Vec<String>> {
    let matters = |key: &str| {
        let section = key.split('.').next().unwrap_or_default();
        // Of budget it may follow from the scene, which the command has not read.
        let is_settled =
            key == "densify.max_points" && config.densify.strategy == StrategyName::Budget;
        !is_settled && (key == "run.seed" || !OF_A_MACHINE.contains(&section))
    };
    let changed = config.changed()?;
    Ok(changed
        .into_iter()
        .filter(|(key, _)| matters(key))
        .map(|(key, value)| format!("{key} = {value}"))
        .collect())
}

fn refuse_other_primitives(primitive: PrimitiveName) -> Result<(), UsageError> {
    refuse_surfels(primitive, OF_SURFELS)?;
    refuse_triangles(primitive, OF_TRIANGLES)
}

/// The model of `--skip-coarse`: the last of its folder, or the one of the point cloud that is named.
fn coarse_model(args: &SugarArgs) -> anyhow::Result<MeshedModel> {
    let typed = args.train.options.output.model_path.clone();
    let given = |model_path: PathBuf, iteration| {
        let (iteration, ply) = folder::point_cloud(&model_path, iteration)?;
        refuse_other_primitives(read_ply_primitive(&ply)?)?;
        Ok(MeshedModel::Given(model_path, iteration))
    };
    let Some(checkpoint) = &args.coarse_checkpoint else {
        let nothing =
            "--skip-coarse: no model is named. Name it with -m MODEL, or --coarse-checkpoint MODEL";
        return given(typed.ok_or_else(|| UsageError(nothing.to_owned()))?, None);
    };
    let (model_path, iteration) = model_folder_of(checkpoint)?;
    match typed.filter(|typed| absolute(typed) != absolute(&model_path)) {
        None => given(model_path, iteration),
        Some(typed) => Err(UsageError(format!(
            "-m {}: with --coarse-checkpoint, the mesh is written into the folder of that model, {}. \
             Leave -m out",
            typed.display(),
            model_path.display()
        ))
        .into()),
    }
}

/// The stage that trains, the folder that it trains in, and the flags that are the processor's defaults.
fn training(
    args: &SugarArgs,
    matches: &ArgMatches,
) -> anyhow::Result<(PathBuf, CommandStage, Vec<String>)> {
    let TrainArgs { demo, config: file, preset, options, .. } = &args.train;
    let preset = preset.named();
    let layers = Layers {
        preset,
        file: file.as_deref(),
        typed: Some(Typed { flags: options, matches }),
        ..Layers::default()
    };
    let (config, layers) = resolve_on_device(layers)?;
    refuse_other_primitives(config.optimize.primitive)?;
    let model_path = match config.output.model_path.clone() {
        Some(path) => path,
        None if *demo => Path::new("output").join("demo"),
        None => {
            return Err(UsageError(
                "no model folder is named: splat sugar writes the model and the mesh there. Name it \
                 with -m MODEL"
                    .to_owned(),
            )
            .into());
        }
    };
    let command = command_of::<TrainArgs>(TRAIN);
    let mut line = forwarded(&command, matches, |id| {
        !["model_path", "resume", "preset", "quality", "source_path"].contains(&id)
    });
    if let Some(scene) = &options.scene.source_path {
        line.push(flag("source-path", &absolute(scene)));
    }
    line.push(flag("model-path", &model_path));
    if let Some(preset) = preset {
        line.push(format!("--preset={preset}").into());
    }
    if config.sugar.regularize == Regularize::None {
        line.push(TERMS.into());
    }
    let mut flags = Vec::new();
    let is_usual = config.optimize.iterations == Config::default().optimize.iterations;
    if is_usual && !demo && config.sugar.checkpoint_path.is_none() {
        let lengths = if layers.on_processor { ON_PROCESSOR } else { ON_GPU };
        flags.push(format!("--iterations={}", lengths.photometric));
    }
    if layers.on_processor && !demo {
        let usual = Config::default().sugar;
        let samples = config.sugar.n_samples_for_sdf;
        if config.sugar.sugar_iterations == usual.sugar_iterations {
            flags.push(format!("--sugar-iterations={}", ON_PROCESSOR.coarse));
        }
        if samples != usual.n_samples_for_sdf && !is_typed(matches, "n_samples_for_sdf") {
            flags.push(format!("--n-samples-for-sdf={samples}"));
        }
    }
    let told = if layers.on_processor { flags.clone() } else { Vec::new() };
    line.extend(flags.into_iter().map(OsString::from));
    let (args, matches) = parse::<TrainArgs>(TRAIN, &line)?;
    let typed = Some(Typed { flags: &args.options, matches: &matches });
    let mut decided = resolve(Layers { typed, ..layers })?;
    decided.scene.source_path = decided.scene.source_path.as_deref().map(absolute);
    line.push("--resume".into());
    Ok((
        model_path,
        CommandStage { name: TRAIN, line, options: options_of(&decided)?, run: run_training },
        told,
    ))
}

/// Trains, and looks whether the folder holds what was to be trained.
fn run_training(line: &[OsString], _: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let (args, matches) = parse::<TrainArgs>(TRAIN, line)?;
    train::train(&args, &matches, None)?;
    let output = args.options.output.model_path.context("the line names the model folder")?;
    let text = folder::read_config(&output)?.context("training writes the options")?;
    let config = Config::from_toml(&text.origin, &text.text)?;
    let (iteration, ply) = folder::point_cloud(&output, None)?;
    if iteration == config.last_iteration() && config.has_coarse_stage() {
        return Ok(vec![ply]);
    }
    let model = shell_word(&output);
    Err(DataError(format!(
        "{model}: holds another run: its last point cloud is of iteration {iteration}, not {}. Name another \
         folder with -m, or mesh this one with --skip-coarse",
        config.last_iteration()
    ))
    .into())
}
