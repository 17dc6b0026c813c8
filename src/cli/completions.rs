//! `splat completions`: shell completions and manual pages, generated from the parser.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use clap::builder::TypedValueParser;
use clap_complete::{Generator as _, Shell};
use clap_mangen::Man;

use super::output::print;
use super::parser::named_values;
use crate::files::{create_folder, write_text};
use crate::guide::GUIDES;

#[derive(Args)]
pub(super) struct CompletionsArgs {
    /// For which shell, or `man` for the manual page
    #[arg(value_name = "SHELL", value_parser = shell())]
    format: Format,

    /// Write into this folder instead of to stdout
    ///
    /// Files get the names that the shell looks for. With `man`, each command gets a page.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Consumer of the generated text. `None` means the manual page.
type Format = Option<Shell>;

fn shell() -> impl TypedValueParser<Value = Format> {
    named_values([
        ("bash", "GNU Bash", Some(Shell::Bash)),
        ("elvish", "Elvish", Some(Shell::Elvish)),
        ("fish", "Fish", Some(Shell::Fish)),
        ("powershell", "PowerShell", Some(Shell::PowerShell)),
        ("zsh", "Z shell", Some(Shell::Zsh)),
        ("man", "Manual page", None),
    ])
}

/// Name and text of a generated file.
type NamedText = (String, String);

/// Prints or writes the generated text for `command`, the program's parser.
pub(super) fn run(args: &CompletionsArgs, command: clap::Command) -> anyhow::Result<()> {
    let texts = match args.format {
        Some(shell) => vec![completion(shell, command)?],
        None => pages(command)?,
    };
    let Some(folder) = &args.output else {
        // The first page is the page of the program itself.
        if let Some((_, text)) = texts.first() {
            print(text.trim_end())?;
        }
        return Ok(());
    };
    create_folder(folder)?;
    for (name, text) in &texts {
        let path = folder.join(name);
        write_text(&path, text)?;
        print(&path.display().to_string())?;
    }
    Ok(())
}

fn completion(shell: Shell, mut command: clap::Command) -> anyhow::Result<NamedText> {
    let program = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, &program, &mut text);
    let text = String::from_utf8(text).context("the completions are not UTF-8")?;
    Ok((shell.file_name(&program), text))
}

/// Returns the pages of the program, of each command and of each guide.
fn pages(command: clap::Command) -> anyhow::Result<Vec<NamedText>> {
    let mut program = command.disable_help_subcommand(true);
    program.build();
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
    let pages: Vec<clap::Command> =
        [program.clone()].into_iter().chain(commands.cloned()).collect();
    let guides = GUIDES.map(|guide| Ok((format!("splat-{}.7", guide.topic), guide.manual())));
    pages.into_iter().map(page).chain(guides).collect()
}

fn page(command: clap::Command) -> anyhow::Result<NamedText> {
    let page = Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = String::from_utf8(text).context("the manual page is not UTF-8")?;
    Ok((page.get_filename(), text))
}
