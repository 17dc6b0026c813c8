//! The points that a scene starts from.

/// The largest coordinate that is believed, of points and of Gaussians, world units. Beyond it the
/// squares of distances, and what images multiply them with, leave the range of single precision.
pub const FARTHEST: f32 = 1e12;

/// Coloured points in the world: of doubles as the scene's files have them, and of 32-bit floats in a
/// [`Frame`](super::Frame).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointCloud<T = f32> {
    /// World units, `[n][3]`.
    pub positions: Vec<[T; 3]>,
    /// sRGB, `[n][3]`.
    pub colors: Vec<[u8; 3]>,
}
