//! What axes maps of normals are in.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The axes of the normals of `--normals`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NormalsFrame {
    /// x right, y down, z along the view (OpenCV; Metric3D, Omnidata)
    #[default]
    Camera,
    /// x right, y up, z towards the camera (DN-Splatter writes DSINE so)
    Opengl,
    /// As camera, but pointing away from it (DSINE)
    Inverted,
    /// The axes of the scene
    World,
}
