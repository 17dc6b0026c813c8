//! Cleaning as the end of `splat train --clean`.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::report::CleanReport;
use super::{CleanArgs, clean_model};
use crate::cli::folder;
use crate::cli::output::shell_word;
use crate::cli::parser::parse;
use crate::cli::stages::flag;

/// What an earlier cleaning says of itself.
#[derive(Deserialize)]
struct CleanedBefore {
    /// Of the Gaussians that were cleaned.
    iteration: u32,
}

/// Cleans the last Gaussians of a model folder as `splat clean -m MODEL` does, unless they are cleaned
/// already, and gives the folder of what is left. Others that were cleaned before are moved aside.
pub(in crate::cli) fn clean_trained(model_path: &Path) -> anyhow::Result<PathBuf> {
    let cleaned = model_path.join(folder::CLEANED);
    let (iteration, ply) = folder::point_cloud(model_path, None)?;
    if is_cleaned(&cleaned, iteration, &ply) {
        tracing::info!("{}: iteration {iteration} is cleaned already", cleaned.display());
        return Ok(cleaned);
    }
    tracing::info!("Cleaning the model");
    let line = [flag("model-path", model_path), "--overwrite".into()];
    let (args, matches) = parse::<CleanArgs>("clean", &line)?;
    clean_model(&args, &matches, tell).inspect_err(|_| {
        tracing::warn!(
            "the model is trained and saved, but not cleaned. To clean it: splat clean -m {}",
            shell_word(model_path)
        );
    })?;
    Ok(cleaned)
}

/// Says what went as the last lines of the run, and not as its results.
fn tell(report: &CleanReport) -> anyhow::Result<()> {
    report.described().lines().for_each(|line| tracing::info!("{line}"));
    Ok(())
}

/// Whether this iteration was cleaned after it was saved.
fn is_cleaned(cleaned: &Path, iteration: u32, ply: &Path) -> bool {
    let record = cleaned.join(folder::CLEANING);
    let before = fs::read_to_string(&record).ok();
    let before = before.and_then(|text| serde_json::from_str::<CleanedBefore>(&text).ok());
    let written = |path: &Path| fs::metadata(path).and_then(|about| about.modified()).ok();
    before.is_some_and(|before| before.iteration == iteration) && written(&record) >= written(ply)
}
