//! A file in memory.

use crate::worst::WorstErrors;

/// The bytes of a file, and how far from the Gaussians it is.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedSplats {
    /// The file.
    pub bytes: Vec<u8>,
    /// What reading it gives, against what was to be written.
    pub worst: WorstErrors,
}
