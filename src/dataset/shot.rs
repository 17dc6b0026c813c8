//! Photographs as scenes describe them.

use std::path::PathBuf;

use super::camera::Pose;
use super::lens::Lens;

/// Extensions of photographs, lower case.
pub(super) const EXTENSIONS: [&str; 4] = ["png", "jpg", "jpeg", "webp"];

/// A photograph as the scene describes it, before its file was looked at.
#[derive(Debug)]
pub(super) struct Shot {
    /// Name in the scene.
    pub(super) name: String,
    /// Pose of the camera.
    pub(super) pose: Pose,
    /// What took it.
    pub(super) optics: Optics,
    /// The file, where it exists.
    pub(super) path: Option<PathBuf>,
    /// Its mask, where it has one.
    pub(super) mask: Option<PathBuf>,
    /// Held out by the scene itself.
    pub(super) held_out: bool,
}

/// What took a photograph.
#[derive(Clone, Copy, Debug)]
pub(super) enum Optics {
    /// A lens for photographs of a known size.
    Lens(Lens),
    /// Only the horizontal field of view is known, in radians; pixels are square and the principal
    /// point is the middle.
    FieldOfView(f64),
}
