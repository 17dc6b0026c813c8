//! Writes a reconstruction as COLMAP's binary files: `cameras.bin`, `images.bin`, `points3D.bin`.
//!
//! The layout is that of COLMAP's documentation ("Output format"): little endian, counts as u64.

use std::io::{self, Write};
use std::path::Path;

use super::model::PINHOLE;
use crate::dataset::camera::{Camera, View};
use crate::files::{OutputError, create_folder, write_atomically};
use crate::math::linalg::{Mat3, Quat, Vec3};

/// A triangulated point.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackedPoint {
    /// World units.
    pub position: Vec3<f64>,
    /// sRGB.
    pub color: [u8; 3],
    /// Mean reprojection error, px.
    pub error_px: f64,
    /// Where it was seen; each view at most once.
    pub track: Vec<Observation>,
}

/// One sighting of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Index of the view.
    pub view: usize,
    /// Place in its image, px.
    pub at_px: [f64; 2],
}

/// Writes the three files into `folder`, which is made.
///
/// Cameras become PINHOLE, one for all views that share it; ids count from 1 in the order given.
pub fn write_colmap(
    folder: &Path,
    views: &[View],
    points: &[TrackedPoint],
) -> Result<(), OutputError> {
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
    let sightings = sightings(views.len(), points);
    write_atomically(&folder.join("cameras.bin"), |out| write_cameras(out, &cameras))?;
    write_atomically(&folder.join("images.bin"), |out| {
        write_images(out, views, &camera_from_view, &sightings)
    })?;
    write_atomically(&folder.join("points3D.bin"), |out| write_points(out, points, views.len()))
}

/// A point that a view sees.
#[derive(Clone, Copy)]
struct Sighting {
    /// Its index.
    point: usize,
    at_px: [f64; 2],
}

/// For each view the points that it sees, in their order.
fn sightings(views: usize, points: &[TrackedPoint]) -> Vec<Vec<Sighting>> {
    let mut of_view = vec![Vec::new(); views];
    for (index, point) in points.iter().enumerate() {
        for seen in &point.track {
            of_view[seen.view].push(Sighting { point: index, at_px: seen.at_px });
        }
    }
    of_view
}

fn write_cameras(out: &mut dyn Write, cameras: &[Camera]) -> io::Result<()> {
    write_count(out, cameras.len())?;
    for (index, camera) in cameras.iter().enumerate() {
        write_id(out, index)?;
        out.write_all(&PINHOLE.to_le_bytes())?;
        out.write_all(&u64::from(camera.width).to_le_bytes())?;
        out.write_all(&u64::from(camera.height).to_le_bytes())?;
        write_reals(out, &camera.focal_px)?;
        write_reals(out, &camera.centre_px)?;
    }
    Ok(())
}

fn write_images(
    out: &mut dyn Write,
    views: &[View],
    camera_from_view: &[usize],
    sightings: &[Vec<Sighting>],
) -> io::Result<()> {
    write_count(out, views.len())?;
    for (index, view) in views.iter().enumerate() {
        write_id(out, index)?;
        write_reals(out, &quat_from_rotation(&view.pose.rotation))?;
        write_reals(out, &view.pose.translation)?;
        write_id(out, camera_from_view[index])?;
        if view.name.contains('\0') {
            return Err(io::Error::other("the name of an image holds a zero byte"));
        }
        out.write_all(view.name.as_bytes())?;
        out.write_all(&[0])?;
        write_count(out, sightings[index].len())?;
        for Sighting { point, at_px } in &sightings[index] {
            write_reals(out, at_px)?;
            write_count(out, point + 1)?;
        }
    }
    Ok(())
}

fn write_points(out: &mut dyn Write, points: &[TrackedPoint], views: usize) -> io::Result<()> {
    let mut next_of_view = vec![0; views];
    write_count(out, points.len())?;
    for (index, point) in points.iter().enumerate() {
        write_count(out, index + 1)?;
        write_reals(out, &point.position)?;
        out.write_all(&point.color)?;
        write_reals(out, &[point.error_px])?;
        write_count(out, point.track.len())?;
        for seen in &point.track {
            write_id(out, seen.view)?;
            write_u32(out, next_of_view[seen.view])?;
            next_of_view[seen.view] += 1;
        }
    }
    Ok(())
}

/// A 64-bit count or id.
fn write_count(out: &mut dyn Write, count: usize) -> io::Result<()> {
    out.write_all(&(count as u64).to_le_bytes())
}

/// A 32-bit id: the index, from 1.
fn write_id(out: &mut dyn Write, index: usize) -> io::Result<()> {
    write_u32(out, index + 1)
}

fn write_u32(out: &mut dyn Write, value: usize) -> io::Result<()> {
    let value = u32::try_from(value).map_err(|_too_many| {
        io::Error::other("COLMAP's format numbers at most 2^32 - 1 of a kind")
    })?;
    out.write_all(&value.to_le_bytes())
}

fn write_reals(out: &mut dyn Write, values: &[f64]) -> io::Result<()> {
    values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}

/// The unit quaternion (w, x, y, z) of a rotation, with w >= 0.
///
/// Of the four ways to solve for it, the one that divides by the largest component (Shepperd,
/// "Quaternion from rotation matrix", 1978).
fn quat_from_rotation(m: &Mat3<f64>) -> Quat<f64> {
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
