//! Small files beside the PLY for viewers and scripts of 3DGS models.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::config::{Color, Config};
use crate::dataset::{Dataset, Frame};
use crate::files::{OutputError, remove_if_there, write_atomically, write_text};
use crate::math::appearance::AFFINE_WIDTH;
use crate::math::linalg::transpose;
use crate::math::splat::DILATION_PX2;

/// Writes `cfg_args` into the model folder: the options as one line that Python evaluates.
///
/// Viewers read the value of a key up to the next comma or closing bracket, so that paths with these characters cause
/// a warning.
pub fn write_cfg_args(model_path: &Path, config: &Config) -> Result<(), OutputError> {
    let source = config.scene.source_path.as_deref();
    let source = source.map(absolute).unwrap_or_default();
    let depths = config.scene.depths.as_deref().unwrap_or_default();
    for path in [source.as_str(), &model_path.to_string_lossy(), &config.scene.images, depths] {
        if path.contains([',', ')']) {
            tracing::warn!(
                "{path}: some viewers cannot read a path with a comma or a bracket from cfg_args; \
                 rename the folder if yours does not open the model"
            );
        }
    }
    let text = format!(
        "Namespace(sh_degree={}, source_path={}, model_path={}, images={}, depths={}, \
         resolution={}, white_background={}, train_test_exp=False, data_device='cuda', eval={}, kernel_size={})",
        config.optimize.sh_degree,
        python_string(&source),
        python_string(&model_path.to_string_lossy()),
        python_string(&config.scene.images),
        python_string(depths),
        config.scene.resolution,
        python_bool(config.scene.background_color() == Color::WHITE),
        python_bool(config.scene.eval),
        // Mip-Splatting's scripts read this option; 3DGS's ignore it.
        if config.optimize.antialiasing { config.optimize.kernel_size } else { DILATION_PX2 },
    );
    write_text(&model_path.join("cfg_args"), &text)
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).to_string_lossy().into_owned()
}

fn python_bool(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// Formats text as a Python literal on one line.
fn python_string(text: &str) -> String {
    let mut literal = String::from("'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => literal.extend(['\\', c]),
            '\n' => literal.push_str("\\n"),
            '\r' => literal.push_str("\\r"),
            // A control character could break the line.
            c if c.is_control() => {
                // Writing to a string does not fail.
                write!(literal, "\\u{:04x}", u32::from(c)).ok();
            }
            c => literal.push(c),
        }
    }
    literal.push('\'');
    literal
}

/// Name of the cameras' file in a model folder.
pub const CAMERAS_JSON: &str = "cameras.json";

/// A camera of `cameras.json`. Its principal point is the middle of the picture.
#[derive(Debug, Deserialize, Serialize)]
pub struct StoredCamera {
    #[serde(skip_deserializing)]
    id: usize,
    /// Name of the photograph without the extension.
    pub img_name: String,
    /// Width of the picture, px.
    pub width: u32,
    /// Height of the picture, px.
    pub height: u32,
    /// Centre, scene coordinates.
    pub position: [f64; 3],
    /// World from camera, in rows; the columns are the axes of the camera (x right, y down).
    pub rotation: [[f64; 3]; 3],
    /// Focal length along y, px.
    pub fy: f64,
    /// Focal length along x, px.
    pub fx: f64,
}

/// Writes `cameras.json` into the model folder: test views first, then train views, with the size
/// and focal lengths of the undistorted image before the final resize.
pub fn write_cameras_json(model_path: &Path, dataset: &Dataset) -> Result<(), OutputError> {
    let ordered = dataset.test.iter().chain(&dataset.train);
    let pairs = ordered.filter_map(|&i| dataset.views.get(i).zip(dataset.sources.get(i)));
    let cameras: Vec<_> = pairs
        .enumerate()
        .map(|(id, (view, source))| {
            let [width, height] = source.full_size;
            let camera = view.camera.resized(width, height);
            StoredCamera {
                id,
                img_name: view.stem().to_owned(),
                width,
                height,
                position: dataset.frame.to(&Frame::SCENE, view.pose.centre_world()),
                rotation: transpose(&view.pose.rotation),
                fy: camera.focal_px[1],
                fx: camera.focal_px[0],
            }
        })
        .collect();
    write_atomically(&model_path.join(CAMERAS_JSON), |out| {
        serde_json::to_writer(out, &cameras).map_err(io::Error::from)
    })
}

const EXPOSURES: &str = "exposure.json";

/// Writes `exposure.json` into the model folder: the learned affine map of colours of each training photograph, by
/// its name. The reference trainer multiplies colours from the left, so its rows are our columns. The offset is last
/// in each row.
pub fn write_exposure_json(
    model_path: &Path,
    names: &[String],
    maps: &[f32],
) -> Result<(), OutputError> {
    let rows = |map: &[f32]| {
        let row = |i: usize| [map[i], map[4 + i], map[8 + i], map[4 * i + 3]];
        [row(0), row(1), row(2)]
    };
    let exposures: BTreeMap<&str, [[f32; 4]; 3]> =
        names.iter().map(String::as_str).zip(maps.chunks_exact(AFFINE_WIDTH).map(rows)).collect();
    write_atomically(&model_path.join(EXPOSURES), |out| {
        serde_json::to_writer_pretty(out, &exposures).map_err(io::Error::from)
    })
}

/// Removes `exposure.json` from the model folder, if it is there.
pub fn remove_exposure_json(model_path: &Path) -> Result<(), OutputError> {
    remove_if_there(&model_path.join(EXPOSURES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_python_literals_on_one_line() {
        assert_eq!(python_string("C:\\it's\nö\u{7}"), "'C:\\\\it\\'s\\nö\\u0007'");
    }
}
