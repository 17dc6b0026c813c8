//! COLMAP models on disk: `cameras`, `images` and `points3D`, binary or text.
//!
//! Formats as COLMAP's documentation describes them ("Output Format"). Newer versions put `rigs`
//! and `frames` beside these; the poses that count are in `images` all the same.

mod binary;
mod model;
mod text;
mod write;

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

pub use model::CameraModel;
pub use write::{Observation, TrackedPoint, write_colmap};

use super::PointCloud;
use super::camera::Pose;
use super::lens::{Lens, LensError};
use crate::math::Real;
use crate::math::linalg::rotation;

/// Folders of a scene that may hold a model, the first that does is read.
pub const MODEL_FOLDERS: [&str; 2] = ["sparse/0", "sparse"];

/// A COLMAP model that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ColmapError {
    /// A file is missing.
    #[error(
        "{folder}: holds neither {file}.bin nor {file}.txt. Export the model again with COLMAP \
         (`colmap model_converter`), all three files into one folder"
    )]
    Missing {
        /// Folder of the model.
        folder: PathBuf,
        /// Name without extension.
        file: &'static str,
    },
    /// The system refused to open or read a file.
    #[error("{path}: cannot be read: {source}. Check that it is a file and its permissions")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A binary file ends too early.
    #[error(
        "{path}: ends inside {reading}: {needed} more bytes belong there, {left} are left. Copy \
         the file again, or export the model again with COLMAP"
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What was being read.
        reading: String,
        /// Bytes asked for.
        needed: u64,
        /// Bytes that were left.
        left: u64,
    },
    /// A value that cannot be meant.
    #[error(
        "{path}: {reading} {found}. The file is damaged or was not written by COLMAP: copy it \
         again, or export the model again with COLMAP"
    )]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What was being read.
        reading: String,
        /// What is wrong with it.
        found: String,
    },
    /// A line of a text file is not what belongs there.
    #[error(
        "{path}, line {line}: {found:?} stands where {expected} belongs. Correct the line, or \
         export the model again with COLMAP"
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What stands there.
        found: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A camera model that is not in COLMAP's list.
    #[error(
        "{path}: camera {camera} has the model {model}, which COLMAP 4.2 does not know. Export \
         the model again with COLMAP, or update splat if a newer COLMAP wrote it"
    )]
    UnknownModel {
        /// The file.
        path: PathBuf,
        /// The camera's id.
        camera: u32,
        /// Name or number of the model.
        model: String,
    },
    /// A camera model that is known, but cannot be straightened.
    #[error(
        "{path}: camera {camera} has the model {model}, which splat cannot straighten. Run \
         `colmap image_undistorter` and train on its output, or solve again with one of PINHOLE, \
         SIMPLE_PINHOLE, SIMPLE_RADIAL, RADIAL, OPENCV, FULL_OPENCV, OPENCV_FISHEYE"
    )]
    UnsupportedModel {
        /// The file.
        path: PathBuf,
        /// The camera's id.
        camera: u32,
        /// Name of the model.
        model: &'static str,
    },
    /// Parameters of a camera that cannot be meant.
    #[error("{path}: camera {camera} ({model}): {source}")]
    Lens {
        /// The file.
        path: PathBuf,
        /// The camera's id.
        camera: u32,
        /// Name of the model.
        model: &'static str,
        /// What is wrong with them.
        #[source]
        source: LensError,
    },
    /// Two cameras with one id.
    #[error("{path}: camera {camera} is listed twice. Export the model again with COLMAP")]
    DuplicateCamera {
        /// The file.
        path: PathBuf,
        /// The id.
        camera: u32,
    },
    /// Two images with one name.
    #[error(
        "{path}: the image {name:?} is listed twice. Remove one, or export the model again with \
         COLMAP"
    )]
    DuplicateName {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// An image taken by a camera that is not listed.
    #[error(
        "{path}: the image {name:?} names camera {camera}, which is not among the {count} cameras \
         of the model. Take cameras and images from the same export"
    )]
    UnknownCamera {
        /// The file of the images.
        path: PathBuf,
        /// The image.
        name: String,
        /// The id that it names.
        camera: u32,
        /// Cameras listed.
        count: usize,
    },
    /// A model without a single usable image.
    #[error(
        "{path}: the model holds no image with a pose. Run COLMAP's mapper again, or point splat \
         at the larger of its models"
    )]
    Empty {
        /// The file of the images.
        path: PathBuf,
    },
}

/// A camera as COLMAP solved it.
#[derive(Clone, Debug, PartialEq)]
pub struct SolvedCamera {
    /// Its model.
    pub model: &'static CameraModel,
    /// Width and height in px.
    pub size: [u64; 2],
    /// Parameters in the model's order.
    pub params: Vec<f64>,
}

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
    pub points: PointCloud,
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

/// Reads the model in `folder`, each file binary where there is one, text otherwise.
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

/// Images as read, before they are checked.
type RawImages = Vec<(String, u32, Option<Pose>)>;

/// Points as read.
#[derive(Debug, Default)]
struct Points {
    kept: PointCloud,
    dropped: usize,
}

impl Points {
    fn push(&mut self, position: [f64; 3], color: [u8; 3]) {
        // Also those that only double precision can hold.
        let position = position.map(Real::to_f32);
        if position.iter().all(|x| x.is_finite()) {
            self.kept.positions.push(position);
            self.kept.colors.push(color);
        } else {
            self.dropped += 1;
        }
    }
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

fn open(path: &Path) -> Result<(File, u64), ColmapError> {
    let fail = |source| ColmapError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(fail)?;
    let length = file.metadata().map_err(fail)?.len();
    Ok((file, length))
}

/// Rotation and translation from COLMAP's seven numbers (w, x, y, z of the quaternion, then the
/// translation); none where they are not finite or the quaternion has no direction.
fn pose(numbers: [f64; 7]) -> Option<Pose> {
    let [w, x, y, z, tx, ty, tz] = numbers;
    let pose = Pose { rotation: rotation([w, x, y, z]), translation: [tx, ty, tz] };
    let squared = w * w + x * x + y * y + z * z;
    let finite = pose.rotation.iter().flatten().chain(&pose.translation).all(|x| x.is_finite());
    (finite && squared.is_normal()).then_some(pose)
}

/// Drops images without a pose; refuses names listed twice and cameras not listed.
fn check(
    images: RawImages,
    cameras: &BTreeMap<u32, SolvedCamera>,
    path: &Path,
    warnings: &mut Vec<String>,
) -> Result<Vec<SolvedImage>, ColmapError> {
    let mut names = HashSet::new();
    let mut kept = Vec::with_capacity(images.len());
    let mut dropped = Vec::new();
    for (name, camera, pose) in images {
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
