//! Camera paths around the focus of a scene's cameras.

use std::f64::consts::{PI, TAU};

use super::PathCamera;
use super::through::even_steps;
use crate::math::linalg::{Mat3, Vec3, add, cross, dot, length, mul, normalize, scale, sub};
use crate::math::quantile::{median, percentile};

/// Largest gap between the cameras' azimuths for a full orbit, radians. Beyond it one side is unseen, and the path
/// swings over the seen arc.
const MAX_GAP: f64 = 160.0 * PI / 180.0;

/// Share of the seen arc that the path swings over.
const SWING_SHARE: f64 = 0.8;
const WITHIN_PERCENT: u8 = 90;

/// Returns a circle at the cameras' median distance and height with `turns` turns. If the cameras have seen one side
/// only, the path swings back and forth there `turns` times.
pub fn orbit(around: &Surroundings, turns: f64, frames: usize) -> Vec<PathCamera> {
    let radius = median(around.places.iter().map(|[x, y, _]| x.hypot(*y)));
    let height = median(around.places.iter().map(|[.., up]| *up));
    let angles: Vec<f64> = around.places.iter().map(|[x, y, _]| y.atan2(*x)).collect();
    let seen = Arc::of(&angles);
    let angle = |share: f64| match seen {
        Arc { from, length } if length < TAU - MAX_GAP => {
            from + 0.5 * length + 0.5 * SWING_SHARE * length * (TAU * turns * share).sin()
        }
        Arc { from, .. } => from + TAU * turns * share,
    };
    let camera = |frame: usize| {
        let angle = angle(frame as f64 / frames as f64);
        camera_facing(around, [radius * angle.cos(), radius * angle.sin(), height])
    };
    (0..frames).map(camera).collect()
}

/// Returns an ellipse with the cameras' extent along their two main directions. It rises from their low to their high
/// positions and falls again, at constant speed.
pub fn ellipse(around: &Surroundings, turns: f64, frames: usize) -> Vec<PathCamera> {
    let places = || around.places.iter();
    let [a, b] =
        [0, 1].map(|axis| percentile(places().map(|place| place[axis].abs()), WITHIN_PERCENT));
    let [low, high] = [100 - WITHIN_PERCENT, WITHIN_PERCENT]
        .map(|percent| percentile(places().map(|[.., up]| *up), percent));
    let place = |share: f64| {
        let angle = TAU * turns * share;
        let height = low + 0.5 * (high - low) * (1.0 - angle.cos());
        [a * angle.cos(), b * angle.sin(), height]
    };
    let steps = even_steps(frames, true, place);
    steps.into_iter().map(|share| camera_facing(around, place(share))).collect()
}

fn camera_facing(around: &Surroundings, place: [f64; 3]) -> PathCamera {
    PathCamera::looking_at(around.world(place), around.focus, around.up, around.focal)
}

#[derive(Clone, Copy, Debug)]
struct Arc {
    from: f64,
    length: f64,
}

impl Arc {
    /// Returns the complement of the widest gap between these angles.
    fn of(angles: &[f64]) -> Self {
        let mut sorted = angles.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let next = |at: usize| match sorted.get(at + 1) {
            Some(next) => *next,
            None => sorted[0] + TAU,
        };
        let widest = (0..sorted.len())
            .max_by(|&a, &b| (next(a) - sorted[a]).total_cmp(&(next(b) - sorted[b])));
        let widest = widest.unwrap_or(0);
        let Some(before) = sorted.get(widest) else { return Self { from: 0.0, length: TAU } };
        let gap = next(widest) - before;
        Self { from: next(widest), length: TAU - gap }
    }
}

/// Minimum share of the upward directions' sum for a common up direction.
const COMMON_UP: f64 = 0.1;

/// Added to the diagonal of the x axes' mean squares, so that parallel cameras have a solution.
const REGULARISATION: f64 = 1e-3;
const ITERATIONS: u32 = 30;

/// Share of the largest determinant of the axes' normal equations below which the axes are parallel.
const PARALLEL: f64 = 1e-3;

/// Percentage of outliers among the points on each side.
const OUTLIER_PERCENT: u8 = 10;

/// Error of a scene without cameras.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the scene has no cameras")]
pub struct NoSurroundings;

/// Arrangement of a scene's cameras.
#[derive(Clone, Debug, PartialEq)]
pub struct Surroundings {
    /// Unit up direction.
    pub up: Vec3<f64>,
    /// Focus of the cameras, world units.
    pub focus: Vec3<f64>,
    /// Positions of the cameras relative to the focus: along [`Self::across`] and along up, world units.
    pub places: Vec<Vec3<f64>>,
    /// The two directions perpendicular to up.
    pub across: [Vec3<f64>; 2],
    /// Median focal length, heights of the frame.
    pub focal: f64,
}

impl Surroundings {
    /// Computes the arrangement from the cameras and the points of the scene.
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

    /// Converts a position in the coordinates of [`Surroundings::places`] to world space.
    pub(super) fn world(&self, [first, second, up]: Vec3<f64>) -> Vec3<f64> {
        let on_plane = add(scale(self.across[0], first), scale(self.across[1], second));
        add(self.focus, add(on_plane, scale(self.up, up)))
    }
}

/// Returns the direction most perpendicular to the cameras' x axes, which are level at any pitch. Ties resolve
/// towards the mean of the cameras' up directions. If these cancel out, returns the up direction of COLMAP's axes.
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
        parts[row] += REGULARISATION;
    }
    // The inverse iteration converges to the eigenvector of the smallest eigenvalue.
    let step = |up| solve(&level, up).map_or(mean, normalize);
    let up = (0..ITERATIONS).fold(mean, |up, _| step(up));
    if dot(up, mean) < 0.0 { scale(up, -1.0) } else { up }
}

/// Returns the point nearest to all optical axes by least squares if most cameras have it in front, else the median
/// of the points, or the mean point before the cameras. The result is clamped to the points without outliers.
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
            [OUTLIER_PERCENT, 100 - OUTLIER_PERCENT].map(|percent| percentile(along(), percent));
        met[axis].clamp(low, high)
    })
}

/// Returns the point with the least squared distances to the optical axes; `None` if the axes are parallel.
fn nearest_to_axes(cameras: &[PathCamera]) -> Option<Vec3<f64>> {
    let (mut normal, mut right): (Mat3<f64>, _) = ([[0.0; 3]; 3], [0.0; 3]);
    for camera in cameras {
        let axis = camera.forward();
        // Projection onto the plane perpendicular to the axis.
        let across: Mat3<f64> = [0, 1, 2].map(|row| {
            [0, 1, 2].map(|column| f64::from(u8::from(row == column)) - axis[row] * axis[column])
        });
        right = add(right, mul(&across, camera.centre_world));
        (0..3).for_each(|row| normal[row] = add(normal[row], across[row]));
    }
    let [a, b, c] = normal;
    // The determinant is at most (2n / 3)³.
    let most = (2.0 * cameras.len() as f64 / 3.0).powi(3);
    if cameras.len() < 2 || dot(a, cross(b, c)) < PARALLEL * most {
        return None;
    }
    solve(&normal, right)
}

/// Solves a symmetric system by Cramer's rule; `None` if the matrix is singular.
fn solve([a, b, c]: &Mat3<f64>, right: Vec3<f64>) -> Option<Vec3<f64>> {
    let determinant = dot(*a, cross(*b, *c));
    let parts = [cross(*b, *c), cross(*c, *a), cross(*a, *b)];
    (determinant != 0.0).then(|| parts.map(|part| dot(right, part) / determinant))
}

/// Returns two directions perpendicular to up. The first has the largest spread of the cameras.
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
pub(in crate::video) mod tests {
    use super::*;

    const MIDDLE: Vec3<f64> = [1.0, 2.0, -3.0];

    fn around(arc_degrees: f64) -> Surroundings {
        Surroundings::of(&ring(24, MIDDLE, 4.0, 1.5, arc_degrees), &[]).unwrap()
    }

    /// Returns the distance from the vertical axis through the middle, the height above the middle, and the azimuth.
    fn cylinder(camera: &PathCamera) -> [f64; 3] {
        let [x, y, z] = sub(camera.centre_world, MIDDLE);
        [x.hypot(z), -y, z.atan2(x)]
    }

    #[test]
    fn the_orbit_of_a_ring_is_the_ring_and_closes() {
        let path = orbit(&around(360.0), 1.0, 60);
        assert_eq!(path.len(), 60);
        for camera in &path {
            let [radius, height, _] = cylinder(camera);
            assert!((radius - 4.0).abs() < 1e-9 && (height - 1.5).abs() < 1e-9);
            let to_middle = sub(MIDDLE, camera.centre_world);
            assert!(dot(to_middle, camera.forward()) > length(to_middle) * (1.0 - 1e-12));
            assert_eq!(camera.focal, [1.1; 2]);
        }
        let step = |a: &PathCamera, b: &PathCamera| length(sub(a.centre_world, b.centre_world));
        // The step from the last frame to the first has the same length.
        assert!((step(&path[59], &path[0]) - step(&path[0], &path[1])).abs() < 1e-9);
        let twice = orbit(&around(360.0), 2.0, 60);
        assert!((step(&twice[0], &twice[1]) / step(&path[0], &path[1]) - 2.0).abs() < 0.01);
    }

    #[test]
    fn the_path_swings_over_the_seen_side() {
        let seen = 90.0 * 23.0 / 24.0;
        let path = orbit(&around(90.0), 1.0, 100);
        let angles: Vec<f64> = path.iter().map(|camera| cylinder(camera)[2].to_degrees()).collect();
        let low = angles.iter().copied().fold(f64::MAX, f64::min);
        let high = angles.iter().copied().fold(f64::MIN, f64::max);
        assert!((high - low - SWING_SHARE * seen).abs() < 0.2, "{low} {high}");
        assert!((0.5 * (high + low) - 0.5 * seen).abs() < 0.1, "{low} {high}");
    }

    #[test]
    fn an_ellipse_has_the_extent_of_the_cameras_and_even_steps() {
        let mut cameras = ring(36, MIDDLE, 4.0, 1.5, 360.0);
        for camera in &mut cameras {
            camera.centre_world[0] += 2.0 * (camera.centre_world[0] - MIDDLE[0]);
        }
        let found = Surroundings { focus: MIDDLE, ..Surroundings::of(&cameras, &[]).unwrap() };
        let path = ellipse(&Surroundings::of(&cameras, &[]).unwrap(), 1.0, 50);
        assert!(dot(found.across[0], [1.0, 0.0, 0.0]).abs() > 0.999, "{found:?}");
        let steps: Vec<f64> = (0..50)
            .map(|i| length(sub(path[(i + 1) % 50].centre_world, path[i].centre_world)))
            .collect();
        let mean = steps.iter().sum::<f64>() / 50.0;
        // Chords are slightly shorter where the curve bends.
        assert!(steps.iter().all(|step| (step / mean - 1.0).abs() < 0.03), "{steps:?}");
        let widest = path.iter().map(|camera| (camera.centre_world[0] - MIDDLE[0]).abs());
        assert!((11.0..12.1).contains(&widest.fold(0.0, f64::max)));
    }

    /// Returns cameras on a ring that look at its middle.
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
    fn cameras_on_a_ring_have_its_middle_as_focus() {
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
    fn up_is_found_at_any_pitch_and_from_one_side() {
        for arc in [360.0, 90.0, 30.0] {
            let cameras = ring(12, [0.0; 3], 4.0, 3.0, arc);
            let up = Surroundings::of(&cameras, &[]).unwrap().up;
            // The regularisation tilts an arc of 30 degrees by a degree.
            assert!(dot(up, [0.0, -1.0, 0.0]) > 2.0_f64.to_radians().cos(), "{arc}: {up:?}");
        }
    }

    #[test]
    fn parallel_and_outlying_cameras_look_at_the_points() {
        let camera =
            |x: f64| PathCamera::looking_at([x, 0.0, 0.0], [x, 0.0, 1.0], [0.0, -1.0, 0.0], 1.0);
        let cameras: Vec<PathCamera> = [0.0, 1.0, 2.0].map(camera).to_vec();
        let points = [[1.0_f32, 0.5, 6.0], [1.0, 0.5, 6.0], [90.0, 90.0, 90.0]];
        assert_eq!(Surroundings::of(&cameras, &points).unwrap().focus, [1.0, 0.5, 6.0]);
        assert_eq!(Surroundings::of(&cameras, &[]).unwrap().focus, [1.0, 0.0, 1.0]);
        assert_eq!(Surroundings::of(&[], &points), Err(NoSurroundings));
        // The cameras look past the scene, at a point far behind it.
        let cameras = ring(8, [0.0, 0.0, 100.0], 5.0, 1.0, 360.0);
        let mut points = vec![[0.0_f32, 0.0, 1.0]; 50];
        points.extend(vec![[0.0, 0.0, 3.0]; 50]);
        points.push([0.0, 0.0, 1e6]);
        assert!((Surroundings::of(&cameras, &points).unwrap().focus[2] - 3.0).abs() < 1e-9);
    }
}
