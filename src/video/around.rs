//! Paths around what the cameras of a scene look at.

use std::f64::consts::{PI, TAU};

use super::even::even_steps;
use super::path_camera::PathCamera;
use super::surroundings::Surroundings;
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

#[cfg(test)]
mod tests {
    use super::super::surroundings::tests::ring;
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
