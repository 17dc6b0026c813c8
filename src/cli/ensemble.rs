//! Pseudo-views of a training: whether the run has some, and where their renders come from.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use clap::ArgMatches;

use super::exit::DataError;
use super::parser::is_typed;
use super::resolved_run::ResolvedRun;
use super::scene::{absolute, open_to_train};
use super::settle::settle_passes;
use crate::config::Config;
use crate::dataset::{Dataset, PSEUDO_VIEWS, PSEUDO_VIEWS_OF};
use crate::files::{OutputError, create_folder};
use crate::train::ensemble::{CAMERAS, Ensemble, check_pseudo_views};

/// Opens the scene, with pseudo-views if the run trains on some. Settles the number of models. Names an `--ensemble` that
/// has no effect. `from`: model folder that holds the renders of a run that goes on.
pub(super) fn open_with_pseudo_views(
    resolved: &mut ResolvedRun,
    matches: &ArgMatches,
    from: &Path,
) -> anyhow::Result<Dataset> {
    let before = resolved.checkpoint.as_ref().map(|run| run.about.config.clone());
    let is_typed = is_typed(matches, "ensemble");
    match &before {
        None => {}
        Some(before) if before.distils() => {
            keep_ensemble(before, &mut resolved.config, is_typed);
        }
        Some(_) => {
            if is_typed && resolved.config.distils() {
                tracing::warn!("--ensemble has no effect: the run began without an ensemble");
            }
            resolved.config.optimize.ensemble = 0;
        }
    }
    let config = &mut resolved.config;
    if !config.distils() {
        config.optimize.ensemble = 0;
        let dataset = open_to_train(config)?;
        if let Some(before) = before.filter(Config::distils) {
            tracing::warn!(
                "the run goes on with photographs alone, without the pseudo-views of --ensemble"
            );
            keep_length(&before, config, &dataset);
        }
        return Ok(dataset);
    }
    let dataset = open_to_train(config)?;
    if dataset.pseudo.is_empty() {
        if is_typed || before.is_some() {
            tracing::warn!(
                "--ensemble has no effect: an ensemble needs {} to {} training views, and the scene has {}",
                PSEUDO_VIEWS_OF.start(),
                PSEUDO_VIEWS_OF.end(),
                dataset.train.len()
            );
        }
        config.optimize.ensemble = 0;
    } else if before.is_some() {
        check_pseudo_views(&dataset, &from.join(PSEUDO_VIEWS)).map_err(|problem| {
            DataError(format!(
                "{problem}. The run was trained with these renders: restore them, or go on with photographs alone with \
                 --ensemble 0"
            ))
        })?;
    }
    Ok(dataset)
}

/// Settles the options of the final model after its ensemble. Returns the seconds of the ensemble, or `None` if the run
/// was stopped. `before`: the options before limits of passes followed from the training views.
pub(super) fn settle_ensemble(
    config: &mut Config,
    done: Ensemble,
    before: &Config,
    photographs: &Dataset,
    is_typed: bool,
) -> Option<f64> {
    match done {
        Ensemble::Stopped => None,
        Ensemble::Drawn { models, seconds } => {
            config.optimize.ensemble = models;
            config.learn_from_renders(before);
            Some(seconds)
        }
        Ensemble::TooShort { seconds } => {
            if is_typed {
                tracing::warn!("--ensemble has no effect: --time-budget is too short for it");
            }
            *config = config.with_passes_of(before);
            config.optimize.ensemble = 0;
            settle_passes(config, photographs.train.len(), photographs.train_pixels());
            Some(seconds)
        }
    }
}

/// Keeps the number of models of a run that goes on. 0 leaves its renders out.
fn keep_ensemble(before: &Config, now: &mut Config, is_typed: bool) {
    let [had, wanted] = [before, &*now].map(|config| config.optimize.ensemble);
    if wanted != 0 && wanted != had {
        if is_typed {
            tracing::warn!(
                "--ensemble {wanted} has no effect: the ensemble of {had} is already trained"
            );
        }
        now.optimize.ensemble = had;
    }
}

/// Keeps the number of images of a run that goes on without its pseudo-views, since fewer views make a pass. Limits that
/// have changed since stay, and those of a run with a clock, which are no numbers of images.
fn keep_length(before: &Config, now: &mut Config, dataset: &Dataset) {
    if now.optimize.time_budget.is_some() {
        return;
    }
    let photographs = dataset.train.len();
    let all = photographs + Dataset::pseudo_views_of(photographs);
    let (before, now) = (&before.optimize, &mut now.optimize);
    for (passes, before) in
        [(&mut now.min_passes, before.min_passes), (&mut now.max_passes, before.max_passes)]
    {
        let images = u64::from(before) * all as u64;
        if *passes == before {
            *passes = u32::try_from(images.div_ceil(photographs.max(1) as u64)).unwrap_or(u32::MAX);
        }
    }
}

/// Copies the renders of a run that goes on in another folder, and checks the copies.
pub(super) fn copy_pseudo_views(dataset: &Dataset, from: &Path, to: &Path) -> anyhow::Result<()> {
    let [from, to] = [from, to].map(|model| model.join(PSEUDO_VIEWS));
    create_folder(&to)?;
    let renders =
        dataset.pseudo.iter().filter_map(|&index| dataset.sources[index].path.file_name());
    for name in renders.chain([OsStr::new(CAMERAS)]).filter(|_| from != to) {
        let copy = to.join(name);
        fs::copy(from.join(name), &copy).map_err(|source| OutputError::new(&copy, source))?;
    }
    Ok(check_pseudo_views(dataset, &to).map_err(DataError)?)
}

/// Returns the absolute path of the model folder that a checkpoint belongs to.
pub(super) fn model_of_checkpoint(checkpoint: &Path) -> PathBuf {
    absolute(checkpoint).ancestors().nth(2).unwrap_or(Path::new("")).to_owned()
}
