//! Of LPIPS.

use super::{In, Out};

constants! {
    /// Threads in a block of `lpips_convolution`; each brings one pixel's values.
    pub const LPIPS_BLOCK: u32 = 128;
    /// Channels that a block of `lpips_convolution` works out.
    pub const LPIPS_CHANNELS: u32 = 64;
    /// What the window sees comes in pieces of so many values; weights are filled up to whole pieces.
    pub const LPIPS_DEPTH: u32 = 8;
    /// Threads in a block of the other kernels of LPIPS.
    pub const LPIPS_PIXELS: u32 = 256;
    /// Subtracted from each channel of 2 v - 1.
    pub const LPIPS_SHIFT_R: f32 = -0.030;
    /// The same of green.
    pub const LPIPS_SHIFT_G: f32 = -0.088;
    /// The same of blue.
    pub const LPIPS_SHIFT_B: f32 = -0.188;
    /// What the shifted values are divided by.
    pub const LPIPS_SCALE_R: f32 = 0.458;
    /// The same of green.
    pub const LPIPS_SCALE_G: f32 = 0.448;
    /// The same of blue.
    pub const LPIPS_SCALE_B: f32 = 0.450;
    /// Added to the length of a pixel's features.
    pub const LPIPS_EPSILON: f32 = 1e-10;
}

abi! {
    /// `lpips_input`: rows of the render and of its photograph as the networks are fed.
    pub struct LpipsInputArgs<'a> {
        /// [h, w, 3]
        pub image: In<'a, f32>,
        /// [h, w, 3]
        pub target: In<'a, u8>,
        /// [h, w], or null.
        pub mask: In<'a, u8>,
        /// [2, 3, rows, w]
        pub input: Out<'a, f32>,
        /// Width of the image, px.
        pub width: u32,
        /// Rows.
        pub rows: u32,
        /// The first of them in the image.
        pub first_row: u32,
        /// Not 0: values v are fed as 8 bits store them, not as 2 v - 1.
        pub eight_bits: u32,
    }

    /// `lpips_convolution` and `lpips_pool`: some rows behind a layer, of both images.
    pub struct LpipsLayerArgs<'a> {
        /// [2, inputs, input rows, input width]
        pub input: In<'a, f32>,
        /// [inputs, window, window, outputs], filled up with zeros to whole pieces of the first three;
        /// null for `lpips_pool`.
        pub weights: In<'a, f32>,
        /// `[outputs]`; null for `lpips_pool`.
        pub bias: In<'a, f32>,
        /// [2, outputs, output rows, output width]
        pub output: Out<'a, f32>,
        /// Width before.
        pub input_width: u32,
        /// Rows before that are there.
        pub input_rows: u32,
        /// The first of them in the whole image.
        pub input_first: u32,
        /// Rows before in the whole image; beyond are zeros.
        pub input_height: u32,
        /// Width behind.
        pub output_width: u32,
        /// Rows behind that are wanted.
        pub output_rows: u32,
        /// The first of them in the whole image.
        pub output_first: u32,
        /// Channels before.
        pub inputs: u32,
        /// Channels behind.
        pub outputs: u32,
        /// Side of the window, px.
        pub side: u32,
        /// How far it moves, px.
        pub stride: u32,
        /// Zeros at each border of the image, px.
        pub padding: u32,
        /// Pieces that what the window sees comes in.
        pub pieces: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `lpips_compare`: adds up how unlike the features of both images are.
    pub struct LpipsCompareArgs<'a> {
        /// [2, channels, rows, width]
        pub features: In<'a, f32>,
        /// `[channels]`
        pub weights: In<'a, f32>,
        /// Added to.
        pub sum: Out<'a, f64>,
        /// Pixels of the rows that are there.
        pub plane: u32,
        /// The first pixel that counts.
        pub first: u32,
        /// Pixels that count.
        pub count: u32,
        /// Channels.
        pub channels: u32,
    }
}
