//! What all PLY files share: the header, the types of columns and where these lie in a row.
//!
//! Which columns are wanted and what they mean is the business of those who read them: points of
//! a scene in `dataset`, Gaussians in `export`.

mod error;
mod header;

use std::fs::File;
use std::path::Path;

pub use error::PlyFileError;
pub use header::{Header, LaterElement, PlyColumn, offset_of};
pub use splat_mesh::Scalar;

/// Warns of bytes after the last row of a binary file. The header may announce too few rows.
pub fn warn_of_rest(path: &Path, bytes: u64) {
    if bytes > 0 {
        tracing::warn!(
            "{}: {bytes} bytes after the last row are not read. If something is missing, write the file again",
            path.display()
        );
    }
}

/// Opens a file and returns its length in bytes.
pub fn open(path: &Path) -> Result<(File, u64), PlyFileError> {
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (length, file) = opened.map_err(|source| PlyFileError::unreadable(path, source))?;
    Ok((file, length))
}
