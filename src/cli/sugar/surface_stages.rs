//! The stages of `splat sugar` after training, each as a line of the command that it is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, ValueEnum};

use super::super::device::is_on_processor;
use super::super::mesh::{self, MeshArgs};
use super::super::parser::{command_of, is_typed, parse};
use super::super::refine::{self, BoundOptions, RefineArgs};
use super::super::stages::{CommandStage, flag, forwarded};
use super::args::SugarArgs;
use crate::config::{MemoryOptions, RunOptions, SceneOptions};
use crate::mesh::{MeshFormat, MeshMethod, MeshOptions, TextureOptions, TextureSource};
use crate::telemetry::ProgressStyle;

/// How a surface is found where it is not said: as in SuGaR.
pub(in crate::cli) const SUGAR_METHOD: MeshMethod = MeshMethod::Poisson;

/// What is around the box: meshed, too, as in SuGaR. Without it Gaussians have nothing to be bound to
/// there, and the photographs teach those of the box its colours.
const BACKGROUND: &str = "--mesh-background=true";

/// Where the colours of a texture come from where it is not said: as in SuGaR.
pub(in crate::cli) const SUGAR_TEXTURE: TextureSource = TextureSource::Gaussians;

/// The name of the stage that meshes.
const MESH: &str = "mesh";

/// The name of the stage that refines.
const REFINE: &str = "refine";

/// The files that are asked for, as an argument.
fn formats(args: &SugarArgs, matches: &ArgMatches) -> Option<OsString> {
    let mut formats = args.mesh.formats.clone();
    if args.export_obj && !formats.contains(&MeshFormat::Obj) {
        formats.push(MeshFormat::Obj);
    }
    let names: Vec<&str> = formats.iter().map(|format| format.extension()).collect();
    (args.export_obj || is_typed(matches, "formats"))
        .then(|| format!("--formats={}", names.join(",")).into())
}

/// The texture that is asked for: by default that of the Gaussians.
fn texture(matches: &ArgMatches) -> Vec<OsString> {
    let mut line = forwarded(&command_of::<TextureOptions>("texture"), matches, |_| true);
    if !is_typed(matches, "texture") {
        line.push(named("texture", &SUGAR_TEXTURE));
    }
    line
}

/// An option with one of its named values, as an argument.
fn named(option: &str, value: &impl ValueEnum) -> OsString {
    let value = value.to_possible_value();
    let name = value.as_ref().map_or_else(Default::default, |value| value.get_name());
    format!("--{option}={name}").into()
}

fn words(line: &[OsString]) -> Vec<String> {
    line.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The model that is meshed.
pub(super) enum MeshedModel {
    /// One that the stage before trains in this folder, whose scene and seed it has.
    Trained(PathBuf),
    /// One that is in this folder already, of this iteration. What is typed of the scene and of chance is
    /// for the stages that follow.
    Given(PathBuf, u32),
}

impl MeshedModel {
    /// Its folder.
    pub(super) fn path(&self) -> &Path {
        let (Self::Trained(path) | Self::Given(path, _)) = self;
        path
    }

    /// What a stage is told of it, and the part of that on which the result depends.
    fn told(&self, matches: &ArgMatches) -> (Vec<OsString>, Vec<OsString>) {
        let mut line = vec![flag("model-path", self.path())];
        let mut options = Vec::new();
        if let Self::Given(_, iteration) = self {
            options.push(format!("--iteration={iteration}").into());
            // Where the scene lies is not what it is.
            let scene = command_of::<SceneOptions>("scene");
            line.extend(forwarded(&scene, matches, |id| id == "source_path"));
            options.extend(forwarded(&scene, matches, |id| id != "source_path"));
            options.extend(forwarded(&command_of::<RunOptions>("run"), matches, |id| id == "seed"));
        }
        line.extend(options.iter().cloned());
        (line, options)
    }
}

/// The stage that makes a mesh.
pub(super) fn meshing(model: &MeshedModel, args: &SugarArgs, matches: &ArgMatches) -> CommandStage {
    let of_mesh = command_of::<MeshOptions>("mesh");
    let of_texture = command_of::<TextureOptions>("texture");
    let is_in = |command: &clap::Command, id: &str| {
        command.get_arguments().any(|arg| arg.get_id().as_str() == id)
    };
    let mut options = forwarded(&of_mesh, matches, |id| id != "formats" && !is_in(&of_texture, id));
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
    let (mut line, of_model) = model.told(matches);
    line.extend(options.iter().cloned());
    line.extend(of_machine::<MeshArgs>(MESH, model, matches));
    options.extend(of_model);
    CommandStage { name: MESH, line, options: words(&options), run: run_meshing }
}

/// How and where a stage runs, as far as its command asks.
fn of_machine<A: Args>(
    name: &'static str,
    model: &MeshedModel,
    matches: &ArgMatches,
) -> Vec<OsString> {
    let machine = command_of::<MachineOptions>("machine");
    let is_told = matches!(model, MeshedModel::Given(..));
    forwarded(&command_of::<A>(name), matches, |id| {
        machine.get_arguments().any(|arg| arg.get_id().as_str() == id) && !(is_told && id == "seed")
    })
}

fn run_meshing(line: &[OsString], _: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let (args, matches) = parse::<MeshArgs>(MESH, line)?;
    mesh::make(&args, &matches)
}

/// Flags of the refinement that the processor has the time for, if none are given.
pub(super) fn refinement_on_processor(args: &SugarArgs, matches: &ArgMatches) -> Vec<String> {
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

/// The stage that binds Gaussians to the mesh and trains both, with these flags beside those that are given.
pub(super) fn refining(
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
    let (mut line, of_model) = model.told(matches);
    line.extend(options.iter().cloned());
    line.extend(of_machine::<RefineArgs>(REFINE, model, matches));
    options.extend(of_model);
    // What it refuses is refused before anything is trained.
    parse::<RefineArgs>(REFINE, &line)?.0.resolved()?;
    Ok(CommandStage { name: REFINE, line, options: words(&options), run: run_refining })
}

/// Binds Gaussians to the mesh of the stage before, whatever was refined in its place.
fn run_refining(line: &[OsString], before: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut line = line.to_vec();
    let is_ply = |path: &&PathBuf| path.extension().is_some_and(|it| it == "ply");
    line.extend(before.iter().find(is_ply).map(|path| flag("mesh", path)));
    let (mut args, matches) = parse::<RefineArgs>(REFINE, &line)?;
    args.replaces_other = true;
    refine::make(&args, &matches)
}

/// Options of a device and how a command reports, which stages share.
#[derive(Args)]
pub(super) struct MachineOptions {
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
