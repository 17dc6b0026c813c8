//! What is supervised.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The ranks of one host: one program in several processes.
#[derive(Clone, Debug)]
pub struct Supervised {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, the same for all ranks.
    pub args: Vec<OsString>,
    /// Variables that are added to the environment of all ranks. Those that tell a rank its place
    /// cannot be set.
    pub env: Vec<(OsString, OsString)>,
    /// Number of ranks, at least 2: one alone would look for no supervisor.
    pub world: u32,
    /// Time for the others to end by themselves when one is gone; then they are killed.
    pub grace: Duration,
}
