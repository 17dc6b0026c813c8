//! Arguments of the kernels of `loss` and `depth`.

use super::terms::TERM_VALUES;
use super::{In, Out};

constants! {
    /// Threads in a block of `depth_loss`.
    pub const DEPTH_LOSS_BLOCK: u32 = 256;
    /// Threads in a block of `loss`.
    pub const LOSS_BLOCK: u32 = 128;
    /// Columns of pixels that a block of `loss` works on.
    pub const LOSS_COLUMNS: u32 = 108;
    /// Rows of pixels that a block of `loss` works on: whole steps of 8, less a rim of 10.
    pub const LOSS_ROWS: u32 = 54;
    /// Width of the SSIM window.
    pub const LOSS_TAPS: u32 = 11;
}

abi! {
    /// `depth_loss`: L1 of the inverse depths, and its gradient.
    pub struct DepthLossArgs<'a> {
        /// [h, w]
        pub inverse_depths: In<'a, f32>,
        /// [h, w]
        pub target: In<'a, u16>,
        /// [h, w], or null.
        pub mask: In<'a, u8>,
        /// [h, w]
        pub d_inverse_depths: Out<'a, f32>,
        /// One; added to: absolute values of the differences.
        pub sum: Out<'a, f64>,
        /// Pixels.
        pub pixels: u32,
        /// Inverse depth of a step of the target.
        pub scale: f32,
        /// Inverse depth where the target is 0.
        pub offset: f32,
        /// Gradient of |x - y| at a pixel.
        pub d_error: f32,
    }

    /// `loss`: L1 and SSIM, and their gradient.
    pub struct LossArgs<'a> {
        /// [h, w, 3]
        pub image: In<'a, f32>,
        /// [h, w, 3]
        pub target: In<'a, u8>,
        /// [h, w], or null.
        pub mask: In<'a, u8>,
        /// [h, w, 3]; null where no gradient is wanted.
        pub d_image: Out<'a, f32>,
        /// Added to: |x - y|, the windows' similarities and (x - y)², each at its place; one of each kind.
        pub sums: Out<'a, f64>,
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// The window along one axis, its centre in the middle; adds up to 1.
        pub taps: [f32; 11],
        /// Pixels at the image's border whose window does not lie inside.
        pub margin: u32,
        /// Gradients of the summands of the values, each at its place: of |x - y| at a pixel, and of a
        /// window's similarity.
        pub d_values: [f32; TERM_VALUES as usize],
        /// Not 0: the image is held to 0..1 first.
        pub clamp: u32,
    }
}
