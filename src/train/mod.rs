//! The training loop, written against the backend traits only.

pub mod appearance;
mod batches;
pub mod checkpoint;
pub mod coarse;
pub mod ensemble;
pub mod eval;
pub mod event;
pub(crate) mod feed;
pub mod follower;
pub mod forecast;
pub mod live;
mod other_views;
pub mod pace;
pub mod pictures;
pub mod refine;
pub mod report;
pub mod save;
pub mod schedule;
pub mod span;
pub mod strategy;
pub mod terms;
mod trainer;
pub mod triangles;
pub(crate) mod view_step;

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use self::checkpoint::CheckpointError;
use crate::backend::{DeviceError, Footprint};
use crate::config::{Config, OptimizeOptions, PrimitiveName};
use crate::dataset::{Dataset, ImageError};
use crate::files::OutputError;
use crate::math::Real;
use crate::math::linalg::mul;
use crate::math::morton::Cube;
use crate::math::quantile::percentile;

pub use feed::Views;
pub use trainer::{Outcome, Trainer, TrainerSetup};

/// Errors that end a run before its last iteration.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device's memory is short, and all fallbacks are in use.
    #[error("{source}.\nNothing more can be given up, so the run stops; {checkpoint} holds it")]
    OutOfMemory {
        /// Refused request.
        source: Box<DeviceError>,
        /// Checkpoint from which the run can continue.
        checkpoint: PathBuf,
    },
    /// A result cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The disk has no space for a result.
    #[error("{source}. {}", outcome(.checkpoint.as_deref()))]
    NoSpace {
        /// File that cannot be written.
        source: OutputError,
        /// Checkpoint from which the run can continue.
        checkpoint: Option<PathBuf>,
    },
    /// The checkpoint of the run cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A render of the ensemble cannot be read again.
    #[error(transparent)]
    Render(#[from] ImageError),
    /// No image of the training views can be decoded.
    #[error(
        "none of the {views} training images can be decoded. The first says: {first}. Check the \
         image folder of the scene"
    )]
    NoImages {
        /// Number of training views.
        views: usize,
        /// Error of the first view.
        first: String,
    },
    /// Density control removed the whole model.
    #[error(
        "iteration {iteration}: density control removed the last Gaussian, and the run stops. Check the cameras, or train \
         longer: --iterations {}",
        .iteration.saturating_mul(10).max(6000)
    )]
    Emptied {
        /// Iteration of the densification step.
        iteration: u32,
    },
}

impl TrainError {
    /// True if a file cannot be written because the disk is full.
    fn lacks_space(&self) -> bool {
        matches!(self, Self::Output(error) if error.is_for_space())
    }
}

/// Describes what remains of a run that a full disk stopped.
fn outcome(checkpoint: Option<&Path>) -> String {
    match checkpoint {
        Some(path) => format!("The run stops; it can continue from {}", path.display()),
        None => "The run stops, and there is no room for a checkpoint of it".to_owned(),
    }
}

/// Run that continues with less device memory, or ends with a checkpoint.
trait MemoryFallbacks: Sized {
    /// Takes the next fallback. Returns false if none is left.
    fn relieve(&mut self, error: &DeviceError) -> Result<bool, TrainError>;

    /// Writes a checkpoint and returns the error that ends the run.
    fn stop_for_memory(&mut self, error: DeviceError) -> TrainError;

    /// Runs `work`, which leaves the model unchanged if it fails. If memory is short, takes a fallback and tries
    /// again. Without a fallback, stops the run with a checkpoint.
    fn with_memory_retry<R>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<R, TrainError>,
    ) -> Result<R, TrainError> {
        loop {
            match work(self) {
                Err(TrainError::Device(error)) if error.is_out_of_memory() => {
                    if !self.relieve(&error)? {
                        return Err(self.stop_for_memory(error));
                    }
                }
                other => return other,
            }
        }
    }
}

/// Smallest plausible extent, world units. Below, all cameras stand in one place.
const EXTENT_MIN: f64 = 1e-6;

/// Returns the scale of learning rates and size limits: 1.1 times the largest distance of a training camera from
/// their mean, world units. 1 if all cameras stand in one place.
pub fn scene_extent(dataset: &Dataset) -> f64 {
    let extent = dataset.extent();
    if extent > EXTENT_MIN { extent } else { 1.0 }
}

/// Length units of a scene.
#[derive(Clone, Copy, Debug)]
pub struct SceneScale {
    /// Extent of the cameras, see [`scene_extent`].
    pub extent: f64,
    /// Viewing distance of the cameras, world units. Unit of constants from scenes whose cameras stand about one unit
    /// from what they see, as in gsplat.
    pub unit: f64,
}

impl SceneScale {
    /// Returns the scale of a scene; 1 if all cameras stand in one place.
    pub fn of(dataset: &Dataset) -> Self {
        let distance = dataset.viewing_distance();
        let unit = if distance > EXTENT_MIN { distance } else { 1.0 };
        Self { extent: scene_extent(dataset), unit }
    }
}

/// Returns the cube for ordering Gaussians. It is derived from the training cameras and mostly filled by the scene.
pub fn scene_cube(dataset: &Dataset) -> Cube {
    Cube { centre: dataset.centre().map(f64::to_f32), half_side: scene_extent(dataset).to_f32() }
}

/// Smallest near depth, as a share of [`scene_extent`].
///
/// Splats right before one camera fit that camera and spoil neighbour views. The safe depth scales with the scene.
/// gsplat takes the same share of its cameras' median distance.
const NEAR_SHARE: f64 = 0.01;

/// Returns the near plane of the training images that draw near Gaussians, world units along the view axis. `extent`:
/// see [`scene_extent`].
fn least_near(extent: f64) -> f64 {
    NEAR_SHARE * extent
}

/// Returns the near plane of evaluations, of other commands and of every second training image, world units along the
/// view axis. It depends only on the training cameras, the points and [`Dataset::near_share`].
pub fn near(dataset: &Dataset) -> f64 {
    near_of_share(dataset, dataset.near_share)
}

/// Returns the near plane for another `--near-share` than that with which the scene was opened.
fn near_of_share(dataset: &Dataset, near_share: f64) -> f64 {
    let SceneScale { extent, unit } = SceneScale::of(dataset);
    let (least, wanted) = (least_near(extent), near_share * unit.min(extent));
    if wanted <= least {
        return least;
    }
    // Cameras on a walk pass objects far nearer than the middle of the scene.
    let nearest = percentile(depths_in_view(dataset).into_iter(), 1);
    let most = if nearest > 0.0 { 0.5 * nearest } else { f64::INFINITY };
    wanted.min(most).max(least)
}

/// Returns depths of sampled points in the training views that see them.
fn depths_in_view(dataset: &Dataset) -> Vec<f64> {
    let points = dataset.sampled_points();
    let of_view = |&view: &usize| {
        let view = &dataset.views[view];
        let seen = points.iter().filter(|&&point| view.sees(point));
        seen.map(|&point| mul(&view.pose.rotation, point)[2] + view.pose.translation[2])
            .collect::<Vec<f64>>()
    };
    dataset.train.par_iter().flat_map_iter(of_view).collect()
}

/// Returns the footprint of the primitives, in training and afterwards.
pub fn render_footprint(config: &Config) -> Footprint {
    let OptimizeOptions { primitive, antialiasing, kernel_size, .. } = config.optimize;
    match primitive {
        PrimitiveName::Surfels => Footprint::Surfel,
        PrimitiveName::Triangles => {
            let last = config.optimize.iterations;
            Footprint::Triangle(triangles::schedule::window(&config.triangles, last, last))
        }
        PrimitiveName::Gaussians if antialiasing => {
            Footprint::Ellipse { variance_px2: kernel_size, compensates: true }
        }
        PrimitiveName::Gaussians => Footprint::DILATED,
    }
}
