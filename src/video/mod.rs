//! Camera paths of videos.
//!
//! | file | content |
//! |---|---|
//! | `around.rs` | up, focus and distance of the scene's cameras, and circular and elliptic paths |
//! | `through.rs` | a smooth path from camera to camera, in equal steps |
//! | `frames_file.rs` | paths of other programs |

mod around;
mod frames_file;
mod through;

use crate::dataset::{Camera, Pose, View};
use crate::math::linalg::{Mat3, Vec3, cross, dot, length, mul, normalize, scale, sub, transpose};

pub use around::{NoSurroundings, Surroundings, ellipse, orbit};
pub use frames_file::{FramesFile, FramesFileError, SceneTransform, read_frames};
pub use through::through_cameras;

/// Sine of the smallest angle between view direction and up.
const UPRIGHT: f64 = 1e-6;

/// A camera for frames of any size. Lengths on the frame are in heights of the frame, so that the vertical field of
/// view is independent of the size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathCamera {
    /// Position, world units.
    pub centre_world: Vec3<f64>,
    /// Columns are the camera's axes: x right, y down, z forward.
    pub world_from_camera: Mat3<f64>,
    /// Focal lengths, heights of the frame.
    pub focal: [f64; 2],
    /// Principal point from the middle of the frame, heights of the frame.
    pub offset: [f64; 2],
}

impl PathCamera {
    /// Converts the camera of a view.
    pub fn of(view: &View) -> Self {
        let Camera { width, height, focal_px, centre_px } = view.camera;
        let middle = [width, height].map(|size| 0.5 * f64::from(size));
        let height = f64::from(height);
        Self {
            centre_world: view.pose.centre_world(),
            world_from_camera: transpose(&view.pose.rotation),
            focal: focal_px.map(|focal| focal / height),
            offset: [0, 1].map(|axis| (centre_px[axis] - middle[axis]) / height),
        }
    }

    /// Returns an upright camera that looks at a point, with square pixels and a centred axis. If the camera looks
    /// along up, its roll is arbitrary.
    pub fn looking_at(
        centre_world: Vec3<f64>,
        target: Vec3<f64>,
        up: Vec3<f64>,
        focal: f64,
    ) -> Self {
        let forward = normalize(sub(target, centre_world));
        let mut right = cross(forward, up);
        if length(right) < UPRIGHT * length(up) {
            let least = [0, 1, 2].map(|axis| forward[axis].abs());
            let axis = if least[0] < 0.6 { [1.0, 0.0, 0.0] } else { [0.0, 1.0, 0.0] };
            right = cross(forward, axis);
        }
        let right = normalize(right);
        let down = cross(forward, right);
        Self {
            centre_world,
            world_from_camera: transpose(&[right, down, forward]),
            focal: [focal; 2],
            offset: [0.0; 2],
        }
    }

    /// Returns the unit view direction.
    pub fn forward(&self) -> Vec3<f64> {
        self.axis(2)
    }

    fn axis(&self, column: usize) -> Vec3<f64> {
        [0, 1, 2].map(|row| self.world_from_camera[row][column])
    }

    /// Returns the view for a frame of this size, px.
    pub fn view(&self, name: String, [width, height]: [u32; 2]) -> View {
        let heights = f64::from(height);
        let rotation = transpose(&self.world_from_camera);
        let middle = [width, height].map(|size| 0.5 * f64::from(size));
        View {
            name,
            camera: Camera {
                width,
                height,
                focal_px: self.focal.map(|focal| focal * heights),
                centre_px: [0, 1].map(|axis| middle[axis] + self.offset[axis] * heights),
            },
            pose: Pose { rotation, translation: scale(mul(&rotation, self.centre_world), -1.0) },
        }
    }

    /// Returns true if all values are finite, the axes are a rotation, and the focal lengths are positive.
    fn is_sound(&self) -> bool {
        let axes = [0, 1, 2].map(|column| self.axis(column));
        let values = [self.centre_world.as_slice(), axes.as_flattened(), &self.focal, &self.offset];
        let is_turn = (dot(cross(axes[0], axes[1]), axes[2]) - 1.0).abs() < 1e-3
            && axes.iter().all(|axis| (length(*axis) - 1.0).abs() < 1e-3);
        values.into_iter().flatten().all(|value| value.is_finite())
            && is_turn
            && self.focal.iter().all(|&focal| focal > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_kept_at_its_own_size() {
        let camera = Camera {
            width: 640,
            height: 426,
            focal_px: [512.25, 509.5],
            centre_px: [318.0, 220.5],
        };
        // A quarter turn about y.
        let rotation = [[0.0, 0.0, -1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]];
        let pose = Pose { rotation, translation: [0.5, -1.5, 4.0] };
        let view = View { name: "a".to_owned(), camera, pose };
        let back = PathCamera::of(&view).view("a".to_owned(), [640, 426]);
        assert_eq!(back.pose.rotation, view.pose.rotation);
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        (0..3).for_each(|i| close(back.pose.translation[i], view.pose.translation[i]));
        (0..2).for_each(|i| close(back.camera.focal_px[i], camera.focal_px[i]));
        (0..2).for_each(|i| close(back.camera.centre_px[i], camera.centre_px[i]));
        // A wider frame shows the same height.
        let wide = PathCamera::of(&view).view("a".to_owned(), [1704, 852]).camera;
        close(wide.focal_px[1], 1019.0);
        close(wide.centre_px[0], 852.0 - 4.0);
    }

    #[test]
    fn looking_at_a_point_centres_it_upright() {
        for (centre, up) in [
            ([3.0, -1.0, 2.0], [0.0, -1.0, 0.0]),
            ([0.0, -5.0, 0.0], [0.0, -1.0, 0.0]),
            ([1.0, 1.0, 1.0], [0.0, 0.0, 2.0]),
        ] {
            let camera = PathCamera::looking_at(centre, [0.0; 3], up, 1.2);
            assert!(camera.is_sound(), "{camera:?}");
            let view = camera.view(String::new(), [200, 100]);
            let [x, y, z] = view.pose.translation;
            assert!(x.abs() < 1e-12 && y.abs() < 1e-12 && z > 0.0, "{view:?}");
            // The y axis points down.
            assert!(dot(camera.axis(1), up) < 1e-12, "{camera:?}");
        }
    }
}
