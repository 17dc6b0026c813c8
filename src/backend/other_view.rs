//! Another view of the scene whose photograph should show the same surface.

use crate::abi::PATCH_STRIDE;
use crate::dataset::View;
use crate::math::linalg::{mat_mul, mul, sub, transpose};
use crate::math::patches::OtherCamera;

/// Another view of the scene for the term [`crate::abi::terms::Term::MultiView`]. Only the comparison of the frame
/// needs it.
#[derive(Debug)]
pub struct OtherView<'a, T> {
    /// Its photograph.
    pub target: &'a T,
    /// Camera relative to the training view.
    pub camera: OtherCamera<f64>,
    /// First pixel whose patch is compared, 0 or 1 along each axis. Every second pixel follows.
    pub first_px: [u32; 2],
}

impl<T> Clone for OtherView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for OtherView<'_, T> {}

/// Returns the camera of `other` relative to `view`.
pub fn seen_from(view: &View, other: &View) -> OtherCamera<f64> {
    // x' = R' (Rᵀ (x - t)) + t'
    let rotation = mat_mul(&other.pose.rotation, &transpose(&view.pose.rotation));
    let translation = sub(other.pose.translation, mul(&rotation, view.pose.translation));
    let camera = &other.camera;
    OtherCamera {
        rotation,
        translation,
        focal_px: camera.focal_px,
        centre_px: camera.centre_px,
        size: [camera.width, camera.height],
    }
}

/// Returns the number of compared pixels along each axis.
pub(crate) fn patches(size: [u32; 2], first_px: [u32; 2]) -> [u32; 2] {
    [0, 1].map(|axis| size[axis].saturating_sub(first_px[axis]).div_ceil(PATCH_STRIDE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Camera, Pose};
    use crate::math::linalg::{add, rotation};

    #[test]
    fn seen_from_maps_points_between_cameras() {
        let view = |quat, translation| View {
            name: String::new(),
            camera: Camera { width: 4, height: 3, focal_px: [5.0, 6.0], centre_px: [2.0, 1.0] },
            pose: Pose { rotation: rotation(quat), translation },
        };
        let views = [
            view([0.9, 0.1, -0.3, 0.2], [0.3, -1.0, 2.0]),
            view([0.8, -0.2, 0.1, 0.4], [1.0, 0.5, -0.7]),
        ];
        let point = [0.4, 1.3, -2.2];
        let [here, there] = views
            .each_ref()
            .map(|View { pose, .. }| add(mul(&pose.rotation, point), pose.translation));
        let camera = seen_from(&views[0], &views[1]);
        let found = add(mul(&camera.rotation, here), camera.translation);
        for axis in 0..3 {
            assert!((found[axis] - there[axis]).abs() < 1e-14, "{found:?}, not {there:?}");
        }
    }

    #[test]
    fn four_first_pixels_cover_each_pixel_once() {
        for size in [[7, 4], [1, 1], [2, 5]] {
            let firsts = [[0, 0], [1, 0], [0, 1], [1, 1]];
            let compared: u32 =
                firsts.map(|first| patches(size, first).iter().product::<u32>()).iter().sum();
            assert_eq!(compared, size[0] * size[1]);
        }
    }
}
