//! Meshes as PLY files.

use std::io::{self, Write};

use super::write::{byte_of, valid};
use crate::mesh::Mesh;

/// Writes a mesh as binary little-endian PLY: places and normals `float`, colours `uchar`, faces
/// `list uchar int vertex_indices`. `out` should be buffered.
pub fn write_ply(out: &mut dyn Write, mesh: &Mesh) -> io::Result<()> {
    valid(mesh)?;
    writeln!(out, "ply\nformat binary_little_endian 1.0\nelement vertex {}", mesh.vertices.len())?;
    let columns = |out: &mut dyn Write, kind: &str, names: [&str; 3]| {
        names.iter().try_for_each(|name| writeln!(out, "property {kind} {name}"))
    };
    columns(out, "float", ["x", "y", "z"])?;
    if !mesh.normals.is_empty() {
        columns(out, "float", ["nx", "ny", "nz"])?;
    }
    if !mesh.colors.is_empty() {
        columns(out, "uchar", ["red", "green", "blue"])?;
    }
    writeln!(out, "element face {}", mesh.faces.len())?;
    out.write_all(b"property list uchar int vertex_indices\nend_header\n")?;
    for (vertex, place) in mesh.vertices.iter().enumerate() {
        let floats = place.iter().chain(mesh.normals.get(vertex).into_iter().flatten());
        for float in floats {
            out.write_all(&float.to_le_bytes())?;
        }
        if let Some(color) = mesh.colors.get(vertex) {
            out.write_all(&color.map(byte_of))?;
        }
    }
    for face in &mesh.faces {
        let mut row = [3; 13];
        for (bytes, vertex) in row[1..].chunks_exact_mut(4).zip(face) {
            bytes.copy_from_slice(&vertex.to_le_bytes());
        }
        out.write_all(&row)?;
    }
    Ok(())
}
