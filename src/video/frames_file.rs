//! Camera paths of other programs, with a camera for each frame.
//!
//! * nerfstudio's `camera_path.json` (documentation of custom paths): `camera_path` has `camera_to_world`, 16 numbers
//!   row by row with OpenGL's axes, and `fov`, vertical, degrees.
//! * Tracks: `frames` has `position`, `target`, optionally `up`, and `fov`, vertical, degrees.
//! * The reference trainer's `cameras.json`.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use splat_mesh::narrow::floor_u32;

use super::PathCamera;
use crate::export::StoredCamera;
use crate::files::JsonFault;
use crate::math::linalg::{Mat3, Vec3, mul_transposed, scale, sub, transpose};

/// A path and its video settings.
#[derive(Clone, Debug, PartialEq)]
pub struct FramesFile {
    /// A camera for each frame.
    pub cameras: Vec<PathCamera>,
    /// Width and height, px.
    pub size_px: Option<[u32; 2]>,
    /// Frames a second.
    pub fps: Option<f64>,
}

/// Error of reading a path.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum FramesFileError {
    #[error("{path}: cannot be read: {source}. Check the path and its permissions")]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{path}: {problem}")]
    Unusable { path: PathBuf, problem: String },
}

/// Transform of a scene by nerfstudio: `dataparser_transforms.json`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SceneTransform {
    rotation: Mat3<f64>,
    translation: Vec3<f64>,
    scale: f64,
}

#[derive(Deserialize)]
struct StoredTransform {
    transform: [[f64; 4]; 3],
    scale: f64,
}

#[derive(Deserialize)]
struct NerfstudioPath {
    camera_type: Option<String>,
    render_width: Option<f64>,
    render_height: Option<f64>,
    fps: Option<f64>,
    camera_path: Vec<NerfstudioCamera>,
}

#[derive(Deserialize)]
struct NerfstudioCamera {
    camera_to_world: Vec<f64>,
    fov: f64,
}

#[derive(Deserialize)]
struct Track {
    width: Option<f64>,
    height: Option<f64>,
    fps: Option<f64>,
    frames: Vec<TrackFrame>,
}

#[derive(Deserialize)]
struct TrackFrame {
    position: Vec3<f64>,
    target: Vec3<f64>,
    up: Option<Vec3<f64>>,
    fov: f64,
}

impl SceneTransform {
    /// Reads `dataparser_transforms.json`.
    pub fn read(path: &Path) -> Result<Self, FramesFileError> {
        let unusable = |problem| FramesFileError::Unusable { path: path.to_owned(), problem };
        let stored = parsed(path, json_of(path)?)?;
        let StoredTransform { transform, scale } = stored;
        let rotation = transform.map(|[x, y, z, _]| [x, y, z]);
        let translation = transform.map(|[.., w]| w);
        let all = rotation.as_flattened().iter().chain(&translation);
        if !(scale > 0.0 && scale.is_finite() && all.clone().all(|value| value.is_finite())) {
            return Err(unusable(format!(
                "`scale` is {scale} and must be above 0, and `transform` must be finite. Take the \
                 dataparser_transforms.json beside the nerfstudio model"
            )));
        }
        Ok(Self { rotation, translation, scale })
    }

    /// Inverts the transform for a camera.
    fn undo(&self, camera: &mut PathCamera) {
        let placed = sub(scale(camera.centre_world, self.scale.recip()), self.translation);
        camera.centre_world = mul_transposed(&self.rotation, placed);
        let columns = transpose(&camera.world_from_camera);
        let turned = columns.map(|column| mul_transposed(&self.rotation, column));
        camera.world_from_camera = transpose(&turned);
    }
}

/// Reads a path. `up` applies to tracks without an up direction. The inverse of `transform` is applied.
pub fn read_frames(
    path: &Path,
    up: Vec3<f64>,
    transform: Option<&SceneTransform>,
) -> Result<FramesFile, FramesFileError> {
    let unusable = |problem| FramesFileError::Unusable { path: path.to_owned(), problem };
    let json = json_of(path)?;
    let mut file = if json.get("camera_path").is_some() {
        of_nerfstudio(parsed(path, json)?).map_err(unusable)?
    } else if json.get("frames").is_some() {
        of_track(parsed(path, json)?, up).map_err(unusable)?
    } else if json.is_array() {
        of_reference(parsed(path, json)?)
    } else {
        return Err(unusable(
            "has neither `camera_path` (nerfstudio), nor `frames` (position, target, fov), nor is it a list \
             of cameras (cameras.json). Write one of these"
                .to_owned(),
        ));
    };
    if file.cameras.is_empty() {
        return Err(unusable(
            "has no cameras. Write one for each frame, or use --path orbit".to_owned(),
        ));
    }
    if let Some(transform) = transform {
        file.cameras.iter_mut().for_each(|camera| transform.undo(camera));
    }
    if let Some(at) = file.cameras.iter().position(|camera| !camera.is_sound()) {
        return Err(unusable(format!(
            "frame {at}: a value is not finite, the axes are no rotation, or the field of view is not above 0 \
             and below 180 degrees. Write the path again without it"
        )));
    }
    if file.fps.is_some_and(|fps| !(fps > 0.0 && fps.is_finite())) {
        return Err(unusable("`fps` must be above 0. Correct it, or leave it out".to_owned()));
    }
    Ok(file)
}

fn json_of(path: &Path) -> Result<Value, FramesFileError> {
    let bytes = std::fs::read(path)
        .map_err(|source| FramesFileError::Unreadable { path: path.to_owned(), source })?;
    parsed_bytes(path, &bytes)
}

fn parsed_bytes<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, FramesFileError> {
    serde_json::from_slice(bytes).map_err(|error| FramesFileError::Unusable {
        path: path.to_owned(),
        problem: format!(
            "is no JSON of a path: {}. Correct the file there, or write the file again",
            JsonFault::new(bytes, &error)
        ),
    })
}

fn parsed<T: DeserializeOwned>(path: &Path, json: Value) -> Result<T, FramesFileError> {
    serde_json::from_value(json).map_err(|error| FramesFileError::Unusable {
        path: path.to_owned(),
        problem: format!("{error}. Add what is missing, or write the file again"),
    })
}

/// Converts a vertical field of view to a focal length, in heights of the frame.
fn focal_of(fov_degrees: f64) -> f64 {
    // Fields of 0 or 180 degrees have no focal length; NaN makes the camera invalid.
    let is_field = fov_degrees > 0.0 && fov_degrees < 180.0;
    if is_field { 0.5 / (0.5 * fov_degrees).to_radians().tan() } else { f64::NAN }
}

fn size(width: Option<f64>, height: Option<f64>) -> Option<[u32; 2]> {
    let is_size = |value: &f64| *value >= 1.0 && *value <= f64::from(u32::MAX);
    let whole = |value: f64| Some(value).filter(is_size).map(floor_u32);
    Some([whole(width?)?, whole(height?)?])
}

fn of_nerfstudio(stored: NerfstudioPath) -> Result<FramesFile, String> {
    let NerfstudioPath { camera_type, render_width, render_height, fps, camera_path } = stored;
    if let Some(kind) = camera_type.filter(|kind| !kind.eq_ignore_ascii_case("perspective")) {
        return Err(format!(
            "`camera_type` is {kind:?}, and only perspective is drawn. Export the path with a perspective \
             camera"
        ));
    }
    let camera = |(at, camera): (usize, NerfstudioCamera)| {
        let NerfstudioCamera { camera_to_world, fov } = camera;
        let Ok(m): Result<[f64; 16], _> = camera_to_world.try_into() else {
            return Err(format!(
                "frame {at}: `camera_to_world` must have 16 numbers. Write the path again"
            ));
        };
        // OpenGL's y points up and its z backwards.
        let row = |at: usize| [m[4 * at], -m[4 * at + 1], -m[4 * at + 2]];
        Ok(PathCamera {
            centre_world: [m[3], m[7], m[11]],
            world_from_camera: [row(0), row(1), row(2)],
            focal: [focal_of(fov); 2],
            offset: [0.0; 2],
        })
    };
    let cameras: Result<_, _> = camera_path.into_iter().enumerate().map(camera).collect();
    Ok(FramesFile { cameras: cameras?, size_px: size(render_width, render_height), fps })
}

fn of_track(stored: Track, scene_up: Vec3<f64>) -> Result<FramesFile, String> {
    let Track { width, height, fps, frames } = stored;
    let camera = |(at, frame): (usize, TrackFrame)| {
        let TrackFrame { position, target, up, fov } = frame;
        if position == target {
            return Err(format!(
                "frame {at}: `position` and `target` are the same place, so that there is nowhere to look. \
                 Move one of them"
            ));
        }
        Ok(PathCamera::looking_at(position, target, up.unwrap_or(scene_up), focal_of(fov)))
    };
    let cameras: Result<_, _> = frames.into_iter().enumerate().map(camera).collect();
    Ok(FramesFile { cameras: cameras?, size_px: size(width, height), fps })
}

fn of_reference(stored: Vec<StoredCamera>) -> FramesFile {
    let size_px = stored.first().map(|camera| [camera.width, camera.height]);
    let camera = |camera: StoredCamera| {
        let StoredCamera { height, position, rotation, fx, fy, .. } = camera;
        let height = f64::from(height);
        PathCamera {
            centre_world: position,
            world_from_camera: rotation,
            focal: [fx / height, fy / height],
            offset: [0.0; 2],
        }
    };
    FramesFile { cameras: stored.into_iter().map(camera).collect(), size_px, fps: None }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const UP: Vec3<f64> = [0.0, -1.0, 0.0];

    fn read(text: &str, transform: Option<&SceneTransform>) -> Result<FramesFile, FramesFileError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("path.json");
        std::fs::write(&path, text).unwrap();
        read_frames(&path, UP, transform)
    }

    fn assert_close(a: &[f64], b: &[f64]) {
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9), "{a:?} {b:?}");
    }

    #[test]
    fn a_path_of_nerfstudio_has_opengls_axes() {
        let text = r#"{"camera_type": "perspective", "render_height": 1080, "render_width": 1920.0, "fps": 24,
            "seconds": 4, "keyframes": [], "camera_path": [{"fov": 90, "aspect": 1.5, "camera_to_world":
            [1,0,0,2, 0,1,0,3, 0,0,1,4, 0,0,0,1]}]}"#;
        let FramesFile { cameras, size_px, fps } = read(text, None).unwrap();
        assert_eq!((size_px, fps, cameras.len()), (Some([1920, 1080]), Some(24.0), 1));
        assert_eq!(cameras[0].centre_world, [2.0, 3.0, 4.0]);
        // The camera looks along OpenGL's -z, and up is +y.
        assert_eq!(
            (cameras[0].forward(), cameras[0].axis(1)),
            ([0.0, 0.0, -1.0], [0.0, -1.0, 0.0])
        );
        assert_close(&cameras[0].focal, &[0.5, 0.5]);
    }

    #[test]
    fn the_transform_of_nerfstudio_is_inverted() {
        // A quarter turn about z, then a translation, then half the size.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dataparser_transforms.json");
        let text = r#"{"transform": [[0,-1,0,1],[1,0,0,2],[0,0,1,3]], "scale": 0.5}"#;
        std::fs::write(&path, text).unwrap();
        let transform = SceneTransform::read(&path).unwrap();
        // The scene's [4, 5, 6], along its x, became 0.5 * ([-5, 4, 6] + [1, 2, 3]), along y.
        let text = r#"{"frames": [{"position": [-2, 3, 4.5], "target": [-2, 9, 4.5], "up": [0, 0, 1], "fov": 40}]}"#;
        let camera = read(text, Some(&transform)).unwrap().cameras[0];
        assert_close(&camera.centre_world, &[4.0, 5.0, 6.0]);
        assert_close(&camera.forward(), &[1.0, 0.0, 0.0]);
        assert_close(&camera.axis(1), &[0.0, 0.0, -1.0]);
        std::fs::write(&path, text.replace("0.5", "0")).unwrap();
        assert!(SceneTransform::read(&path).is_err());
    }

    #[test]
    fn tracks_and_the_cameras_of_a_model_are_paths() {
        let track = r#"{"fps": 30, "width": 64, "height": 48,
            "frames": [{"position": [0, 0, 0], "target": [0, 0, 5], "fov": 53.13010235415598}]}"#;
        let FramesFile { cameras, size_px, .. } = read(track, None).unwrap();
        assert_eq!(size_px, Some([64, 48]));
        assert_close(&cameras[0].focal, &[1.0, 1.0]);
        assert_close(&cameras[0].axis(1), &[0.0, 1.0, 0.0]);
        let list = r#"[{"id": 0, "img_name": "a", "width": 100, "height": 50, "position": [1, 2, 3],
            "rotation": [[1,0,0],[0,1,0],[0,0,1]], "fy": 60, "fx": 61}]"#;
        let FramesFile { cameras, size_px, fps } = read(list, None).unwrap();
        assert_eq!((size_px, fps), (Some([100, 50]), None));
        assert_close(&cameras[0].focal, &[1.22, 1.2]);
    }

    #[rstest]
    #[case("{", "no JSON")]
    #[case("{}", "camera_path")]
    #[case(r#"{"camera_path": []}"#, "no cameras")]
    #[case(r#"{"camera_path": [{"fov": 50}]}"#, "camera_to_world")]
    #[case(r#"{"camera_path": [{"fov": 50, "camera_to_world": [1, 2]}]}"#, "16 numbers")]
    #[case(r#"{"camera_type": "equirectangular", "camera_path": []}"#, "equirectangular")]
    #[case(r#"{"frames": [{"position": [0,0,0], "target": [0,0,1], "fov": 180}]}"#, "frame 0")]
    #[case(
        r#"{"frames": [{"position": [0,0,0], "target": [0,0,0], "fov": 50}]}"#,
        "the same place"
    )]
    #[case(r#"{"fps": 0, "frames": [{"position": [0,0,0], "target": [0,0,1], "fov": 50}]}"#, "fps")]
    #[case(
        r#"{"camera_path": [{"fov": 50, "camera_to_world": [2,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1]}]}"#,
        "rotation"
    )]
    fn invalid_paths_are_named(#[case] text: &str, #[case] expected: &str) {
        let message = read(text, None).unwrap_err().to_string();
        assert!(message.contains("path.json") && message.contains(expected), "{message}");
    }
}
