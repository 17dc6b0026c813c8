//! Another view of the scene, whose photograph should show the same surface.

use crate::abi::PATCH_STRIDE;
use crate::dataset::View;
use crate::math::linalg::{mat_mul, mul, sub, transpose};
use crate::math::patches::OtherCamera;

/// Another view of the scene as the term [`crate::abi::terms::Term::MultiView`] takes it. It is no longer
/// needed once the frame is compared.
#[derive(Debug)]
pub struct OtherView<'a, T> {
    /// Its photograph.
    pub target: &'a T,
    /// Its camera, as seen from the view that is trained on.
    pub camera: OtherCamera<f64>,
    /// The first pixel whose patch is compared, 0 or 1 along each axis; from there it is every second.
    pub first_px: [u32; 2],
}

impl<T> Clone for OtherView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for OtherView<'_, T> {}

/// The camera of a view as seen from another's.
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

/// How many pixels of an image of this size are looked at along each axis.
pub(crate) fn patches(size: [u32; 2], first_px: [u32; 2]) -> [u32; 2] {
    [0, 1].map(|axis| size[axis].saturating_sub(first_px[axis]).div_ceil(PATCH_STRIDE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Camera, Pose};
    use crate::math::linalg::{add, rotation};

    #[test]
    fn a_point_of_one_camera_is_where_the_other_has_it() {
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
    fn each_pixel_is_looked_at_from_one_of_four_first_ones() {
        for size in [[7, 4], [1, 1], [2, 5]] {
            let firsts = [[0, 0], [1, 0], [0, 1], [1, 1]];
            let looked_at: u32 =
                firsts.map(|first| patches(size, first).iter().product::<u32>()).iter().sum();
            assert_eq!(looked_at, size[0] * size[1]);
        }
    }
}
