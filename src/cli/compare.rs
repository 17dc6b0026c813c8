//! `splat compare`: runs side by side, and whether one of them lost quality.

mod comparison;
mod figures;
mod notes;
mod run;
mod table;
mod tolerance;

use std::path::{Path, PathBuf};

use clap::Args;

use self::comparison::Comparison;
use self::run::Run;
use self::table::Style;
use self::tolerance::Tolerance;
use super::exit::{DataError, QualityLost, UsageError};
use super::output::print;
use crate::telemetry::RunSummary;

/// Arguments of `splat compare`.
#[derive(Args)]
#[command(after_help = "Exit code 1 where the PSNR, SSIM or LPIPS of a RUN is worse than the \
                        baseline's by more than the tolerance, 3 where there is none to compare, or \
                        it was measured on other views or at another resolution.")]
pub(super) struct CompareArgs {
    /// Model folders, or summary.json files of runs
    #[arg(value_name = "RUN", required = true, num_args = 1..)]
    runs: Vec<PathBuf>,

    /// Baseline of the comparison [default: the first RUN]
    ///
    /// A model folder, or the summary.json of a run that was kept.
    #[arg(long, value_name = "RUN")]
    baseline: Option<PathBuf>,

    /// Loss of quality that is accepted, in per cent
    ///
    /// It is a share of the baseline's PSNR, SSIM and LPIPS. 0 accepts no loss at all, not even one of
    /// rounding.
    #[arg(long, value_name = "P%", default_value = "0.5%", allow_hyphen_values = true)]
    tolerance: Tolerance,

    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print tables in Markdown
    #[arg(long)]
    markdown: bool,
}

/// Prints the comparison; lost quality is an error, after it was printed.
pub(super) fn run(args: &CompareArgs) -> anyhow::Result<()> {
    let paths = paths(args);
    let named = args.runs.len() + usize::from(args.baseline.is_some());
    if let [only] = paths.as_slice()
        && named > 1
    {
        let message =
            format!("{} is named twice and nothing else is: name another run", only.display());
        return Err(UsageError(message).into());
    }
    let runs = paths.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let comparison = Comparison::new(&runs, args.tolerance)?;
    print(&if args.json {
        serde_json::to_string_pretty(&comparison)?
    } else {
        let style = if args.markdown { Style::Markdown } else { Style::Plain };
        table::of(&comparison, style)
    })?;
    if let Some(without) = comparison.without_quality() {
        return Err(DataError(without).into());
    }
    match comparison.lost_quality() {
        Some(losses) => Err(QualityLost(losses).into()),
        None => Ok(()),
    }
}

/// The baseline and then the others, each once.
fn paths(args: &CompareArgs) -> Vec<&Path> {
    let mut seen = Vec::new();
    let mut paths = Vec::new();
    for path in args.baseline.iter().chain(&args.runs) {
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        if !seen.contains(&real) {
            seen.push(real);
            paths.push(path.as_path());
        }
    }
    paths
}

fn read(path: &Path) -> Result<Run, DataError> {
    let summary = RunSummary::read(path).map_err(|error| DataError(error.to_string()))?;
    Ok(Run { path: path.display().to_string(), summary })
}
