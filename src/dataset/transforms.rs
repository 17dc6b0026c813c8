//! Scenes of Blender (`transforms_train.json`) and nerfstudio (`transforms.json`).
//!
//! Both store camera-to-world matrices with OpenGL's axes (y up, z backwards). Paths are relative to the folder of
//! the JSON file and may lack their extension.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::f64::consts::PI;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::{Map, Value};
use splat_mesh::narrow::floor_u32;

use super::camera::Pose;
use super::finder::{ForeignName, first_few, other_content, utf8};
use super::lens::{Distortion, LensError, POSSIBLE_FIELDS};
use super::shot::{Focal, Optics, SizelessLens};
use crate::files::JsonFault;
use crate::math::linalg::{cross, dot, length, mul, scale};

pub(super) const BLENDER_TRAIN: &str = "transforms_train.json";

/// Files of Blender's held-out views, in search order.
const BLENDER_HELD_OUT: [&str; 2] = ["transforms_test.json", "transforms_val.json"];
pub(super) const NERFSTUDIO: &str = "transforms.json";

/// Largest deviation of a camera's normalised axes from orthonormal. Text with four digits stays below.
const SKEW: f64 = 1e-3;

/// A transforms file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum TransformsError {
    #[error("{path}: cannot be read: {source}. Check the path and the permissions")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path}: {source}. Correct the file there, or export the scene again")]
    Json { path: PathBuf, source: JsonFault },
    #[error("{path}: {found}")]
    OtherContent { path: PathBuf, found: &'static str },
    #[error(
        "{path}, line {line}, column {column}: {word} is no value of JSON. Correct it, or remove the frame"
    )]
    NoNumber { path: PathBuf, line: usize, column: usize, word: &'static str },
    #[error("{path}: {found}. Correct the key, or export the scene again")]
    File { path: PathBuf, found: String },
    #[error("{path}: frame {frame:?} {found}. {remedy}")]
    TransformsFrame { path: PathBuf, frame: String, found: String, remedy: &'static str },
    #[error("{path}: frame {frame:?}: {source}")]
    Lens { path: PathBuf, frame: String, source: LensError },
    #[error("{path}: lists no frames. Export the scene again")]
    Empty { path: PathBuf },
}

/// A transforms scene, before its photographs are searched.
#[derive(Debug, Default)]
pub(super) struct Transforms {
    /// All frames. Frames of the test file or of the file's lists are held out.
    pub(super) frames: Vec<Frame>,
    /// File of the points, if the scene names one.
    pub(super) points: Option<String>,
    /// True if the scene selects the held-out frames.
    pub(super) has_split: bool,
    pub(super) warnings: Vec<String>,
}

/// A photograph as a transforms file describes it.
#[derive(Debug)]
pub(super) struct Frame {
    /// The frame's `file_path`.
    pub(super) name: String,
    pub(super) pose: Pose,
    pub(super) optics: Optics,
    /// File that lists the frame.
    pub(super) described_in: PathBuf,
    /// The frame's `mask_path`.
    pub(super) mask: Option<String>,
    pub(super) held_out: bool,
}

/// Keys of a file or a frame that do not affect any image: of every program, of instant-ngp, and of nerfstudio.
const HARMLESS_KEYS: [&str; 3] = [
    "frames file_path transform_matrix mask_path ply_file_path rotation \
     train_filenames val_filenames test_filenames",
    "sharpness aabb_scale aabb render_aabb scale offset up from_na n_extra_learnable_dims \
     enable_depth_loading integer_depth_scale depth_path fix_premult",
    "applied_transform applied_scale orientation_override auto_scale_poses_override depth_file_path \
     depth_unit_scale_factor colmap_im_id colmap_image_id camera_label camera_id image_id frame_id id name \
     timestamp blur_score original_fps version comment",
];

const POINTS_KEY: &str = "ply_file_path";

/// Keys of nerfstudio's lists: of training frames, and of those that are held out.
const LIST_KEYS: [&str; 3] = ["train_filenames", "val_filenames", "test_filenames"];

/// Reads a Blender scene: the training file, and the test file if it exists, else the validation file.
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

pub(super) fn read(path: &Path) -> Result<Transforms, TransformsError> {
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
        let (read_frame, own_stretch) = read_frame(frame, &shared, number, path)?;
        unused.extend(frame.as_object().into_iter().flat_map(unused_keys));
        stretch = stretch.or(own_stretch);
        read.frames.push(read_frame);
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

/// Returns the value of Python at which JSON parsing failed, if there is one.
fn word_at(text: &[u8], error: &serde_json::Error) -> Option<&'static str> {
    let line = text.split(|&byte| byte == b'\n').nth(error.line().checked_sub(1)?)?;
    let start = error.column().saturating_sub(1);
    let before = line.get(..start.min(line.len()))?;
    // The parser stops at the first unexpected letter: `N`, the `I` after a sign, the `a` of `nan`.
    let rest = line.get(before.len().saturating_sub(1)..)?;
    ["NaN", "-Infinity", "Infinity", "nan", "-inf", "inf", "None", "True", "False"]
        .into_iter()
        .find(|word| rest.windows(word.len()).take(3).any(|part| part == word.as_bytes()))
}

/// Returns the text of a key; `None` if it is missing, empty or not text.
fn text(keys: &Map<String, Value>, key: &str) -> Option<String> {
    keys.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Returns the meaningful keys that are ignored.
fn unused_keys(keys: &Map<String, Value>) -> impl Iterator<Item = &str> {
    keys.iter()
        .filter(|(key, value)| {
            let is_harmless =
                || HARMLESS_KEYS.iter().any(|keys| keys.split(' ').any(|it| it == *key));
            let is_of_camera = is_read(key) || is_focal(key) || changes_camera(key);
            is_meant(value) && !is_of_camera && !is_harmless()
        })
        .map(|(key, _)| key.as_str())
}

/// Reads a frame. Returns the stretch of its pixels, too.
fn read_frame(
    frame: &Value,
    shared: &CameraKeys,
    number: usize,
    path: &Path,
) -> Result<(Frame, Option<f64>), TransformsError> {
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
    let (name, described_in, mask) = (name.to_owned(), path.to_owned(), text(keys, "mask_path"));
    let frame = Frame { name, pose, optics, described_in, mask, held_out: false };
    Ok((frame, camera.stretch()))
}

/// Holds out the frames of nerfstudio's lists, and drops unlisted frames if training frames are listed.
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
            // An empty list counts as none.
            Ok(Some(names.collect()).filter(|names: &HashSet<String>| !names.is_empty()))
        }
        Some(_) => {
            let found = format!("has {key}, which is no list of names");
            Err(TransformsError::File { path: path.to_owned(), found })
        }
    };
    let [train_key, val_key, test_key] = LIST_KEYS;
    let lists: [Option<HashSet<String>>; 3] = [list(train_key)?, list(val_key)?, list(test_key)?];
    let [train, held_out @ ..] = &lists;
    read.has_split = held_out.iter().any(Option::is_some);
    if lists.iter().all(Option::is_none) {
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
    let listed = lists.iter().flatten().flatten();
    let without_frame = listed.filter(|name| !named.contains(*name)).count();
    if read.frames.is_empty() {
        let found = format!("{train_key}, {val_key} and {test_key} name none of its frames");
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
    /// Name by the name without its folders; `None` if several frames share it.
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

    /// Returns the frame's name for a list's entry: by its path, else by its file name alone.
    fn listed(&self, name: String) -> String {
        let base = name.rsplit_once('/').map_or(name.as_str(), |(_, base)| base);
        match self.by_base.get(base) {
            Some(Some(frame)) if !self.whole.contains(&name) => frame.clone(),
            _ => name,
        }
    }
}

/// Converts camera-to-world with OpenGL's axes to world-to-camera with OpenCV's.
fn pose(matrix: &Value) -> Result<Pose, &'static str> {
    const SHAPE: &str = "has a transform_matrix that is not 4x4 numbers";
    let row = |row: &Value| {
        let numbers: Option<Vec<f64>> = row.as_array()?.iter().map(number).collect();
        <[f64; 4]>::try_from(numbers?).ok()
    };
    let rows: Option<Vec<[f64; 4]>> =
        matrix.as_array().and_then(|rows| rows.iter().map(row).collect());
    // Some tools omit the last row, which is constant.
    let rows = rows.ok_or(SHAPE)?;
    let ([x, y, z] | [x, y, z, _]) = rows.as_slice() else { return Err(SHAPE) };
    // Column i of the matrix is the camera's axis i in the world: row i of the inverse rotation.
    let axis = |i: usize| [x[i], y[i], z[i]];
    let rotation = [axis(0), axis(1).map(|a| -a), axis(2).map(|a| -a)];
    let rotation = rotation.map(|axis| scale(axis, 1.0 / length(axis)));
    let handed = dot(cross(rotation[0], rotation[1]), rotation[2]);
    let [x, y, z] = rotation;
    let skew = [dot(x, y), dot(y, z), dot(z, x), handed - 1.0].map(f64::abs);
    let skew = skew.into_iter().fold(0.0, f64::max);
    // `max` ignores NaN, which a zero axis leads to, so each axis is checked.
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

// Keys of a camera: those of instant-ngp, nerfstudio and exporters for Blender.

/// Largest relative difference of focal lengths from two fields of view of square pixels.
const SQUARE: f64 = 0.05;

/// Aliases of the keys in px, in search order.
const FOCAL_KEYS: [&[&str]; 2] =
    [&["fl_x", "fx", "focal_x", "f_x"], &["fl_y", "fy", "focal_y", "f_y"]];

const CENTRE_KEYS: [&[&str]; 2] = [&["cx", "c_x"], &["cy", "c_y"]];
const SIZE_KEYS: [&[&str]; 2] = [&["w", "width", "image_width"], &["h", "height", "image_height"]];

/// Keys of fields of view in radians and in degrees.
const RADIANS_KEYS: [&str; 2] = ["camera_angle_x", "camera_angle_y"];
const DEGREES_KEYS: [&str; 2] = ["x_fov", "y_fov"];
const RADIAL_KEYS: [&str; 6] = ["k1", "k2", "k3", "k4", "k5", "k6"];
const TANGENTIAL_KEYS: [&str; 2] = ["p1", "p2"];

/// Keys of matrices of focal lengths and principal point.
const MATRIX_KEYS: [&str; 3] = ["K", "intrinsic_matrix", "camera_matrix"];
const MODEL_KEYS: [&str; 2] = ["camera_model", "camera_type"];
const FISHEYE_KEY: &str = "is_fisheye";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LensKind {
    /// Pinhole with the given distortion.
    Perspective,
    /// Pinhole with a rational distortion.
    Rational,
    /// Equidistant fisheye.
    Fisheye,
}

/// Camera parameters of a file, or of one of its frames.
#[derive(Clone, Debug, Default, PartialEq)]
struct CameraKeys {
    kind: Option<LensKind>,
    focal: [Option<Focal>; 2],
    centre_px: [Option<f64>; 2],
    size_px: [Option<f64>; 2],
    radial: [Option<f64>; 6],
    tangential: [Option<f64>; 2],
    /// Unsupported keys that change the camera.
    unread: Vec<String>,
    /// Unsupported keys of focal lengths, which are needed if there is no other.
    unread_focal: Vec<String>,
}

#[derive(Debug)]
enum CameraFault {
    Found(String),
    /// A value that no lens can have.
    Lens(LensError),
}

impl CameraKeys {
    /// Reads the keys of a file or a frame. The error describes an invalid value.
    fn read(keys: &Map<String, Value>) -> Result<Self, String> {
        let first = |names: &[&str]| {
            let present = names.iter().find(|name| keys.get(**name).is_some_and(|v| !v.is_null()));
            present.map(|name| number_of(name, &keys[*name])).transpose()
        };
        let both = |names: [&[&str]; 2]| Ok::<_, String>([first(names[0])?, first(names[1])?]);
        let mut read = Self {
            kind: kind(keys)?,
            centre_px: both(CENTRE_KEYS)?,
            size_px: both(SIZE_KEYS)?,
            ..Self::default()
        };
        for (axis, names) in FOCAL_KEYS.into_iter().enumerate() {
            read.focal[axis] = match first(names)? {
                Some(focal) => Some(Focal::Px(focal)),
                None => angle(keys, axis)?.map(|angle| Focal::Angle { axis, angle }),
            };
        }
        for (value, key) in read.radial.iter_mut().zip(RADIAL_KEYS) {
            *value = first(&[key])?;
        }
        for (value, key) in read.tangential.iter_mut().zip(TANGENTIAL_KEYS) {
            *value = first(&[key])?;
        }
        if let Some(key) = MATRIX_KEYS.iter().find(|key| keys.get(**key).is_some_and(is_meant)) {
            let [focal, centre] = matrix(key, &keys[*key])?;
            for axis in 0..2 {
                read.focal[axis].get_or_insert(Focal::Px(focal[axis]));
                read.centre_px[axis].get_or_insert(centre[axis]);
            }
        }
        let unread = keys.iter().filter(|(key, value)| !is_read(key) && is_meant(value));
        for (key, _) in unread {
            if is_focal(key) {
                read.unread_focal.push(key.clone());
            } else if changes_camera(key) {
                read.unread.push(key.clone());
            }
        }
        Ok(read)
    }

    /// Fills missing values from the file's keys.
    fn or(&self, file: &Self) -> Self {
        fn or<T: Copy, const N: usize>(
            own: [Option<T>; N],
            file: [Option<T>; N],
        ) -> [Option<T>; N] {
            std::array::from_fn(|at| own[at].or(file[at]))
        }
        // A frame's horizontal field of view is not combined with the file's vertical focal length.
        let is_px = |focal: &Option<Focal>| matches!(focal, Some(Focal::Px(_)));
        let [own, shared] = [self.focal, file.focal].map(|focal| focal.iter().any(is_px));
        let has_own = self.focal.iter().any(Option::is_some);
        let focal = if has_own && own != shared { self.focal } else { or(self.focal, file.focal) };
        Self {
            kind: self.kind.or(file.kind),
            focal,
            centre_px: or(self.centre_px, file.centre_px),
            size_px: or(self.size_px, file.size_px),
            radial: or(self.radial, file.radial),
            tangential: or(self.tangential, file.tangential),
            unread: [self.unread.as_slice(), &file.unread].concat(),
            unread_focal: [self.unread_focal.as_slice(), &file.unread_focal].concat(),
        }
    }

    fn optics(&self) -> Result<Optics, CameraFault> {
        let found = |text: String| CameraFault::Found(text);
        if let Some(key) = self.unread.first() {
            return Err(found(format!("has {key}, a camera that splat does not read")));
        }
        let focal = match self.focal {
            [Some(x), Some(y)] => [x, y],
            // Pixels are square if only one focal length is given.
            [Some(one), None] | [None, Some(one)] => [one; 2],
            [None, None] => {
                let text = match self.unread_focal.first() {
                    Some(key) => format!("has {key}, but neither fl_x nor camera_angle_x"),
                    None => "has neither fl_x nor camera_angle_x".to_owned(),
                };
                return Err(found(text));
            }
        };
        let distortion = self.distortion().map_err(CameraFault::Found)?;
        let lens = SizelessLens { focal, centre_px: self.centre_px, distortion };
        let size = |axis: usize, value: f64| {
            let good = value.fract() == 0.0 && value >= 1.0 && value <= f64::from(u32::MAX);
            let key = SIZE_KEYS[axis][0];
            if good { Ok(floor_u32(value)) } else { Err(found(format!("has {key} = {value}"))) }
        };
        match self.size_px {
            [Some(width), Some(height)] => {
                let size = [size(0, width)?, size(1, height)?];
                lens.of_size(size).map(Optics::Lens).map_err(CameraFault::Lens)
            }
            [None, None] => {
                // Finds values that are invalid for any size.
                lens.of_size([1, 1]).map_err(CameraFault::Lens)?;
                Ok(Optics::Sizeless(lens))
            }
            [Some(_), None] => Err(found("has w, but no h".to_owned())),
            [None, Some(_)] => Err(found("has h, but no w".to_owned())),
        }
    }

    /// Returns the ratio of pixels' sides if two fields of view contradict square pixels, as with some exporters.
    fn stretch(&self) -> Option<f64> {
        let [Some(Focal::Angle { angle: x, .. }), Some(Focal::Angle { angle: y, .. })] = self.focal
        else {
            return None;
        };
        let [Some(width), Some(height)] = self.size_px else { return None };
        let ratio = (height * (x / 2.0).tan()) / (width * (y / 2.0).tan());
        ((ratio - 1.0).abs() > SQUARE).then_some(ratio)
    }

    fn distortion(&self) -> Result<Distortion, String> {
        let [k1, k2, k3, k4, k5, k6] = self.radial.map(Option::unwrap_or_default);
        let [p1, p2] = self.tangential.map(Option::unwrap_or_default);
        let refuse =
            |keys: &[(&str, f64)], lens: &str| match keys.iter().find(|(_, value)| *value != 0.0) {
                Some((key, value)) => Err(format!("has {key} = {value}, which {lens} lacks")),
                None => Ok(()),
            };
        match self.kind.unwrap_or(LensKind::Perspective) {
            LensKind::Perspective => {
                // nerfstudio's k4 is the next radial term here, not the rational one of FULL_OPENCV;
                // OpenCV has no such term.
                refuse(&[("k4", k4), ("k5", k5), ("k6", k6)], "the lens OPENCV")?;
                Ok(Distortion::brown([k1, k2, k3, 0.0, 0.0, 0.0], [p1, p2]))
            }
            LensKind::Rational => Ok(Distortion::brown([k1, k2, k3, k4, k5, k6], [p1, p2])),
            LensKind::Fisheye => {
                let others = [("k5", k5), ("k6", k6), ("p1", p1), ("p2", p2)];
                refuse(&others, "the lens OPENCV_FISHEYE")?;
                Ok(Distortion::Fisheye([k1, k2, k3, k4]))
            }
        }
    }
}

/// True if [`CameraKeys::read`] reads the key.
fn is_read(key: &str) -> bool {
    let pairs = [FOCAL_KEYS, CENTRE_KEYS, SIZE_KEYS];
    let lists: [&[&str]; 6] =
        [&RADIANS_KEYS, &DEGREES_KEYS, &RADIAL_KEYS, &TANGENTIAL_KEYS, &MATRIX_KEYS, &MODEL_KEYS];
    let mut all = pairs.iter().flatten().chain(&lists);
    key == FISHEYE_KEY || all.any(|names| names.contains(&key))
}

/// True if an unsupported key gives a focal length or a field of view.
fn is_focal(key: &str) -> bool {
    let key = key.to_lowercase();
    let is_fov = |word: &str| word.ends_with("fov");
    ["focal", "intrinsic", "projection"].iter().any(|part| key.contains(part))
        || key.split('_').any(is_fov)
        || ["f", "fl", "lens"].contains(&key.as_str())
}

/// True if an unsupported key changes the camera that the supported keys describe.
fn changes_camera(key: &str) -> bool {
    const PARTS: &str = "distort lens_shift lens_model ftheta latlong equirect panoram fisheye principal skew \
        camera_angle ortho";
    const WHOLE: [&str; 5] = ["xi", "shift_x", "shift_y", "k", "pixel_aspect"];
    // Names that only resemble camera keys.
    const NOT: [&str; 3] = ["fisheye_crop_radius", "orthonormal", "undistort"];
    let key = key.to_lowercase();
    let is_coefficient = || {
        let number = key.strip_prefix(['k', 'p', 's']).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|letter| letter.is_ascii_digit())
    };
    !NOT.iter().any(|part| key.contains(part))
        && (PARTS.split(' ').any(|part| key.contains(part))
            || WHOLE.contains(&key.as_str())
            || is_coefficient())
}

/// True for meaningful values: not null, false, zero or empty.
fn is_meant(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(value) => value.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty() && text.trim().parse() != Ok(0.0),
        Value::Array(values) => values.iter().any(is_meant),
        Value::Object(values) => values.values().any(is_meant),
    }
}

/// Returns a number, also from text.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn number_of(key: &str, value: &Value) -> Result<f64, String> {
    number(value).ok_or_else(|| format!("has {key} = {}, which is no number", shown(value)))
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// Reads a field of view in radians.
fn angle(keys: &Map<String, Value>, axis: usize) -> Result<Option<f64>, String> {
    let of = |key: &str, scale: f64| {
        let Some(value) = keys.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
        let angle = scale * number_of(key, value)?;
        if POSSIBLE_FIELDS.contains(&angle.to_degrees()) {
            Ok(Some(angle))
        } else {
            let unit = if scale == 1.0 { "radians" } else { "degrees" };
            Err(format!("has {key} = {}, which is no field of view in {unit}", shown(value)))
        }
    };
    match of(RADIANS_KEYS[axis], 1.0)? {
        Some(angle) => Ok(Some(angle)),
        None => of(DEGREES_KEYS[axis], PI / 180.0),
    }
}

/// Returns focal lengths and principal point of a matrix of 3 rows (or 4, if homogeneous), nested or flat.
fn matrix(key: &str, value: &Value) -> Result<[[f64; 2]; 2], String> {
    let wrong = || format!("has {key} = {}, which is no 3x3 matrix of a camera", shown(value));
    let rows = value.as_array().ok_or_else(wrong)?;
    let rows: Vec<Vec<f64>> = if rows.iter().all(Value::is_array) {
        let row = |row: &Value| row.as_array()?.iter().map(number).collect::<Option<Vec<f64>>>();
        rows.iter().map(row).collect::<Option<_>>().ok_or_else(wrong)?
    } else {
        let flat: Vec<f64> = rows.iter().map(number).collect::<Option<_>>().ok_or_else(wrong)?;
        let width = if flat.len() == 16 { 4 } else { 3 };
        flat.chunks(width).map(<[f64]>::to_vec).collect()
    };
    let [x, y, z, ..] = rows.as_slice() else { return Err(wrong()) };
    let (&[fx, skew, cx, ..], &[zero, fy, cy, ..]) = (x.as_slice(), y.as_slice()) else {
        return Err(wrong());
    };
    if z.get(..3) != Some(&[0.0, 0.0, 1.0]) || zero != 0.0 {
        return Err(wrong());
    }
    if skew.abs() > 1e-6 * fx.abs() {
        return Err(format!("has {key} with the skew {skew}, which no camera of splat has"));
    }
    Ok([[fx, fy], [cx, cy]])
}

/// Returns the lens kind that `camera_model` and `is_fisheye` give together.
fn kind(keys: &Map<String, Value>) -> Result<Option<LensKind>, String> {
    let model = MODEL_KEYS.iter().find_map(|key| keys.get(*key).filter(|value| !value.is_null()));
    let by_model = match model {
        None => None,
        Some(Value::String(name)) => Some(match name.trim().to_uppercase().as_str() {
            "PERSPECTIVE" | "PERSP" | "PINHOLE" | "SIMPLE_PINHOLE" | "SIMPLE_RADIAL" | "RADIAL"
            | "OPENCV" => LensKind::Perspective,
            "FULL_OPENCV" => LensKind::Rational,
            "FISHEYE" | "OPENCV_FISHEYE" => LensKind::Fisheye,
            _ => return Err(format!("has the camera model {name:?}, which splat does not read")),
        }),
        Some(other) => {
            return Err(format!("has camera_model = {}, which is no name", shown(other)));
        }
    };
    let is_fisheye = match keys.get(FISHEYE_KEY) {
        None | Some(Value::Null) => None,
        Some(Value::Bool(value)) => Some(*value),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Some(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Some(false),
        Some(value) => Some(number_of(FISHEYE_KEY, value)? != 0.0),
    };
    match (by_model, is_fisheye) {
        (Some(kind), Some(true)) if kind != LensKind::Fisheye => {
            let model = model.map(shown).unwrap_or_default();
            Err(format!("has the camera model {model} and is_fisheye, which contradict each other"))
        }
        (None, Some(true)) => Ok(Some(LensKind::Fisheye)),
        (None, Some(false)) => Ok(Some(LensKind::Perspective)),
        (kind, _) => Ok(kind),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dataset::lens::Distortion;
    use crate::dataset::shot::Focal;

    fn keys(value: &Value) -> CameraKeys {
        CameraKeys::read(value.as_object().unwrap()).unwrap()
    }

    /// Returns the camera of these keys for a photograph of 100x80 px: focal lengths, principal point, distortion.
    fn camera(value: &Value) -> Result<([f64; 2], [f64; 2], Distortion), String> {
        let read = CameraKeys::read(value.as_object().unwrap())?;
        let straight = match read.optics().map_err(|fault| format!("{fault:?}"))? {
            Optics::Lens(lens) => lens,
            Optics::Sizeless(lens) => lens.of_size([100, 80]).unwrap(),
        };
        assert_eq!(straight.size(), [100, 80]);
        let middle = straight.px_from_plane([0.0; 2]);
        // Small enough that distortion has no effect.
        let step = 1e-7;
        let right = straight.px_from_plane([step, 0.0])[0] - middle[0];
        let below = straight.px_from_plane([0.0, step])[1] - middle[1];
        Ok(([right / step, below / step], middle, read.distortion()?))
    }

    #[test]
    fn opengl_axes_become_opencv_axes() {
        // At (1, 2, 3), looking along world -z with y up: OpenGL's identity.
        let matrix = json!([[1.0, 0, 0, 1], [0, "1.0", 0, 2], [0, 0, 1, 3.0], [0, 0, 0, 1]]);
        let pose = pose(&matrix).unwrap();
        assert_eq!(pose.centre_world(), [1.0, 2.0, 3.0]);
        // A point ahead, to the right and above lies at positive x, negative y, positive z.
        let seen = mul(&pose.rotation, [1.5, 2.25, -1.0]);
        let seen: [f64; 3] = std::array::from_fn(|i| seen[i] + pose.translation[i]);
        assert_eq!(seen, [0.5, -0.25, 4.0]);
    }

    #[test]
    fn invalid_matrices_are_rejected() {
        let row = [1, 0, 0, 0];
        for matrix in [
            json!([]),
            json!([row, row]),
            json!([row, row, row, row]),
            json!([[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]),
            json!([[-1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]),
            json!([[1, 0, 0, "nan"], [0, 1, 0, 0], [0, 0, 1, 0]]),
            json!("identity"),
        ] {
            assert!(pose(&matrix).is_err(), "{matrix:?}");
        }
    }

    #[test]
    fn equivalent_keys_give_the_same_camera() {
        let angle = |focal: f64, size: f64| 2.0 * (size / 2.0 / focal).atan();
        let (x, y) = (angle(90.0, 100.0), angle(95.0, 80.0));
        for value in [
            json!({"fl_x": 90, "fl_y": 95, "cx": 52, "cy": 39, "w": 100, "h": 80}),
            json!({"fl_x": "90", "fl_y": " 95.0", "cx": "52", "cy": "39", "w": "100", "h": "80"}),
            json!({"fx": 90, "fy": 95, "cx": 52, "cy": 39, "width": 100, "height": 80}),
            json!({"fl_x": 90, "fl_y": 95, "cx": 52, "cy": 39}),
            json!({"camera_angle_x": x, "camera_angle_y": y, "cx": 52, "cy": 39, "w": 100, "h": 80}),
            json!({"camera_angle_x": x, "camera_angle_y": y, "cx": 52, "cy": 39}),
            json!({"camera_angle_x": x, "fl_y": 95, "cx": 52, "cy": 39}),
            json!({"x_fov": x.to_degrees(), "y_fov": y.to_degrees(), "cx": 52, "cy": 39}),
            json!({"camera_angle_x": 0.3, "fl_x": 90, "fl_y": 95, "cx": 52, "cy": 39}),
            json!({"K": [[90, 0, 52], [0, 95, 39], [0, 0, 1]], "w": 100, "h": 80}),
            json!({"K": [90, 0, 52, 0, 95, 39, 0, 0, 1]}),
            json!({"intrinsic_matrix": [[90, 0, 52, 0], [0, 95, 39, 0], [0, 0, 1, 0], [0, 0, 0, 1]]}),
        ] {
            let (focal, centre, distortion) = camera(&value).unwrap();
            for (found, expected) in [(focal, [90.0, 95.0]), (centre, [52.0, 39.0])] {
                let is_near = |(a, b): (&f64, f64)| (a - b).abs() < 1e-4;
                assert!(found.iter().zip(expected).all(is_near), "{value}: {focal:?} {centre:?}");
            }
            assert_eq!(distortion, Distortion::NONE);
        }
        // One focal length means square pixels and a centred principal point.
        for value in [
            json!({"fl_x": 90}),
            json!({"fl_y": 90}),
            json!({"camera_angle_x": x}),
            json!({"camera_angle_y": angle(90.0, 80.0)}),
        ] {
            let (focal, centre, _) = camera(&value).unwrap();
            assert!(focal.iter().all(|focal| (focal - 90.0).abs() < 1e-4), "{value}: {focal:?}");
            assert_eq!(centre, [50.0, 40.0]);
        }
    }

    #[test]
    fn a_frame_overrides_the_file() {
        let file = keys(&json!({"fl_x": 1, "fl_y": 2, "k1": 0.1, "w": 8, "is_fisheye": true}));
        let merged = keys(&json!({"fl_x": 3})).or(&file);
        let same = json!({"fl_x": 3, "fl_y": 2, "k1": 0.1, "w": 8, "is_fisheye": true});
        assert_eq!(merged, keys(&same));
        // Angles and pixels are not combined.
        let merged =
            keys(&json!({"camera_angle_x": 1.0})).or(&keys(&json!({"fl_x": 9, "fl_y": 9})));
        assert_eq!(merged, keys(&json!({"camera_angle_x": 1.0})));
        let merged = keys(&json!({"K": [[3, 0, 1], [0, 4, 2], [0, 0, 1]]})).or(&file);
        let focal = [3.0, 4.0].map(|focal| Some(Focal::Px(focal)));
        assert!(format!("{merged:?}").contains(&format!("focal: {focal:?}")), "{merged:?}");
        assert!(keys(&json!({"is_fisheye": false})).or(&file).optics().is_err(), "w alone");
    }

    #[test]
    fn names_of_lenses_choose_the_distortion() {
        let brown = Distortion::brown([0.1, 0.0, 0.3, 0.0, 0.0, 0.0], [0.0, 0.02]);
        let rational = Distortion::brown([0.1, 0.0, 0.3, 0.05, 0.0, 0.0], [0.0, 0.02]);
        let fisheye = Distortion::Fisheye([0.1, 0.0, 0.3, 0.05]);
        let with = |extra: Value, k4: f64, p2: f64| {
            let mut value = json!({"fl_x": 90, "k1": 0.1, "k3": "0.3", "k4": k4, "p2": p2});
            for (key, extra) in extra.as_object().unwrap() {
                value[key] = extra.clone();
            }
            camera(&value).map(|(_, _, distortion)| distortion)
        };
        for extra in [
            json!({}),
            json!({"camera_model": "OPENCV"}),
            json!({"camera_model": "PERSPECTIVE"}),
            json!({"camera_model": "pinhole"}),
            json!({"is_fisheye": false}),
            json!({"ortho": false, "ftheta_p0": 0, "k5": 0, "skew": 0.0}),
        ] {
            assert_eq!(with(extra.clone(), 0.0, 0.02), Ok(brown), "{extra}");
        }
        assert_eq!(with(json!({"camera_model": "FULL_OPENCV"}), 0.05, 0.02), Ok(rational));
        for extra in [
            json!({"camera_model": "OPENCV_FISHEYE"}),
            json!({"camera_model": "FISHEYE"}),
            json!({"is_fisheye": true}),
            json!({"is_fisheye": 1}),
            json!({"is_fisheye": "True"}),
        ] {
            assert_eq!(with(extra.clone(), 0.05, 0.0), Ok(fisheye), "{extra}");
        }
        for (extra, named) in [
            (json!({"k4": 0.4}), "k4"),
            (json!({"k5": 0.4}), "k5"),
            (json!({"k7": 0.4}), "k7"),
            (json!({"ortho": true}), "ortho"),
            (json!({"ortho_scale": 2.0}), "ortho_scale"),
            (json!({"ftheta_p1": 0.4}), "ftheta_p1"),
            (json!({"is_equirectangular": true}), "is_equirectangular"),
            (json!({"latlong": true}), "latlong"),
            (json!({"s1": 0.1}), "s1"),
            (json!({"skew": 1.5}), "skew"),
            (json!({"shift_x": 0.1}), "shift_x"),
            (json!({"distortion_params": [0.1, 0.2]}), "distortion_params"),
            (json!({"camera_model": "EQUIRECTANGULAR"}), "EQUIRECTANGULAR"),
            (json!({"camera_model": "ORTHOPHOTO"}), "ORTHOPHOTO"),
            (json!({"camera_model": "FISHEYE624"}), "FISHEYE624"),
            (json!({"camera_model": "OPENCV", "is_fisheye": true}), "is_fisheye"),
            (json!({"is_fisheye": "perhaps"}), "is_fisheye"),
            (json!({"fl_x": "wide"}), "fl_x"),
            (json!({"fl_x": null, "focal_length": 35}), "focal_length"),
            (json!({"fl_x": null, "camera_angle_x": 3.2}), "camera_angle_x"),
            (json!({"cx": [1, 2]}), "cx"),
            (json!({"w": 100}), "no h"),
            (json!({"K": [[3, 1, 1], [0, 4, 2], [0, 0, 1]]}), "skew"),
            (json!({"K": [[3, 1], [0, 4]]}), "K"),
        ] {
            let error = with(extra.clone(), 0.0, 0.02).unwrap_err();
            assert!(error.contains(named), "{extra}: {error}");
        }
        // Redundant if the focal length is known.
        assert_eq!(with(json!({"focal_length": 35, "fov": 50}), 0.0, 0.02), Ok(brown));
    }

    #[test]
    fn nonsquare_pixels_are_detected() {
        let stretch = |y: f64| {
            keys(&json!({"camera_angle_x": 1.0, "camera_angle_y": y, "w": 100, "h": 80})).stretch()
        };
        assert_eq!(stretch(2.0 * (0.8 * 0.5_f64.tan()).atan()), None);
        assert!(stretch(1.0).unwrap() < 0.9);
    }
}
