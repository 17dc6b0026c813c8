//! COLMAP models on disk: `cameras`, `images` and `points3D`, binary or text.
//!
//! Formats as in COLMAP's documentation ("Output Format"). Newer versions also write `rigs` and `frames`, but the
//! poses are still in `images`.

mod binary;
mod raw;
mod text;

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

pub use binary::{Observation, TrackedPoint, write_colmap};
pub use raw::{CameraModel, ColmapError, SolvedCamera};

use raw::{Points, RawImage};

use super::camera::Pose;
use super::finder::{file_in, first_few};
use super::lens::Lens;
use super::shot::{PointCloud, not_finite};
use crate::files;

/// Deepest folder below the scene that is searched for a model.
const MAX_DEPTH: usize = 3;

/// Largest number of folders of a depth whose own folders are searched for a model.
const MAX_FOLDERS: usize = 500;

/// Folders of a scene that usually hold its model.
pub const USUAL_FOLDERS: [&str; 2] = ["sparse/0", "sparse"];

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
    /// Warnings, one sentence each.
    pub warnings: Vec<String>,
}

impl Reconstruction {
    /// Returns the lens of a camera; `None` if there is no such camera.
    pub fn lens(&self, camera: u32) -> Option<Result<Lens, ColmapError>> {
        let solved = self.cameras.get(&camera)?;
        let model = solved.model.name;
        let path = || self.cameras_path.clone();
        Some(match solved.lens() {
            None => Err(ColmapError::UnsupportedModel { path: path(), camera, model }),
            Some(lens) => {
                lens.map_err(|source| ColmapError::Lens { path: path(), camera, model, source })
            }
        })
    }
}

/// The model of a scene.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundModel {
    /// Its folder.
    pub folder: PathBuf,
    /// Notice about other models or an unusual folder.
    pub notice: Option<String>,
}

/// Finds the model of a scene.
///
/// The first of these folders with a model counts: `sparse`, `colmap/sparse`, `dense/sparse`, `undistorted/sparse`,
/// `distorted/sparse`, `colmap`, the scene itself. Among several models there, as in `sparse/0` and `sparse/1`, the
/// one with the most images counts. `only_usual` searches `sparse` only: nerfstudio leaves a model in `colmap` beside
/// its own description of the scene.
pub fn find(scene: &Path, only_usual: bool) -> Option<FoundModel> {
    let dense = scene.join("dense");
    let mut groups: Vec<PathBuf> =
        ["sparse", "colmap/sparse", "dense/sparse"].map(|folder| scene.join(folder)).into();
    groups.extend(numbered(&dense).into_iter().map(|folder| folder.join("sparse")));
    groups.extend(["undistorted/sparse", "distorted/sparse", "colmap"].map(|it| scene.join(it)));
    groups.push(scene.to_owned());
    groups.truncate(if only_usual { 1 } else { groups.len() });
    groups.into_iter().find_map(|group| {
        let mut folders = numbered(&group);
        folders.push(group);
        largest(scene, &folders)
    })
}

/// Finds the model with the most images in any folder of a scene, at most three levels deep. Folders of other scenes
/// and folders inside a folder of photographs are not searched.
pub fn find_anywhere(
    scene: &Path,
    is_other_scene: &dyn Fn(&Path) -> bool,
    holds_photographs: &dyn Fn(&Path) -> bool,
) -> Option<FoundModel> {
    let has_both =
        |folder: &Path| ["cameras", "images"].iter().all(|file| part(folder, file).is_some());
    let mut found = Vec::new();
    let mut level = vec![scene.to_owned()];
    for _ in 0..MAX_DEPTH {
        let mut searched_next = Vec::new();
        let below = level.iter().flat_map(|folder| subfolders(folder));
        for folder in below.filter(|folder| !is_other_scene(folder)) {
            if searched_next.len() == MAX_FOLDERS {
                break;
            }
            if has_both(&folder) {
                found.push(folder.clone());
            }
            if !holds_photographs(&folder) {
                searched_next.push(folder);
            }
        }
        level = searched_next;
    }
    largest(scene, &found)
}

fn largest(scene: &Path, folders: &[PathBuf]) -> Option<FoundModel> {
    let has_model =
        |folder: &&PathBuf| ["cameras", "images"].iter().any(|file| part(folder, file).is_some());
    let folders: Vec<PathBuf> = folders.iter().filter(has_model).cloned().collect();
    let shown = |folder: &Path| match folder.strip_prefix(scene) {
        Ok(below) if !below.as_os_str().is_empty() => below.display().to_string(),
        _ => folder.display().to_string(),
    };
    let [first, others @ ..] = folders.as_slice() else { return None };
    if others.is_empty() {
        let is_usual = USUAL_FOLDERS.iter().any(|usual| *first == scene.join(usual));
        let notice = (!is_usual).then(|| format!("the COLMAP model is read from {}", shown(first)));
        return Some(FoundModel { folder: first.clone(), notice });
    }
    let counts: Vec<u64> = folders.iter().map(|folder| count_images(folder)).collect();
    // The first of equals.
    let best = (0..folders.len()).rev().max_by_key(|&at| counts[at]).unwrap_or(0);
    let rest = (0..folders.len()).filter(|&at| at != best);
    let rest: Vec<String> =
        rest.map(|at| format!("{} ({})", shown(&folders[at]), counts[at])).collect();
    let notice = format!(
        "the model in {} is read, which has the most images ({}); not used: {}",
        shown(&folders[best]),
        counts[best],
        first_few(&rest)
    );
    Some(FoundModel { folder: folders[best].clone(), notice: Some(notice) })
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    // Links are not followed, because they may form cycles.
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let mut folders: Vec<PathBuf> =
        entries.flatten().filter(is_folder).map(|entry| entry.path()).collect();
    folders.sort_unstable();
    folders
}

/// Lists the folders whose names are numbers, in numeric order.
fn numbered(folder: &Path) -> Vec<PathBuf> {
    let found = files::numbered(folder, |name| name.parse().ok());
    found.into_iter().map(|(_, path)| path).collect()
}

/// Returns the number of images of a model; 0 if they cannot be read.
fn count_images(folder: &Path) -> u64 {
    let Some(path) = part(folder, "images") else { return 0 };
    if !is_binary(&path) {
        let images = text::TextLines::open(&path).and_then(|mut lines| text::images(&mut lines));
        return images.map_or(0, |images| images.len() as u64);
    }
    let mut count = [0; 8];
    let read = File::open(&path).and_then(|mut file| file.read_exact(&mut count));
    read.map_or(0, |()| u64::from_le_bytes(count))
}

/// Reads the model in `folder`: binary files where they exist, else text. Points and poses that are not finite are
/// dropped with a warning.
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
        // The caller looks for points in other formats.
        None if folder.join("points3D.ply").is_file() => Points::default(),
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
    warnings.extend(not_finite(folder, points.dropped, points.kept.positions.len()));
    Ok(Reconstruction { cameras_path, cameras, images, points: points.kept, warnings })
}

/// Returns the binary file of this name, else the text file, else one that differs in case.
fn part(folder: &Path, name: &str) -> Option<PathBuf> {
    let names = ["bin", "txt"].map(|extension| format!("{name}.{extension}"));
    let as_written = names.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    as_written.or_else(|| file_in(folder, &names.each_ref().map(String::as_str)))
}

fn is_binary(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("bin"))
}

/// Drops images without a pose; rejects repeated names and unknown cameras.
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
