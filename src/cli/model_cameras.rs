//! The cameras of a model, as its folder has them.

use std::fs;
use std::path::Path;

use splat_formats::{CameraSplit, SceneCamera};

use super::trained_views::TrainedViews;
use crate::dataset::Frame;
use crate::export::{CAMERAS_JSON, StoredCamera};

fn of_scene(camera: StoredCamera, split: CameraSplit, frame: &Frame) -> SceneCamera {
    let StoredCamera { img_name, width, height, position, rotation, fx, fy } = camera;
    SceneCamera {
        name: img_name,
        position: Frame::SCENE.to(frame, position),
        rotation,
        focal_px: [fx, fy],
        principal_px: [width, height].map(|size| 0.5 * f64::from(size)),
        size_px: [width, height],
        split,
    }
}

/// The cameras of a model folder at an iteration, in the coordinates of a frame; none, with a warning, where
/// they cannot be read.
pub(super) fn cameras_of(model_path: &Path, iteration: u32, frame: &Frame) -> Vec<SceneCamera> {
    let path = model_path.join(CAMERAS_JSON);
    let trained = TrainedViews::read(model_path, iteration).unwrap_or_else(|error| {
        tracing::warn!("{error}. All cameras are taken for those of training");
        None
    });
    let read =
        || -> anyhow::Result<Vec<StoredCamera>> { Ok(serde_json::from_slice(&fs::read(&path)?)?) };
    let stored = read().unwrap_or_else(|error| {
        tracing::warn!(
            "{}: cannot be read: {error:#}. The cameras of the model are not known",
            path.display()
        );
        Vec::new()
    });
    let shown = |camera: StoredCamera| {
        let is_trained = trained.as_ref().is_none_or(|names| names.contains_stem(&camera.img_name));
        of_scene(
            camera,
            if is_trained { CameraSplit::Training } else { CameraSplit::HeldOut },
            frame,
        )
    };
    let (usable, broken): (Vec<_>, Vec<_>) =
        stored.into_iter().map(shown).partition(SceneCamera::is_usable);
    for camera in broken {
        tracing::warn!(
            "{}: the camera {} has a value that is not finite, or no size or focal length, and is left \
             out",
            path.display(),
            camera.name
        );
    }
    usable
}

/// The same of those that the model was trained with.
pub(super) fn training_cameras_of(
    model_path: &Path,
    iteration: u32,
    frame: &Frame,
) -> Vec<SceneCamera> {
    let mut cameras = cameras_of(model_path, iteration, frame);
    cameras.retain(|camera| camera.split == CameraSplit::Training);
    cameras
}
