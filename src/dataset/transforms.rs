//! Scenes of Blender (`transforms_train.json`) and nerfstudio (`transforms.json`).
//!
//! Both store camera-to-world matrices with OpenGL's axes (y up, z backwards). Paths are relative
//! to the folder of the JSON file and may lack their extension. `transforms/camera_keys.rs` reads cameras.

mod camera_keys;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::camera::Pose;
use super::finder::ForeignName;
use super::lens::LensError;
use super::listing::first_few;
use super::shot::Optics;
use super::text::{other_content, utf8};
use camera_keys::{CameraFault, CameraKeys, is_meant, is_of_camera, number};

use crate::files::JsonFault;
use crate::math::linalg::{cross, dot, length, mul, scale};

/// The file of Blender's training views.
pub(super) const BLENDER_TRAIN: &str = "transforms_train.json";
/// The files of Blender's held-out views; the first that is there counts.
const BLENDER_HELD_OUT: [&str; 2] = ["transforms_test.json", "transforms_val.json"];
/// The file of nerfstudio's views.
pub(super) const NERFSTUDIO: &str = "transforms.json";

/// How far a camera's axes may be from orthonormal after each is scaled to length 1; text with
/// four digits stays below.
const SKEW: f64 = 1e-3;

/// A transforms file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TransformsError {
    /// The system refused to open or read the file.
    #[error("{path}: cannot be read: {source}. Check the path and the permissions")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// Not JSON, or not of this form.
    #[error("{path}: {source}. Correct the file there, or export the scene again")]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and what.
        #[source]
        source: JsonFault,
    },
    /// A file with the content of something else.
    #[error("{path}: {found}")]
    OtherContent {
        /// The file.
        path: PathBuf,
        /// Content of the file, and the remedy.
        found: &'static str,
    },
    /// A value of Python that JSON does not have.
    #[error(
        "{path}, line {line}, column {column}: {word} is no value of JSON. Correct it, or remove the frame"
    )]
    NoNumber {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Letter in the line, from 1.
        column: usize,
        /// The word.
        word: &'static str,
    },
    /// A key of the whole file that cannot be meant.
    #[error("{path}: {found}. Correct the key, or export the scene again")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        found: String,
    },
    /// A frame without something that it needs.
    #[error("{path}: frame {frame:?} {found}. {remedy}")]
    TransformsFrame {
        /// The file.
        path: PathBuf,
        /// The frame's `file_path`.
        frame: String,
        /// What is wrong.
        found: String,
        /// Remedy.
        remedy: &'static str,
    },
    /// Parameters of a camera that cannot be meant.
    #[error("{path}: frame {frame:?}: {source}")]
    Lens {
        /// The file.
        path: PathBuf,
        /// The frame's `file_path`.
        frame: String,
        /// What is wrong with them.
        #[source]
        source: LensError,
    },
    /// No frames.
    #[error("{path}: lists no frames. Export the scene again")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// A transforms scene as it is read, before its photographs are looked for.
#[derive(Debug, Default)]
pub(super) struct Transforms {
    /// All frames, those of the test file or of the file's lists marked as held out.
    pub(super) frames: Vec<Frame>,
    /// The points' file as the scene names it, where it does.
    pub(super) points: Option<String>,
    /// True if the scene says which frames are held out.
    pub(super) has_split: bool,
    /// Things the user should know, one sentence each.
    pub(super) warnings: Vec<String>,
}

/// A photograph as a transforms file describes it.
#[derive(Debug)]
pub(super) struct Frame {
    /// Its `file_path`.
    pub(super) name: String,
    pub(super) pose: Pose,
    pub(super) optics: Optics,
    /// The file that lists it.
    pub(super) described_in: PathBuf,
    /// Its `mask_path`.
    pub(super) mask: Option<String>,
    pub(super) held_out: bool,
}

/// Keys of a file or a frame that change no picture.
const HARMLESS_KEYS: [&str; 41] = [
    "frames",
    "file_path",
    "transform_matrix",
    "mask_path",
    POINTS_KEY,
    "rotation",
    TRAIN_KEY,
    HELD_OUT_KEYS[0],
    HELD_OUT_KEYS[1],
    // instant-ngp
    "sharpness",
    "aabb_scale",
    "aabb",
    "render_aabb",
    "scale",
    "offset",
    "up",
    "from_na",
    "n_extra_learnable_dims",
    "enable_depth_loading",
    "integer_depth_scale",
    "depth_path",
    "fix_premult",
    // nerfstudio
    "applied_transform",
    "applied_scale",
    "orientation_override",
    "auto_scale_poses_override",
    "depth_file_path",
    "depth_unit_scale_factor",
    "colmap_im_id",
    "colmap_image_id",
    "camera_label",
    "camera_id",
    "image_id",
    "frame_id",
    "id",
    "name",
    "timestamp",
    "blur_score",
    "original_fps",
    "version",
    "comment",
];
/// The key that names the points.
const POINTS_KEY: &str = "ply_file_path";
/// Lists of nerfstudio.
const TRAIN_KEY: &str = "train_filenames";
const HELD_OUT_KEYS: [&str; 2] = ["val_filenames", "test_filenames"];

/// Reads a Blender scene: the training file, and the test file if it exists, else that of validation.
pub(super) fn read_blender(scene: &Path) -> Result<Transforms, TransformsError> {
    let mut transforms = read(&scene.join(BLENDER_TRAIN))?;
    transforms.has_split = true;
    let held_out = BLENDER_HELD_OUT.map(|name| scene.join(name));
    if let Some(test) = held_out.iter().find(|path| path.is_file()) {
        let Transforms { mut frames, warnings, .. } = read(test)?;
        frames.iter_mut().for_each(|frame| frame.held_out = true);
        transforms.frames.append(&mut frames);
        transforms.warnings.extend(warnings);
    }
    Ok(transforms)
}

/// Reads a nerfstudio scene.
pub(super) fn read_nerfstudio(scene: &Path) -> Result<Transforms, TransformsError> {
    read(&scene.join(NERFSTUDIO))
}

fn read(path: &Path) -> Result<Transforms, TransformsError> {
    let bytes = fs::read(path)
        .map_err(|source| TransformsError::Unreadable { path: path.to_owned(), source })?;
    let empty = bytes.trim_ascii().is_empty().then_some("is empty. Export the scene again");
    if let Some(found) = empty.or_else(|| other_content(&bytes)) {
        return Err(TransformsError::OtherContent { path: path.to_owned(), found });
    }
    let bytes = utf8(&bytes);
    let file: Map<String, Value> = serde_json::from_slice(&bytes).map_err(|source| {
        let path = path.to_owned();
        match word_at(&bytes, &source) {
            Some(word) => {
                let (line, column) = (source.line(), source.column());
                TransformsError::NoNumber { path, line, column, word }
            }
            None => {
                let source = JsonFault::new(&bytes, &source);
                TransformsError::Json { path, source }
            }
        }
    })?;
    let frames = match file.get("frames") {
        Some(Value::Array(frames)) if !frames.is_empty() => frames,
        _ => return Err(TransformsError::Empty { path: path.to_owned() }),
    };
    let whole_file = |found| TransformsError::File { path: path.to_owned(), found };
    let shared = CameraKeys::read(&file).map_err(whole_file)?;
    if let Some(value) = file.get(POINTS_KEY).filter(|value| is_meant(value) && !value.is_string())
    {
        return Err(whole_file(format!("has {POINTS_KEY} = {value}, which is no name of a file")));
    }
    let mut read = Transforms { points: text(&file, POINTS_KEY), ..Transforms::default() };
    let mut stretch = None;
    let mut unused: BTreeSet<&str> = unused_keys(&file).collect();
    for (number, frame) in frames.iter().enumerate() {
        let (frame, keys) = read_frame(frame, &shared, number, path)?;
        unused.extend(unused_keys(keys.1));
        stretch = stretch.or(keys.0.stretch());
        read.frames.push(frame);
    }
    apply_lists(&file, &mut read, path)?;
    if let Some(ratio) = stretch {
        read.warnings.push(format!(
            "{}: camera_angle_x and camera_angle_y make pixels {ratio:.3} times as high as wide. Remove \
             camera_angle_y if pixels are square",
            path.display()
        ));
    }
    if !unused.is_empty() {
        let unused: Vec<String> = unused.into_iter().map(str::to_owned).collect();
        let named = first_few(&unused);
        read.warnings.push(format!("{}: these keys are not used: {named}", path.display()));
    }
    Ok(read)
}

/// The word that stands where JSON failed, if it is a value of Python that JSON does not have.
fn word_at(text: &[u8], error: &serde_json::Error) -> Option<&'static str> {
    let line = text.split(|&byte| byte == b'\n').nth(error.line().checked_sub(1)?)?;
    let start = error.column().saturating_sub(1);
    let before = line.get(..start.min(line.len()))?;
    // The parser stops at the first letter that it does not expect: `N`, the `I` after a sign, the `a` of `nan`.
    let rest = line.get(before.len().saturating_sub(1)..)?;
    ["NaN", "-Infinity", "Infinity", "nan", "-inf", "inf", "None", "True", "False"]
        .into_iter()
        .find(|word| rest.windows(word.len()).take(3).any(|part| part == word.as_bytes()))
}

/// The text of a key; none where it is missing or no text.
fn text(keys: &Map<String, Value>, key: &str) -> Option<String> {
    keys.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Keys that mean something that is not made use of.
fn unused_keys(keys: &Map<String, Value>) -> impl Iterator<Item = &str> {
    keys.iter()
        .filter(|(key, value)| {
            is_meant(value) && !is_of_camera(key) && !HARMLESS_KEYS.contains(&key.as_str())
        })
        .map(|(key, _)| key.as_str())
}

/// A frame, with its camera's keys and all of its keys.
type ReadFrame<'a> = (Frame, (CameraKeys, &'a Map<String, Value>));

fn read_frame<'a>(
    frame: &'a Value,
    shared: &CameraKeys,
    number: usize,
    path: &Path,
) -> Result<ReadFrame<'a>, TransformsError> {
    let name = frame.get("file_path").and_then(Value::as_str).filter(|name| !name.is_empty());
    let shown = name.map_or_else(|| format!("number {number}"), str::to_owned);
    let wrong = |found, remedy| TransformsError::TransformsFrame {
        path: path.to_owned(),
        frame: shown.clone(),
        found,
        remedy,
    };
    let (Some(keys), Some(name)) = (frame.as_object(), name) else {
        return Err(wrong("has no file_path".to_owned(), "Name its photograph"));
    };
    let pose = keys.get("transform_matrix").ok_or("has no transform_matrix").and_then(pose);
    let pose = pose.map_err(|found| {
        wrong(found.to_owned(), "Write a camera-to-world matrix of 4 rows with 4 numbers each")
    })?;
    const REMEDY: &str = "Give fl_x in px (or camera_angle_x in radians), w, h, and one of the camera \
        models PINHOLE, OPENCV and OPENCV_FISHEYE";
    let own = CameraKeys::read(keys).map_err(|found| wrong(found, REMEDY))?;
    let camera = own.or(shared);
    let optics = camera.optics().map_err(|error| match error {
        CameraFault::Lens(source) => {
            TransformsError::Lens { path: path.to_owned(), frame: shown.clone(), source }
        }
        CameraFault::Found(found) => wrong(found, REMEDY),
    })?;
    let mask = text(keys, "mask_path");
    Ok((
        Frame {
            name: name.to_owned(),
            pose,
            optics,
            described_in: path.to_owned(),
            mask,
            held_out: false,
        },
        (camera, keys),
    ))
}

/// Holds out what nerfstudio's lists say, and leaves out what no list has where all frames are listed.
fn apply_lists(
    file: &Map<String, Value>,
    read: &mut Transforms,
    path: &Path,
) -> Result<(), TransformsError> {
    let frames = FrameNames::of(&read.frames);
    let list = |key: &'static str| match file.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(names)) if names.iter().all(Value::is_string) => {
            let names = names.iter().filter_map(Value::as_str);
            let names = names.map(|name| frames.listed(ForeignName::new(name).folded()));
            // An empty list says nothing.
            Ok(Some(names.collect()).filter(|names: &HashSet<String>| !names.is_empty()))
        }
        Some(_) => {
            let found = format!("has {key}, which is no list of names");
            Err(TransformsError::File { path: path.to_owned(), found })
        }
    };
    let train: Option<HashSet<String>> = list(TRAIN_KEY)?;
    let held_out: [Option<HashSet<String>>; 2] = [list(HELD_OUT_KEYS[0])?, list(HELD_OUT_KEYS[1])?];
    read.has_split = held_out.iter().any(Option::is_some);
    if !read.has_split && train.is_none() {
        return Ok(());
    }
    let all = read.frames.len();
    let mut named = HashSet::new();
    read.frames.retain_mut(|frame| {
        let name = ForeignName::new(&frame.name).folded();
        frame.held_out = held_out.iter().flatten().any(|names| names.contains(&name));
        let is_listed = frame.held_out || train.as_ref().is_none_or(|names| names.contains(&name));
        named.insert(name);
        is_listed
    });
    let lists = [train.as_ref(), held_out[0].as_ref(), held_out[1].as_ref()];
    let listed = lists.into_iter().flatten().flatten();
    let without_frame = listed.filter(|name| !named.contains(*name)).count();
    if read.frames.is_empty() {
        let found = format!(
            "{TRAIN_KEY}, {} and {} name none of its frames",
            HELD_OUT_KEYS[0], HELD_OUT_KEYS[1]
        );
        return Err(TransformsError::File { path: path.to_owned(), found });
    }
    if read.frames.len() < all {
        read.warnings.push(format!(
            "{}: {} of {all} frames are in none of its lists of file names and are left out",
            path.display(),
            all - read.frames.len()
        ));
    }
    if without_frame > 0 {
        read.warnings.push(format!(
            "{}: {without_frame} names in its lists of file names are of no frame",
            path.display()
        ));
    }
    Ok(())
}

/// Names of frames, folded for comparisons.
struct FrameNames {
    whole: HashSet<String>,
    /// By the name without its folders; none if several frames have it.
    by_base: HashMap<String, Option<String>>,
}

impl FrameNames {
    fn of(frames: &[Frame]) -> Self {
        let mut names = Self { whole: HashSet::new(), by_base: HashMap::new() };
        for frame in frames {
            let name = ForeignName::new(&frame.name).folded();
            let base = name.rsplit_once('/').map_or(name.as_str(), |(_, base)| base).to_owned();
            if names.whole.insert(name.clone()) {
                let place = names.by_base.entry(base);
                place.and_modify(|other| *other = None).or_insert(Some(name));
            }
        }
        names
    }

    /// The name of the frame that a list means: by its path, else by its file name alone.
    fn listed(&self, name: String) -> String {
        let base = name.rsplit_once('/').map_or(name.as_str(), |(_, base)| base);
        match self.by_base.get(base) {
            Some(Some(frame)) if !self.whole.contains(&name) => frame.clone(),
            _ => name,
        }
    }
}

/// World-to-camera with OpenCV's axes, from camera-to-world with OpenGL's.
fn pose(matrix: &Value) -> Result<Pose, &'static str> {
    const SHAPE: &str = "has a transform_matrix that is not 4x4 numbers";
    let row = |row: &Value| {
        let numbers: Option<Vec<f64>> = row.as_array()?.iter().map(number).collect();
        <[f64; 4]>::try_from(numbers?).ok()
    };
    let rows: Option<Vec<[f64; 4]>> =
        matrix.as_array().and_then(|rows| rows.iter().map(row).collect());
    // Some tools leave the last row out, which says nothing.
    let rows = rows.ok_or(SHAPE)?;
    let ([x, y, z] | [x, y, z, _]) = rows.as_slice() else { return Err(SHAPE) };
    // Column i of the matrix is the camera's axis i in the world: row i of the inverse rotation.
    let axis = |i: usize| [x[i], y[i], z[i]];
    let rotation = [axis(0), axis(1).map(|a| -a), axis(2).map(|a| -a)];
    let rotation = rotation.map(|axis| scale(axis, 1.0 / length(axis)));
    let handed = dot(cross(rotation[0], rotation[1]), rotation[2]);
    let skew = dot(rotation[0], rotation[1])
        .abs()
        .max(dot(rotation[1], rotation[2]).abs())
        .max(dot(rotation[2], rotation[0]).abs())
        .max((handed - 1.0).abs());
    // `max` passes over NaN, which a zero axis leads to: ask each axis.
    let finite = rotation.iter().flatten().all(|x| x.is_finite());
    if !finite || skew >= SKEW {
        return Err("has a transform_matrix that is not a rotation with a position");
    }
    let translation = scale(mul(&rotation, axis(3)), -1.0);
    if !translation.iter().all(|t| t.is_finite()) {
        return Err("has a transform_matrix with a position that is not finite");
    }
    Ok(Pose { rotation, translation })
}

#[cfg(test)]
mod tests;
