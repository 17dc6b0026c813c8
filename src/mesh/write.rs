//! Meshes as files.

use std::io;
use std::path::{Path, PathBuf};

use splat_mesh::Mesh;
use splat_mesh::file::{Glb, ObjTexture, write_mtl, write_obj, write_ply};

use super::{MeshFormat, MeshTexture};
use crate::dataset::Frame;
use crate::export::write_offset;
use crate::files::{OutputError, write_atomically};
use crate::math::Real;

/// Which files of a mesh are written.
#[derive(Clone, Copy, Debug)]
pub struct MeshFiles<'a> {
    /// Formats, however often each is named.
    pub formats: &'a [MeshFormat],
    /// Coordinates of the vertices, which the files keep.
    pub frame: &'a Frame,
}

/// Writes `FOLDER/STEM.EXTENSION` for each format, however often it is named, each whole or not at all, a
/// textured OBJ after its MTL and PNG; their paths.
pub fn write_mesh(
    folder: &Path,
    stem: &str,
    files: &MeshFiles<'_>,
    mesh: &Mesh,
    texture: Option<&MeshTexture>,
) -> Result<Vec<PathBuf>, OutputError> {
    let MeshFiles { formats, frame } = *files;
    let path_of = |extension| folder.join(stem).with_extension(extension);
    let png_path = path_of("png");
    let png = texture
        .map(|texture| texture.picture.png())
        .transpose()
        .map_err(|error| OutputError::new(&png_path, error.into()))?;
    let textured = texture.map(|texture| &texture.atlas).zip(png.as_deref());
    let mut written = Vec::new();
    for (place, &format) in formats.iter().enumerate() {
        if formats[..place].contains(&format) {
            continue;
        }
        let path = path_of(format.extension());
        match (format, textured) {
            (MeshFormat::Ply, _) => write_atomically(&path, |out| write_ply(out, mesh))?,
            (MeshFormat::Glb, _) => {
                let refused = |error| OutputError::new(&path, io::Error::other(error));
                let glb = Glb::new(mesh, textured).map_err(refused)?;
                write_atomically(&path, |out| glb.write(out))?;
            }
            (MeshFormat::Obj, None) => write_atomically(&path, |out| write_obj(out, mesh, None))?,
            (MeshFormat::Obj, Some((atlas, png))) => {
                let mtl_path = path_of("mtl");
                write_atomically(&png_path, |out| out.write_all(png))?;
                write_atomically(&mtl_path, |out| write_mtl(out, &format!("{stem}.png")))?;
                let mtl_name = format!("{stem}.mtl");
                let texture = Some(ObjTexture { atlas, mtl_name: &mtl_name });
                write_atomically(&path, |out| write_obj(out, mesh, texture))?;
                written.extend([mtl_path, png_path.clone()]);
            }
        }
        write_offset(&path, frame)?;
        written.push(path);
    }
    Ok(written)
}

/// Converts the vertices of a mesh between coordinates.
pub fn convert_mesh(mesh: &mut Mesh, from: &Frame, to: &Frame) {
    if from != to {
        for vertex in &mut mesh.vertices {
            *vertex = from.to(to, vertex.map(f64::from)).map(Real::to_f32);
        }
    }
}
