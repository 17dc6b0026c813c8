//! `splat profile`: where the memory went in a run.

mod follow;
mod source;
mod text;

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};

use super::folder;
use super::output::print;

/// Arguments of `splat profile`.
#[derive(Args)]
pub(super) struct ProfileArgs {
    /// Model folder of a run, or latest [default: latest]
    ///
    /// With latest, the run below output/ that wrote to its log last.
    #[arg(value_name = "MODEL")]
    model_path: Option<PathBuf>,

    /// Redraw while the run trains, until it ends
    #[arg(long, conflicts_with = "json")]
    follow: bool,

    /// Buffers to list
    ///
    /// They are recorded by runs on a GPU with --profile-tensors.
    #[arg(long, value_name = "N", default_value_t = 15)]
    top: usize,

    /// Print JSON, with all buffers
    #[arg(long)]
    json: bool,
}

/// Prints the profile.
pub(super) fn run(args: &ProfileArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    let model_path = source::named_or_newest(args.model_path.as_deref())?;
    if let Some(problem) = folder::not_a_folder(&model_path) {
        return Err(problem.into());
    }
    if args.follow {
        return follow::follow(&model_path, args.top);
    }
    let profile = source::read(&model_path)?;
    let is_typed = matches.value_source("top") == Some(ValueSource::CommandLine);
    if is_typed && profile.buffers.is_empty() {
        tracing::warn!(
            "--top has no effect: {} has no record of the run's buffers. Train on a GPU with \
             --profile-tensors, and they are listed here",
            model_path.display()
        );
    }
    let text = if args.json {
        serde_json::to_string_pretty(&profile)?
    } else {
        text::of(&profile, args.top)
    };
    Ok(print(&text)?)
}
