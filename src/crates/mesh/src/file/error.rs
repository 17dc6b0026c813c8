//! Files that cannot be read as meshes, and meshes that no file can hold.

use std::io;
use std::path::{Path, PathBuf};

use crate::mesh::MeshError;

/// A file that cannot be read as a mesh, or a mesh that does not fit a file.
#[derive(Debug, thiserror::Error)]
pub enum MeshFileError {
    /// The system refuses it.
    #[error("{path}: cannot be read: {source}. Check the path and its permissions")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A line of text, of a header or of an OBJ, is not what the format allows.
    #[error("{path}, line {line}: {found}. Export the mesh again, or name another file")]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong there.
        found: String,
    },
    /// The content is not what the header announces.
    #[error("{path}, {element} {row}: {found}. Copy or export the mesh again")]
    Row {
        /// The file.
        path: PathBuf,
        /// Element of the header.
        element: String,
        /// Row of it, from 0.
        row: u64,
        /// What is wrong there.
        found: String,
    },
    /// There is no surface in it.
    #[error("{path}: holds no {what}: name a file with a surface, not points alone")]
    Nothing {
        /// The file.
        path: PathBuf,
        /// `faces` or `vertices`.
        what: &'static str,
    },
    /// A GLB where the mesh alone is wanted.
    #[error("{path}: a GLB is written here, but not read. Name the same mesh as PLY or OBJ")]
    UnreadGlb {
        /// The file.
        path: PathBuf,
    },
    /// A GLB that is not what this program writes.
    #[error("{path}: {found}. Name a GLB that splat mesh has written, or a PLY")]
    Glb {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        found: String,
    },
    /// The content is no mesh.
    #[error("{path}: {source}")]
    Mesh {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: MeshError,
    },
    /// A GLB counts its bytes in 32 bits.
    #[error(
        "a GLB holds {limit} bytes at most, but this mesh needs {needed}: decimate it, make its \
         texture smaller or write PLY or OBJ"
    )]
    TooLarge {
        /// Bytes of the file.
        needed: u64,
        /// Bytes that it may have.
        limit: u64,
    },
    /// Texture coordinates and faces do not match.
    #[error(
        "the atlas has {found} faces, the mesh {faces}: make the atlas of the mesh that is written"
    )]
    OtherAtlas {
        /// Faces of the atlas.
        found: usize,
        /// Faces of the mesh.
        faces: usize,
    },
    /// The mesh to be written is none.
    #[error("the mesh cannot be written: {0}")]
    Invalid(#[from] MeshError),
}

impl MeshFileError {
    pub(super) fn unreadable(path: &Path, source: io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), source }
    }

    pub(super) fn line(path: &Path, line: usize, found: String) -> Self {
        Self::Line { path: path.to_owned(), line, found }
    }
}
