//! The stages of an iteration.

/// A stage of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Gaussians to the image.
    Project,
    /// By depth.
    Sort,
    /// Into tiles.
    Bin,
    /// Each tile, front to back.
    BlendForward,
    /// Against the photograph.
    Loss,
    /// Pixel gradients back to splats.
    BlendBackward,
    /// What density control wants to know.
    Observe,
    /// Down the gradient.
    Step,
}
