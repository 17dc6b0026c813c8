//! Files of meshes: PLY, OBJ and GLB, read and written; of GLB, what is written here is read.
//!
//! Writers take a place to write to and fail as that fails, or with
//! [`InvalidInput`](std::io::ErrorKind::InvalidInput) where the mesh is none; whoever calls them
//! gives them a file that replaces the old one when all is written.

mod error;
mod glb;
mod glb_read;
mod header;
mod obj_read;
mod obj_write;
mod picture;
mod ply_read;
mod ply_rows;
mod ply_write;
mod write;

use std::path::Path;

pub use error::MeshFileError;
pub use glb::Glb;
pub use glb_read::{MeshPicture, PaintedMesh, read_glb};
pub use header::{Element, Encoding, Header, Property};
pub use obj_read::{parse_obj, read_obj};
pub use obj_write::{ObjTexture, write_mtl, write_obj};
pub use picture::{Picture, PictureError};
pub use ply_read::{parse_ply, read_ply};
pub use ply_rows::{RowFault, RowReader};
pub use ply_write::write_ply;

use crate::mesh::Mesh;

/// Reads a mesh: OBJ where the name says so, else PLY. GLB is read by [`read_glb`].
pub fn read_mesh(path: &Path) -> Result<Mesh, MeshFileError> {
    let is = |kind| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(kind));
    if is("glb") {
        return Err(MeshFileError::UnreadGlb { path: path.to_owned() });
    }
    if is("obj") { read_obj(path) } else { read_ply(path) }
}
