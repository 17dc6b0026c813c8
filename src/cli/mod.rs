//! Command line: commands, arguments and exit codes.

#[cfg(feature = "bench")]
mod bench;
mod cfg_args;
mod check;
mod clean;
mod compare;
mod completions;
mod continued;
mod crop;
mod device;
mod doctor;
mod ensemble;
mod eval;
mod exit;
mod export;
mod file_kind;
mod folder;
mod held_out;
mod help;
mod host_limit;
mod lpips;
mod mesh;
#[cfg(test)]
mod messages;
mod next;
mod output;
mod parser;
mod plan;
mod profile;
mod rank_launch;
mod ranks;
mod refine;
mod render;
mod resolved_run;
mod scene;
mod settle;
mod short_help;
mod signals;
mod silhouettes;
mod stages;
mod start;
mod sugar;
mod synth;
mod train;
mod train_args;
mod video;
mod view;

use std::ffi::OsString;
use std::panic;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use clap::{ArgMatches, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

use self::exit::Exit;
use self::output::print_help;
use self::parser::{briefly, shaped};
use self::short_help::{grouped, is_short_help_wanted, shortened, with_usual_defaults};
use crate::config::normalize_args;
use crate::telemetry::{
    LogDetail, Newlines, ProgressStyle, escape_controls, init_logging, is_plain_wanted, log_error,
    release_notices,
};

/// Last paragraph of the program's help.
const EXIT_CODES: &str = "Exit codes: 0 done; 1 error; 2 bad usage; 3 bad input data; 4 the plan does not fit \
                          the memory budget; 5 device or driver fault; 130 interrupted (after a checkpoint).";

/// Trains Gaussian splats from a COLMAP scene.
#[derive(Parser)]
#[command(name = "splat", version, max_term_width = 100, subcommand_required = true)]
#[command(disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a model of a scene
    Train(Box<train_args::TrainArgs>),
    /// Measure a trained model against the scene's photographs
    Eval(Box<eval::EvalArgs>),
    /// Write renders and photographs of a scene's views, as PNG
    Render(Box<render::RenderArgs>),
    /// Make a triangle mesh of a trained model
    Mesh(Box<mesh::MeshArgs>),
    /// Train Gaussians bound to a mesh of a trained model, and the mesh
    Refine(Box<refine::RefineArgs>),
    /// Train, flatten, mesh, refine and texture a model, in one command
    Sugar(Box<sugar::SugarArgs>),
    /// Remove floaters, haze and what no view needs from a trained model
    Clean(Box<clean::CleanArgs>),
    /// Write Gaussians in the formats of other programs
    Export(Box<export::ExportArgs>),
    /// Film a trained model along a path of the camera
    Video(Box<video::VideoArgs>),
    /// Show a model, or a run that goes on, in a browser
    View(view::ViewerArgs),
    /// Forecast the memory of a run and how many Gaussians fit
    Plan(Box<plan::PlanArgs>),
    /// Write a synthetic COLMAP scene, reproducible by its seed
    Synth(synth::SynthArgs),
    /// Measure what an iteration of training costs
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    Bench(Box<bench::BenchArgs>),
    /// Report how a run used memory
    Profile(profile::ProfileArgs),
    /// Put runs side by side and check that no quality was lost
    Compare(compare::CompareArgs),
    /// Check what works on this machine
    Doctor(doctor::DoctorArgs),
    /// Print completions for a shell, or the manual page
    Completions(completions::CompletionsArgs),
    /// Print a guide, or all options of a command
    Help(help::HelpArgs),
}

/// Runs the program and returns its exit code.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    // A defect must not bury the user in a backtrace. The message below tells what to report.
    let place = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&place);
    panic::set_hook(Box::new(move |info| {
        if let (Some(location), Ok(mut place)) = (info.location(), seen.lock()) {
            *place = location.to_string();
        }
    }));
    signals::ignore_file_size_signal();
    let args: Vec<OsString> = args.collect();
    let result = panic::catch_unwind(|| run(args));
    let exit = result.unwrap_or_else(|payload| {
        let what = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("unknown");
        let place = place.lock().map(|place| place.clone()).unwrap_or_default();
        let message = format!(
            "a defect of this program at {place}: {what}. Please report it with the command"
        );
        release_notices();
        log_error(ProgressStyle::Plain, &message);
        Exit::Error
    });
    ExitCode::from(exit.code())
}

/// Builds the parser.
fn command() -> clap::Command {
    // clap takes any terminal for a colourful one if `CI` is set.
    let colors = if is_plain_wanted() { ColorChoice::Never } else { ColorChoice::Auto };
    let guides = help::guide_list();
    Cli::command()
        .after_help(guides.clone())
        .after_long_help(format!("{guides}\n\n{EXIT_CODES}"))
        .color(colors)
        .mut_subcommands(shaped)
        .mut_subcommands(with_usual_defaults)
        .mut_subcommands(grouped)
}

/// Escapes control characters of arguments that a parser error quotes.
fn refusal_without_controls(refusal: clap::Error, args: &[OsString]) -> clap::Error {
    let has_controls = |arg: &OsString| arg.to_string_lossy().chars().any(char::is_control);
    if !args.iter().any(has_controls) {
        return refusal;
    }
    let escape = |arg: &OsString| match has_controls(arg) {
        true => escape_controls(&arg.to_string_lossy(), Newlines::Escaped).into(),
        false => arg.clone(),
    };
    let escaped: Vec<OsString> = args.iter().map(escape).collect();
    let again = command()
        .try_get_matches_from(escaped)
        .and_then(|matches| Cli::from_arg_matches(&matches).map(drop));
    // If only the control character is wrong, the error names the option's rule.
    again.err().unwrap_or_else(|| {
        command().error(refusal.kind(), escape_controls(&refusal.to_string(), Newlines::Kept))
    })
}

fn run(args: Vec<OsString>) -> Exit {
    let normalized = normalize_args(args.into_iter());
    let program = if is_short_help_wanted(&normalized.args) {
        command().mut_subcommands(shortened)
    } else {
        command()
    };
    let parsed = program
        .try_get_matches_from(&normalized.args)
        .and_then(|matches| Cli::from_arg_matches(&matches).map(|cli| (cli, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) if error.use_stderr() => {
            let refusal = refusal_without_controls(error, &normalized.args);
            briefly(refusal, &command(), &normalized.args).print().ok();
            return Exit::Usage;
        }
        Err(help) => {
            return match print_help(&help) {
                Ok(()) => Exit::Done,
                Err(error) => {
                    log_error(ProgressStyle::Plain, &error.to_string());
                    Exit::Error
                }
            };
        }
    };
    let (detail, style) = match &cli.command {
        Command::Train(args) => (args.detail(LogDetail::Brief), args.style()),
        Command::Eval(args) => (LogDetail::of(args.model.quiet), ProgressStyle::Plain),
        Command::Render(args) => (LogDetail::of(args.model.quiet), ProgressStyle::Plain),
        Command::Mesh(args) => (LogDetail::of(args.model.quiet), ProgressStyle::Bar),
        Command::Clean(args) => (LogDetail::of(args.model.quiet), ProgressStyle::Plain),
        Command::Export(args) => (LogDetail::of(args.quiet), ProgressStyle::Plain),
        Command::Video(args) => (LogDetail::of(args.model.quiet), ProgressStyle::Plain),
        Command::View(args) => (LogDetail::of(args.quiet), ProgressStyle::Plain),
        Command::Refine(args) => (LogDetail::of(args.model.quiet), args.style()),
        Command::Sugar(args) => (args.train.detail(LogDetail::All), args.train.style()),
        #[cfg(feature = "bench")]
        Command::Bench(args) => (LogDetail::of(args.model.quiet), ProgressStyle::Plain),
        Command::Plan(args) => (LogDetail::of(args.quiet), ProgressStyle::Plain),
        Command::Synth(_)
        | Command::Profile(_)
        | Command::Compare(_)
        | Command::Doctor(_)
        | Command::Completions(_)
        | Command::Help(_) => (LogDetail::All, ProgressStyle::Plain),
    };
    let leaves_words = match &cli.command {
        Command::Train(args) => ranks::leaves_words_to_rank_0(args),
        _ => false,
    };
    let has_run =
        matches!(&cli.command, Command::Train(_) | Command::Refine(_) | Command::Sugar(_));
    init_logging(if leaves_words { LogDetail::Errors } else { detail }, style, has_run);
    for notice in &normalized.notices {
        tracing::info!("{notice}");
    }
    if let Some(refusal) = normalized.refusal() {
        log_error(style, &refusal);
        return Exit::Usage;
    }
    // The parser has found a command, so its matches exist.
    let empty = ArgMatches::default();
    let matches = matches.subcommand().map_or(&empty, |(_, matches)| matches);
    let result = dispatch(cli.command, matches);
    release_notices();
    match result {
        Ok(()) => Exit::Done,
        Err(error) => {
            if !error.is::<ranks::EndedRank>() {
                log_error(style, &exit::message(&error));
            }
            Exit::of(&error)
        }
    }
}

fn dispatch(command: Command, matches: &ArgMatches) -> anyhow::Result<()> {
    match command {
        Command::Train(args) => train::run(&args, matches),
        Command::Eval(args) => eval::run(&args, matches),
        Command::Render(args) => render::run(&args, matches),
        Command::Mesh(args) => mesh::run(&args, matches),
        Command::Clean(args) => clean::run(&args, matches),
        Command::Export(args) => export::run(&args, matches),
        Command::Video(args) => video::run(&args, matches),
        Command::View(args) => view::run(&args),
        Command::Refine(args) => refine::run(&args, matches),
        Command::Sugar(args) => sugar::run(&args, matches),
        #[cfg(feature = "bench")]
        Command::Bench(args) => bench::run(&args, matches),
        Command::Plan(args) => plan::run(&args, matches),
        Command::Synth(args) => synth::run(&args),
        Command::Profile(args) => profile::run(&args, matches),
        Command::Compare(args) => compare::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => completions::run(&args, self::command()),
        Command::Help(args) => help::run(&args, self::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_help_of_an_option_is_one_line() {
        for command in command().get_subcommands() {
            for arg in command.get_arguments() {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                let help = help.split(" [default: ").next().unwrap_or_default();
                let name = format!("splat {} {}", command.get_name(), arg.get_id());
                assert!((1..=70).contains(&help.chars().count()), "{name}: {help}");
                assert!(!help.contains('\n'), "{name}: {help}");
            }
        }
    }
}
