//! `splat help`: guides, and the options of commands.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::process::{Command, Stdio};

use clap::Args;

use super::exit::UsageError;
use super::output::print;
use crate::guide::{GUIDES, guide, guide_about};
use crate::telemetry::is_plain_wanted;

/// Maximum width of a text, columns.
const WIDTH: usize = 100;

#[derive(Args)]
pub(super) struct HelpArgs {
    /// Topic of a guide, or a command
    #[arg(value_name = "TOPIC|COMMAND")]
    topic: Option<String>,
}

pub(super) fn guide_list() -> String {
    let rows = GUIDES.map(|guide| format!("  {:<12} {}", guide.topic, guide.title()));
    format!("Guides (splat help TOPIC):\n{}", rows.join("\n"))
}

/// Prints a guide, the options of a command, or both if both have the name.
pub(super) fn run(args: &HelpArgs, mut program: clap::Command) -> anyhow::Result<()> {
    program.build();
    let Some(topic) = &args.topic else {
        return Ok(print(&shown(&program.render_long_help()))?);
    };
    let topic = &topic.to_lowercase();
    let is_screen = stdout().is_terminal();
    let columns = usize::from(console::Term::stdout().size().1).clamp(20, WIDTH);
    let mut texts = Vec::new();
    let is_command = program.find_subcommand(topic).is_some_and(|command| !command.is_hide_set());
    if let Some(guide) = guide(topic).or_else(|| guide_about(topic).filter(|_| !is_command)) {
        let text =
            if is_screen { guide.rendered(columns, !is_plain_wanted()) } else { guide.plain() };
        texts.push(text.trim_end().to_owned());
    }
    let command = program.find_subcommand_mut(topic).filter(|command| !command.is_hide_set());
    if let Some(command) = command {
        texts.push(shown(&command.render_long_help()));
    }
    if texts.is_empty() {
        anyhow::bail!(UsageError(format!(
            "{topic}: no guide or command has this name. List them: splat help"
        )));
    }
    show(&texts.join("\n\n"), is_screen)
}

fn shown(help: &clap::builder::StyledStr) -> String {
    let has_colors = stdout().is_terminal() && !is_plain_wanted();
    if has_colors { help.ansi().to_string() } else { help.to_string() }
}

/// Prints a text, through a pager on a terminal.
fn show(text: &str, is_screen: bool) -> anyhow::Result<()> {
    if is_screen && is_paged(text) {
        return Ok(());
    }
    Ok(print(text)?)
}

/// Shows a text in `$PAGER`, or else in `less -R`. False if there is no pager.
fn is_paged(text: &str) -> bool {
    let pager = std::env::var("PAGER").unwrap_or_else(|_| "less -R".to_owned());
    if pager.trim().is_empty() || !cfg!(unix) {
        return false;
    }
    let mut command = Command::new("sh");
    command.args(["-c", &pager]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // A short text ends the pager at once, and escape sequences stay colours.
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // Writing fails if the reader quits early.
        input.write_all(text.as_bytes()).and_then(|()| input.write_all(b"\n")).ok();
    }
    // The shell ends with 127 if the pager does not exist.
    child.wait().is_ok_and(|status| status.code() != Some(127))
}
