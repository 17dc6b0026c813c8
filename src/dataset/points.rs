//! The points that a scene starts from.

/// The largest coordinate that is believed, of points and of Gaussians, world units. Beyond it the
/// squares of distances, and what images multiply them with, leave the range of single precision.
pub const FARTHEST: f32 = 1e12;

/// Coloured points in the world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointCloud {
    /// World units, `[n][3]`.
    pub positions: Vec<[f32; 3]>,
    /// sRGB, `[n][3]`.
    pub colors: Vec<[u8; 3]>,
}
