//! Device work for SOG files: search for the palette of harmonics, visibility of Gaussians, and fit of colours to
//! photographs.
//!
//! The fit moves colours and opacities after Gaussians share their harmonics. Positions, scales and rotations stay as
//! the file stores them. In each round, all colours and the opacities follow the gradients; then each group of
//! Gaussians gets the weighted mean of its harmonics. The harmonics are fixed in the last round.

mod search;

use splat_formats::{
    Antialiasing, Observations, SceneCamera, SeenFrom, SharedRows, Splats, SplatsError,
};

use crate::backend::{AdamStep, DeviceError, Footprint, Rates, RenderSettings, Terms, TrainDevice};
use crate::dataset::{Camera, Dataset, ImageLoader, Pose, View};
use crate::export::{RenderMode, gaussians_of, splats_of};
use crate::math::linalg::{mul, scale, transpose};
use crate::math::{Divisor, Real as _};
use crate::model::Gaussians;
use crate::train::feed::Feed;
use crate::train::view_step::{ViewInputs, add_gradients};
use crate::train::{TrainError, Views};

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
pub fn drawn_observations<B: TrainDevice>(
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
    let mut observations = Observations::at(splats.columns());
    let most = (MAX_WEIGHTS / splats.len().max(1)).clamp(MIN_CAMERAS, MAX_CAMERAS);
    for camera in cameras.iter().step_by(cameras.len().div_ceil(most).max(1)) {
        let (view, divisor) = view_of(camera);
        device.weigh(&mut model, &[&view], &settings)?;
        let mut weights = device.read_weights(&model)?;
        // In pixels of the photograph, comparable between views.
        let pixels = divisor * divisor;
        weights.iter_mut().for_each(|weight| *weight *= pixels);
        observations.add(camera.position, &weights);
    }
    let mut seen = observations.seen();
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

const ROUNDS: u32 = 5;

/// Initial learning rates: the rates of 3D Gaussian splatting, but lower for the opacities, which have converged.
const RATES: Rates = Rates {
    means: 0.0,
    log_scales: 0.0,
    quats: 0.0,
    opacity_logits: 0.01,
    sh_dc: 0.0025,
    sh_rest: 0.000_125,
};

/// Factor of the learning rates at the end.
const LAST_RATE: f64 = 0.1;

/// Error of a fit.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum RefitError {
    #[error(transparent)]
    Train(#[from] TrainError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("what the fit came to cannot be written: {0}")]
    Columns(#[from] SplatsError),
    #[error(
        "the fit left the range of numbers: colours of the model or of its photographs are broken"
    )]
    NotFinite,
}

/// Photographs and settings of a fit.
pub struct RefitScene<'a> {
    /// The scene.
    pub dataset: &'a Dataset,
    /// The photographs.
    pub images: &'a ImageLoader,
    /// Settings of the drawing.
    pub settings: RenderSettings,
    /// Weight of the structural similarity in the loss.
    pub lambda_dssim: f64,
    /// Number of drawn images.
    pub images_drawn: u32,
    /// Seed of the order of the images.
    pub seed: u64,
}

impl RefitScene<'_> {
    /// Returns the Gaussians with colours, harmonics and opacities fitted to the training views. Groups still share
    /// their harmonics.
    pub fn fit<B: TrainDevice>(
        &self,
        device: &mut B,
        stored: &Splats,
        alike: &SharedRows,
    ) -> Result<Splats, RefitError> {
        let mode = match stored.columns().antialiasing {
            Antialiasing::On => RenderMode::Mip,
            Antialiasing::Off => RenderMode::Dilated,
        };
        let mut gaussians = gaussians_of(stored.clone());
        let terms = Terms::photometric(self.lambda_dssim);
        let mut feed = Feed::new(Views::new(self.dataset, self.images), self.seed);
        let near = feed.views.near();
        let mut image = 0;
        for round in 1..=ROUNDS {
            let mut model = device.upload(&gaussians)?;
            let before = image;
            while image < self.images_drawn.saturating_mul(round).div_ceil(ROUNDS) {
                image += 1;
                let (view, target) = feed.take(device, image)?;
                let inputs = ViewInputs {
                    view: feed.views.training_view(view),
                    settings: RenderSettings { near, ..self.settings },
                    observe: None,
                    divisor: Divisor::One,
                    compensation: None,
                    terms: &terms,
                    near: None,
                    other: None,
                };
                let mut gradients = B::Gradients::default();
                add_gradients(device, &mut model, &target, &inputs, None, &mut gradients)?;
                let rates = rates_at(image, self.images_drawn, round == ROUNDS);
                device.step(&mut model, gradients, &AdamStep::new(image - before, rates))?;
            }
            gaussians = device.download(&mut model)?;
            if round < ROUNDS {
                share(&mut gaussians, alike);
            }
        }
        for warning in feed.views.take_warnings() {
            tracing::warn!("{warning}");
        }
        let fitted = splats_of(&gaussians, mode)?.splats;
        if fitted.len() != stored.len() {
            return Err(RefitError::NotFinite);
        }
        Ok(fitted)
    }
}

/// Returns the rates for one of `images` images. The rate of the harmonics is 0 in the last round.
fn rates_at(image: u32, images: u32, is_last_round: bool) -> Rates {
    let done = f64::from(image) / f64::from(images.max(1));
    let factor = LAST_RATE.powf(done);
    Rates {
        opacity_logits: RATES.opacity_logits * factor,
        sh_dc: RATES.sh_dc * factor,
        sh_rest: if is_last_round { 0.0 } else { RATES.sh_rest * factor },
        ..RATES
    }
}

/// Sets the harmonics of each group to their weighted mean.
fn share(gaussians: &mut Gaussians, alike: &SharedRows) {
    let width = gaussians.sh_rest.len() / gaussians.len().max(1);
    if width == 0 {
        return;
    }
    let mut sums = vec![0.0_f64; alike.entries * width];
    let mut totals = vec![f64::MIN_POSITIVE; alike.entries];
    let rows = gaussians.sh_rest.chunks_exact(width).zip(&alike.labels).zip(&alike.weights);
    for ((row, &label), &weight) in rows {
        totals[label as usize] += f64::from(weight);
        let sums = &mut sums[label as usize * width..][..width];
        for (sum, &value) in sums.iter_mut().zip(row) {
            *sum += f64::from(weight) * f64::from(value);
        }
    }
    for (row, &label) in gaussians.sh_rest.chunks_exact_mut(width).zip(&alike.labels) {
        let label = label as usize;
        for (value, sum) in row.iter_mut().zip(&sums[label * width..][..width]) {
            *value = (sum / totals[label]).to_f32();
        }
    }
}

#[cfg(test)]
mod tests {
    use splat_formats::{CameraSplit, SplatColumns};

    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::math::differences::assert_near;

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
        for (found, expected) in centre.into_iter().zip(moved.position) {
            assert_near(found, expected, 1e-12, centre);
        }
        assert_eq!((view.camera.width, view.camera.height, divisor), (1333, 1000, 3.0));
        assert!((view.camera.focal_px[1] - 40.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn hidden_gaussians_have_less_weight_than_from_the_cameras_alone() {
        let (splats, cameras) = (splats(), [camera()]);
        let drawn = drawn_observations(&mut Cpu::<f32>::new(), &splats, &cameras, 0.01).unwrap();
        let alone = SeenFrom::of_cameras(splats.columns(), &cameras);
        let [drawn, alone] = [drawn, alone].map(|seen| seen.weights().to_vec());
        // The second is right behind the first, which transmits a hundredth in its middle.
        assert!(drawn[1] < 0.5 * drawn[0] && alone[1] > 0.4 * alone[0], "{drawn:?} {alone:?}");
        assert_eq!([drawn[2], alone[2]], [0.0; 2]);
    }

    fn gaussians() -> Gaussians {
        Gaussians {
            sh_degree: 1,
            means: vec![0.0; 9],
            log_scales: vec![0.0; 9],
            quats: vec![0.5; 12],
            opacity_logits: vec![0.0; 3],
            sh_dc: vec![0.0; 9],
            sh_rest: [vec![1.0; 9], vec![4.0; 9], vec![7.0; 9]].concat(),
        }
    }

    #[test]
    fn groups_get_the_weighted_mean_of_their_harmonics_if_there_are_any() {
        let mut grouped = gaussians();
        let alike = SharedRows { labels: vec![1, 0, 1], entries: 2, weights: vec![1.0, 5.0, 2.0] };
        share(&mut grouped, &alike);
        let expected = [vec![5.0; 9], vec![4.0; 9], vec![5.0; 9]].concat();
        assert_eq!(grouped.sh_rest, expected);
        let mut flat = Gaussians { sh_degree: 0, sh_rest: Vec::new(), ..gaussians() };
        let before = flat.clone();
        let alike = SharedRows { labels: vec![0; 3], entries: 1, weights: vec![1.0; 3] };
        share(&mut flat, &alike);
        assert_eq!(flat, before);
    }

    #[test]
    fn rates_fall_to_a_tenth_and_harmonics_are_fixed_at_the_end() {
        let (first, last) = (rates_at(0, 100, false), rates_at(100, 100, true));
        assert_eq!((first.sh_dc, first.sh_rest), (RATES.sh_dc, RATES.sh_rest));
        assert!((last.sh_dc - 0.1 * RATES.sh_dc).abs() < 1e-12);
        assert_eq!([last.sh_rest, last.means, last.log_scales, last.quats], [0.0; 4]);
    }
}
