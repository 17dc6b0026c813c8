//! What a page knows of a scene before it loads anything.

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};
use splat_formats::{CameraSplit, SceneCamera, middle_and_radius};

use super::meshes::KnownMesh;
use crate::config::PrimitiveName;

/// Up in COLMAP's axes, more or less, where no cameras tell it.
pub(super) const UP: [f64; 3] = [0.0, -1.0, 0.0];

/// A camera of the page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ViewedCamera {
    /// Where it stands and what it sees.
    #[serde(flatten)]
    pub camera: SceneCamera,
    /// Its photograph can be asked for.
    pub has_photo: bool,
    /// PSNR of the newest evaluation, dB, of held-out views.
    pub psnr: Option<f64>,
}

/// The cameras of a model, as they are known.
#[derive(Clone, Debug, Default)]
pub struct KnownCameras {
    /// In the order of names.
    pub cameras: Vec<SceneCamera>,
    /// Indices of held-out ones in the order of their evaluation.
    pub held_out: Vec<usize>,
}

impl KnownCameras {
    /// Cameras whose split says which are held out.
    pub fn in_order(cameras: Vec<SceneCamera>) -> Self {
        let is_held_out = |&index: &usize| cameras[index].split == CameraSplit::HeldOut;
        let held_out = (0..cameras.len()).filter(is_held_out).collect();
        Self { cameras, held_out }
    }
}

/// The JSON of `/api/scene`.
#[derive(Debug, Serialize)]
pub(super) struct SceneFacts<'a> {
    pub(super) title: &'a str,
    pub(super) primitive: PrimitiveName,
    pub(super) antialiased: bool,
    pub(super) sh_degree: u32,
    /// The middle of what there is, scene units.
    pub(super) center: [f32; 3],
    /// How far from it most is, scene units; above 0.
    pub(super) radius: f32,
    pub(super) up: [f64; 3],
    pub(super) cameras: Vec<ViewedCamera>,
    /// Points that training began from.
    pub(super) points: usize,
    pub(super) meshes: Vec<KnownMesh>,
    /// Nothing may be asked of a run.
    pub(super) read_only: bool,
}

/// The middle and the radius of a scene by its points, or else by its cameras.
pub(super) fn extent_of(points: &[[f32; 3]], cameras: &[SceneCamera]) -> ([f32; 3], f32) {
    if !points.is_empty() {
        return middle_and_radius(points);
    }
    #[expect(clippy::cast_possible_truncation, reason = "places for a first look")]
    let places: Vec<[f32; 3]> =
        cameras.iter().map(|camera| camera.position.map(|x| x as f32)).collect();
    middle_and_radius(&places)
}

/// PSNR of held-out views by their number in the split, of the newest evaluation that `per_view.json`
/// in the model folder has, dB.
pub(super) fn measured(model_path: &Path) -> Vec<(usize, f64)> {
    let read = std::fs::read(model_path.join("per_view.json")).ok();
    let all: Option<Map<String, Value>> =
        read.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let number = |key: &str| key.strip_prefix("ours_")?.parse::<u32>().ok();
    let newest = all
        .iter()
        .flatten()
        .filter_map(|(key, value)| Some((number(key)?, value)))
        .max_by_key(|(iteration, _)| *iteration);
    let views = newest.and_then(|(_, value)| value.get("PSNR")?.as_object());
    let view = |(name, value): (&String, &Value)| {
        Some((name.strip_suffix(".png")?.parse().ok()?, value.as_f64()?))
    };
    views.into_iter().flatten().filter_map(view).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_have_the_figures_of_the_newest_evaluation() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(measured(folder.path()), []);
        let text = r#"{"ours_900": {"PSNR": {"00000.png": 20.0}}, "ours_30000": {"SSIM": {"00000.png": 0.5},
            "PSNR": {"00000.png": 27.5, "00001.png": 26.25, "00002.png": null}}, "other": 3}"#;
        std::fs::write(folder.path().join("per_view.json"), text).unwrap();
        assert_eq!(measured(folder.path()), [(0, 27.5), (1, 26.25)]);
        std::fs::write(folder.path().join("per_view.json"), "{\"ours_").unwrap();
        assert_eq!(measured(folder.path()), []);
    }

    #[test]
    fn a_scene_without_points_is_as_large_as_its_cameras() {
        let camera = |x: f64| SceneCamera {
            name: String::new(),
            position: [x, 0.0, 0.0],
            rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            focal_px: [1.0; 2],
            principal_px: [1.0; 2],
            size_px: [2; 2],
            split: CameraSplit::Training,
        };
        let cameras: Vec<_> = (0..10_u8).map(|x| camera(f64::from(x))).collect();
        let (center, radius) = extent_of(&[], &cameras);
        assert_eq!((center, radius), ([5.0, 0.0, 0.0], 5.0));
        assert_eq!(extent_of(&[], &[]), ([0.0; 3], 1.0));
        assert_eq!(extent_of(&[[7.0; 3]; 4], &cameras).0, [7.0; 3]);
    }
}
