//! Why ranks could not be started.

use std::io;
use std::path::PathBuf;

/// Why ranks could not be started. Those that were are ended.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// The program cannot be started.
    #[error("cannot start {program} as rank {rank}: {source}. Check the program's permissions", program = program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The rank.
        rank: u32,
        /// What the system says.
        source: io::Error,
    },
    /// The system refused something else.
    #[error(
        "cannot supervise ranks, since {what} failed: {source}. End other programs, or raise the limits (ulimit -a)"
    )]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}
