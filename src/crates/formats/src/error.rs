//! Files that cannot be read as Gaussians, and Gaussians that cannot be written.

use std::io;
use std::path::{Path, PathBuf};

use splat_mesh::file::GlbFault;
use splat_mesh::file::ply::{HeaderFault, PlyFault};

use crate::glb::GlbError;
use crate::html::HtmlError;
use crate::sog::SogError;
use crate::splats::SplatsError;
use crate::spz::SpzOptionsError;

/// A file of Gaussians that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SplatFileError {
    /// The system refuses it.
    #[error("{path}: cannot be read: {source}. Check the path and its permissions")]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// It is not what its format allows.
    #[error("{path}: {fault}")]
    Content {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        fault: FormatFault,
    },
    /// Neither its content nor its name tells a format.
    #[error(
        "{path}: has an unknown format. Give a .ply, .compressed.ply, .splat, .ksplat, .spz, .sog or .glb, or a \
         folder with meta.json or lod-meta.json"
    )]
    Unknown {
        /// The file or folder.
        path: PathBuf,
    },
    /// The system refuses to write it.
    #[error(
        "{path}: cannot be written: {source}. Check the free space and the permissions of the \
         folder"
    )]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// SPZ cannot hold the Gaussians.
    #[error("{path}: {source}")]
    Spz {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: SpzOptionsError,
    },
    /// SOG cannot hold the Gaussians.
    #[error("{path}: {source}")]
    Sog {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: SogError,
    },
    /// GLB cannot hold the Gaussians.
    #[error("{path}: {source}")]
    Glb {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: GlbError,
    },
    /// No page can be made of the Gaussians.
    #[error("{path}: {source}")]
    Html {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: HtmlError,
    },
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

// What is wrong with the bytes of a file.

/// Why bytes are no Gaussians: an error without the name of the file, which whoever opened it knows.
#[derive(Debug, thiserror::Error)]
pub enum FormatFault {
    /// The system refuses to read on.
    #[error("cannot be read: {0}. Check the path and its permissions")]
    Unreadable(#[source] io::Error),
    /// The bytes are not what the format allows.
    #[error("{0}. Copy or export the file again")]
    Damaged(String),
    /// The format, or this part of it, is not one that is read here.
    #[error("{0}")]
    Unsupported(String),
}

impl FormatFault {
    /// Content that is not what it should be.
    pub(crate) fn damaged(found: impl Into<String>) -> Self {
        Self::Damaged(found.into())
    }

    /// Content that ends before it should.
    pub(crate) fn truncated(what: &str, needed: u64, found: u64) -> Self {
        Self::Damaged(format!("is truncated: {what} needs {needed} bytes, but there are {found}"))
    }
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

impl From<SplatsError> for FormatFault {
    fn from(error: SplatsError) -> Self {
        Self::damaged(error.to_string())
    }
}
