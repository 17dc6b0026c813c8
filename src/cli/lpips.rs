//! Weights of LPIPS: those that the command line names, or those of an earlier run.

use std::path::Path;

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::exit::UsageError;
use crate::perceptual::LpipsWeights;

/// Where weights may be.
pub(super) struct Sources<'a> {
    /// The file that is named.
    pub(super) named: Option<&'a Path>,
    /// The file that an earlier run was given, and which may have gone since.
    pub(super) earlier: Option<&'a Path>,
    /// Whether LPIPS is to be measured.
    pub(super) demand: LpipsDemand,
}

/// Whether LPIPS is to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LpipsDemand {
    /// `--enable-lpips`: without weights, the command fails.
    Required,
    /// If there are weights.
    IfPossible,
    /// `--enable-lpips false`: whatever weights there are.
    Never,
}

impl LpipsDemand {
    /// What `--enable-lpips` says, or a configuration file where the flag is not typed.
    pub(super) fn of(enabled: bool, matches: &ArgMatches) -> Self {
        let is_typed = matches.value_source("enable_lpips") == Some(ValueSource::CommandLine);
        match (enabled, is_typed) {
            (true, _) => Self::Required,
            (false, true) => Self::Never,
            (false, false) => Self::IfPossible,
        }
    }
}

/// Reads the weights, if there are any. Who requires LPIPS has to name some.
pub(super) fn weights(sources: &Sources<'_>) -> anyhow::Result<Option<LpipsWeights>> {
    let is_required = match sources.demand {
        LpipsDemand::Never => return Ok(None),
        LpipsDemand::IfPossible => false,
        LpipsDemand::Required => true,
    };
    let path = match (sources.named, sources.earlier) {
        (None, Some(path)) if !is_required && !path.exists() => {
            tracing::warn!(
                "the weights of LPIPS that the run was given are no longer at {}: LPIPS is not \
                 measured. Name them with --lpips-weights",
                path.display()
            );
            return Ok(None);
        }
        (named, earlier) => named.or(earlier),
    };
    match path {
        Some(path) => Ok(Some(LpipsWeights::read(path)?)),
        None if is_required => Err(UsageError(
            "--enable-lpips: LPIPS is measured with a network whose weights are not part of this \
             program. Name a file of them with --lpips-weights FILE; \"How results are measured\" in \
             the README has the five lines of Python that make it"
                .to_owned(),
        )
        .into()),
        None => Ok(None),
    }
}
