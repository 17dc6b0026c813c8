//! Paths around what the cameras of a scene look at.

use std::f64::consts::{PI, TAU};

use super::PathCamera;
use super::through::even_steps;
use crate::math::linalg::{Mat3, Vec3, add, cross, dot, length, mul, normalize, scale, sub};
use crate::math::quantile::{median, percentile};

/// Cameras that leave a larger gap than this around the scene have not seen that side: the path swings
/// over what they have seen, radians.
const WIDEST_GAP: f64 = 160.0 * PI / 180.0;

/// Share of what the cameras have seen that the path swings over.
const SWUNG: f64 = 0.8;

/// Percent of the cameras within the ellipse.
const WITHIN_PERCENT: u8 = 90;

/// A circle at the cameras' median distance and height, so many times around. Where the cameras have seen
/// one side alone, the path swings to and fro there, so many times.
pub fn orbit(around: &Surroundings, turns: f64, frames: usize) -> Vec<PathCamera> {
    let radius = median(around.places.iter().map(|[x, y, _]| x.hypot(*y)));
    let height = median(around.places.iter().map(|[.., up]| *up));
    let angles: Vec<f64> = around.places.iter().map(|[x, y, _]| y.atan2(*x)).collect();
    let seen = Arc::of(&angles);
    let angle = |share: f64| match seen {
        Arc { from, length } if length < TAU - WIDEST_GAP => {
            from + 0.5 * length + 0.5 * SWUNG * length * (TAU * turns * share).sin()
        }
        Arc { from, .. } => from + TAU * turns * share,
    };
    let camera = |frame: usize| {
        let angle = angle(frame as f64 / frames as f64);
        look(around, [radius * angle.cos(), radius * angle.sin(), height])
    };
    (0..frames).map(camera).collect()
}

/// An ellipse as wide as the cameras stand along their two main directions, which rises from their low to
/// their high places and falls again, at even speed.
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
    steps.into_iter().map(|share| look(around, place(share))).collect()
}

fn look(around: &Surroundings, place: [f64; 3]) -> PathCamera {
    PathCamera::looking_at(around.world(place), around.focus, around.up, around.focal)
}

/// A part of a circle, radians.
#[derive(Clone, Copy, Debug)]
struct Arc {
    from: f64,
    length: f64,
}

impl Arc {
    /// What is left of the circle beside the widest gap between these angles.
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

// Up, middle and distance, from the cameras of a scene.

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
mod tests {
    use super::surroundings_tests::ring;
    use super::*;
    use crate::math::linalg::{Vec3, dot, length, sub};

    const MIDDLE: Vec3<f64> = [1.0, 2.0, -3.0];

    fn around(arc_degrees: f64) -> Surroundings {
        Surroundings::of(&ring(24, MIDDLE, 4.0, 1.5, arc_degrees), &[]).unwrap()
    }

    /// Distance from the vertical axis through the middle, height above it, and angle about it.
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
        // The step from the last to the first is as long as any.
        assert!((step(&path[59], &path[0]) - step(&path[0], &path[1])).abs() < 1e-9);
        let twice = orbit(&around(360.0), 2.0, 60);
        assert!((step(&twice[0], &twice[1]) / step(&path[0], &path[1]) - 2.0).abs() < 0.01);
    }

    #[test]
    fn where_one_side_alone_was_seen_the_path_swings_over_it() {
        let seen = 90.0 * 23.0 / 24.0;
        let path = orbit(&around(90.0), 1.0, 100);
        let angles: Vec<f64> = path.iter().map(|camera| cylinder(camera)[2].to_degrees()).collect();
        let low = angles.iter().copied().fold(f64::MAX, f64::min);
        let high = angles.iter().copied().fold(f64::MIN, f64::max);
        assert!((high - low - SWUNG * seen).abs() < 0.2, "{low} {high}");
        assert!((0.5 * (high + low) - 0.5 * seen).abs() < 0.1, "{low} {high}");
    }

    #[test]
    fn an_ellipse_is_as_wide_as_the_cameras_stand_and_has_even_steps() {
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
        // Chords of a curve are a little shorter where it bends.
        assert!(steps.iter().all(|step| (step / mean - 1.0).abs() < 0.03), "{steps:?}");
        let widest = path.iter().map(|camera| (camera.centre_world[0] - MIDDLE[0]).abs());
        assert!((11.0..12.1).contains(&widest.fold(0.0, f64::max)));
    }
}

#[cfg(test)]
pub(in crate::video) mod surroundings_tests {
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
