//! What can go wrong with an output.

use std::io;
use std::path::Path;

/// An output that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path}: cannot be written: {source}. Check the free space and the permissions of the folder"
)]
pub struct OutputError {
    path: String,
    #[source]
    source: io::Error,
}

impl OutputError {
    /// The error of writing `path`.
    pub fn new(path: &Path, source: io::Error) -> Self {
        Self { path: path.display().to_string(), source }
    }

    /// The file or folder that cannot be written.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether it cannot be written because the disk, or what the user may have of it, is full.
    pub fn is_for_space(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self.source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    }
}
