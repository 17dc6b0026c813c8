//! Cameras as the trainer uses them: undistorted, with their true principal point.
//!
//! Frames: `world` is the scene's, `cam` has x right, y down, z forward (COLMAP, OpenCV), `px` is
//! the image with its origin at the outer corner of the top left pixel, whose centre is (0.5, 0.5).

use serde::{Deserialize, Serialize};

use crate::math::Divisor;
use crate::math::linalg::{Mat3, Vec3, add, dot, length, mul, mul_transposed, scale, sub};
use crate::math::quantile::median;

/// A pinhole camera at one resolution.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Camera {
    /// Width in px.
    pub width: u32,
    /// Height in px.
    pub height: u32,
    /// Focal lengths in px.
    pub focal_px: [f64; 2],
    /// Principal point in px.
    pub centre_px: [f64; 2],
}

impl Camera {
    /// The same camera with its image resized to `width` x `height`.
    pub fn resized(&self, width: u32, height: u32) -> Self {
        let x = f64::from(width) / f64::from(self.width);
        let y = f64::from(height) / f64::from(self.height);
        Self {
            width,
            height,
            focal_px: [self.focal_px[0] * x, self.focal_px[1] * y],
            centre_px: [self.centre_px[0] * x, self.centre_px[1] * y],
        }
    }

    /// The camera of the image whose pixels are squares of this one's; those that fill no square, at the
    /// right and at the bottom, are not seen.
    pub fn divided(&self, divisor: Divisor) -> Self {
        let [width, height] = divisor.px([self.width, self.height]);
        let number = f64::from(divisor.get());
        Self {
            width,
            height,
            focal_px: self.focal_px.map(|focal| focal / number),
            centre_px: self.centre_px.map(|centre| centre / number),
        }
    }

    /// The same with another focal length: with a factor below 1 it sees a wider field in as many pixels.
    pub fn with_focal_times(&self, factor: f64) -> Self {
        Self { focal_px: self.focal_px.map(|focal| factor * focal), ..*self }
    }

    /// Pixels of the image.
    pub fn pixels(&self) -> usize {
        self.width as usize * self.height as usize
    }
}

/// Where a camera stands and how it is turned: `point_cam = rotation point_world + translation`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Pose {
    /// Rotation from world to camera axes.
    pub rotation: Mat3<f64>,
    /// Translation in camera axes, world units.
    pub translation: Vec3<f64>,
}

impl Pose {
    /// The camera's position in the world: -Rᵀ t.
    pub fn centre_world(&self) -> Vec3<f64> {
        scale(mul_transposed(&self.rotation, self.translation), -1.0)
    }
}

/// One photograph: what took it, from where.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct View {
    /// Name of the image below the image folder, as the scene writes it (`left/a.jpg`).
    pub name: String,
    /// The camera at the resolution that is trained.
    pub camera: Camera,
    /// The camera's pose.
    pub pose: Pose,
}

impl View {
    /// True if a point of the world is before the camera and inside of the image.
    pub fn sees(&self, point_world: Vec3<f64>) -> bool {
        let Pose { rotation, translation } = &self.pose;
        let [x, y, z] = add(mul(rotation, point_world), *translation);
        let Camera { width, height, focal_px, centre_px } = self.camera;
        let px = [x, y].map(|plane| plane / z);
        let is_inside = |axis: usize, side: u32| {
            (0.0..=f64::from(side)).contains(&(px[axis] * focal_px[axis] + centre_px[axis]))
        };
        z > 0.0 && is_inside(0, width) && is_inside(1, height)
    }

    /// The name without its extension: `left/a.b` of `left/a.b.jpg`.
    pub fn stem(&self) -> &str {
        stem(&self.name)
    }
}

/// A name of a photograph without its extension.
pub(super) fn stem(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, extension)) if !extension.contains('/') && !stem.is_empty() => stem,
        _ => name,
    }
}

/// The optical axis of a camera.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpticalAxis {
    /// Of the camera.
    pub(super) centre: Vec3<f64>,
    /// Where it looks, of length 1.
    pub(super) forward: Vec3<f64>,
}

/// Median distance of cameras to what they look at: along each axis of the world the median of the
/// points of their optical axes that are nearest to `mean`.
pub(super) fn viewing_distance(cameras: &[OpticalAxis], mean: Vec3<f64>) -> f64 {
    let nearest = |&OpticalAxis { centre, forward }: &OpticalAxis| {
        add(centre, scale(forward, dot(sub(mean, centre), forward)))
    };
    let nearest: Vec<Vec3<f64>> = cameras.iter().map(nearest).collect();
    let focus = [0, 1, 2].map(|axis| median(nearest.iter().map(|point| point[axis])));
    median(cameras.iter().map(|camera| length(sub(camera.centre, focus))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_focal_length_sees_what_lies_beyond_the_edges() {
        let camera = Camera { width: 40, height: 30, focal_px: [50.0; 2], centre_px: [20.0, 15.0] };
        let wider = camera.with_focal_times(0.8);
        let x_px = |camera: &Camera| camera.focal_px[0] * 0.48 + camera.centre_px[0];
        assert!(x_px(&camera) > 40.0 && x_px(&wider) < 40.0);
        assert_eq!(wider, Camera { focal_px: [40.0; 2], ..camera });
    }

    #[test]
    fn a_point_is_seen_before_the_camera_and_inside_of_the_image() {
        let camera = Camera { width: 40, height: 30, focal_px: [50.0; 2], centre_px: [20.0, 15.0] };
        let rotation = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let pose = Pose { rotation, translation: [0.0, 0.0, 2.0] };
        let view = View { name: String::new(), camera, pose };
        for (point, is_seen) in [
            ([0.0, 0.0, 0.0], true),
            ([0.0, 0.0, -1.99], true),
            ([0.0, 0.0, -2.0], false),
            ([0.0, 0.0, -5.0], false),
            ([0.79, 0.0, 0.0], true),
            ([0.81, 0.0, 0.0], false),
            ([0.0, -0.61, 0.0], false),
        ] {
            assert_eq!(view.sees(point), is_seen, "{point:?}");
        }
    }

    #[test]
    fn only_the_extension_is_cut() {
        for (name, expected) in [
            ("a.jpg", "a"),
            ("left/a.b.jpg", "left/a.b"),
            ("left.v2/a", "left.v2/a"),
            ("a", "a"),
            (".jpg", ".jpg"),
        ] {
            assert_eq!(stem(name), expected);
        }
    }

    #[test]
    fn a_divided_camera_sees_squares_of_pixels_and_drops_the_rest() {
        let camera = Camera {
            width: 1061,
            height: 1894,
            focal_px: [1300.5, 1302.25],
            centre_px: [529.75, 947.5],
        };
        assert_eq!(camera.divided(Divisor::One), camera);
        let quarter = camera.divided(Divisor::Four);
        assert_eq!((quarter.width, quarter.height), (265, 473));
        assert_eq!(quarter.focal_px, [325.125, 325.5625]);
        // What is seen at 4 x is seen at x: also in the middle of the first square.
        let px = |camera: &Camera, slope: f64| camera.focal_px[0] * slope + camera.centre_px[0];
        for x in [2.0, 530.0, 1058.0] {
            let slope = (x - camera.centre_px[0]) / camera.focal_px[0];
            // A few roundings.
            assert!((px(&quarter, slope) - x / 4.0).abs() < 1e-12);
        }
    }

    #[test]
    fn cameras_around_a_thing_look_at_it_from_as_far_as_they_stand() {
        let thing = [1.0, -2.0, 3.0];
        let camera = |turn: f64, distance: f64| {
            let forward = [turn.cos(), turn.sin(), 0.0];
            OpticalAxis { centre: sub(thing, scale(forward, distance)), forward }
        };
        // Around a mean that is the thing itself, whatever the distances of single cameras.
        let ring = [(0.0, 4.0), (1.0, 2.0), (2.0, 4.0), (4.0, 4.5), (5.0, 9.0)];
        let ring = ring.map(|(turn, distance)| camera(turn, distance));
        // A few roundings.
        assert!((viewing_distance(&ring, thing) - 4.0).abs() < 1e-12);
        // From elsewhere, too, where all axes meet in the thing and most are passed near it.
        let beside = viewing_distance(&ring, add(thing, [0.0, 0.0, 0.5]));
        assert!((beside - 4.0).abs() < 0.05, "{beside}");
        assert_eq!(viewing_distance(&[ring[0]; 3], ring[0].centre), 0.0);
        assert_eq!(viewing_distance(&[], thing), 0.0);
    }
}
