//! What is wrong with the bytes of a file.

use std::io;

use splat_mesh::file::GlbFault;
use splat_mesh::file::ply::{HeaderFault, PlyFault};

use crate::splats::SplatsError;

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
