//! The stages of `splat sugar` after training, each as a line of the command that it is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, ValueEnum};

use super::super::mesh::{self, MeshArgs};
use super::super::parser::{command_of, is_typed, parse};
use super::super::refine::{self, BoundOptions, RefineArgs};
use super::super::stages::{CommandStage, flag, forwarded};
use super::args::SugarArgs;
use crate::config::{MemoryOptions, RunOptions};
use crate::mesh::{MeshFormat, MeshMethod, MeshOptions, TextureOptions, TextureSource};
use crate::telemetry::ProgressStyle;

/// How a surface is found where it is not said: as in SuGaR.
pub(in crate::cli) const SUGAR_METHOD: MeshMethod = MeshMethod::Poisson;

/// What is around the box: meshed, too, as in SuGaR. Without it Gaussians have nothing to be bound to
/// there, and the photographs teach those of the box its colours.
const BACKGROUND: &str = "--mesh-background=true";

/// Where the colours of a texture come from where it is not said: as in SuGaR.
pub(in crate::cli) const SUGAR_TEXTURE: TextureSource = TextureSource::Gaussians;

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

/// The stage that makes a mesh.
pub(super) fn meshing(
    model_path: &Path,
    args: &SugarArgs,
    matches: &ArgMatches,
    takes: impl Fn(&str) -> bool,
) -> CommandStage {
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
    let command = command_of::<MeshArgs>("mesh");
    let mut line = vec![flag("model-path", model_path)];
    line.extend(options.iter().cloned());
    line.extend(forwarded(&command, matches, |id| {
        id != "model_path" && !is_in(&of_mesh, id) && takes(id)
    }));
    CommandStage { name: "mesh", line, options: words(&options), run: run_meshing }
}

fn run_meshing(line: &[OsString], _: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let (args, matches) = parse::<MeshArgs>("mesh", line)?;
    mesh::make(&args, &matches)
}

/// The stage that binds Gaussians to the mesh and trains both.
pub(super) fn refining(
    model_path: &Path,
    args: &SugarArgs,
    matches: &ArgMatches,
) -> anyhow::Result<CommandStage> {
    let mut options = forwarded(&command_of::<BoundOptions>("bound"), matches, |_| true);
    options.extend(args.refinement_iterations.map(|count| format!("--iterations={count}").into()));
    options.extend(texture(matches));
    options.extend(formats(args, matches));
    let mut line = vec![flag("model-path", model_path)];
    line.extend(options.iter().cloned());
    let of_machine = command_of::<MachineOptions>("machine");
    line.extend(forwarded(&of_machine, matches, |_| true));
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
struct MachineOptions {
    #[command(flatten)]
    _memory: MemoryOptions,
    #[command(flatten)]
    _run: RunOptions,
    #[arg(id = "quiet", long = "quiet")]
    _quiet: bool,
    #[arg(id = "progress", long = "progress", value_enum, default_value_t = ProgressStyle::Bar)]
    _progress: ProgressStyle,
}
