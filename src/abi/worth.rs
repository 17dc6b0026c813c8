//! Of what Gaussians add to the likeness of views and photographs.

use super::view::TileRange;
use super::{In, Out};

constants! {
    /// Threads in a block of `worth_pixels`: one per pixel of a tile.
    pub const WORTH_BLOCK: u32 = 256;
    /// Values of a Gaussian: sum and maximum of its blend weights, the change of the squared error, and the
    /// squared change of the view.
    pub const WORTH_WIDTH: u32 = 4;
    /// Transmittance below which nobody knows what lies behind a splat.
    pub const BEHIND_MIN: f32 = 1e-3;
}

abi! {
    /// `worth_pixels`: a view without the Gaussians that are left out, and what each would change in it.
    pub struct WorthArgs<'a> {
        /// [visible, record]
        pub splats: In<'a, f32>,
        /// `[instances]`
        pub splat_from_instance: In<'a, u32>,
        /// `[tiles]`
        pub ranges: In<'a, TileRange>,
        /// Not 0: left out; `[n]`.
        pub absent: In<'a, u8>,
        /// The photograph; [h, w, 3].
        pub target: In<'a, u8>,
        /// [h, w], or null.
        pub mask: In<'a, u8>,
        /// [h, w, 3]
        pub image: Out<'a, f32>,
        /// Added to; [visible, 4].
        pub worths: Out<'a, f32>,
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Colour behind everything.
        pub background: [f32; 3],
        /// Tiles in a row.
        pub tiles_wide: u32,
        /// The first tile that is listed.
        pub first_tile: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `add_worths`: adds those of a view's splats to those of all Gaussians.
    pub struct AddWorthsArgs<'a> {
        /// [visible, record]
        pub splats: In<'a, f32>,
        /// Of the view's splats; [visible, 4].
        pub worths: In<'a, f32>,
        /// [n, 4]
        pub sums: Out<'a, f32>,
        /// Splats.
        pub visible: u32,
        /// Floats of a record of a splat.
        pub record_width: u32,
    }
}
