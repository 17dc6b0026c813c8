//! The cameras of a model, from which a page shows it.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use splat_formats::{CameraSplit, HtmlCamera};

use super::trained_views::TrainedViews;

/// The file of the cameras in a model folder, as the reference trainer writes it.
const CAMERAS: &str = "cameras.json";

/// A camera of that file. It has no principal point: that is the middle of the picture.
#[derive(Deserialize)]
struct StoredCamera {
    /// Without the extension.
    img_name: String,
    width: u32,
    height: u32,
    position: [f64; 3],
    /// World from camera, in rows.
    rotation: [[f64; 3]; 3],
    fx: f64,
    fy: f64,
}

impl StoredCamera {
    fn on_page(self, split: CameraSplit) -> HtmlCamera {
        let Self { img_name, width, height, position, rotation, fx, fy } = self;
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
}

/// The cameras of a model folder at an iteration; none, with a warning, where they cannot be read.
pub(super) fn cameras_of(model_path: &Path, iteration: u32) -> Vec<HtmlCamera> {
    let path = model_path.join(CAMERAS);
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
    let on_page = |camera: StoredCamera| {
        let is_trained = trained.as_ref().is_none_or(|names| names.contains_stem(&camera.img_name));
        camera.on_page(if is_trained { CameraSplit::Training } else { CameraSplit::HeldOut })
    };
    let (usable, broken): (Vec<_>, Vec<_>) =
        stored.into_iter().map(on_page).partition(HtmlCamera::is_usable);
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
