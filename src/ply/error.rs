//! Files that cannot be read as PLY.

use std::io;
use std::path::{Path, PathBuf};

/// A file that cannot be read as PLY, whatever is in it.
#[derive(Debug, thiserror::Error)]
pub enum PlyFileError {
    /// The system refuses it.
    #[error("{path}: cannot be read: {source}. Check the path and its permissions")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The header is not that of a PLY with vertices.
    #[error(
        "{path}, line {line} of the header: {found}. Name another file, or copy or export this \
         one again as PLY"
    )]
    Header {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong there.
        found: String,
    },
    /// Fewer bytes than rows need.
    #[error(
        "{path}: is truncated: {rows} rows of {row_bytes} bytes are announced, but the file has \
         {found} bytes for them. Copy or export it again"
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Rows in the header.
        rows: u64,
        /// Bytes of a row.
        row_bytes: usize,
        /// Bytes after the header.
        found: u64,
    },
}

impl PlyFileError {
    /// The system's refusal of `path`.
    pub fn unreadable(path: &Path, source: io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), source }
    }
}
