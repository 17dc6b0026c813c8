//! The points that training began from.

use std::path::Path;

use crate::dataset::points_ply::{PointsPlyError, read_points_ply};
use crate::dataset::{Frame, PointCloud};

/// Points that a page shows.
const MOST: usize = 500_000;

/// The points of a model folder, in the coordinates of a frame; none where it has no `input.ply`.
pub(super) fn points_of(
    model_path: &Path,
    frame: &Frame,
) -> Result<Option<PointCloud>, PointsPlyError> {
    let path = model_path.join("input.ply");
    if !path.is_file() {
        return Ok(None);
    }
    read_points_ply(&path).map(|read| Some(read.points.converted(&Frame::SCENE, frame)))
}

/// Points as the page reads them: of each three little-endian `f32` of its place, three bytes of its
/// colour and a zero. Of more than [`MOST`] some, evenly spread.
pub(super) fn packed(points: &PointCloud) -> Vec<u8> {
    let step = points.positions.len().div_ceil(MOST).max(1);
    let rows = points.positions.iter().zip(&points.colors).step_by(step);
    let row = |(position, color): (&[f32; 3], &[u8; 3])| {
        let [x, y, z] = position.map(f32::to_le_bytes);
        let [r, g, b] = *color;
        [x, y, z, [r, g, b, 0]].into_iter().flatten()
    };
    rows.flat_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_sixteen_bytes() {
        let points = PointCloud { positions: vec![[1.0, -2.0, 0.5]], colors: vec![[1, 2, 255]] };
        let expected = [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0, 0x3f, 1, 2, 255, 0];
        assert_eq!(packed(&points), expected);
    }

    #[test]
    fn of_many_points_some_are_shown() {
        let count = 3 * MOST + 1;
        let points = PointCloud { positions: vec![[0.0; 3]; count], colors: vec![[7; 3]; count] };
        assert_eq!(packed(&points).len(), 16 * count.div_ceil(4));
    }

    #[test]
    fn a_folder_without_points_has_none_and_damaged_ones_are_named() {
        let folder = tempfile::tempdir().unwrap();
        assert!(points_of(folder.path(), &Frame::SCENE).unwrap().is_none());
        std::fs::write(folder.path().join("input.ply"), "plx").unwrap();
        let refused = points_of(folder.path(), &Frame::SCENE).unwrap_err();
        assert!(refused.to_string().contains("input.ply"), "{refused}");
    }
}
