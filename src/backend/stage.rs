//! The stages of an iteration.

/// A stage of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Projects Gaussians to the image.
    Project,
    /// Sorts splats by depth.
    Sort,
    /// Assigns splats to tiles.
    Bin,
    /// Blends the splats of each tile, front to back.
    BlendForward,
    /// Compares the image with the photograph.
    Loss,
    /// Computes the splats' gradients from the pixels'.
    BlendBackward,
    /// Updates the statistics of density control.
    Observe,
    /// Moves the parameters down the gradient.
    Step,
}
