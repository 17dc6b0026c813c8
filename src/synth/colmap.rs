//! A reconstruction as COLMAP's binary files: `cameras.bin`, `images.bin`, `points3D.bin`.
//!
//! The layout is that of COLMAP's documentation ("Output format"): little endian, counts as u64.

use std::io::{self, Write};
use std::path::Path;

use crate::dataset::{Camera, View};
use crate::files::{OutputError, write_atomically};
use crate::math::linalg::{Mat3, Quat, Vec3};

/// COLMAP's number of the PINHOLE model, whose parameters are fx, fy, cx, cy.
const PINHOLE: i32 = 1;

/// A triangulated point.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
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
pub(super) struct Observation {
    /// Index of the view.
    pub view: usize,
    /// Place in its image, px.
    pub at_px: [f64; 2],
}

/// Writes the three files. Views with equal cameras share one; ids count from 1 in the order given.
pub(super) fn write_sparse(
    folder: &Path,
    views: &[View],
    points: &[Point],
) -> Result<(), OutputError> {
    let mut cameras: Vec<Camera> = Vec::new();
    let mut camera_of_view = Vec::with_capacity(views.len());
    for view in views {
        let known = cameras.iter().position(|camera| *camera == view.camera);
        camera_of_view.push(known.unwrap_or(cameras.len()));
        if known.is_none() {
            cameras.push(view.camera);
        }
    }
    let sightings = sightings(views.len(), points);
    write_atomically(&folder.join("cameras.bin"), |out| write_cameras(out, &cameras))?;
    write_atomically(&folder.join("images.bin"), |out| {
        write_images(out, views, &camera_of_view, &sightings)
    })?;
    write_atomically(&folder.join("points3D.bin"), |out| write_points(out, points, views.len()))
}

/// For each view the points that it sees (index and place), in the order of points.
fn sightings(views: usize, points: &[Point]) -> Vec<Vec<(usize, [f64; 2])>> {
    let mut of_view = vec![Vec::new(); views];
    for (index, point) in points.iter().enumerate() {
        for seen in &point.track {
            of_view[seen.view].push((index, seen.at_px));
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
    camera_of_view: &[usize],
    sightings: &[Vec<(usize, [f64; 2])>],
) -> io::Result<()> {
    write_count(out, views.len())?;
    for (index, view) in views.iter().enumerate() {
        write_id(out, index)?;
        write_reals(out, &quaternion(&view.pose.rotation))?;
        write_reals(out, &view.pose.translation)?;
        write_id(out, camera_of_view[index])?;
        out.write_all(view.name.as_bytes())?;
        out.write_all(&[0])?;
        write_count(out, sightings[index].len())?;
        for (point, at_px) in &sightings[index] {
            write_reals(out, at_px)?;
            write_count(out, point + 1)?;
        }
    }
    Ok(())
}

fn write_points(out: &mut dyn Write, points: &[Point], views: usize) -> io::Result<()> {
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
    let value = u32::try_from(value).map_err(io::Error::other)?;
    out.write_all(&value.to_le_bytes())
}

fn write_reals(out: &mut dyn Write, values: &[f64]) -> io::Result<()> {
    values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}

/// The unit quaternion (w, x, y, z) of a rotation, w not negative (Shepperd, "Quaternion from
/// rotation matrix", 1978: divide by the largest component).
fn quaternion(m: &Mat3<f64>) -> Quat<f64> {
    let diagonal = [m[0][0], m[1][1], m[2][2]];
    let trace: f64 = diagonal.iter().sum();
    let squares = [
        1.0 + trace,
        1.0 - trace + 2.0 * diagonal[0],
        1.0 - trace + 2.0 * diagonal[1],
        1.0 - trace + 2.0 * diagonal[2],
    ];
    let largest = (0..4).fold(0, |best, i| if squares[i] > squares[best] { i } else { best });
    let [x, y, z] = [m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1]];
    let [xy, xz, yz] = [m[0][1] + m[1][0], m[0][2] + m[2][0], m[1][2] + m[2][1]];
    let products = match largest {
        0 => [squares[0], x, y, z],
        1 => [x, squares[1], xy, xz],
        2 => [y, xy, squares[2], yz],
        _ => [z, xz, yz, squares[3]],
    };
    let length = products.iter().map(|q| q * q).sum::<f64>().sqrt();
    let sign = if products[0] < 0.0 { -1.0 } else { 1.0 };
    products.map(|q| sign * q / length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::linalg::rotation;

    #[test]
    fn a_rotation_gives_the_quaternion_that_it_was_made_of() {
        for quat in [
            [1.0, 0.0, 0.0, 0.0],
            [0.0, 1.0, 0.0, 0.0],
            [0.1, 0.2, -0.9, 0.3],
            [0.1, 0.2, 0.3, -0.9],
            [0.2, -0.9, 0.1, 0.3],
            [0.9, 0.1, 0.2, -0.3],
        ] {
            let length = quat.iter().map(|q: &f64| q * q).sum::<f64>().sqrt();
            let back = quaternion(&rotation(quat));
            for i in 0..4 {
                // 1e-12: a handful of roundings of numbers near one.
                assert!((back[i] - quat[i] / length).abs() < 1e-12, "{quat:?} {back:?}");
            }
        }
    }
}
