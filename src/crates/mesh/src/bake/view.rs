//! A picture of a mesh, and where it was taken from.

use crate::camera::Camera;

/// A picture of a mesh, and where it was taken from; one value a pixel in rows from the top.
#[derive(Clone, Copy, Debug)]
pub struct ColorView<'a> {
    /// What saw it, and from where.
    pub camera: Camera,
    /// Depth along the axis from which on the camera sees, above 0, scene units.
    pub near: f64,
    /// Colours, sRGB.
    pub colors: &'a [[u8; 3]],
    /// Which pixels count; without it, all.
    pub counts: Option<&'a [bool]>,
}

impl ColorView<'_> {
    /// Whether there is a colour for each pixel.
    pub(super) fn is_whole(&self) -> bool {
        let pixels = self.camera.width * self.camera.height;
        self.colors.len() == pixels && self.counts.is_none_or(|counts| counts.len() == pixels)
    }
}
