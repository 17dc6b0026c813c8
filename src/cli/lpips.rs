//! Choice of the LPIPS weights: from the command line, an earlier run, or a usual place.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ArgMatches;

use super::exit::UsageError;
use super::parser::is_typed;
use crate::config::MetricSet;
use crate::perceptual::{
    LpipsNet, LpipsWeights, WEIGHTS_VARIABLE, WeightsSearch, named_by_environment,
};

/// Error context of weights that an earlier run recorded.
const RUN_WEIGHTS: &str = "the weights that the run was given (another file: --lpips-weights)";

/// Inputs of the choice.
pub(super) struct Sources<'a> {
    /// File that the user names.
    pub(super) named: Option<&'a Path>,
    /// File of an earlier run. It may no longer exist.
    pub(super) earlier: Option<&'a Path>,
    pub(super) demand: LpipsDemand,
    pub(super) metrics: MetricSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LpipsDemand {
    /// `--enable-lpips`: missing weights are an error.
    Required,
    /// Measured if there are weights.
    IfPossible,
    /// `--enable-lpips false`: not measured.
    Never,
}

impl LpipsDemand {
    /// Returns the demand of `--enable-lpips`, typed or from a configuration file.
    pub(super) fn of(enabled: bool, matches: &ArgMatches) -> Self {
        match (enabled, is_typed(matches, "enable_lpips")) {
            (true, _) => Self::Required,
            (false, true) => Self::Never,
            (false, false) => Self::IfPossible,
        }
    }
}

/// Reads the weights, if any. Usual places are searched only if LPIPS is requested.
pub(super) fn weights(sources: &Sources<'_>) -> anyhow::Result<Option<LpipsWeights>> {
    let weights = match sources.demand {
        LpipsDemand::Never => return Ok(None),
        _ => choose(sources)?,
    };
    let with_reference = sources.metrics == MetricSet::Reference;
    match &weights {
        Some(weights) if with_reference && weights.net() != LpipsNet::Vgg => tracing::warn!(
            "--metrics reference: metrics.py measures LPIPS by VGG16, and {} holds weights of \
             AlexNet; there is no LPIPS of the reference",
            lpips_in_words(weights.files())
        ),
        None if with_reference => tracing::warn!(
            "--metrics reference: without LPIPS, for which there are no weights. {}",
            weights_advice(&WeightsSearch::run())
        ),
        _ => {}
    }
    Ok(weights)
}

fn choose(sources: &Sources<'_>) -> anyhow::Result<Option<LpipsWeights>> {
    let is_required = sources.demand == LpipsDemand::Required;
    if let Some(path) = sources.named {
        return Ok(Some(LpipsWeights::read(path).context("--lpips-weights")?));
    }
    if let Some(path) = sources.earlier.filter(|path| path.exists()) {
        return Ok(Some(LpipsWeights::read(path).context(RUN_WEIGHTS)?));
    }
    if let Some(path) = named_by_environment() {
        let weights = LpipsWeights::read(&path).context(WEIGHTS_VARIABLE)?;
        tracing::debug!(
            "{WEIGHTS_VARIABLE}: LPIPS is measured with {}",
            lpips_in_words(weights.files())
        );
        return Ok(Some(weights));
    }
    let is_requested = is_required || sources.metrics == MetricSet::Reference;
    let search = if is_requested { WeightsSearch::run() } else { WeightsSearch::default() };
    if let Some(path) = &search.found {
        let weights = LpipsWeights::read(path)?;
        tracing::debug!("LPIPS is measured with {}", lpips_in_words(weights.files()));
        return Ok(Some(weights));
    }
    match sources.earlier {
        Some(path) if is_required => Ok(Some(LpipsWeights::read(path).context(RUN_WEIGHTS)?)),
        Some(path) => {
            tracing::warn!(
                "the weights of LPIPS that the run was given are no longer at {}: LPIPS is not \
                 measured. Name them with --lpips-weights",
                path.display()
            );
            Ok(None)
        }
        None if is_required => Err(UsageError(format!(
            "--enable-lpips: there are no weights of LPIPS. {}",
            weights_advice(&search)
        ))
        .into()),
        None => Ok(None),
    }
}

pub(super) fn weights_advice(search: &WeightsSearch) -> String {
    // The heads of a network come from the `lpips` package.
    let Some(network) = &search.without_heads else {
        return format!(
            "Name a file with --lpips-weights FILE or {WEIGHTS_VARIABLE}. Files, folders and a script: splat help \
             measuring"
        );
    };
    let name = network.file_name().unwrap_or_default().to_string_lossy();
    let heads = if name.starts_with("vgg") { "vgg.pth" } else { "alex.pth" };
    format!(
        "{} is the network alone: copy {heads} of the lpips package (lpips/weights/v0.1) beside it",
        network.display()
    )
}

/// Joins paths for a sentence.
pub(super) fn lpips_in_words(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(" and ")
}
