//! Cameras on a dome around the scene.

use super::options::{SynthOptions, SynthScene};
use super::shape::Ray;
use crate::dataset::{Camera, Pose, View};
use crate::math::linalg::{Vec3, add, cross, dot, mul_transposed, normalize, scale, sub};
use crate::math::random::{RandomStream, RandomUse};

/// What the cameras look at: where the ball sits on the ring.
const TARGET: Vec3<f64> = [0.0, -0.56, 0.0];

/// Mean distance of the cameras from the target.
const DISTANCE: f64 = 4.25;

/// Lowest and highest elevation of the cameras, degrees.
const ELEVATION: [f64; 2] = [16.0, 58.0];

/// Views along a rising spiral: neighbours in it differ little, and no turn repeats another.
pub(super) fn dome(options: &SynthOptions) -> Vec<View> {
    let camera = camera(options);
    let stream = RandomStream::new(options.seed, 1, RandomUse::Synthesise);
    let turns = 0.38 + f64::max(1.0, (f64::from(options.views) / 15.0).round());
    (0..options.views)
        .map(|index| {
            let along = (f64::from(index) + 0.5) / f64::from(options.views);
            let jitter = |i: u64| stream.uniform(u64::from(index) * 8 + i) - 0.5;
            let azimuth = std::f64::consts::TAU * turns * along;
            let elevation =
                (ELEVATION[0] + (ELEVATION[1] - ELEVATION[0]) * along + 3.0 * jitter(0))
                    .to_radians();
            let outward = [
                elevation.cos() * azimuth.cos(),
                -elevation.sin(),
                elevation.cos() * azimuth.sin(),
            ];
            let target = add(TARGET, scale([jitter(1), jitter(2), jitter(3)], 0.12));
            let eye = add(TARGET, scale(outward, DISTANCE * (1.0 + 0.1 * jitter(4))));
            View { name: name(index), camera, pose: looking(eye, target) }
        })
        .collect()
}

/// Name of a photograph.
fn name(index: u32) -> String {
    format!("view_{index:03}.png")
}

/// Whether a photograph made here may have this name.
pub(super) fn is_name(text: &str) -> bool {
    let number = text.strip_prefix("view_").and_then(|rest| rest.strip_suffix(".png"));
    number.and_then(|number| number.parse().ok()).is_some_and(|index| name(index) == text)
}

/// One camera for all views. Neither are its pixels quite square nor is its principal point in the
/// middle, so that a trainer that supposes so is found out.
fn camera(options: &SynthOptions) -> Camera {
    let [width, height] = [f64::from(options.width), f64::from(options.height)];
    let focal = focal_share(options.scene) * width.min(height * 4.0 / 3.0);
    Camera {
        width: options.width,
        height: options.height,
        focal_px: [focal, 0.99 * focal],
        centre_px: [0.513 * width, 0.483 * height],
    }
}

/// How the focal length of a scene's camera compares with the width of a photograph of 4:3.
fn focal_share(scene: SynthScene) -> f64 {
    match scene {
        // Rooms are photographed with wide lenses.
        SynthScene::Room => 0.6,
        _ => 0.95,
    }
}

/// A view of the number `index` from `eye` towards `target`.
pub(super) fn view(options: &SynthOptions, index: u32, eye: Vec3<f64>, target: Vec3<f64>) -> View {
    View { name: name(index), camera: camera(options), pose: looking(eye, target) }
}

/// The pose of an upright camera at `eye` that looks at `target`.
fn looking(eye: Vec3<f64>, target: Vec3<f64>) -> Pose {
    let forward = normalize(sub(target, eye));
    let right = normalize(cross([0.0, 1.0, 0.0], forward));
    let down = cross(forward, right);
    let rotation = [right, down, forward];
    Pose { rotation, translation: rotation.map(|axis| -dot(axis, eye)) }
}

/// The ray from a view's camera through a point of its image, px.
pub(super) fn ray_through(view: &View, at: [f64; 2]) -> Ray {
    let Camera { focal_px, centre_px, .. } = view.camera;
    let direction_cam =
        [(at[0] - centre_px[0]) / focal_px[0], (at[1] - centre_px[1]) / focal_px[1], 1.0];
    Ray {
        origin: view.pose.centre_world(),
        direction: normalize(mul_transposed(&view.pose.rotation, direction_cam)),
    }
}

/// Where a point appears in a view, px; `None` behind the camera or outside of the image.
pub(super) fn project(view: &View, point_world: Vec3<f64>) -> Option<[f64; 2]> {
    let Camera { width, height, focal_px, centre_px } = view.camera;
    let point = add(view.pose.rotation.map(|axis| dot(axis, point_world)), view.pose.translation);
    if point[2] <= 0.0 {
        return None;
    }
    let at: [f64; 2] = std::array::from_fn(|i| focal_px[i] * point[i] / point[2] + centre_px[i]);
    let inside =
        (0.0..f64::from(width)).contains(&at[0]) && (0.0..f64::from(height)).contains(&at[1]);
    inside.then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rays_invert_projection_and_world_up_is_image_up() {
        for view in dome(&SynthOptions { views: 9, ..SynthOptions::default() }) {
            for at in [[3.2, 111.0], [80.0, 60.5], [159.0, 0.5]] {
                let ray = ray_through(&view, at);
                let back = project(&view, add(ray.origin, scale(ray.direction, 3.0))).unwrap();
                // 1e-9 px: a few roundings of numbers near 100.
                assert!((back[0] - at[0]).abs() < 1e-9 && (back[1] - at[1]).abs() < 1e-9);
            }
            let low = project(&view, [0.0, -0.5, 0.0]).unwrap();
            let high = project(&view, [0.0, -0.9, 0.0]).unwrap();
            assert!(high[1] < low[1], "{}", view.name);
            assert!(project(&view, add(view.pose.centre_world(), [0.0, -9.0, 0.0])).is_none());
        }
    }
}
