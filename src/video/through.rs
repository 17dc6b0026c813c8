//! Smooth camera paths through given cameras.
//!
//! Positions follow centripetal Catmull-Rom splines (Barry and Goldman, "A recursive evaluation algorithm for a class
//! of Catmull-Rom splines", 1988; Yuksel, Schaefer and Keyser, 2011), which do not loop between near cameras.
//! Rotations follow squad (Shoemake, "Quaternion calculus and fast animation", 1987).

use super::PathCamera;
use crate::math::linalg::{Quat, Vec3, add, length, quaternion, rotation, scale, sub, transpose};

const MAX_CAMERAS: usize = 60;

/// Minimum distance of knots, for coincident positions, world units to the power of a half.
const MIN_KNOT: f64 = 1e-6;

/// Returns a path of `frames` frames through the cameras in their order, or through an even selection of many. A
/// closed path returns to the first camera.
pub fn through_cameras(cameras: &[PathCamera], closed: bool, frames: usize) -> Vec<PathCamera> {
    let path = Spline::through(&spread(cameras), closed);
    if path.keys.is_empty() {
        return Vec::new();
    }
    let steps = even_steps(frames, closed, |share| path.at(share).centre_world);
    steps.into_iter().map(|share| path.at(share)).collect()
}

/// Selects the first, the last and evenly spaced cameras between them, [`MAX_CAMERAS`] in total.
fn spread(cameras: &[PathCamera]) -> Vec<PathCamera> {
    let last = cameras.len().saturating_sub(1);
    let count = cameras.len().min(MAX_CAMERAS);
    (0..count).map(|at| cameras[(at * last).checked_div(count - 1).unwrap_or(0)]).collect()
}

#[derive(Clone, Copy)]
struct Key {
    camera: PathCamera,
    quat: Quat<f64>,
}

struct Spline {
    keys: Vec<Key>,
    closed: bool,
}

impl Spline {
    fn through(cameras: &[PathCamera], closed: bool) -> Self {
        let mut keys: Vec<Key> = Vec::new();
        for camera in cameras {
            let columns = transpose(&camera.world_from_camera);
            let mut quat = quaternion(columns);
            // Takes the one of both quaternions of the rotation that is nearer to the last one.
            if keys.last().is_some_and(|before| dot4(before.quat, quat) < 0.0) {
                quat = quat.map(|part| -part);
            }
            keys.push(Key { camera: *camera, quat });
        }
        Self { keys, closed: closed && cameras.len() > 2 }
    }

    /// Returns the key with this number; numbers beyond the ends wrap around or clamp. The quaternion has the sign
    /// nearer to `beside`.
    fn key(&self, number: i64, beside: Quat<f64>) -> Key {
        let count = i64::try_from(self.keys.len()).unwrap_or(1);
        let number =
            if self.closed { number.rem_euclid(count) } else { number.clamp(0, count - 1) };
        let mut key = self.keys[usize::try_from(number).unwrap_or(0)];
        if dot4(key.quat, beside) < 0.0 {
            key.quat = key.quat.map(|part| -part);
        }
        key
    }

    /// Returns the camera at a share of the path, 0 to 1.
    fn at(&self, share: f64) -> PathCamera {
        let spans = if self.closed { self.keys.len() } else { self.keys.len() - 1 };
        let along = share.clamp(0.0, 1.0) * spans as f64;
        #[expect(clippy::cast_possible_truncation, reason = "spans are few")]
        let span = (along.floor() as i64).min(i64::try_from(spans).unwrap_or(1).max(1) - 1);
        let within = along - span as f64;
        let first = self.key(span, self.keys[0].quat);
        let [before, second] = [span - 1, span + 1].map(|number| self.key(number, first.quat));
        let behind = self.key(span + 2, second.quat);
        let keys = [before, first, second, behind];
        let mix = |a: [f64; 2], b: [f64; 2]| [0, 1].map(|i| a[i] + (b[i] - a[i]) * within);
        let [from, to] = [first.camera, second.camera];
        PathCamera {
            centre_world: place(keys.map(|key| key.camera.centre_world), within),
            world_from_camera: rotation(squad(keys.map(|key| key.quat), within)),
            // Logarithms of focal lengths make the zoom look uniform.
            focal: mix(from.focal.map(f64::ln), to.focal.map(f64::ln)).map(f64::exp),
            offset: mix(from.offset, to.offset),
        }
    }
}

/// Evaluates the spline between the second and the third of four positions.
fn place([before, from, to, behind]: [Vec3<f64>; 4], within: f64) -> Vec3<f64> {
    let knot = |a: Vec3<f64>, b: Vec3<f64>| length(sub(b, a)).sqrt().max(MIN_KNOT);
    let t0 = 0.0;
    let t1 = t0 + knot(before, from);
    let t2 = t1 + knot(from, to);
    let t3 = t2 + knot(to, behind);
    let t = t1 + within * (t2 - t1);
    let mix = |a: Vec3<f64>, b: Vec3<f64>, low: f64, high: f64| {
        let share = (t - low) / (high - low);
        add(scale(a, 1.0 - share), scale(b, share))
    };
    let [a, b, c] = [mix(before, from, t0, t1), mix(from, to, t1, t2), mix(to, behind, t2, t3)];
    mix(mix(a, b, t0, t2), mix(b, c, t1, t3), t1, t2)
}

/// Interpolates between the second and the third of four rotations.
fn squad([before, from, to, behind]: [Quat<f64>; 4], within: f64) -> Quat<f64> {
    let inner = |before: Quat<f64>, at: Quat<f64>, next: Quat<f64>| {
        let inverse = conjugate(at);
        let steps = [next, before].map(|other| logarithm(product(inverse, other)));
        product(at, exponential(scale(add(steps[0], steps[1]), -0.25)))
    };
    let (first, second) = (inner(before, from, to), inner(from, to, behind));
    let outer = slerp(from, to, within);
    slerp(outer, slerp(first, second, within), 2.0 * within * (1.0 - within))
}

fn slerp(a: Quat<f64>, b: Quat<f64>, share: f64) -> Quat<f64> {
    let step = logarithm(product(conjugate(a), b));
    product(a, exponential(scale(step, share)))
}

fn dot4(a: Quat<f64>, b: Quat<f64>) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn conjugate([w, x, y, z]: Quat<f64>) -> Quat<f64> {
    [w, -x, -y, -z]
}

fn product(a: Quat<f64>, b: Quat<f64>) -> Quat<f64> {
    [
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    ]
}

/// Returns half the rotation vector of a unit quaternion, along the shorter way.
fn logarithm(quat: Quat<f64>) -> Vec3<f64> {
    let [w, x, y, z] = if quat[0] < 0.0 { quat.map(|part| -part) } else { quat };
    let sine = length([x, y, z]);
    if sine == 0.0 { [0.0; 3] } else { scale([x, y, z], sine.atan2(w) / sine) }
}

fn exponential(half: Vec3<f64>) -> Quat<f64> {
    let angle = length(half);
    if angle == 0.0 {
        return [1.0, 0.0, 0.0, 0.0];
    }
    let [x, y, z] = scale(half, angle.sin() / angle);
    [angle.cos(), x, y, z]
}

/// Segments of a curve for its length.
const SEGMENTS: u32 = 4096;

/// Returns `count` parameters from 0 to 1 with equal lengths of the curve between them. A closed curve ends a step
/// before its start. A curve without a length has equal steps of the parameter.
pub(super) fn even_steps(count: usize, closed: bool, place: impl Fn(f64) -> Vec3<f64>) -> Vec<f64> {
    let parameter = |piece: u32| f64::from(piece) / f64::from(SEGMENTS);
    let places: Vec<Vec3<f64>> = (0..=SEGMENTS).map(|piece| place(parameter(piece))).collect();
    let mut lengths = vec![0.0];
    for pair in places.windows(2) {
        lengths.push(lengths[lengths.len() - 1] + length(sub(pair[1], pair[0])));
    }
    let whole = lengths[lengths.len() - 1];
    let steps = if closed { count } else { count.saturating_sub(1) };
    let share = |step: usize| if steps == 0 { 0.0 } else { step as f64 / steps as f64 };
    if !(whole > 0.0 && whole.is_finite()) {
        return (0..count).map(share).collect();
    }
    let at = |step: usize| {
        let wanted = share(step) * whole;
        let above = lengths.partition_point(|&length| length < wanted).clamp(1, places.len() - 1);
        let (low, high) = (lengths[above - 1], lengths[above]);
        let within = if high > low { (wanted - low) / (high - low) } else { 0.0 };
        ((above - 1) as f64 + within.clamp(0.0, 1.0)) / f64::from(SEGMENTS)
    };
    (0..count).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::linalg::dot;
    use crate::video::around::tests::ring;

    #[test]
    fn a_path_of_two_cameras_begins_and_ends_at_them() {
        let cameras = ring(4, [0.0; 3], 3.0, 1.0, 180.0);
        let path = through_cameras(&cameras, false, 31);
        assert_eq!(path.len(), 31);
        for (shown, given) in [(path[0], cameras[0]), (path[30], cameras[3])] {
            assert!(length(sub(shown.centre_world, given.centre_world)) < 1e-9);
            let turns = (0..3).map(|axis| dot(shown.axis(axis), given.axis(axis)));
            assert!(turns.fold(1.0_f64, f64::min) > 1.0 - 1e-12);
            assert_eq!(shown.offset, given.offset);
            assert!((shown.focal[1] - given.focal[1]).abs() < 1e-12);
        }
        assert!(path.iter().all(PathCamera::is_sound));
    }

    #[test]
    fn the_path_stays_near_a_ring_and_closes() {
        let cameras = ring(12, [0.0; 3], 3.0, 1.0, 360.0);
        let path = through_cameras(&cameras, true, 120);
        for camera in &path {
            let [x, y, z] = camera.centre_world;
            // Chords of twelve are 3.4 % inside the circle; the spline is rounder.
            assert!((x.hypot(z) - 3.0).abs() < 0.01 && (y + 1.0).abs() < 1e-9, "{camera:?}");
            let inward = scale([x, y, z], -1.0 / length([x, y, z]));
            assert!(dot(camera.forward(), inward) > 0.9995, "{camera:?}");
        }
        let step = |a: usize, b: usize| length(sub(path[a].centre_world, path[b].centre_world));
        assert!((step(119, 0) / step(0, 1) - 1.0).abs() < 0.01);
    }

    #[test]
    fn one_camera_makes_a_constant_path_and_none_an_empty_one() {
        let camera = ring(1, [0.0; 3], 3.0, 1.0, 0.0);
        let path = through_cameras(&camera, true, 3);
        assert_eq!(path.len(), 3);
        let moved = path.iter().map(|it| length(sub(it.centre_world, camera[0].centre_world)));
        assert!(moved.fold(0.0, f64::max) < 1e-9);
        assert!(through_cameras(&[], false, 3).is_empty());
        // The first and the last of many cameras are selected.
        let many = spread(&ring(1000, [0.0; 3], 3.0, 1.0, 300.0));
        assert_eq!(many.len(), MAX_CAMERAS);
        let ends = ring(1000, [0.0; 3], 3.0, 1.0, 300.0);
        assert_eq!((many[0], many[MAX_CAMERAS - 1]), (ends[0], ends[999]));
    }

    #[test]
    fn steps_have_equal_lengths_or_are_equal_on_a_constant_curve() {
        // Three times as fast in the second half.
        let place = |t: f64| [if t < 0.5 { t } else { 0.5 + 3.0 * (t - 0.5) }, 0.0, 0.0];
        for (closed, count) in [(false, 9), (true, 8)] {
            let places: Vec<f64> =
                even_steps(count, closed, place).into_iter().map(|t| place(t)[0]).collect();
            // The error is the length of a segment.
            for pair in places.windows(2) {
                assert!((pair[1] - pair[0] - 0.25).abs() < 2.0 / f64::from(SEGMENTS), "{places:?}");
            }
            assert!(places[0].abs() < 1e-9);
        }
        assert_eq!(even_steps(3, false, |_| [1.0; 3]), [0.0, 0.5, 1.0]);
        assert_eq!(even_steps(1, false, |_| [1.0; 3]), [0.0]);
        assert_eq!(even_steps(0, true, |t| [t; 3]), [0.0; 0]);
    }
}
