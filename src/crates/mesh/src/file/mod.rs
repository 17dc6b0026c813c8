//! Files of meshes: PLY, OBJ and GLB, read and written; of GLB, what is written here is read.
//!
//! Writers take a place to write to and fail as that fails, or with
//! [`InvalidInput`](std::io::ErrorKind::InvalidInput) where the mesh is none; whoever calls them
//! gives them a file that replaces the old one when all is written.

mod error;
mod glb;
mod mesh_ply;
mod obj;
mod picture;
pub mod ply;

use std::io;
use std::path::Path;

pub use error::MeshFileError;
pub use glb::{
    GLB_MAGIC, Glb, GlbChunks, GlbFault, MOST_GLB_BYTES, MeshPicture, PaintedMesh, glb_bytes,
    json_chunk, read_glb, write_chunks,
};
pub use mesh_ply::{parse_ply, read_ply, write_ply};
pub use obj::{ObjTexture, parse_obj, read_obj, write_mtl, write_obj};
pub use picture::{Picture, PictureError};

use crate::mesh::Mesh;
use crate::mesh::check_mesh;

/// Reads a mesh: OBJ where the name says so, else PLY. GLB is read by [`read_glb`].
pub fn read_mesh(path: &Path) -> Result<Mesh, MeshFileError> {
    let is = |kind| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(kind));
    if is("glb") {
        return Err(MeshFileError::UnreadGlb { path: path.to_owned() });
    }
    if is("obj") { read_obj(path) } else { read_ply(path) }
}

/// Returns the mesh's fault as an error of writing.
fn valid(mesh: &Mesh) -> io::Result<()> {
    check_mesh(mesh).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// A colour of 0 to 1 in 255 steps.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn byte_of(channel: f32) -> u8 {
    (channel * 255.0).round() as u8
}
