//! The points that a scene starts from.

/// Coloured points in the world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointCloud {
    /// World units, `[n][3]`.
    pub positions: Vec<[f32; 3]>,
    /// sRGB, `[n][3]`.
    pub colors: Vec<[u8; 3]>,
}
