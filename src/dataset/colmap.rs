//! COLMAP models on disk: `cameras`, `images` and `points3D`, binary or text.
//!
//! Formats as COLMAP's documentation describes them ("Output Format"). Newer versions put `rigs`
//! and `frames` beside these; the poses that count are in `images` all the same.

mod binary;
mod error;
mod model;
mod raw;
mod text;
mod write;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

pub use error::ColmapError;
pub use model::{CameraModel, SolvedCamera};
pub use write::{Observation, TrackedPoint, write_colmap};

use raw::{Points, RawImage};

use super::camera::Pose;
use super::lens::Lens;
use super::points::PointCloud;

/// Folders of a scene that may hold a model, the first that does is read.
pub const MODEL_FOLDERS: [&str; 2] = ["sparse/0", "sparse"];

/// An image whose pose COLMAP found.
#[derive(Clone, Debug, PartialEq)]
pub struct SolvedImage {
    /// Path below the image folder.
    pub name: String,
    /// Id of its camera.
    pub camera: u32,
    /// Pose of its camera.
    pub pose: Pose,
}

/// A COLMAP model.
#[derive(Clone, Debug, PartialEq)]
pub struct Reconstruction {
    /// The file that lists the cameras.
    pub cameras_path: PathBuf,
    /// Cameras by id.
    pub cameras: BTreeMap<u32, SolvedCamera>,
    /// Images in the order of the file.
    pub images: Vec<SolvedImage>,
    /// Points in the order of the file.
    pub points: PointCloud<f64>,
    /// Things the user should know, one sentence each.
    pub warnings: Vec<String>,
}

impl Reconstruction {
    /// The lens of a camera; none if there is no such camera.
    pub fn lens(&self, camera: u32) -> Option<Result<Lens, ColmapError>> {
        let solved = self.cameras.get(&camera)?;
        let model = solved.model.name;
        Some(match solved.lens() {
            None => Err(ColmapError::UnsupportedModel {
                path: self.cameras_path.clone(),
                camera,
                model,
            }),
            Some(lens) => lens.map_err(|source| ColmapError::Lens {
                path: self.cameras_path.clone(),
                camera,
                model,
                source,
            }),
        })
    }
}

/// The folder of the scene's model: the first of [`MODEL_FOLDERS`] with a file of cameras or images.
pub fn find(scene: &Path) -> Option<PathBuf> {
    MODEL_FOLDERS
        .iter()
        .map(|folder| scene.join(folder))
        .find(|folder| ["cameras", "images"].iter().any(|file| part(folder, file).is_some()))
}

/// Reads the model in `folder`, each file in its binary form if it exists, as text otherwise.
///
/// Points and poses that are not finite are dropped with a warning.
pub fn read(folder: &Path) -> Result<Reconstruction, ColmapError> {
    let missing = |file| ColmapError::Missing { folder: folder.to_owned(), file };
    let cameras_path = part(folder, "cameras").ok_or_else(|| missing("cameras"))?;
    let images_path = part(folder, "images").ok_or_else(|| missing("images"))?;
    let mut warnings = Vec::new();
    let cameras = if is_binary(&cameras_path) {
        binary::cameras(&mut binary::Input::open(&cameras_path)?, &mut warnings)?
    } else {
        text::cameras(&mut text::TextLines::open(&cameras_path)?)?
    };
    let images = if is_binary(&images_path) {
        binary::images(&mut binary::Input::open(&images_path)?, &mut warnings)?
    } else {
        text::images(&mut text::TextLines::open(&images_path)?)?
    };
    let images = check(images, &cameras, &images_path, &mut warnings)?;
    let points = match part(folder, "points3D") {
        None => {
            warnings.push(format!(
                "{}: holds neither points3D.bin nor points3D.txt, so the Gaussians start at \
                 random places",
                folder.display()
            ));
            Points::default()
        }
        Some(path) if is_binary(&path) => {
            binary::points(&mut binary::Input::open(&path)?, &mut warnings)?
        }
        Some(path) => text::points(&mut text::TextLines::open(&path)?)?,
    };
    if points.dropped > 0 {
        warnings.push(format!(
            "{}: {} of its {} points have coordinates that are not finite; they are left out",
            folder.display(),
            points.dropped,
            points.dropped + points.kept.positions.len()
        ));
    }
    Ok(Reconstruction { cameras_path, cameras, images, points: points.kept, warnings })
}

/// The binary file of this name, else the text file, else none.
fn part(folder: &Path, name: &str) -> Option<PathBuf> {
    ["bin", "txt"]
        .iter()
        .map(|extension| folder.join(format!("{name}.{extension}")))
        .find(|path| path.is_file())
}

fn is_binary(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "bin")
}

/// Drops images without a pose; refuses names listed twice and cameras not listed.
fn check(
    images: Vec<RawImage>,
    cameras: &BTreeMap<u32, SolvedCamera>,
    path: &Path,
    warnings: &mut Vec<String>,
) -> Result<Vec<SolvedImage>, ColmapError> {
    let mut names = HashSet::new();
    let mut kept = Vec::with_capacity(images.len());
    let mut dropped = Vec::new();
    for RawImage { name, camera, pose } in images {
        if !names.insert(name.clone()) {
            return Err(ColmapError::DuplicateName { path: path.to_owned(), name });
        }
        if !cameras.contains_key(&camera) {
            let count = cameras.len();
            return Err(ColmapError::UnknownCamera { path: path.to_owned(), name, camera, count });
        }
        match pose {
            Some(pose) => kept.push(SolvedImage { name, camera, pose }),
            None => dropped.push(name),
        }
    }
    if let Some(first) = dropped.first() {
        warnings.push(format!(
            "{}: {} images with a pose that is not finite are left out, {first:?} first",
            path.display(),
            dropped.len()
        ));
    }
    if kept.is_empty() {
        return Err(ColmapError::Empty { path: path.to_owned() });
    }
    Ok(kept)
}
