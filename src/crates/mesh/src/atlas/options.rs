//! What an atlas is made by.

/// Greatest side of a picture in texels.
pub const MOST_SIDE_PX: u32 = 16_384;

/// How a surface is cut and laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Charts that bend little, flattened; boxes for those that are crumpled.
    Charts,
    /// Regions seen along one of 26 directions, in rows.
    Boxes,
    /// Two faces a square of this side, whatever their size.
    Squares {
        /// Side in texels, 4 or more.
        side_px: u32,
    },
}

/// What an atlas is made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtlasOptions {
    /// How the surface is cut.
    pub layout: Layout,
    /// Width and greatest height of the picture in texels.
    pub side_px: u32,
    /// Texels about each chart that no other has.
    pub padding_px: u32,
}
