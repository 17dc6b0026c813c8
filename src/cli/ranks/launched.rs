//! What has started this process.

use splat_ranks::launch::{Launch, detect};

use super::super::exit::UsageError;

/// Whether a launcher has started several processes, of which this is one.
pub(in crate::cli) fn is_launched() -> bool {
    launched().is_ok_and(|launch| launch.is_some())
}

/// This process's place among those that a launcher has started.
pub(super) fn launched() -> Result<Option<Launch>, UsageError> {
    detect(&|name| std::env::var(name).ok()).map_err(|error| UsageError(error.to_string()))
}
