//! Meshes as files.

use std::io;
use std::path::{Path, PathBuf};

use splat_mesh::Mesh;
use splat_mesh::file::{Glb, write_obj, write_ply};

use super::MeshFormat;
use crate::files::{OutputError, write_atomically};

/// Writes `FOLDER/STEM.EXTENSION`, whole or not at all; its path.
pub fn write_mesh(
    folder: &Path,
    stem: &str,
    format: MeshFormat,
    mesh: &Mesh,
) -> Result<PathBuf, OutputError> {
    let path = folder.join(stem).with_extension(format.extension());
    let refused = |error| OutputError::new(&path, io::Error::other(error));
    match format {
        MeshFormat::Ply => write_atomically(&path, |out| write_ply(out, mesh))?,
        MeshFormat::Obj => write_atomically(&path, |out| write_obj(out, mesh, None))?,
        MeshFormat::Glb => {
            let glb = Glb::new(mesh, None).map_err(refused)?;
            write_atomically(&path, |out| glb.write(out))?;
        }
    }
    Ok(path)
}
