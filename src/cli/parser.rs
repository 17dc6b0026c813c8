//! What all commands of the parser have in common.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Id};

use crate::config::{Config, parse_switch};

/// Commands on a model, whose configuration is the default of all options that it has.
const OF_A_MODEL: [&str; 6] = ["eval", "render", "mesh", "refine", "clean", "bench"];

/// A command of which each switch takes `true` or `false`, the last counts of a flag given twice, and a
/// negative number is a value, so that the error for one that makes no sense names its flag.
pub(super) fn shaped(command: clap::Command) -> clap::Command {
    let of_model = OF_A_MODEL.contains(&command.get_name());
    let configured = of_model.then(|| Config::augment_args(clap::Command::new("config")));
    let is_configured = |id: &Id| {
        configured
            .as_ref()
            .is_some_and(|config| config.get_arguments().any(|arg| arg.get_id() == id))
    };
    command.args_override_self(true).mut_args(|arg| {
        let arg = if matches!(arg.get_action(), ArgAction::SetTrue) { switch(arg) } else { arg };
        let takes_value = arg.get_action().takes_values();
        let hides = takes_value && is_configured(arg.get_id());
        let arg = if hides { arg.hide_default_value(true) } else { arg };
        arg.allow_negative_numbers(takes_value)
    })
}

/// The parser of one command, for lines that the program itself writes.
pub(super) fn command_of<A: Args>(name: &'static str) -> clap::Command {
    shaped(A::augment_args(clap::Command::new(name))).no_binary_name(true)
}

/// Shortens an error of the parser to the error, the nearest name, and the command that explains more.
pub(super) fn briefly(
    error: clap::Error,
    program: &clap::Command,
    args: &[OsString],
) -> clap::Error {
    // Without a command, the help lists the commands.
    if matches!(
        error.kind(),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        return error;
    }
    let shown = error.render().ansi().to_string();
    let shown = shown.split_once("error:").map_or(shown.as_str(), |(_, text)| text);
    let shown = shown.strip_prefix("\u{1b}[0m").unwrap_or(shown).trim_start();
    let is_left_out =
        |part: &&str| !part.contains("Usage:") && !part.contains("For more information");
    let parts = shown.split("\n\n");
    let mut lines: Vec<&str> = parts.clone().take(1).collect();
    lines.extend(parts.skip(1).filter(is_left_out));
    let command = args.get(1).and_then(|name| program.find_subcommand(name));
    let name = command.map_or(String::new(), |command| format!(" {}", command.get_name()));
    let help = format!("  help: splat{name} -h\n");
    lines.push(&help);
    clap::Error::raw(error.kind(), lines.join("\n")).with_cmd(program)
}

/// Parses such a line.
pub(super) fn parse<A: Args>(
    name: &'static str,
    line: &[OsString],
) -> Result<(A, ArgMatches), clap::Error> {
    let matches = command_of::<A>(name).try_get_matches_from(line)?;
    Ok((A::from_arg_matches(&matches)?, matches))
}

/// Whether an option, by its name in the program, stands on the command line; not where the command does not
/// have it.
pub(super) fn is_typed(matches: &ArgMatches, id: &str) -> bool {
    matches.try_contains_id(id).is_ok()
        && matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// A switch that also takes a value, after `=`: what follows a space may be a model folder.
fn switch(arg: Arg) -> Arg {
    arg.action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .default_value("false")
        .hide_default_value(true)
        .value_name("BOOL")
        .value_parser(parse_switch)
}
