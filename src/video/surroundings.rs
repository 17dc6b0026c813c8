//! What the cameras of a scene say of it: which way is up, what they look at, from how far.

use super::path_camera::PathCamera;
use crate::math::linalg::{Mat3, Vec3, add, cross, dot, length, mul, normalize, scale, sub};
use crate::math::quantile::{median, percentile};

/// Cameras whose upward directions cancel out to less than this share have none in common.
const COMMON_UP: f64 = 0.1;

/// What is added to the mean squares of x axes, so that those of cameras that look the same way serve, too.
const LEVEL: f64 = 1e-3;

/// Steps after which a direction no longer changes.
const ITERATIONS: u32 = 30;

/// Of the largest possible determinant of the axes' normal equations, the share below which axes are
/// parallel.
const PARALLEL: f64 = 1e-3;

/// Percent of the points on each side that may be strays.
const STRAYS_PERCENT: u8 = 10;

/// A scene without cameras, around which there is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the scene has no cameras")]
pub struct NoSurroundings;

/// A scene as its cameras stand in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Surroundings {
    /// Up, of length 1.
    pub up: Vec3<f64>,
    /// What the cameras look at, world units.
    pub focus: Vec3<f64>,
    /// Where the cameras stand: along two directions across up, and along up, from the focus, world units.
    pub places: Vec<Vec3<f64>>,
    /// The two directions across up.
    pub across: [Vec3<f64>; 2],
    /// Median focal length, heights of the frame.
    pub focal: f64,
}

impl Surroundings {
    /// Those of these cameras, and of the points that the scene has.
    pub fn of(cameras: &[PathCamera], points: &[[f32; 3]]) -> Result<Self, NoSurroundings> {
        if cameras.is_empty() {
            return Err(NoSurroundings);
        }
        let up = common_up(cameras);
        let focus = focus(cameras, points);
        let across = directions_across(up, cameras, focus);
        let place = |camera: &PathCamera| {
            let away = sub(camera.centre_world, focus);
            [dot(away, across[0]), dot(away, across[1]), dot(away, up)]
        };
        Ok(Self {
            up,
            focus,
            places: cameras.iter().map(place).collect(),
            across,
            focal: median(cameras.iter().map(|camera| camera.focal[1])),
        })
    }

    /// A place given as [`Surroundings::places`] are, in the world.
    pub(super) fn world(&self, [first, second, up]: Vec3<f64>) -> Vec3<f64> {
        let on_plane = add(scale(self.across[0], first), scale(self.across[1], second));
        add(self.focus, add(on_plane, scale(self.up, up)))
    }
}

/// The direction that is most square to the cameras' x axes, which lie level however far the cameras look up or
/// down; of several, that which is nearest to the mean of the cameras' own. Where these cancel out, as those
/// of cameras do that are turned in all ways, that of COLMAP's axes.
fn common_up(cameras: &[PathCamera]) -> Vec3<f64> {
    let sum = cameras.iter().fold([0.0; 3], |sum, camera| sub(sum, camera.axis(1)));
    if length(sum) < COMMON_UP * cameras.len() as f64 {
        return [0.0, -1.0, 0.0];
    }
    let mean = normalize(sum);
    let mut level: Mat3<f64> = [[0.0; 3]; 3];
    for camera in cameras {
        let axis = camera.axis(0);
        (0..3).for_each(|row| level[row] = add(level[row], scale(axis, axis[row])));
    }
    for (row, parts) in level.iter_mut().enumerate() {
        *parts = scale(*parts, (cameras.len() as f64).recip());
        parts[row] += LEVEL;
    }
    // Inverse iteration: its limit is the eigenvector of the least eigenvalue.
    let step = |up| solve(&level, up).map_or(mean, normalize);
    let up = (0..ITERATIONS).fold(mean, |up, _| step(up));
    if dot(up, mean) < 0.0 { scale(up, -1.0) } else { up }
}

/// The point that is nearest to all optical axes, by least squares, as far as most cameras have it before
/// them; else the middle of the points, or what lies before the cameras. It is kept within the points, strays
/// aside.
fn focus(cameras: &[PathCamera], points: &[[f32; 3]]) -> Vec3<f64> {
    let middle = || match points {
        [] => {
            let count = cameras.len() as f64;
            let ahead = |camera: &PathCamera| add(camera.centre_world, camera.forward());
            scale(cameras.iter().fold([0.0; 3], |sum, it| add(sum, ahead(it))), count.recip())
        }
        points => [0, 1, 2].map(|axis| median(points.iter().map(|point| f64::from(point[axis])))),
    };
    let is_seen = |point: Vec3<f64>| {
        let before =
            |camera: &&PathCamera| dot(sub(point, camera.centre_world), camera.forward()) > 0.0;
        2 * cameras.iter().filter(before).count() > cameras.len()
    };
    let met = nearest_to_axes(cameras).filter(|&point| is_seen(point));
    let Some(met) = met else { return middle() };
    if points.is_empty() {
        return met;
    }
    [0, 1, 2].map(|axis| {
        let along = || points.iter().map(|point| f64::from(point[axis]));
        let [low, high] =
            [STRAYS_PERCENT, 100 - STRAYS_PERCENT].map(|percent| percentile(along(), percent));
        met[axis].clamp(low, high)
    })
}

/// The point with the least squared distances to the optical axes; nothing where these are parallel.
fn nearest_to_axes(cameras: &[PathCamera]) -> Option<Vec3<f64>> {
    let (mut normal, mut right): (Mat3<f64>, _) = ([[0.0; 3]; 3], [0.0; 3]);
    for camera in cameras {
        let axis = camera.forward();
        // The projection onto the plane across the axis.
        let across: Mat3<f64> = [0, 1, 2].map(|row| {
            [0, 1, 2].map(|column| f64::from(u8::from(row == column)) - axis[row] * axis[column])
        });
        right = add(right, mul(&across, camera.centre_world));
        (0..3).for_each(|row| normal[row] = add(normal[row], across[row]));
    }
    let [a, b, c] = normal;
    // It is at most (2n / 3)³.
    let most = (2.0 * cameras.len() as f64 / 3.0).powi(3);
    if cameras.len() < 2 || dot(a, cross(b, c)) < PARALLEL * most {
        return None;
    }
    solve(&normal, right)
}

/// What a symmetric matrix takes to `right`, by Cramer's rule; nothing where it is singular.
fn solve([a, b, c]: &Mat3<f64>, right: Vec3<f64>) -> Option<Vec3<f64>> {
    let determinant = dot(*a, cross(*b, *c));
    let parts = [cross(*b, *c), cross(*c, *a), cross(*a, *b)];
    (determinant != 0.0).then(|| parts.map(|part| dot(right, part) / determinant))
}

/// Two directions across up, the first that in which the cameras are spread most.
fn directions_across(up: Vec3<f64>, cameras: &[PathCamera], focus: Vec3<f64>) -> [Vec3<f64>; 2] {
    let start = if up[0].abs() < 0.6 { [1.0, 0.0, 0.0] } else { [0.0, 0.0, 1.0] };
    let first = normalize(sub(start, scale(up, dot(up, start))));
    let second = cross(up, first);
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for camera in cameras {
        let away = sub(camera.centre_world, focus);
        let [x, y] = [dot(away, first), dot(away, second)];
        (xx, xy, yy) = (xx + x * x, xy + x * y, yy + y * y);
    }
    let angle = 0.5 * f64::atan2(2.0 * xy, xx - yy);
    let turned = add(scale(first, angle.cos()), scale(second, angle.sin()));
    [turned, cross(up, turned)]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Cameras on a ring about a point that look at it, and up.
    pub(in crate::video) fn ring(
        count: usize,
        middle: Vec3<f64>,
        radius: f64,
        height: f64,
        arc_degrees: f64,
    ) -> Vec<PathCamera> {
        let camera = |index: usize| {
            let angle = (arc_degrees * index as f64 / count as f64).to_radians();
            let away = [radius * angle.cos(), -height, radius * angle.sin()];
            PathCamera::looking_at(add(middle, away), middle, [0.0, -1.0, 0.0], 1.1)
        };
        (0..count).map(camera).collect()
    }

    #[test]
    fn cameras_on_a_ring_look_at_its_middle() {
        let middle = [1.0, 2.0, -3.0];
        let found = Surroundings::of(&ring(12, middle, 4.0, 1.5, 360.0), &[]).unwrap();
        (0..3).for_each(|i| assert!((found.focus[i] - middle[i]).abs() < 1e-9, "{found:?}"));
        assert!(dot(found.up, [0.0, -1.0, 0.0]) > 1.0 - 1e-9, "{found:?}");
        for [x, y, up] in found.places {
            assert!((x.hypot(y) - 4.0).abs() < 1e-9 && (up - 1.5).abs() < 1e-9);
        }
        assert_eq!(found.focal, 1.1);
    }

    #[test]
    fn up_is_up_however_far_the_cameras_look_down_and_from_one_side_alone() {
        for arc in [360.0, 90.0, 30.0] {
            let cameras = ring(12, [0.0; 3], 4.0, 3.0, arc);
            let up = Surroundings::of(&cameras, &[]).unwrap().up;
            // By the least term that is added, an arc of 30 degrees is off by a degree.
            assert!(dot(up, [0.0, -1.0, 0.0]) > 2.0_f64.to_radians().cos(), "{arc}: {up:?}");
        }
    }

    #[test]
    fn cameras_that_look_in_parallel_look_at_the_points() {
        let camera =
            |x: f64| PathCamera::looking_at([x, 0.0, 0.0], [x, 0.0, 1.0], [0.0, -1.0, 0.0], 1.0);
        let cameras: Vec<PathCamera> = [0.0, 1.0, 2.0].map(camera).to_vec();
        let points = [[1.0_f32, 0.5, 6.0], [1.0, 0.5, 6.0], [90.0, 90.0, 90.0]];
        assert_eq!(Surroundings::of(&cameras, &points).unwrap().focus, [1.0, 0.5, 6.0]);
        assert_eq!(Surroundings::of(&cameras, &[]).unwrap().focus, [1.0, 0.0, 1.0]);
        assert_eq!(Surroundings::of(&[], &points), Err(NoSurroundings));
    }

    #[test]
    fn strays_do_not_pull_the_focus_out_of_the_scene() {
        // The cameras look past the scene, at a point far behind it.
        let cameras = ring(8, [0.0, 0.0, 100.0], 5.0, 1.0, 360.0);
        let mut points = vec![[0.0_f32, 0.0, 1.0]; 50];
        points.extend(vec![[0.0, 0.0, 3.0]; 50]);
        points.push([0.0, 0.0, 1e6]);
        assert!((Surroundings::of(&cameras, &points).unwrap().focus[2] - 3.0).abs() < 1e-9);
    }
}
