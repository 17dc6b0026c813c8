//! How runs of several processes fail.

use splat_ranks::join::JoinError;
use splat_ranks::link::Departure;

/// A rank of the run ended, and has said why.
#[derive(Debug, thiserror::Error)]
#[error("a process of the run ended with exit code {0}, as it says above")]
pub(in crate::cli) struct EndedRank(pub(in crate::cli) u8);

/// The ranks do not come together.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub(in crate::cli) struct NoParty {
    #[source]
    pub(in crate::cli) source: JoinError,
}

/// A rank died.
#[derive(Debug, thiserror::Error)]
#[error(
    "{departure}. The other ranks are ended. The last checkpoint, if there is one, resumes the run: {command}"
)]
pub(in crate::cli) struct DeadRank {
    pub(super) departure: Departure,
    /// What continues the run.
    pub(super) command: String,
}

/// The user did not want to wait for the other ranks any longer.
#[derive(Debug, thiserror::Error)]
#[error("interrupted before all ranks had come together; nothing is trained")]
pub(in crate::cli) struct StoppedMeeting;
