//! Lenses that bend straight lines, and the straightening of their images.

/// Maps the pixels of a straightened image to those of the photograph, both at full size.
#[derive(Clone, Debug, PartialEq)]
pub struct Undistortion {}

impl Undistortion {
    /// Where in the photograph the straightened image's point lies, px.
    pub fn source_px(&self, target_px: [f64; 2]) -> [f64; 2] {
        target_px
    }
}
