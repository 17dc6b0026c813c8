//! What both formats read, before it is checked.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::Path;

use super::error::ColmapError;
use crate::dataset::camera::Pose;
use crate::dataset::points::{FARTHEST, PointCloud};
use crate::dataset::text::{START_BYTES, other_content};
use crate::math::linalg::rotation;

/// An image as read, before it is checked.
pub(super) struct RawImage {
    pub(super) name: String,
    /// The id of its camera.
    pub(super) camera: u32,
    /// Nothing where it is not finite.
    pub(super) pose: Option<Pose>,
}

/// Points as read.
#[derive(Debug, Default)]
pub(super) struct Points {
    /// The points that are finite.
    pub(super) kept: PointCloud<f64>,
    /// Number of the others.
    pub(super) dropped: usize,
}

impl Points {
    /// Takes a point, or drops it where its coordinates are not finite; false where it is too far
    /// away to be meant.
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

/// A file and its length.
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

/// Rotation and translation from COLMAP's seven numbers (w, x, y, z of the quaternion, then the
/// translation); `None` if they are not finite or the quaternion has no direction.
pub(super) fn pose(numbers: [f64; 7]) -> Option<Pose> {
    let [w, x, y, z, tx, ty, tz] = numbers;
    let pose = Pose { rotation: rotation([w, x, y, z]), translation: [tx, ty, tz] };
    let squared = w * w + x * x + y * y + z * z;
    let finite = pose.rotation.iter().flatten().chain(&pose.translation).all(|x| x.is_finite());
    (finite && squared.is_normal()).then_some(pose)
}
