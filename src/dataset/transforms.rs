//! Scenes of Blender (`transforms_train.json`) and nerfstudio (`transforms.json`).
//!
//! Both store camera-to-world matrices with OpenGL's axes (y up, z backwards). Paths are relative
//! to the folder of the JSON file and may lack their extension.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::camera::{Camera, Pose};
use super::lens::{Distortion, Lens, LensError};
use super::shot::{EXTENSIONS, Optics, Shot};
use super::text::without_byte_order_mark;
use crate::math::linalg::{cross, dot, length, mul, scale};

/// The file of Blender's training views.
pub(super) const BLENDER_TRAIN: &str = "transforms_train.json";
/// The file of Blender's held-out views.
const BLENDER_TEST: &str = "transforms_test.json";
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
        source: serde_json::Error,
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
        /// What to do.
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

/// A transforms scene as it is read.
#[derive(Debug)]
pub(super) struct Transforms {
    /// All views, those of the test file marked as held out.
    pub(super) shots: Vec<Shot>,
    /// The points' file, where one is named.
    pub(super) points: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct TransformsFile {
    #[serde(flatten)]
    intrinsics: Intrinsics,
    ply_file_path: Option<String>,
    frames: Vec<TransformsFrame>,
}

#[derive(Debug, Deserialize)]
struct TransformsFrame {
    file_path: String,
    transform_matrix: Vec<Vec<f64>>,
    mask_path: Option<String>,
    #[serde(flatten)]
    intrinsics: Intrinsics,
}

/// Camera parameters, in the file for all frames or in a frame for itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Intrinsics {
    camera_model: Option<String>,
    camera_angle_x: Option<f64>,
    fl_x: Option<f64>,
    fl_y: Option<f64>,
    cx: Option<f64>,
    cy: Option<f64>,
    w: Option<f64>,
    h: Option<f64>,
    k1: Option<f64>,
    k2: Option<f64>,
    k3: Option<f64>,
    k4: Option<f64>,
    k5: Option<f64>,
    k6: Option<f64>,
    p1: Option<f64>,
    p2: Option<f64>,
}

impl Intrinsics {
    /// These where given, else those of the file.
    fn or(&self, file: &Self) -> Self {
        Self {
            camera_model: self.camera_model.clone().or_else(|| file.camera_model.clone()),
            camera_angle_x: self.camera_angle_x.or(file.camera_angle_x),
            fl_x: self.fl_x.or(file.fl_x),
            fl_y: self.fl_y.or(file.fl_y),
            cx: self.cx.or(file.cx),
            cy: self.cy.or(file.cy),
            w: self.w.or(file.w),
            h: self.h.or(file.h),
            k1: self.k1.or(file.k1),
            k2: self.k2.or(file.k2),
            k3: self.k3.or(file.k3),
            k4: self.k4.or(file.k4),
            k5: self.k5.or(file.k5),
            k6: self.k6.or(file.k6),
            p1: self.p1.or(file.p1),
            p2: self.p2.or(file.p2),
        }
    }

    /// The distortion; `Err` holds what is wrong with it.
    fn distortion(&self) -> Result<Distortion, String> {
        let [k1, k2, k3, k4, k5, k6, p1, p2] =
            [self.k1, self.k2, self.k3, self.k4, self.k5, self.k6, self.p1, self.p2]
                .map(|value| value.unwrap_or(0.0));
        match self.camera_model.as_deref().unwrap_or("OPENCV") {
            "PINHOLE" | "SIMPLE_PINHOLE" => Ok(Distortion::NONE),
            // nerfstudio's k4 is the next radial term here, not the rational one of FULL_OPENCV;
            // OpenCV has no such term.
            "OPENCV" if k4 == 0.0 => Ok(Distortion::brown([k1, k2, k3, 0.0, 0.0, 0.0], [p1, p2])),
            "OPENCV" => Err(format!("has the radial coefficient k4 = {k4}, which OPENCV lacks")),
            "SIMPLE_RADIAL" => Ok(Distortion::brown([k1, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 2])),
            "RADIAL" => Ok(Distortion::brown([k1, k2, 0.0, 0.0, 0.0, 0.0], [0.0; 2])),
            "FULL_OPENCV" => Ok(Distortion::brown([k1, k2, k3, k4, k5, k6], [p1, p2])),
            "OPENCV_FISHEYE" => Ok(Distortion::Fisheye([k1, k2, k3, k4])),
            other => Err(format!("has the camera model {other:?}, which cannot be straightened")),
        }
    }

    /// The optics; `Err` holds what is wrong, or the lens error.
    fn optics(&self) -> Result<Optics, OpticsError> {
        let Some(fl_x) = self.fl_x else {
            let angle = self.camera_angle_x.ok_or_else(|| {
                OpticsError::Said("has neither fl_x nor camera_angle_x".to_owned())
            })?;
            // Half a turn or more has no pinhole, and none has no width.
            if !(angle > 0.0 && angle < std::f64::consts::PI) {
                return Err(OpticsError::Said(format!("has the camera_angle_x {angle}")));
            }
            return Ok(Optics::FieldOfView(angle));
        };
        let size = |value: Option<f64>, key: &str| {
            let value = value.ok_or_else(|| OpticsError::Said(format!("has no {key}")))?;
            let good = value.fract() == 0.0 && value >= 1.0 && value <= f64::from(u32::MAX);
            if good { Ok(value) } else { Err(OpticsError::Said(format!("has {key} = {value}"))) }
        };
        let (w, h) = (size(self.w, "w")?, size(self.h, "h")?);
        let distortion = self.distortion().map_err(OpticsError::Said)?;
        let camera = Camera {
            width: whole(w),
            height: whole(h),
            focal_px: [fl_x, self.fl_y.unwrap_or(fl_x)],
            centre_px: [self.cx.unwrap_or(w / 2.0), self.cy.unwrap_or(h / 2.0)],
        };
        Lens::new(camera, distortion).map(Optics::Lens).map_err(OpticsError::Lens)
    }
}

/// What is wrong with a frame's camera.
enum OpticsError {
    Said(String),
    Lens(LensError),
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "called with whole numbers that fit u32"
)]
fn whole(size: f64) -> u32 {
    size as u32
}

/// Reads a Blender scene: the training file, and the test file if it exists.
pub(super) fn read_blender(scene: &Path) -> Result<Transforms, TransformsError> {
    let mut transforms = read(&scene.join(BLENDER_TRAIN))?;
    let test = scene.join(BLENDER_TEST);
    if test.is_file() {
        let mut held_out = read(&test)?.shots;
        held_out.iter_mut().for_each(|shot| shot.held_out = true);
        // A view in both files is held out: training on it would flatter the result.
        let names: HashSet<&str> = held_out.iter().map(|shot| shot.name.as_str()).collect();
        transforms.shots.retain(|shot| !names.contains(shot.name.as_str()));
        transforms.shots.append(&mut held_out);
    }
    Ok(transforms)
}

/// Reads a nerfstudio scene.
pub(super) fn read_nerfstudio(scene: &Path) -> Result<Transforms, TransformsError> {
    read(&scene.join(NERFSTUDIO))
}

fn read(path: &Path) -> Result<Transforms, TransformsError> {
    let text = fs::read(path)
        .map_err(|source| TransformsError::Unreadable { path: path.to_owned(), source })?;
    let file: TransformsFile = serde_json::from_slice(without_byte_order_mark(&text))
        .map_err(|source| TransformsError::Json { path: path.to_owned(), source })?;
    if file.frames.is_empty() {
        return Err(TransformsError::Empty { path: path.to_owned() });
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let shots = file
        .frames
        .iter()
        .map(|frame| shot(frame, &file.intrinsics, path, folder))
        .collect::<Result<_, _>>()?;
    Ok(Transforms { shots, points: file.ply_file_path.map(|name| folder.join(name)) })
}

fn shot(
    frame: &TransformsFrame,
    shared: &Intrinsics,
    path: &Path,
    folder: &Path,
) -> Result<Shot, TransformsError> {
    let wrong = |found, remedy| TransformsError::TransformsFrame {
        path: path.to_owned(),
        frame: frame.file_path.clone(),
        found,
        remedy,
    };
    let pose = pose(&frame.transform_matrix).map_err(|found| {
        wrong(found.to_owned(), "Write a camera-to-world matrix of 4 rows with 4 numbers each")
    })?;
    let optics = frame.intrinsics.or(shared).optics().map_err(|error| match error {
        OpticsError::Lens(source) => {
            TransformsError::Lens { path: path.to_owned(), frame: frame.file_path.clone(), source }
        }
        OpticsError::Said(found) => wrong(
            found,
            "Give fl_x, w and h in px and one of the camera models PINHOLE, OPENCV and \
             OPENCV_FISHEYE, or camera_angle_x in radians",
        ),
    })?;
    let name = frame.file_path.strip_prefix("./").unwrap_or(&frame.file_path);
    let (name, image) = complete(folder, name);
    let mask = frame.mask_path.as_ref().map(|mask| folder.join(mask));
    Ok(Shot { name, pose, optics, path: image, mask, held_out: false })
}

/// The name with its extension and the file, if there is one.
fn complete(folder: &Path, name: &str) -> (String, Option<PathBuf>) {
    let candidates = std::iter::once(name.to_owned())
        .chain(EXTENSIONS.iter().map(|extension| format!("{name}.{extension}")));
    for candidate in candidates {
        let path = folder.join(&candidate);
        if path.is_file() {
            return (candidate, Some(path));
        }
    }
    (name.to_owned(), None)
}

/// World-to-camera with OpenCV's axes, from camera-to-world with OpenGL's.
fn pose(matrix: &[Vec<f64>]) -> Result<Pose, &'static str> {
    let rows: Vec<[f64; 4]> =
        matrix.iter().filter_map(|row| row.as_slice().try_into().ok()).collect();
    // Some tools leave the last row out, which says nothing. A row that is not of four numbers is
    // missing among `rows`.
    let (true, [x, y, z] | [x, y, z, _]) = (rows.len() == matrix.len(), rows.as_slice()) else {
        return Err("has a transform_matrix that is not 4x4");
    };
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
mod tests {
    use super::*;

    #[test]
    fn opengl_axes_become_opencv_axes() {
        // At (1, 2, 3), looking along world -z with y up: OpenGL's identity.
        let matrix = vec![
            vec![1.0, 0.0, 0.0, 1.0],
            vec![0.0, 1.0, 0.0, 2.0],
            vec![0.0, 0.0, 1.0, 3.0],
            vec![0.0, 0.0, 0.0, 1.0],
        ];
        let pose = pose(&matrix).unwrap();
        assert_eq!(pose.centre_world(), [1.0, 2.0, 3.0]);
        // A point ahead, to the right and above lies at positive x, negative y, positive z.
        let seen = mul(&pose.rotation, [1.5, 2.25, -1.0]);
        let seen: [f64; 3] = std::array::from_fn(|i| seen[i] + pose.translation[i]);
        assert_eq!(seen, [0.5, -0.25, 4.0]);
    }

    #[test]
    fn matrices_that_are_no_poses_are_refused() {
        let row = vec![1.0, 0.0, 0.0, 0.0];
        for matrix in [vec![], vec![row.clone(); 2], vec![row.clone(); 4], vec![vec![0.0; 4]; 4]] {
            assert!(pose(&matrix).is_err(), "{matrix:?}");
        }
        let mirrored =
            vec![vec![-1.0, 0.0, 0.0, 0.0], vec![0.0, 1.0, 0.0, 0.0], vec![0.0, 0.0, 1.0, 0.0]];
        assert!(pose(&mirrored).is_err());
    }

    #[test]
    fn a_frame_overrides_the_file() {
        let shared = Intrinsics { fl_x: Some(1.0), k1: Some(0.1), ..Default::default() };
        let own = Intrinsics { fl_x: Some(2.0), ..Default::default() };
        let merged = own.or(&shared);
        assert_eq!((merged.fl_x, merged.k1), (Some(2.0), Some(0.1)));
    }

    #[test]
    fn camera_models_choose_the_distortion() {
        let with = |model: Option<&str>, k4| Intrinsics {
            camera_model: model.map(str::to_owned),
            k1: Some(0.1),
            k3: Some(0.3),
            k4: Some(k4),
            p2: Some(0.02),
            ..Default::default()
        };
        let brown = Distortion::brown([0.1, 0.0, 0.3, 0.0, 0.0, 0.0], [0.0, 0.02]);
        assert_eq!(with(None, 0.0).distortion(), Ok(brown));
        assert_eq!(with(Some("OPENCV"), 0.0).distortion(), Ok(brown));
        assert_eq!(with(Some("PINHOLE"), 0.0).distortion(), Ok(Distortion::NONE));
        let fisheye = Distortion::Fisheye([0.1, 0.0, 0.3, 0.4]);
        assert_eq!(with(Some("OPENCV_FISHEYE"), 0.4).distortion(), Ok(fisheye));
        assert!(with(Some("OPENCV"), 0.4).distortion().is_err());
        assert!(with(Some("EQUIRECTANGULAR"), 0.0).distortion().is_err());
    }
}
