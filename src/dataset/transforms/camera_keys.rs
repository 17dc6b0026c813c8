//! The keys of a transforms file that describe a camera.
//!
//! Keys are those of instant-ngp, nerfstudio and exporters for Blender.

use std::f64::consts::PI;

use serde_json::{Map, Value};

use crate::dataset::lens::{Distortion, LensError, POSSIBLE_FIELDS};
use crate::dataset::shot::{Focal, Optics, SizelessLens};

/// Largest difference of the focal lengths that two fields of view of square pixels explain.
const SQUARE: f64 = 0.05;

/// Key, aliases first to last, of each number in px.
const FOCAL_KEYS: [&[&str]; 2] =
    [&["fl_x", "fx", "focal_x", "f_x"], &["fl_y", "fy", "focal_y", "f_y"]];
const CENTRE_KEYS: [&[&str]; 2] = [&["cx", "c_x"], &["cy", "c_y"]];
const SIZE_KEYS: [&[&str]; 2] = [&["w", "width", "image_width"], &["h", "height", "image_height"]];
/// Fields of view in radians and in degrees.
const RADIANS_KEYS: [&str; 2] = ["camera_angle_x", "camera_angle_y"];
const DEGREES_KEYS: [&str; 2] = ["x_fov", "y_fov"];
const RADIAL_KEYS: [&str; 6] = ["k1", "k2", "k3", "k4", "k5", "k6"];
const TANGENTIAL_KEYS: [&str; 2] = ["p1", "p2"];
/// Matrices of focal lengths and principal point.
const MATRIX_KEYS: [&str; 3] = ["K", "intrinsic_matrix", "camera_matrix"];
const MODEL_KEYS: [&str; 2] = ["camera_model", "camera_type"];
const FISHEYE_KEY: &str = "is_fisheye";

/// Kinds of lenses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LensKind {
    /// Pinhole, with the distortion that is given.
    Perspective,
    /// The same with a rational distortion.
    Rational,
    /// Equidistant fisheye.
    Fisheye,
}

/// Camera parameters of a file, or of one of its frames.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CameraKeys {
    kind: Option<LensKind>,
    focal: [Option<Focal>; 2],
    centre_px: [Option<f64>; 2],
    size_px: [Option<f64>; 2],
    radial: [Option<f64>; 6],
    tangential: [Option<f64>; 2],
    /// Keys that are not read, but change the camera.
    unread: Vec<String>,
    /// Keys of focal lengths that are not read, which are needed if there is no other.
    unread_focal: Vec<String>,
}

/// Fault of a camera.
#[derive(Debug)]
pub(super) enum CameraFault {
    /// Fault of a key.
    Found(String),
    /// A value that no lens can have.
    Lens(LensError),
}

impl CameraKeys {
    /// Reads the keys of a file or a frame; the error says what is wrong with a value.
    pub(super) fn read(keys: &Map<String, Value>) -> Result<Self, String> {
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

    /// These where given, else those of the file.
    pub(super) fn or(&self, file: &Self) -> Self {
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

    /// The camera that the keys describe.
    pub(super) fn optics(&self) -> Result<Optics, CameraFault> {
        let found = |text: String| CameraFault::Found(text);
        if let Some(key) = self.unread.first() {
            return Err(found(format!("has {key}, a camera that splat does not read")));
        }
        let focal = match self.focal {
            [Some(x), Some(y)] => [x, y],
            // Pixels are square if one focal length is given.
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
            if good { Ok(whole(value)) } else { Err(found(format!("has {key} = {value}"))) }
        };
        match self.size_px {
            [Some(width), Some(height)] => {
                let size = [size(0, width)?, size(1, height)?];
                lens.of_size(size).map(Optics::Lens).map_err(CameraFault::Lens)
            }
            [None, None] => {
                // Values that are wrong for any size are found here.
                lens.of_size([1, 1]).map_err(CameraFault::Lens)?;
                Ok(Optics::Sizeless(lens))
            }
            [Some(_), None] => Err(found("has w, but no h".to_owned())),
            [None, Some(_)] => Err(found("has h, but no w".to_owned())),
        }
    }

    /// Fields of view that make pixels much higher than wide, which only some exporters mean: the ratio.
    pub(super) fn stretch(&self) -> Option<f64> {
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
    pairs.iter().flatten().any(|names| names.contains(&key))
        || RADIANS_KEYS.contains(&key)
        || DEGREES_KEYS.contains(&key)
        || RADIAL_KEYS.contains(&key)
        || TANGENTIAL_KEYS.contains(&key)
        || MATRIX_KEYS.contains(&key)
        || MODEL_KEYS.contains(&key)
        || key == FISHEYE_KEY
}

/// True if a key is of a camera, whether it is read or refused.
pub(super) fn is_of_camera(key: &str) -> bool {
    is_read(key) || is_focal(key) || changes_camera(key)
}

/// True if a key that is not read gives a focal length or a field of view.
fn is_focal(key: &str) -> bool {
    let key = key.to_lowercase();
    let is_fov = |word: &str| word.ends_with("fov");
    ["focal", "intrinsic", "projection"].iter().any(|part| key.contains(part))
        || key.split('_').any(is_fov)
        || ["f", "fl", "lens"].contains(&key.as_str())
}

/// True if a key that is not read makes another camera of those that are read.
fn changes_camera(key: &str) -> bool {
    const PARTS: [&str; 12] = [
        "distort",
        "lens_shift",
        "lens_model",
        "ftheta",
        "latlong",
        "equirect",
        "panoram",
        "fisheye",
        "principal",
        "skew",
        "camera_angle",
        "ortho",
    ];
    const WHOLE: [&str; 5] = ["xi", "shift_x", "shift_y", "k", "pixel_aspect"];
    // Not cameras, but like them in name.
    const NOT: [&str; 3] = ["fisheye_crop_radius", "orthonormal", "undistort"];
    let key = key.to_lowercase();
    let is_coefficient = || {
        let number = key.strip_prefix(['k', 'p', 's']).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|letter| letter.is_ascii_digit())
    };
    !NOT.iter().any(|part| key.contains(part))
        && (PARTS.iter().any(|part| key.contains(part))
            || WHOLE.contains(&key.as_str())
            || is_coefficient())
}

/// True for values that say something: not null, false, zero or empty.
pub(super) fn is_meant(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(value) => value.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty() && text.trim().parse() != Ok(0.0),
        Value::Array(values) => values.iter().any(is_meant),
        Value::Object(values) => values.values().any(is_meant),
    }
}

/// A number, also one that is written as text.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn number_of(key: &str, value: &Value) -> Result<f64, String> {
    number(value).ok_or_else(|| format!("has {key} = {}, which is no number", shown(value)))
}

/// A value as a message shows it.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// A field of view in radians.
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

/// Focal lengths and principal point of a matrix of 3 rows (or 4, of a homogeneous one), nested or flat.
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

/// The lens that `camera_model` and `is_fisheye` name together.
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

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "called with whole numbers that fit u32"
)]
fn whole(size: f64) -> u32 {
    size as u32
}
