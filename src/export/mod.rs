//! Files that a run writes for other programs: the PLY of Gaussians and the files beside it. `splat export` writes the
//! formats of `crates/formats`.
//!
//! Adding the offset of a file to its coordinates gives scene coordinates. The PLYs that a run writes name the offset
//! in a comment, `offset X Y Z`. Files of other kinds (and PLYs of meshes) have a
//! small file beside them, `NAME.offset.json`. Files without either are in scene coordinates.

mod inria;
mod ply;
mod splats;

use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use splat_mesh::file::ply::PlyHeader;

use crate::dataset::Frame;
use crate::files::{JsonFault, OutputError, remove_if_there, write_text};
use crate::math::linalg::Vec3;

pub use inria::{
    CAMERAS_JSON, StoredCamera, remove_exposure_json, write_cameras_json, write_cfg_args,
    write_exposure_json,
};
pub use ply::{
    ColumnRange, FilterField, FlatField, Meaning, NewPly, PlyError, PlyFacesError, PlyField,
    PlyModel, PlyRows, PlyStyle, PlyTriangles, RenderMode, StoredWindow, VertexFields, read_ply,
    read_ply_model, read_ply_primitive, read_ply_rows, write_ply, write_ply_chunks,
    write_ply_triangles,
};
pub use splats::{coloured_mesh, gaussians_of, splats_of};

const SIDECAR_SUFFIX: &str = ".offset.json";

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct StoredOffset {
    offset: Vec3<f64>,
}

/// A sidecar cannot be read as an offset.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}. Restore it, or write {{\"offset\": [0, 0, 0]}} for scene coordinates")]
pub struct OffsetError {
    path: PathBuf,
    problem: String,
}

/// Returns the path of a file's sidecar.
pub fn offset_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(SIDECAR_SUFFIX);
    path.with_file_name(name)
}

/// Returns the coordinates of a file of Gaussians, points or triangles.
pub fn frame_of_file(path: &Path) -> Result<Frame, OffsetError> {
    let comment_offset = offset_in_ply(path);
    if comment_offset != [0.0; 3] {
        return Ok(Frame::of_file(comment_offset));
    }
    let sidecar = offset_path(path);
    let fail = |problem: String| OffsetError { path: sidecar.clone(), problem };
    let text = match fs::read_to_string(&sidecar) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Frame::SCENE),
        read => read.map_err(|error| fail(error.to_string()))?,
    };
    let StoredOffset { offset } = serde_json::from_str(&text)
        .map_err(|error| fail(JsonFault::new(text.as_bytes(), &error).to_string()))?;
    if !offset.iter().all(|x| x.is_finite()) {
        return Err(fail(format!("the offset {offset:?} is not finite")));
    }
    Ok(Frame::of_file(offset))
}

/// Returns the offset in the header of a PLY. Its reader reports a file that cannot be read.
fn offset_in_ply(path: &Path) -> Vec3<f64> {
    let Ok((file, _)) = crate::ply::open(path) else { return [0.0; 3] };
    PlyHeader::read(&mut BufReader::new(file)).map_or([0.0; 3], |header| header.offset())
}

/// Writes a file's sidecar, or removes an earlier one if there is no offset.
pub fn write_offset(path: &Path, frame: &Frame) -> Result<(), OutputError> {
    let sidecar = offset_path(path);
    let Frame { offset, .. } = *frame;
    if offset != [0.0; 3] {
        let text = serde_json::to_string(&StoredOffset { offset })
            .map_err(|error| OutputError::new(&sidecar, io::Error::other(error)))?;
        return write_text(&sidecar, &(text + "\n"));
    }
    remove_if_there(&sidecar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_stored_in_a_comment_or_a_sidecar() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.spz");
        assert_eq!(frame_of_file(&path).unwrap(), Frame::SCENE);
        let frame = Frame::of_file([500_000.0, -0.1, 1.0 / 3.0]);
        write_offset(&path, &frame).unwrap();
        assert_eq!(frame_of_file(&path).unwrap(), frame);
        let ply = folder.path().join("a.ply");
        let comments = ["offset 1e6 -2.5 0", "offset 1 2", "offset 1 2 x", "my offset 1 2 3"];
        for (comment, x) in comments.into_iter().zip([1e6, 0.0, 0.0, 0.0]) {
            let text = format!(
                "ply\nformat ascii 1.0\ncomment {comment}\nelement vertex 0\nproperty float x\nend_header\n"
            );
            fs::write(&ply, text).unwrap();
            assert_eq!(frame_of_file(&ply).unwrap().offset[0], x, "{comment}");
        }
        fs::write(offset_path(&path), "{\"offset\": [1, 2]}").unwrap();
        let error = frame_of_file(&path).unwrap_err().to_string();
        assert!(error.contains("a.spz.offset.json"), "{error}");
        write_offset(&path, &Frame::SCENE).unwrap();
        assert_eq!(frame_of_file(&path).unwrap(), Frame::SCENE);
    }
}
