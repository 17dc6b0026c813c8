//! Arguments of the kernel of `distortion`.

use super::{In, Out};

constants! {
    /// Threads in a block of `measure_distortion`.
    pub const DISTORTION_BLOCK: u32 = 256;
    /// Depth that is mapped to 0.
    pub const DISTORTION_NEAR: f32 = 0.2;
    /// Depth that is mapped to 1.
    pub const DISTORTION_FAR: f32 = 100.0;
}

abi! {
    /// `measure_distortion`: how far apart along its ray lies what a pixel is blended of, and the
    /// gradients of the maps that say so.
    pub struct DistortionArgs<'a> {
        /// [h, w]
        pub inverse_depths: In<'a, f32>,
        /// Blended of the squares of the inverse depths; [h, w].
        pub inverse_squares: In<'a, f32>,
        /// [h, w, 4]: depth, x and y of the normal, opacity.
        pub surface: In<'a, f32>,
        /// The photograph's, [h, w], 0 where it excludes a pixel; or null.
        pub mask: In<'a, u8>,
        /// Added to; [h, w].
        pub d_inverse_depths: Out<'a, f32>,
        /// [h, w]
        pub d_inverse_squares: Out<'a, f32>,
        /// [h, w, 4], to whose last values, those of the final transmittance, is added.
        pub d_surface: Out<'a, f32>,
        /// One; added to.
        pub sum: Out<'a, f64>,
        /// Pixels.
        pub pixels: u32,
        /// Gradient of what a pixel adds.
        pub d_mean: f32,
    }
}
