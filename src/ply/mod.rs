//! What all PLY files share: the header, the types of columns and where these lie in a row.
//!
//! Which columns are wanted and what they mean is the business of those who read them: points of
//! a scene in `dataset`, Gaussians in `export`.

mod header;
mod scalar;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

pub use header::{Column, Header};
pub use scalar::Scalar;

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
        /// Bytes behind the header.
        found: u64,
    },
}

impl PlyFileError {
    /// The system's refusal of `path`.
    pub fn unreadable(path: &Path, source: io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), source }
    }
}

/// Opens a file and tells its length in bytes.
pub fn open(path: &Path) -> Result<(File, u64), PlyFileError> {
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (length, file) = opened.map_err(|source| PlyFileError::unreadable(path, source))?;
    Ok((file, length))
}
