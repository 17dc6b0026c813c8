//! Writes COLMAP's binary files.

use std::io::{self, Write};
use std::path::Path;

use super::PointCloud;
use super::model::PINHOLE;
use crate::dataset::camera::{Camera, View};
use crate::files::{OutputError, create_folder, write_atomically};
use crate::math::linalg::Mat3;

/// Reprojection error that says "not known" in COLMAP.
const UNKNOWN_ERROR: f64 = -1.0;

/// Writes a model (`cameras.bin`, `images.bin`, `points3D.bin`) into `folder`, which is made.
///
/// Cameras become PINHOLE, one for all views that share it; ids count from 1 in the order given.
/// Images get no observations and points no tracks.
pub fn write_colmap(folder: &Path, views: &[View], points: &PointCloud) -> Result<(), OutputError> {
    create_folder(folder)?;
    let mut cameras: Vec<Camera> = Vec::new();
    let mut camera_from_view = Vec::with_capacity(views.len());
    for view in views {
        let known = cameras.iter().position(|camera| *camera == view.camera);
        camera_from_view.push(known.unwrap_or(cameras.len()));
        if known.is_none() {
            cameras.push(view.camera);
        }
    }
    write_atomically(&folder.join("cameras.bin"), |out| write_cameras(out, &cameras))?;
    write_atomically(&folder.join("images.bin"), |out| {
        write_images(out, views, &camera_from_view)
    })?;
    write_atomically(&folder.join("points3D.bin"), |out| write_points(out, points))
}

/// An id, counted from 1.
fn id(index: usize) -> io::Result<u32> {
    let id = u32::try_from(index + 1);
    id.map_err(|_too_many| io::Error::other("COLMAP's format numbers at most 2^32 - 1 of a kind"))
}

fn numbers(out: &mut dyn Write, numbers: &[f64]) -> io::Result<()> {
    numbers.iter().try_for_each(|number| out.write_all(&number.to_le_bytes()))
}

fn write_cameras(out: &mut dyn Write, cameras: &[Camera]) -> io::Result<()> {
    out.write_all(&(cameras.len() as u64).to_le_bytes())?;
    for (index, camera) in cameras.iter().enumerate() {
        out.write_all(&id(index)?.to_le_bytes())?;
        out.write_all(&PINHOLE.to_le_bytes())?;
        out.write_all(&u64::from(camera.width).to_le_bytes())?;
        out.write_all(&u64::from(camera.height).to_le_bytes())?;
        numbers(out, &camera.focal_px)?;
        numbers(out, &camera.centre_px)?;
    }
    Ok(())
}

fn write_images(out: &mut dyn Write, views: &[View], cameras: &[usize]) -> io::Result<()> {
    out.write_all(&(views.len() as u64).to_le_bytes())?;
    for (index, (view, &camera)) in views.iter().zip(cameras).enumerate() {
        out.write_all(&id(index)?.to_le_bytes())?;
        numbers(out, &quat_from_rotation(&view.pose.rotation))?;
        numbers(out, &view.pose.translation)?;
        out.write_all(&id(camera)?.to_le_bytes())?;
        if view.name.contains('\0') {
            return Err(io::Error::other("the name of an image holds a zero byte"));
        }
        out.write_all(view.name.as_bytes())?;
        out.write_all(&[0])?;
        out.write_all(&0_u64.to_le_bytes())?;
    }
    Ok(())
}

fn write_points(out: &mut dyn Write, points: &PointCloud) -> io::Result<()> {
    out.write_all(&(points.positions.len() as u64).to_le_bytes())?;
    for (index, (position, color)) in points.positions.iter().zip(&points.colors).enumerate() {
        out.write_all(&u64::from(id(index)?).to_le_bytes())?;
        numbers(out, &position.map(f64::from))?;
        out.write_all(color)?;
        numbers(out, &[UNKNOWN_ERROR])?;
        out.write_all(&0_u64.to_le_bytes())?;
    }
    Ok(())
}

/// The unit quaternion (w, x, y, z) of a rotation, with w >= 0.
///
/// Of the four ways to solve for it, the one that divides by the largest component (Shepperd,
/// "Quaternion from rotation matrix", 1978).
fn quat_from_rotation(m: &Mat3<f64>) -> [f64; 4] {
    // Four times the squares of w, x, y, z.
    let squares = [
        1.0 + m[0][0] + m[1][1] + m[2][2],
        1.0 + m[0][0] - m[1][1] - m[2][2],
        1.0 - m[0][0] + m[1][1] - m[2][2],
        1.0 - m[0][0] - m[1][1] + m[2][2],
    ];
    // Four times the products of w with x, y, z, and of x, y, z with each other.
    let (wx, wy, wz) = (m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1]);
    let (xy, xz, yz) = (m[0][1] + m[1][0], m[0][2] + m[2][0], m[1][2] + m[2][1]);
    let products = [
        [squares[0], wx, wy, wz],
        [wx, squares[1], xy, xz],
        [wy, xy, squares[2], yz],
        [wz, xz, yz, squares[3]],
    ];
    let largest = (0..4).max_by(|&a, &b| squares[a].total_cmp(&squares[b])).unwrap_or(0);
    let row = products[largest];
    let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
    let sign = if row[0] < 0.0 { -1.0 } else { 1.0 };
    row.map(|x| sign * x / length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::math::linalg::rotation;

    proptest! {
        #[test]
        fn quaternions_and_rotations_agree(q in prop::array::uniform4(-1.0_f64..1.0)) {
            let length = q.iter().map(|x| x * x).sum::<f64>().sqrt();
            prop_assume!(length > 0.1);
            let sign = if q[0] < 0.0 { -1.0 } else { 1.0 };
            let back = quat_from_rotation(&rotation(q));
            for i in 0..4 {
                // The largest component is at least 1/2, so rounding grows little.
                prop_assert!((back[i] - sign * q[i] / length).abs() < 1e-14, "{q:?} {back:?}");
            }
        }
    }

    #[test]
    fn half_turns_have_quaternions() {
        for axis in 0..3 {
            let mut turn = [[0.0; 3]; 3];
            for (i, row) in turn.iter_mut().enumerate() {
                row[i] = if i == axis { 1.0 } else { -1.0 };
            }
            let back = rotation(quat_from_rotation(&turn));
            assert_eq!(back, turn);
        }
    }
}
