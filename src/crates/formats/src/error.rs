//! Files that cannot be read as Gaussians, and Gaussians that cannot be written.

use std::io;
use std::path::{Path, PathBuf};

use crate::fault::FormatFault;
use crate::glb::GlbError;
use crate::html::HtmlError;
use crate::sog::SogError;
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
