//! Output to stdout.

use std::io::{self, Write as _};
use std::path::PathBuf;

use serde::Serialize;

pub(super) use crate::files::shell_word;

/// Failure to write results to stdout.
#[derive(Debug, thiserror::Error)]
#[error(
    "the results cannot be written to the standard output: {0}. Check the free space where it goes"
)]
pub(super) struct PrintError(#[source] pub(super) io::Error);

/// Prints results to stdout. A closed pipe, as `head` leaves it, is no error.
pub(super) fn print(text: &str) -> Result<(), PrintError> {
    print_to_reader(text).map(drop)
}

/// Prints help or the version to stdout in the terminal's colours.
pub(super) fn print_help(help: &clap::Error) -> Result<(), PrintError> {
    match help.print().and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(PrintError(error)),
        _ => Ok(()),
    }
}

pub(super) fn print_paths(paths: &[PathBuf]) -> Result<(), PrintError> {
    let lines: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    print(&lines.join("\n"))
}

/// Prints results to stdout. Returns false if the reader is gone.
pub(super) fn print_to_reader(text: &str) -> Result<bool, PrintError> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(PrintError(error)),
    }
}

pub(super) fn print_report<R: Serialize>(
    report: &R,
    as_json: bool,
    text: impl FnOnce(&R) -> String,
) -> anyhow::Result<()> {
    let text = if as_json { serde_json::to_string_pretty(report)? } else { text(report) };
    Ok(print(&text)?)
}
