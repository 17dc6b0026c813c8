//! Device work for SOG files: search for the palette of harmonics, visibility of Gaussians, and fit of colours to
//! photographs.

mod refit;
mod search;

use splat_formats::{Antialiasing, Looks, SceneCamera, SeenFrom, Splats};

use crate::backend::{DeviceError, Footprint, RenderSettings, TrainDevice};
use crate::dataset::{Camera, Pose, View};
use crate::export::gaussians_of;
use crate::math::Real as _;
use crate::math::linalg::{mul, scale, transpose};

pub use refit::{RefitError, RefitScene};
pub use search::{DeviceTools, with_device};

/// Maximum number of cameras: neighbours see nearly the same.
const MAX_CAMERAS: usize = 512;

/// Maximum number of weights that are read back over all cameras, which limits the cameras of large scenes, and the
/// minimum number of cameras.
const MAX_WEIGHTS: usize = 300_000_000;

const MIN_CAMERAS: usize = 24;

/// Maximum side of a drawn view, px: larger views add nothing about occlusion.
const MAX_SIDE_PX: u32 = 1600;

/// Default variance of the 2D filter of Mip-Splatting, px², which files do not store.
const FILTER_VARIANCE_PX2: f64 = 0.1;

/// Weight of undrawn Gaussians, relative to the weight from the cameras alone.
const UNDRAWN_SHARE: f32 = 0.01;

/// Returns the footprint of a file's Gaussians. Files store only whether there is a 2D filter; `filter_px2` is its
/// variance, px².
pub fn footprint_of(splats: &Splats, filter_px2: Option<f64>) -> Footprint {
    let variance_px2 = filter_px2.unwrap_or(FILTER_VARIANCE_PX2);
    match splats.columns().antialiasing {
        Antialiasing::Off => Footprint::DILATED,
        Antialiasing::On => Footprint::Ellipse { variance_px2, compensates: true },
    }
}

/// Draws Gaussians from these cameras and sums their weights. Hidden Gaussians get a hundredth of the weight from the
/// cameras alone. `near` is the depth, scene units, before which nothing is drawn.
pub fn drawn_looks<B: TrainDevice>(
    device: &mut B,
    splats: &Splats,
    cameras: &[SceneCamera],
    near: f64,
) -> Result<SeenFrom, DeviceError> {
    let gaussians = gaussians_of(splats.clone());
    let sh_degree = gaussians.sh_degree;
    let footprint = footprint_of(splats, None);
    let settings = RenderSettings { sh_degree, footprint, near, ..RenderSettings::DEFAULT };
    let mut model = device.upload(&gaussians)?;
    drop(gaussians);
    let mut looks = Looks::at(splats.columns());
    let most = (MAX_WEIGHTS / splats.len().max(1)).clamp(MIN_CAMERAS, MAX_CAMERAS);
    for camera in cameras.iter().step_by(cameras.len().div_ceil(most).max(1)) {
        let (view, divisor) = view_of(camera);
        device.weigh(&mut model, &[&view], &settings)?;
        let mut weights = device.read_weights(&model)?;
        // In pixels of the photograph, comparable between views.
        let pixels = divisor * divisor;
        weights.iter_mut().for_each(|weight| *weight *= pixels);
        looks.add(camera.position, &weights);
    }
    let mut seen = looks.seen();
    seen.fill_from(&SeenFrom::of_cameras(splats.columns(), cameras), UNDRAWN_SHARE);
    Ok(seen)
}

/// Returns a camera's view at a useful size, and the divisor of its sides.
fn view_of(camera: &SceneCamera) -> (View, f32) {
    let [width, height] = camera.size_px;
    let full = Camera { width, height, focal_px: camera.focal_px, centre_px: camera.principal_px };
    let divisor = width.max(height).div_ceil(MAX_SIDE_PX).max(1);
    let rotation = transpose(&camera.rotation);
    let translation = scale(mul(&rotation, camera.position), -1.0);
    let view = View {
        name: camera.name.clone(),
        camera: full.resized((width / divisor).max(1), (height / divisor).max(1)),
        pose: Pose { rotation, translation },
    };
    (view, f64::from(divisor).to_f32())
}

#[cfg(test)]
mod tests {
    use splat_formats::{CameraSplit, SplatColumns};

    use super::*;
    use crate::backend::cpu::Cpu;

    fn camera() -> SceneCamera {
        SceneCamera {
            name: "a".to_owned(),
            position: [0.0, 0.0, -4.0],
            rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            focal_px: [40.0; 2],
            principal_px: [20.0; 2],
            size_px: [40; 2],
            split: CameraSplit::Training,
        }
    }

    fn splats() -> Splats {
        let columns = SplatColumns {
            sh_degree: 1,
            means: vec![[0.0; 3], [0.0, 0.0, 2.0], [0.0, 0.0, -9.0]],
            log_scales: vec![[-0.5, -0.5, -3.0]; 3],
            rotations: vec![[1.0, 0.0, 0.0, 0.0]; 3],
            opacity_logits: vec![9.0; 3],
            sh_dc: vec![[0.0; 3]; 3],
            sh_rest: vec![[0.1; 3]; 9],
            ..SplatColumns::default()
        };
        Splats::from_columns(columns).unwrap().splats
    }

    #[test]
    fn a_view_has_the_pose_of_its_camera_and_a_limited_size() {
        let moved = SceneCamera {
            position: [1.0, 2.0, 3.0],
            rotation: [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]],
            size_px: [4000, 3000],
            ..camera()
        };
        let (view, divisor) = view_of(&moved);
        let centre = view.pose.centre_world();
        assert!(
            centre.iter().zip(moved.position).all(|(a, b)| (a - b).abs() < 1e-12),
            "{centre:?}"
        );
        assert_eq!((view.camera.width, view.camera.height, divisor), (1333, 1000, 3.0));
        assert!((view.camera.focal_px[1] - 40.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn hidden_gaussians_have_less_weight_than_from_the_cameras_alone() {
        let (splats, cameras) = (splats(), [camera()]);
        let drawn = drawn_looks(&mut Cpu::<f32>::new(), &splats, &cameras, 0.01).unwrap();
        let alone = SeenFrom::of_cameras(splats.columns(), &cameras);
        let [drawn, alone] = [drawn, alone].map(|seen| seen.weights().to_vec());
        // The second is right behind the first, which transmits a hundredth in its middle.
        assert!(drawn[1] < 0.5 * drawn[0] && alone[1] > 0.4 * alone[0], "{drawn:?} {alone:?}");
        assert_eq!([drawn[2], alone[2]], [0.0; 2]);
    }
}
