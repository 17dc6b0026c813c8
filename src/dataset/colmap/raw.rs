//! Unchecked records of both formats, camera models, and errors.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};

use crate::dataset::camera::{Camera, Pose};
use crate::dataset::finder::{START_BYTES, other_content};
use crate::dataset::lens::{Distortion, Lens, LensError};
use crate::dataset::shot::{FARTHEST, PointCloud};
use crate::math::linalg::rotation;

pub(super) struct RawImage {
    pub(super) name: String,
    pub(super) camera: u32,
    /// `None` if the pose is not finite.
    pub(super) pose: Option<Pose>,
}

#[derive(Debug, Default)]
pub(super) struct Points {
    /// Finite points.
    pub(super) kept: PointCloud<f64>,
    /// Number of other points.
    pub(super) dropped: usize,
}

impl Points {
    /// Adds a point, or counts it as dropped if its coordinates are not finite. Returns false if it is implausibly
    /// far.
    #[must_use]
    pub(super) fn push(&mut self, position: [f64; 3], color: [u8; 3]) -> bool {
        if !position.iter().all(|x| x.is_finite()) {
            self.dropped += 1;
            return true;
        }
        if position.iter().any(|x| x.abs() > f64::from(FARTHEST)) {
            return false;
        }
        self.kept.positions.push(position);
        self.kept.colors.push(color);
        true
    }
}

/// Opens a file and returns its length. Fails if the content is a web page or a Git LFS pointer.
pub(super) fn open(path: &Path) -> Result<(File, u64), ColmapError> {
    let fail = |source| ColmapError::Unreadable { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(fail)?;
    let length = file.metadata().map_err(fail)?.len();
    let mut start = Vec::new();
    file.by_ref().take(START_BYTES).read_to_end(&mut start).map_err(fail)?;
    if let Some(found) = other_content(&start) {
        return Err(ColmapError::OtherContent { path: path.to_owned(), found });
    }
    file.rewind().map_err(fail)?;
    Ok((file, length))
}

/// Returns the pose from COLMAP's seven numbers (quaternion w, x, y, z, then translation); `None` if they are not
/// finite or the quaternion has no direction.
pub(super) fn pose(numbers: [f64; 7]) -> Option<Pose> {
    let [w, x, y, z, tx, ty, tz] = numbers;
    let pose = Pose { rotation: rotation([w, x, y, z]), translation: [tx, ty, tz] };
    let squared = w * w + x * x + y * y + z * z;
    let finite = pose.rotation.iter().flatten().chain(&pose.translation).all(|x| x.is_finite());
    (finite && squared.is_normal()).then_some(pose)
}

// COLMAP's camera models: names, numbers and parameters.

/// A camera of a COLMAP model.
#[derive(Clone, Debug, PartialEq)]
pub struct SolvedCamera {
    /// Camera model.
    pub model: &'static CameraModel,
    /// Width and height in px.
    pub size: [u64; 2],
    /// Parameters in the model's order.
    pub params: Vec<f64>,
}

/// A camera model of COLMAP.
#[derive(Debug, PartialEq, Eq)]
pub struct CameraModel {
    /// Number in binary files.
    pub id: i32,
    /// Name in text files.
    pub name: &'static str,
    /// Number of parameters.
    pub params: usize,
}

const fn model(id: i32, name: &'static str, params: usize) -> CameraModel {
    CameraModel { id, name, params }
}

pub(super) const PINHOLE: i32 = 1;

/// All models of COLMAP 4.2.
static MODELS: [CameraModel; 18] = [
    model(0, "SIMPLE_PINHOLE", 3),
    model(PINHOLE, "PINHOLE", 4),
    model(2, "SIMPLE_RADIAL", 4),
    model(3, "RADIAL", 5),
    model(4, "OPENCV", 8),
    model(5, "OPENCV_FISHEYE", 8),
    model(6, "FULL_OPENCV", 12),
    model(7, "FOV", 5),
    model(8, "SIMPLE_RADIAL_FISHEYE", 4),
    model(9, "RADIAL_FISHEYE", 5),
    model(10, "THIN_PRISM_FISHEYE", 12),
    model(11, "RAD_TAN_THIN_PRISM_FISHEYE", 16),
    model(12, "SIMPLE_DIVISION", 4),
    model(13, "DIVISION", 5),
    model(14, "SIMPLE_FISHEYE", 3),
    model(15, "FISHEYE", 4),
    model(16, "EUCM", 6),
    model(17, "EQUIRECTANGULAR", 2),
];

impl CameraModel {
    /// Returns the model with this number.
    pub fn by_id(id: i32) -> Option<&'static Self> {
        MODELS.iter().find(|model| model.id == id)
    }

    /// Returns the model with this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        MODELS.iter().find(|model| model.name == name)
    }
}

impl SolvedCamera {
    /// Returns the camera as a lens; `None` for unsupported models.
    pub fn lens(&self) -> Option<Result<Lens, LensError>> {
        let radial = |k: [f64; 6]| Distortion::brown(k, [0.0; 2]);
        let (focal_px, centre_px, distortion) = match (self.model.name, self.params.as_slice()) {
            ("SIMPLE_PINHOLE", &[f, cx, cy]) => ([f, f], [cx, cy], Distortion::NONE),
            ("PINHOLE", &[fx, fy, cx, cy]) => ([fx, fy], [cx, cy], Distortion::NONE),
            ("SIMPLE_RADIAL", &[f, cx, cy, k]) => {
                ([f, f], [cx, cy], radial([k, 0.0, 0.0, 0.0, 0.0, 0.0]))
            }
            ("RADIAL", &[f, cx, cy, k1, k2]) => {
                ([f, f], [cx, cy], radial([k1, k2, 0.0, 0.0, 0.0, 0.0]))
            }
            ("OPENCV", &[fx, fy, cx, cy, k1, k2, p1, p2]) => {
                let distortion = Distortion::brown([k1, k2, 0.0, 0.0, 0.0, 0.0], [p1, p2]);
                ([fx, fy], [cx, cy], distortion)
            }
            ("FULL_OPENCV", &[fx, fy, cx, cy, k1, k2, p1, p2, k3, k4, k5, k6]) => {
                let distortion = Distortion::brown([k1, k2, k3, k4, k5, k6], [p1, p2]);
                ([fx, fy], [cx, cy], distortion)
            }
            ("OPENCV_FISHEYE", &[fx, fy, cx, cy, k1, k2, k3, k4]) => {
                ([fx, fy], [cx, cy], Distortion::Fisheye([k1, k2, k3, k4]))
            }
            _ => return None,
        };
        // A size beyond u32 saturates and is rejected later.
        let [width, height] = self.size.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
        Some(Lens::new(Camera { width, height, focal_px, centre_px }, distortion))
    }
}

/// Error of a COLMAP model.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum ColmapError {
    #[error(
        "{folder}: holds neither {file}.bin nor {file}.txt. Export the model again with COLMAP \
         (`colmap model_converter`), all three files into one folder"
    )]
    Missing { folder: PathBuf, file: &'static str },
    #[error("{path}: cannot be read: {source}. Check that it is a file and its permissions")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path}: {found}")]
    OtherContent { path: PathBuf, found: &'static str },
    #[error(
        "{path}: ends inside {reading}: {needed} more bytes belong there, {left} are left. Copy \
         the file again, or export the model again with COLMAP"
    )]
    Truncated { path: PathBuf, reading: String, needed: u64, left: u64 },
    #[error(
        "{path}: {reading} {found}. The file is damaged or was not written by COLMAP: copy it \
         again, or export the model again with COLMAP"
    )]
    Invalid { path: PathBuf, reading: String, found: String },
    #[error(
        "{path}, line {line}: {found:?} stands where {expected} belongs. Correct the line, or \
         export the model again with COLMAP"
    )]
    Line { path: PathBuf, line: usize, found: String, expected: &'static str },
    #[error(
        "{path}: camera {camera} has the model {model}, which COLMAP 4.2 does not know. Export \
         the model again with COLMAP, or update splat if a newer COLMAP wrote it"
    )]
    UnknownModel { path: PathBuf, camera: u32, model: String },
    #[error(
        "{path}: camera {camera} has the unsupported model {model}. Train on the output of `colmap \
         image_undistorter`, or solve again with OPENCV or OPENCV_FISHEYE"
    )]
    UnsupportedModel { path: PathBuf, camera: u32, model: &'static str },
    #[error("{path}: camera {camera} ({model}): {source}")]
    Lens { path: PathBuf, camera: u32, model: &'static str, source: LensError },
    #[error("{path}: camera {camera} is listed twice. Export the model again with COLMAP")]
    DuplicateCamera { path: PathBuf, camera: u32 },
    #[error(
        "{path}: the image {name:?} is listed twice. Remove one, or export the model again with \
         COLMAP"
    )]
    DuplicateName { path: PathBuf, name: String },
    #[error(
        "{path}: the image {name:?} names camera {camera}, which is not among the {count} cameras \
         of the model. Take cameras and images from the same export"
    )]
    UnknownCamera { path: PathBuf, name: String, camera: u32, count: usize },
    #[error(
        "{path}: the model holds no image with a pose. Run COLMAP's mapper again, or point splat \
         at the larger of its models"
    )]
    Empty { path: PathBuf },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_unique_and_seven_have_a_lens() {
        for (index, model) in MODELS.iter().enumerate() {
            assert_eq!(CameraModel::by_id(model.id), Some(model));
            assert_eq!(CameraModel::by_name(model.name), Some(model));
            assert_eq!(usize::try_from(model.id), Ok(index));
        }
        let with_lens = MODELS.iter().filter(|model| {
            let params = vec![1.0; model.params];
            SolvedCamera { model, size: [3, 2], params }.lens().is_some()
        });
        let ids: Vec<i32> = with_lens.map(|model| model.id).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6]);
    }
}
