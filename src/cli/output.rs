//! Output to stdout, and paths in it.

use std::io::{self, Write as _};
use std::path::PathBuf;

pub(super) use crate::files::shell_word;

/// Results that did not reach stdout.
#[derive(Debug, thiserror::Error)]
#[error(
    "the results cannot be written to the standard output: {0}. Check the free space where it goes"
)]
pub(super) struct PrintError(#[source] pub(super) io::Error);

/// Results on stdout. A reader that has gone, as `head` does, has seen enough of them.
pub(super) fn print(text: &str) -> Result<(), PrintError> {
    print_to_reader(text).map(drop)
}

/// Help or the version on stdout, in the colours of the terminal.
pub(super) fn print_help(help: &clap::Error) -> Result<(), PrintError> {
    match help.print().and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(PrintError(error)),
        _ => Ok(()),
    }
}

/// Where files are, a line each.
pub(super) fn print_paths(paths: &[PathBuf]) -> Result<(), PrintError> {
    let lines: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    print(&lines.join("\n"))
}

/// Results on stdout; whether the reader is still there.
pub(super) fn print_to_reader(text: &str) -> Result<bool, PrintError> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(PrintError(error)),
    }
}
