//! The cameras of a model, from which a page shows it.

use std::fs;
use std::path::Path;

use splat_formats::{CameraSplit, HtmlCamera};

use super::trained_views::TrainedViews;
use crate::export::{CAMERAS_JSON, StoredCamera};

fn on_page(camera: StoredCamera, split: CameraSplit) -> HtmlCamera {
    let StoredCamera { img_name, width, height, position, rotation, fx, fy } = camera;
    HtmlCamera {
        name: img_name,
        position,
        rotation,
        focal_px: [fx, fy],
        principal_px: [width, height].map(|size| 0.5 * f64::from(size)),
        size_px: [width, height],
        split,
    }
}

/// The cameras of a model folder at an iteration; none, with a warning, where they cannot be read.
pub(super) fn cameras_of(model_path: &Path, iteration: u32) -> Vec<HtmlCamera> {
    let path = model_path.join(CAMERAS_JSON);
    let trained = TrainedViews::read(model_path, iteration).unwrap_or_else(|error| {
        tracing::warn!("{error}. The page calls all cameras those of training");
        None
    });
    let read =
        || -> anyhow::Result<Vec<StoredCamera>> { Ok(serde_json::from_slice(&fs::read(&path)?)?) };
    let stored = read().unwrap_or_else(|error| {
        tracing::warn!(
            "{}: cannot be read: {error:#}. The page has no cameras to jump to",
            path.display()
        );
        Vec::new()
    });
    let shown = |camera: StoredCamera| {
        let is_trained = trained.as_ref().is_none_or(|names| names.contains_stem(&camera.img_name));
        on_page(camera, if is_trained { CameraSplit::Training } else { CameraSplit::HeldOut })
    };
    let (usable, broken): (Vec<_>, Vec<_>) =
        stored.into_iter().map(shown).partition(HtmlCamera::is_usable);
    for camera in broken {
        tracing::warn!(
            "{}: the camera {} has a value that is not finite, or no size or focal length. The page does \
             without it",
            path.display(),
            camera.name
        );
    }
    usable
}
