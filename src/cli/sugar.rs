//! `splat sugar`: photographs to mesh, stage by stage.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{ArgMatches, Args, Command, ValueEnum};

use super::check::check;
use super::device::{is_on_processor, resolve_on_device};
use super::exit::{DataError, UsageError};
use super::file_kind::model_folder_of;
use super::mesh::{self, MeshArgs};
use super::output::{print_paths, shell_word};
use super::parser::{command_of, is_typed, parse, typed_flags};
use super::refine::{self, BoundOptions, RefineArgs};
use super::scene::absolute;
use super::stages::{CommandStage, StageRecords, StageState, flag, forwarded};
use super::train_args::TrainArgs;
use super::{folder, train};
use crate::config::{
    Config, Layers, MemoryOptions, PrimitiveName, Regularize, RunOptions, SceneOptions,
    StrategyName, Typed, resolve, value_name,
};
use crate::export::read_ply_primitive;
use crate::files::FolderLock;
use crate::mesh::{MeshFormat, MeshMethod, MeshOptions, TextureOptions, TextureSource};
use crate::telemetry::ProgressStyle;

/// Default lengths of a run, iterations.
struct Lengths {
    /// Length before the coarse stage.
    photometric: u32,
    /// Length of the coarse stage.
    coarse: u32,
}

/// Defaults on a GPU, from SuGaR (Guédon and Lepetit 2024).
const ON_GPU: Lengths = Lengths { photometric: 7000, coarse: 8000 };

/// Defaults on the CPU.
const ON_PROCESSOR: Lengths = Lengths { photometric: 800, coarse: 200 };

/// Default surface terms: those of SuGaR with the best meshes.
const TERMS: &str = "--regularize=dn-consistency";

/// Sections of the configuration that do not change the trained model.
const MACHINE_SECTIONS: [&str; 3] = ["memory", "output", "run"];

/// Runs each incomplete stage as its own command and prints the written files.
pub(super) fn run(args: &SugarArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    args.mesh.check()?;
    check([
        (
            args.train.start_checkpoint.is_some(),
            "--start-checkpoint: splat sugar continues by itself from the newest checkpoint of -m. \
             Leave it out, or use splat train",
        ),
        (
            args.train.ranks().may_be_several(),
            "--ranks: splat sugar trains in one process, since its coarse stage compares each Gaussian with its \
             neighbours. Leave it out",
        ),
        (
            args.train.clean,
            "--clean: splat sugar makes its mesh of the model as it is trained. Leave it out; splat clean -m \
             MODEL cleans the model afterwards",
        ),
    ])?;
    let (model, mut stages, mut defaults) = if args.skip_coarse {
        (coarse_model(args)?, Vec::new(), Vec::new())
    } else {
        let (model_path, train, defaults) = training(args, matches)?;
        (MeshedModel::Trained(model_path), vec![train], defaults)
    };
    stages.push(meshing(&model, args, matches));
    if !args.skip_refinement {
        let flags = refinement_on_processor(args, matches);
        stages.push(refining(&model, args, matches, &flags)?);
        defaults.extend(flags);
    }
    if !defaults.is_empty() {
        tracing::info!("defaults on the CPU: {}. A GPU takes more of each", defaults.join(" "));
    }
    warn_about_idle(args, matches);
    let written = follow(&stages, model.path())?;
    Ok(print_paths(&written)?)
}

/// Runs the stages from the first incomplete one. Returns the files of all stages.
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
                claim_folder(state, stage, model_path)?;
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

const TRAIN: &str = "train";

/// Makes sure that the folder holds this run or none: a run with other options is moved away, and a run of `splat
/// train` with other options is an error.
fn claim_folder(state: StageState, stage: &CommandStage, model_path: &Path) -> anyhow::Result<()> {
    let _lock = FolderLock::take(model_path)?;
    match state {
        StageState::Begun | StageState::Complete => Ok(()),
        StageState::New if !folder::holds_run(model_path) => Ok(()),
        StageState::New => {
            let found = folder::read_config(model_path)?
                .map(|text| options_of(&Config::from_toml(&text.origin, &text.text)?))
                .transpose()?;
            if found.unwrap_or_default() == stage.options {
                return Ok(());
            }
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

/// Returns the options that the trained model depends on.
fn options_of(config: &Config) -> anyhow::Result<Vec<String>> {
    let matters = |key: &str| {
        let section = key.split('.').next().unwrap_or_default();
        // The budget strategy may take it from the scene, which this command has not read.
        let is_settled =
            key == "densify.max_points" && config.densify.strategy == StrategyName::Budget;
        !is_settled && (key == "run.seed" || !MACHINE_SECTIONS.contains(&section))
    };
    let changed = config.changed()?;
    Ok(changed
        .into_iter()
        .filter(|(key, _)| matters(key))
        .map(|(key, value)| format!("{key} = {value}"))
        .collect())
}

fn check_primitive(primitive: PrimitiveName) -> Result<(), UsageError> {
    check([
        (
            primitive == PrimitiveName::Surfels,
            "splat sugar needs 3D Gaussians, and these are surfels. Train with splat train --primitive surfels, \
             then: splat mesh --method tsdf",
        ),
        (
            primitive == PrimitiveName::Triangles,
            "splat sugar needs 3D Gaussians, and these are triangles, a mesh already. Train with splat train \
             --primitive triangles, then: splat export -o mesh.glb",
        ),
    ])
}

/// Returns the model of `--skip-coarse`: the last of its folder, or the named point cloud.
fn coarse_model(args: &SugarArgs) -> anyhow::Result<MeshedModel> {
    let typed = args.train.options.output.model_path.clone();
    let given = |model_path: PathBuf, iteration| {
        let (iteration, ply) = folder::point_cloud(&model_path, iteration)?;
        check_primitive(read_ply_primitive(&ply)?)?;
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

/// Returns the folder, the training stage and the flags that are the processor's defaults.
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
    check_primitive(config.optimize.primitive)?;
    let model_path = match config.output.model_path.clone() {
        Some(path) => path,
        None if *demo => Path::new("output").join("demo"),
        None => {
            anyhow::bail!(UsageError::new(
                "no model folder is named: splat sugar writes the model and the mesh there. Name it \
                 with -m MODEL"
            ));
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
    let defaults = if layers.on_processor { flags.clone() } else { Vec::new() };
    line.extend(flags.into_iter().map(OsString::from));
    let (args, matches) = parse::<TrainArgs>(TRAIN, &line)?;
    let typed = Some(Typed { flags: &args.options, matches: &matches });
    let mut decided = resolve(Layers { typed, ..layers })?;
    decided.scene.source_path = decided.scene.source_path.as_deref().map(absolute);
    line.push("--resume".into());
    Ok((
        model_path,
        CommandStage { name: TRAIN, line, options: options_of(&decided)?, run: run_training },
        defaults,
    ))
}

/// Trains and checks that the folder holds the intended run.
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

#[derive(Args)]
#[command(mut_arg("clean", |arg| arg.hide(true)))]
pub(super) struct SugarArgs {
    /// Train nothing: mesh a model that has its surface terms already
    ///
    /// The model is that of --coarse-checkpoint, or else the one in -m.
    #[arg(long)]
    pub(super) skip_coarse: bool,

    /// The model folder of --skip-coarse, or a point cloud in it
    #[arg(long, value_name = "MODEL", requires = "skip_coarse")]
    pub(super) coarse_checkpoint: Option<PathBuf>,

    /// End with the mesh: bind no Gaussians to it
    #[arg(long)]
    pub(super) skip_refinement: bool,

    /// Iterations of the refinement, whatever --refinement-time says
    #[arg(long, value_name = "N")]
    pub(super) refinement_iterations: Option<u32>,

    /// Also write the mesh as OBJ, with its texture
    #[arg(long, alias = "export-uv-textured-mesh")]
    pub(super) export_obj: bool,

    #[command(flatten)]
    pub(super) train: TrainArgs,

    #[command(flatten)]
    pub(super) mesh: MeshOptions,

    #[command(flatten)]
    pub(super) bound: BoundOptions,
}

/// Warns about typed options of stages that do not run.
fn warn_about_idle(args: &SugarArgs, matches: &ArgMatches) {
    if args.skip_coarse {
        // Later stages use the options of scene and machine too.
        let shared = [command_of::<SceneOptions>("scene"), command_of::<MachineOptions>("machine")];
        let others = ["model_path", "start_checkpoint"];
        for (id, flag) in typed_flags(&command_of::<TrainArgs>("train"), matches) {
            if !others.contains(&id) && !shared.iter().any(|command| has(command, id)) {
                tracing::warn!("--{flag} has no effect with --skip-coarse: nothing is trained");
            }
        }
    }
    if args.skip_refinement {
        let bound = command_of::<BoundOptions>("bound");
        let iterations = args.refinement_iterations.map(|_| "refinement-iterations");
        let flags = typed_flags(&bound, matches).map(|(_, flag)| flag);
        for flag in flags.chain(iterations) {
            tracing::warn!("--{flag} has no effect with --skip-refinement: nothing is refined");
        }
    }
}

fn has(command: &Command, id: &str) -> bool {
    command.get_arguments().any(|arg| arg.get_id().as_str() == id)
}

// Stages after training, each a command line.

/// Default meshing method, as in SuGaR.
pub(super) const SUGAR_METHOD: MeshMethod = MeshMethod::Poisson;

/// Flag that also meshes the background, as in SuGaR. Otherwise no Gaussians are bound there, and those in the box
/// learn its colours.
const BACKGROUND: &str = "--mesh-background=true";

/// Default source of the texture, as in SuGaR.
pub(super) const SUGAR_TEXTURE: TextureSource = TextureSource::Gaussians;

const MESH: &str = "mesh";

const REFINE: &str = "refine";

/// Returns the requested mesh formats as an argument.
fn formats(args: &SugarArgs, matches: &ArgMatches) -> Option<OsString> {
    let mut formats = args.mesh.formats.clone();
    if args.export_obj && !formats.contains(&MeshFormat::Obj) {
        formats.push(MeshFormat::Obj);
    }
    let names: Vec<&str> = formats.iter().map(|format| format.extension()).collect();
    (args.export_obj || is_typed(matches, "formats"))
        .then(|| format!("--formats={}", names.join(",")).into())
}

/// Returns the texture options. The default is the texture of the Gaussians.
fn texture(matches: &ArgMatches) -> Vec<OsString> {
    let mut line = forwarded(&command_of::<TextureOptions>("texture"), matches, |_| true);
    if !is_typed(matches, "texture") {
        line.push(named("texture", &SUGAR_TEXTURE));
    }
    line
}

/// Returns an option with a named value as an argument.
fn named(option: &str, value: &impl ValueEnum) -> OsString {
    format!("--{option}={}", value_name(value)).into()
}

fn words(line: &[OsString]) -> Vec<String> {
    line.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

enum MeshedModel {
    /// Folder that the stage before trains in. The folder has the scene and the seed.
    Trained(PathBuf),
    /// Folder and iteration of an existing model. Typed options of scene and seed apply to the later stages.
    Given(PathBuf, u32),
}

impl MeshedModel {
    fn path(&self) -> &Path {
        let (Self::Trained(path) | Self::Given(path, _)) = self;
        path
    }

    /// Returns the arguments that describe the model, and those that the result depends on.
    fn arguments(&self, matches: &ArgMatches) -> (Vec<OsString>, Vec<OsString>) {
        let mut line = vec![flag("model-path", self.path())];
        let mut options = Vec::new();
        if let Self::Given(_, iteration) = self {
            options.push(format!("--iteration={iteration}").into());
            // The path of a scene does not change the result.
            let scene = command_of::<SceneOptions>("scene");
            line.extend(forwarded(&scene, matches, |id| id == "source_path"));
            options.extend(forwarded(&scene, matches, |id| id != "source_path"));
            options.extend(forwarded(&command_of::<RunOptions>("run"), matches, |id| id == "seed"));
        }
        line.extend(options.iter().cloned());
        (line, options)
    }
}

fn meshing(model: &MeshedModel, args: &SugarArgs, matches: &ArgMatches) -> CommandStage {
    let of_mesh = command_of::<MeshOptions>("mesh");
    let of_texture = command_of::<TextureOptions>("texture");
    let mut options = forwarded(&of_mesh, matches, |id| id != "formats" && !has(&of_texture, id));
    let has_method = is_typed(matches, "method");
    let method = if has_method { args.mesh.method } else { SUGAR_METHOD };
    if method == MeshMethod::Poisson && !is_typed(matches, "mesh_background") {
        options.insert(0, BACKGROUND.into());
    }
    if !has_method {
        options.insert(0, named("method", &method));
    }
    if args.skip_refinement {
        options.extend(texture(matches));
        options.extend(formats(args, matches));
    }
    let (mut line, of_model) = model.arguments(matches);
    line.extend(options.iter().cloned());
    line.extend(machine_options::<MeshArgs>(MESH, model, matches));
    options.extend(of_model);
    let run = |line: &[OsString], _: &[PathBuf]| {
        let (args, matches) = parse::<MeshArgs>(MESH, line)?;
        mesh::make(&args, &matches)
    };
    CommandStage { name: MESH, line, options: words(&options), run }
}

/// Returns the typed device and report options that the stage's command takes.
fn machine_options<A: Args>(
    name: &'static str,
    model: &MeshedModel,
    matches: &ArgMatches,
) -> Vec<OsString> {
    let machine = command_of::<MachineOptions>("machine");
    let is_given = matches!(model, MeshedModel::Given(..));
    forwarded(&command_of::<A>(name), matches, |id| {
        has(&machine, id) && !(is_given && id == "seed")
    })
}

/// Returns the processor's defaults of the refinement, if they are not typed.
fn refinement_on_processor(args: &SugarArgs, matches: &ArgMatches) -> Vec<String> {
    let has = |ids: &[&str]| ids.iter().any(|id| is_typed(matches, id));
    let mut flags = Vec::new();
    if !is_on_processor(&args.train.options) || args.train.demo {
        return flags;
    }
    if !has(&["refinement_time", "refinement_iterations"]) {
        flags.push("--refinement-time=short".to_owned());
    }
    if !has(&["low_poly", "high_poly", "decimation_target"]) {
        flags.push("--vertices=3000".to_owned());
    }
    flags
}

/// Returns the refinement stage, with these flags in addition to the typed ones.
fn refining(
    model: &MeshedModel,
    args: &SugarArgs,
    matches: &ArgMatches,
    flags: &[String],
) -> anyhow::Result<CommandStage> {
    let mut options = forwarded(&command_of::<BoundOptions>("bound"), matches, |_| true);
    options.extend(flags.iter().map(OsString::from));
    options.extend(args.refinement_iterations.map(|count| format!("--iterations={count}").into()));
    options.extend(texture(matches));
    options.extend(formats(args, matches));
    let (mut line, of_model) = model.arguments(matches);
    line.extend(options.iter().cloned());
    line.extend(machine_options::<RefineArgs>(REFINE, model, matches));
    options.extend(of_model);
    // Reject wrong options before training.
    parse::<RefineArgs>(REFINE, &line)?.0.resolved()?;
    Ok(CommandStage { name: REFINE, line, options: words(&options), run: run_refining })
}

/// Refines the mesh of the stage before and replaces another refinement.
fn run_refining(line: &[OsString], before: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut line = line.to_vec();
    let is_ply = |path: &&PathBuf| path.extension().is_some_and(|it| it == "ply");
    line.extend(before.iter().find(is_ply).map(|path| flag("mesh", path)));
    let (mut args, matches) = parse::<RefineArgs>(REFINE, &line)?;
    args.replaces_other = true;
    refine::make(&args, &matches)
}

/// Device and report options that stages share.
#[derive(Args)]
struct MachineOptions {
    #[command(flatten)]
    _memory: MemoryOptions,
    #[command(flatten)]
    _run: RunOptions,
    #[arg(id = "quiet", long = "quiet")]
    _quiet: bool,
    #[arg(id = "verbose", long = "verbose")]
    _verbose: bool,
    #[arg(id = "progress", long = "progress", value_enum, default_value_t = ProgressStyle::Bar)]
    _progress: ProgressStyle,
}
