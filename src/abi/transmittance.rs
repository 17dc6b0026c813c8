//! Of the light that passes Gaussians on its way from places to a camera.

use super::view::TileRange;
use super::{In, Out, ViewCamera};

constants! {
    /// Threads in a block of `transmittances`.
    pub const TRANSMITTANCE_BLOCK: u32 = 256;
    /// In place of a transmittance where the view does not see the place.
    pub const NOT_SEEN: f32 = -1.0;
}

abi! {
    /// `transmittances`: what passes between the view's camera and places.
    pub struct TransmittanceArgs<'a> {
        /// [visible, 16], as in `RaysArgs`.
        pub rays: In<'a, f32>,
        /// `[instances]`
        pub splat_from_instance: In<'a, u32>,
        /// `[tiles]`
        pub ranges: In<'a, TileRange>,
        /// World units; [places, 3].
        pub places: In<'a, f32>,
        /// `[places]`; those seen in rows of tiles that are not listed stay as they are.
        pub transmittances: Out<'a, f32>,
        /// The view.
        pub camera: ViewCamera,
        /// Number of places.
        pub count: u32,
        /// The first row of tiles that is listed.
        pub first_row: u32,
        /// The row behind the last.
        pub end_row: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }
}
