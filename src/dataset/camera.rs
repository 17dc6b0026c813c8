//! Cameras as the trainer uses them: undistorted, with their true principal point.
//!
//! Frames: `world` is the scene's, `cam` has x right, y down, z forward (COLMAP, OpenCV), `px` is the image with its
//! origin at the outer corner of the top left pixel, whose centre is (0.5, 0.5).

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
    /// Returns the camera of the image resized to `width` x `height`.
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

    /// Returns the camera of the image whose pixels are squares of this one's. Pixels at the right and bottom that
    /// fill no square are dropped.
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

    /// Multiplies the focal lengths. A factor below 1 widens the field of view at the same size.
    pub fn with_focal_times(&self, factor: f64) -> Self {
        Self { focal_px: self.focal_px.map(|focal| factor * focal), ..*self }
    }

    /// Returns the number of pixels.
    pub fn pixels(&self) -> usize {
        self.width as usize * self.height as usize
    }
}

/// Position and rotation of a camera: `point_cam = rotation point_world + translation`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Pose {
    /// Rotation from world to camera axes.
    pub rotation: Mat3<f64>,
    /// Translation in camera axes, world units.
    pub translation: Vec3<f64>,
}

impl Pose {
    /// Returns the camera's position in the world: -Rᵀ t.
    pub fn centre_world(&self) -> Vec3<f64> {
        scale(mul_transposed(&self.rotation, self.translation), -1.0)
    }
}

/// One photograph with its camera and pose.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct View {
    /// Name of the image below the image folder, as in the scene (`left/a.jpg`).
    pub name: String,
    /// Camera at the resolution of training.
    pub camera: Camera,
    /// The camera's pose.
    pub pose: Pose,
}

impl View {
    /// Returns the position in the image of a point of the world, px. `None` if the point is behind the camera or
    /// outside the image.
    pub fn pixel_of(&self, point_world: Vec3<f64>) -> Option<[f64; 2]> {
        let Pose { rotation, translation } = &self.pose;
        let [x, y, z] = add(mul(rotation, point_world), *translation);
        let Camera { width, height, focal_px, centre_px } = self.camera;
        let px = [0, 1].map(|axis| [x, y][axis] / z * focal_px[axis] + centre_px[axis]);
        let is_inside = |axis: usize, side: u32| (0.0..=f64::from(side)).contains(&px[axis]);
        (z > 0.0 && is_inside(0, width) && is_inside(1, height)).then_some(px)
    }

    /// True if a point of the world lies in front of the camera and inside the image.
    pub fn sees(&self, point_world: Vec3<f64>) -> bool {
        self.pixel_of(point_world).is_some()
    }

    /// Returns the name without its extension: `left/a.b` of `left/a.b.jpg`.
    pub fn stem(&self) -> &str {
        stem(&self.name)
    }
}

/// Returns a photograph's name without its extension.
pub(super) fn stem(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, extension)) if !extension.contains('/') && !stem.is_empty() => stem,
        _ => name,
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OpticalAxis {
    pub(super) centre: Vec3<f64>,
    /// Unit vector along the view.
    pub(super) forward: Vec3<f64>,
}

/// Returns the median distance of cameras to the point that they look at: along each axis of the world, the median of
/// the points of their optical axes nearest to `mean`.
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
    fn shorter_focal_length_widens_the_view() {
        let camera = Camera { width: 40, height: 30, focal_px: [50.0; 2], centre_px: [20.0, 15.0] };
        let wider = camera.with_focal_times(0.8);
        let x_px = |camera: &Camera| camera.focal_px[0] * 0.48 + camera.centre_px[0];
        assert!(x_px(&camera) > 40.0 && x_px(&wider) < 40.0);
        assert_eq!(wider, Camera { focal_px: [40.0; 2], ..camera });
    }

    #[test]
    fn points_in_front_and_inside_the_image_are_seen() {
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
    fn divided_camera_drops_incomplete_squares() {
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
        // A point at 4 x in the full image is at x in this one.
        let px = |camera: &Camera, slope: f64| camera.focal_px[0] * slope + camera.centre_px[0];
        for x in [2.0, 530.0, 1058.0] {
            let slope = (x - camera.centre_px[0]) / camera.focal_px[0];
            // A few roundings.
            assert!((px(&quarter, slope) - x / 4.0).abs() < 1e-12);
        }
    }

    #[test]
    fn viewing_distance_is_the_median_distance() {
        let thing = [1.0, -2.0, 3.0];
        let camera = |turn: f64, distance: f64| {
            let forward = [turn.cos(), turn.sin(), 0.0];
            OpticalAxis { centre: sub(thing, scale(forward, distance)), forward }
        };
        // Around a mean at the thing itself, whatever the distances of single cameras.
        let ring = [(0.0, 4.0), (1.0, 2.0), (2.0, 4.0), (4.0, 4.5), (5.0, 9.0)];
        let ring = ring.map(|(turn, distance)| camera(turn, distance));
        // A few roundings.
        assert!((viewing_distance(&ring, thing) - 4.0).abs() < 1e-12);
        // Around another mean too, if all axes meet in the thing and pass near the mean.
        let beside = viewing_distance(&ring, add(thing, [0.0, 0.0, 0.5]));
        assert!((beside - 4.0).abs() < 0.05, "{beside}");
        assert_eq!(viewing_distance(&[ring[0]; 3], ring[0].centre), 0.0);
        assert_eq!(viewing_distance(&[], thing), 0.0);
    }
}
