//! Errors of reading and writing files of Gaussians.

use std::io;
use std::path::{Path, PathBuf};

use splat_mesh::file::ply::{HeaderFault, PlyFault};
use splat_mesh::file::{GlbFault, Truncated};

use crate::glb::GlbError;
use crate::html::HtmlError;
use crate::place::PlacementError;
use crate::sog::SogError;
use crate::splats::SplatsError;
use crate::spz::SpzOptionsError;

/// Error of reading or writing a file of Gaussians.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SplatFileError {
    #[error("{path}: cannot be read: {source}. Check the path and its permissions")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path}: {fault}")]
    Content {
        path: PathBuf,
        #[source]
        fault: FormatFault,
    },
    #[error(
        "{path}: has an unknown format. Give a .ply, .compressed.ply, .splat, .ksplat, .spz, .sog or .glb, or a \
         folder with meta.json or lod-meta.json"
    )]
    Unknown { path: PathBuf },
    #[error(
        "{path}: cannot be written: {source}. Check the free space and the permissions of the \
         folder"
    )]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("{path}: {source}")]
    Spz { path: PathBuf, source: SpzOptionsError },
    #[error("{path}: {source}")]
    Sog { path: PathBuf, source: SogError },
    #[error("{path}: {source}")]
    Glb { path: PathBuf, source: GlbError },
    #[error("{path}: {source}")]
    Html { path: PathBuf, source: HtmlError },
}

impl SplatFileError {
    pub(crate) fn unreadable(path: &Path, source: io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), source }
    }

    pub(crate) fn unwritable(path: &Path, source: io::Error) -> Self {
        Self::Unwritable { path: path.to_owned(), source }
    }

    pub(crate) fn content(path: &Path, fault: FormatFault) -> Self {
        match fault {
            FormatFault::Unreadable(source) => Self::unreadable(path, source),
            fault => Self::Content { path: path.to_owned(), fault },
        }
    }
}

/// Fault of the bytes of a file, without the file's name.
#[derive(Debug, thiserror::Error)]
pub enum FormatFault {
    /// The system cannot continue reading.
    #[error("cannot be read: {0}. Check the path and its permissions")]
    Unreadable(#[source] io::Error),
    /// The bytes are not valid.
    #[error("{0}. Copy or export the file again")]
    Damaged(String),
    /// The format or feature is not supported.
    #[error("{0}")]
    Unsupported(String),
}

impl FormatFault {
    /// Returns a fault of invalid content.
    pub(crate) fn damaged(found: impl Into<String>) -> Self {
        Self::Damaged(found.into())
    }
}

/// Fails because of invalid content.
pub(crate) fn damaged<T>(found: impl Into<String>) -> Result<T, FormatFault> {
    Err(FormatFault::damaged(found))
}

impl From<io::Error> for FormatFault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::damaged("is truncated"),
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                Self::damaged(format!("is damaged: {error}"))
            }
            _ => Self::Unreadable(error),
        }
    }
}

impl From<Truncated> for FormatFault {
    fn from(fault: Truncated) -> Self {
        Self::damaged(fault.to_string())
    }
}

impl From<GlbFault> for FormatFault {
    fn from(fault: GlbFault) -> Self {
        match fault {
            GlbFault::Version(_) => Self::Unsupported(fault.to_string()),
            _ => Self::damaged(fault.to_string()),
        }
    }
}

impl From<HeaderFault> for FormatFault {
    fn from(HeaderFault { line, fault }: HeaderFault) -> Self {
        match fault {
            PlyFault::Unreadable(error) => error.into(),
            PlyFault::Found(found) => Self::damaged(format!("line {line}, {found}")),
        }
    }
}

impl From<PlacementError> for FormatFault {
    fn from(error: PlacementError) -> Self {
        Self::damaged(error.to_string())
    }
}

impl From<SplatsError> for FormatFault {
    fn from(error: SplatsError) -> Self {
        Self::damaged(error.to_string())
    }
}
