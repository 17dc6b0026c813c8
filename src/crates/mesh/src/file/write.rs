//! What all writers do to a mesh.

use std::io;

use crate::check::check_mesh;
use crate::mesh::Mesh;

/// The mesh's fault as an error of writing.
pub(super) fn valid(mesh: &Mesh) -> io::Result<()> {
    check_mesh(mesh).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// A colour of 0 to 1 in 255 steps.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
pub(super) fn byte_of(channel: f32) -> u8 {
    (channel * 255.0).round() as u8
}
