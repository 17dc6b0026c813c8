//! Weights of LPIPS: those that the command line names, or those of an earlier run.

use std::path::Path;

use super::exit::UsageError;
use crate::perceptual::LpipsWeights;

/// Where weights may be.
pub(super) struct Sources<'a> {
    /// The file that is named.
    pub(super) named: Option<&'a Path>,
    /// The file that an earlier run was given, and which may have gone since.
    pub(super) earlier: Option<&'a Path>,
    /// Whether LPIPS is insisted on.
    pub(super) insists: bool,
}

/// Reads the weights, if there are any. Who insists on LPIPS has to name some.
pub(super) fn weights(sources: &Sources<'_>) -> anyhow::Result<Option<LpipsWeights>> {
    let path = match (sources.named, sources.earlier) {
        (None, Some(path)) if !sources.insists && !path.exists() => {
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
        None if sources.insists => Err(UsageError(
            "--enable-lpips: LPIPS is measured with a network whose weights are not part of this \
             program. Name a file of them with --lpips-weights FILE; \"How results are measured\" in \
             the README has the five lines of Python that make it"
                .to_owned(),
        )
        .into()),
        None => Ok(None),
    }
}
