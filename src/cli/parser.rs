//! Parser settings that all commands share.

use std::ffi::OsString;
use std::path::Path;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Args, Id};

use super::output::shell_word;
pub(super) use crate::config::is_typed;
use crate::config::{Config, parse_switch};

/// Commands whose option defaults come from the model's configuration.
const MODEL_COMMANDS: [&str; 6] = ["eval", "render", "mesh", "refine", "clean", "bench"];

/// Applies the shared settings: switches take `true` or `false`, the last of repeated flags counts, and negative
/// numbers are values, so that an error names their flag.
pub(super) fn shaped(command: clap::Command) -> clap::Command {
    let of_model = MODEL_COMMANDS.contains(&command.get_name());
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

/// Returns the parser of one command, for lines that the program itself builds.
pub(super) fn command_of<A: Args>(name: &'static str) -> clap::Command {
    shaped(A::augment_args(clap::Command::new(name))).no_binary_name(true)
}

/// Returns the parser of an option with named values: the name, the help and the value of each.
pub(super) fn named_values<T: Copy + Send + Sync + 'static, const N: usize>(
    values: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let shown = values.map(|(name, help, _)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(shown).try_map(move |typed| {
        let found = values.iter().find(|(name, ..)| *name == typed);
        found.map(|(.., value)| *value).ok_or("no such value")
    })
}

/// Returns the typed options of a command that have long flags: id and flag of each.
pub(super) fn typed_flags<'a>(
    command: &'a clap::Command,
    matches: &'a ArgMatches,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let flags =
        command.get_arguments().filter_map(|arg| Some((arg.get_id().as_str(), arg.get_long()?)));
    flags.filter(|(id, _)| is_typed(matches, id))
}

/// Shortens a parser error to the error, the nearest name and the help command.
pub(super) fn briefly(
    error: clap::Error,
    program: &clap::Command,
    args: &[OsString],
) -> clap::Error {
    // Without a command, the help lists all commands.
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
    let tip = command.and_then(|command| folder_tip(&error, command));
    lines.extend(tip.as_deref());
    let name = command.map_or(String::new(), |command| format!(" {}", command.get_name()));
    let help = format!("  help: splat{name} -h\n");
    lines.push(&help);
    let text = lines.join("\n");
    let text = match error.kind() {
        ErrorKind::ValueValidation => in_plain_words(text),
        _ => text,
    };
    clap::Error::raw(error.kind(), text).with_cmd(program)
}

/// Returns a tip for a folder that is given without its option.
fn folder_tip(error: &clap::Error, command: &clap::Command) -> Option<String> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return None };
    if error.kind() != ErrorKind::UnknownArgument || given.starts_with('-') {
        return None;
    }
    let has = |id: &str| command.get_arguments().any(|arg| arg.get_id() == id);
    let name = command.get_name();
    let flag = match name {
        "train" | "plan" | "sugar" => "-s",
        _ if has("model_path") => "-m",
        _ => return None,
    };
    let folder = shell_word(Path::new(given));
    Some(format!("  tip: name the folder by its option: splat {name} {flag} {folder}\n"))
}

/// Replaces the standard library's wording for unreadable numbers.
fn in_plain_words(text: String) -> String {
    const WORDS: [(&str, &str); 5] = [
        ("invalid digit found in string", "not a whole number that the option takes"),
        ("invalid float literal", "not a number"),
        ("number too large to fit in target type", "the number is too large"),
        ("cannot parse integer from empty string", "the number is missing"),
        ("cannot parse float from empty string", "the number is missing"),
    ];
    WORDS.into_iter().fold(text, |text, (raw, plain)| text.replace(raw, plain))
}

/// Parses a line that the program itself built.
pub(super) fn parse<A: Args>(
    name: &'static str,
    line: &[OsString],
) -> Result<(A, ArgMatches), clap::Error> {
    let matches = command_of::<A>(name).try_get_matches_from(line)?;
    Ok((A::from_arg_matches(&matches)?, matches))
}

/// Turns a switch into an option with a value after `=`. A word after a space may be a model folder.
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
