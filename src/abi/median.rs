//! Of the depths by which half of the light is stopped.

use super::view::TileRange;
use super::{In, Out};

constants! {
    /// Threads in a block of `median_depths`: one per pixel of a tile.
    pub const MEDIAN_BLOCK: u32 = 256;
    /// Depths at which a round of the search looks.
    pub const MEDIAN_ABSCISSAE: u32 = 16;
    /// Rounds that leave a fifteenth of the interval each.
    pub const MEDIAN_NARROWINGS: u32 = 2;
    /// Rounds in which an interval that does not hold the median is moved.
    pub const MEDIAN_MOVES: u32 = 4;
    /// Steps of Newton's method after the search.
    pub const MEDIAN_NEWTON_STEPS: u32 = 5;
    /// How far about peaks the search begins and ends, in standard deviations.
    pub const MEDIAN_REACH: f32 = 3.0;
    /// What passes the Gaussians before the search begins, at least.
    pub const MEDIAN_FROM: f32 = 0.9;
    /// What passes those up to its end, at most.
    pub const MEDIAN_TO: f32 = 0.1;
    /// Least slope of the logarithm at a median, per share of its depth.
    pub const MEDIAN_SLOPE_MIN: f32 = 1e-4;
    /// The same of a median that has a gradient.
    pub const MEDIAN_FALL_MIN: f32 = 0.1;
}

abi! {
    /// `median_depths`: the depth of each pixel by which half of the light is stopped.
    pub struct MedianArgs<'a> {
        /// [visible, 16], as in `RaysArgs`.
        pub rays: In<'a, f32>,
        /// `[instances]`
        pub splat_from_instance: In<'a, u32>,
        /// `[tiles]`
        pub ranges: In<'a, TileRange>,
        /// [h, w]; 0 where there is none.
        pub depths: Out<'a, f32>,
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Tiles in a row.
        pub tiles_wide: u32,
        /// The first tile that is listed.
        pub first_tile: u32,
        /// Depth that a median must exceed, world units.
        pub near: f32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `median_depths_bwd`: gradients of the Gaussians as rays meet them.
    pub struct MedianBwdArgs<'a> {
        /// [visible, 16], as in `RaysArgs`.
        pub rays: In<'a, f32>,
        /// `[instances]`
        pub splat_from_instance: In<'a, u32>,
        /// `[tiles]`
        pub ranges: In<'a, TileRange>,
        /// [h, w]; 0 where there is none.
        pub depths: In<'a, f32>,
        /// [h, w]
        pub d_depths: In<'a, f32>,
        /// [visible, 16], in the order of `rays`; added to.
        pub d_rays: Out<'a, f32>,
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Tiles in a row.
        pub tiles_wide: u32,
        /// The first tile that is listed.
        pub first_tile: u32,
    }
}
