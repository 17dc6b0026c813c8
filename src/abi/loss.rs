//! Arguments of the losses, LPIPS, reduced photographs, and colour compensation.

use super::terms::TERM_VALUES;
use super::{In, Out};

constants! {
    /// Threads per block of `loss`.
    pub const LOSS_BLOCK: u32 = 128;
    /// Columns of pixels per block of `loss`.
    pub const LOSS_COLUMNS: u32 = 108;
    /// Rows of pixels per block of `loss`: whole steps of 8 minus a margin of 10.
    pub const LOSS_ROWS: u32 = 54;
    /// Width of the SSIM window.
    pub const LOSS_TAPS: u32 = 11;

    /// Threads per block of `lpips_convolution`; each loads one pixel's values.
    pub const LPIPS_BLOCK: u32 = 128;
    /// Channels per block of `lpips_convolution`.
    pub const LPIPS_CHANNELS: u32 = 64;
    /// Values of a window per piece; weights are padded to whole pieces.
    pub const LPIPS_DEPTH: u32 = 8;
    /// Threads per block of the other kernels of LPIPS.
    pub const LPIPS_PIXELS: u32 = 256;
    /// Shift that is subtracted from red, after 2 v - 1.
    pub const LPIPS_SHIFT_R: f32 = -0.030;
    /// Shift of green.
    pub const LPIPS_SHIFT_G: f32 = -0.088;
    /// Shift of blue.
    pub const LPIPS_SHIFT_B: f32 = -0.188;
    /// Divisor of the shifted red.
    pub const LPIPS_SCALE_R: f32 = 0.458;
    /// Divisor of green.
    pub const LPIPS_SCALE_G: f32 = 0.448;
    /// Divisor of blue.
    pub const LPIPS_SCALE_B: f32 = 0.450;
    /// Offset of the length of a pixel's features.
    pub const LPIPS_EPSILON: f32 = 1e-10;

    /// Threads per block of `shrink`: one per pixel of the smaller photograph.
    pub const SHRINK_BLOCK: u32 = 256;

    /// Threads per block of the kernels that take one pixel or one value per thread.
    pub const APPEARANCE_BLOCK: u32 = 256;
    /// Blocks that share an image's pixels in sums over colours.
    pub const COLOR_SHARES: u32 = 256;
    /// Values of an affine map of colours.
    pub const AFFINE_WIDTH: u32 = 12;
    /// Corners of a bilateral grid along x.
    pub const GRID_X: u32 = 16;
    /// Corners of a bilateral grid along y.
    pub const GRID_Y: u32 = 16;
    /// Corners of a bilateral grid along luma.
    pub const GRID_LUMA: u32 = 8;
    /// Threads per block of `grid_bwd`: four per value of a column of corners.
    pub const GRID_BWD_BLOCK: u32 = 384;
    /// Blocks of `grid_bwd` that share the pixels between four columns of corners.
    pub const GRID_SHARES: u32 = 4;
    /// Number of sums of `fit_colors`.
    pub const FIT_SUMS: u32 = 22;
}

abi! {
    /// `loss`: L1 and SSIM, and their gradient.
    pub struct LossArgs<'a> {
        /// [h, w, 3]
        pub image: In<'a, f32>,
        /// [h, w, 3]
        pub target: In<'a, u8>,
        /// [h, w], or null.
        pub mask: In<'a, u8>,
        /// [h, w, 3]; null without a gradient.
        pub d_image: Out<'a, f32>,
        /// Sums of |x - y|, of the windows' similarities and of (x - y)², by `VALUE_` and `SUM_` index; added to.
        pub sums: Out<'a, f64>,
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Window along one axis, centred; adds up to 1.
        pub taps: [f32; 11],
        /// Number of pixels at each border without a window inside the image.
        pub margin: u32,
        /// Gradients of |x - y| at a pixel and of a window's similarity, by `VALUE_` index.
        pub d_values: [f32; TERM_VALUES as usize],
        /// Not 0: the image is clamped to 0..1 first.
        pub clamp: u32,
        /// Colour of masked pixels of the target; black without a weight.
        pub empty_color: [f32; 3],
        /// Weight of masked pixels. At 0 their values, NaN too, have no effect.
        pub empty_weight: f32,
    }

    /// `lpips_input`: rows of the render and of its photograph as inputs of the network.
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
        /// Number of rows.
        pub rows: u32,
        /// Index of the first row in the image.
        pub first_row: u32,
        /// Not 0: values v are quantised to 8 bits and stay in 0..1, instead of 2 v - 1.
        pub eight_bits: u32,
    }

    /// `lpips_convolution` and `lpips_pool`: rows of a layer's output, of both images.
    pub struct LpipsLayerArgs<'a> {
        /// [2, inputs, input rows, input width]
        pub input: In<'a, f32>,
        /// [inputs, window, window, outputs], the first three padded with zeros to whole pieces; null for
        /// `lpips_pool`.
        pub weights: In<'a, f32>,
        /// `[outputs]`; null for `lpips_pool`.
        pub bias: In<'a, f32>,
        /// [2, outputs, output rows, output width]
        pub output: Out<'a, f32>,
        /// Width of the input.
        pub input_width: u32,
        /// Number of given input rows.
        pub input_rows: u32,
        /// Index of the first input row in the whole image.
        pub input_first: u32,
        /// Rows of the input in the whole image; rows beyond are zeros.
        pub input_height: u32,
        /// Width of the output.
        pub output_width: u32,
        /// Number of requested output rows.
        pub output_rows: u32,
        /// Index of the first output row in the whole image.
        pub output_first: u32,
        /// Input channels.
        pub inputs: u32,
        /// Output channels.
        pub outputs: u32,
        /// Side of the window, px.
        pub side: u32,
        /// Stride of the window, px.
        pub stride: u32,
        /// Zeros at each border of the image, px.
        pub padding: u32,
        /// Number of pieces of a window's values.
        pub pieces: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `lpips_compare`: sums the difference of the features of both images.
    pub struct LpipsCompareArgs<'a> {
        /// [2, channels, rows, width]
        pub features: In<'a, f32>,
        /// `[channels]`
        pub weights: In<'a, f32>,
        /// Added to.
        pub sum: Out<'a, f64>,
        /// Number of pixels of the given rows.
        pub plane: u32,
        /// Index of the first compared pixel.
        pub first: u32,
        /// Number of compared pixels.
        pub count: u32,
        /// Number of channels.
        pub channels: u32,
    }

    /// `shrink`: means over squares of pixels.
    pub struct ShrinkArgs<'a> {
        /// [full height, full width, 3]
        pub rgb: In<'a, u8>,
        /// [full height, full width], 0 for an excluded pixel; or null.
        pub mask: In<'a, u8>,
        /// Inverse depths in steps, [full height, full width]; or null.
        pub depths: In<'a, u16>,
        /// x, y and z of normals times 127, [full height, full width, 3]; or null.
        pub normals: In<'a, i8>,
        /// [h, w, 3]
        pub small_rgb: Out<'a, u8>,
        /// [h, w]; null if `mask` is null.
        pub small_mask: Out<'a, u8>,
        /// [h, w]; null if `depths` is null.
        pub small_depths: Out<'a, u16>,
        /// [h, w, 3]; null if `normals` is null.
        pub small_normals: Out<'a, i8>,
        /// Width and height of the reduced photograph, pixels.
        pub size: [u32; 2],
        /// Width of the photograph in pixels.
        pub full_width: u32,
        /// Pixels along each axis that become one.
        pub divisor: u32,
    }

    /// `compensate_exposure` and `compensate_grid`: apply the colour changes of a camera.
    pub struct CompensateArgs<'a> {
        /// [h, w, 3]
        pub image: In<'a, f32>,
        /// [12], or [luma, y, x, 12].
        pub table: In<'a, f32>,
        /// [h, w, 3]
        pub compensated: Out<'a, f32>,
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Not 0: colours are clamped to 0..1 first.
        pub clamp: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `exposure_bwd` and `grid_bwd`: gradients of the rendered colours, and partial sums of the table's gradient.
    pub struct ColorBwdArgs<'a> {
        /// [h, w, 3]
        pub image: In<'a, f32>,
        /// As in `CompensateArgs`.
        pub table: In<'a, f32>,
        /// Gradient of the compensated colours, replaced by that of the rendered colours; [h, w, 3].
        pub d_image: Out<'a, f32>,
        /// [shares, 12], or [cells, shares, 4, luma, 12].
        pub sums: Out<'a, f32>,
        /// Width and height in pixels.
        pub size: [u32; 2],
    }

    /// `gather_exposure` and `gather_grid`: the gradient of a table.
    pub struct GatherArgs<'a> {
        /// As in `ColorBwdArgs`.
        pub sums: In<'a, f32>,
        /// As in `CompensateArgs`.
        pub table: In<'a, f32>,
        /// Shaped like the table.
        pub gradient: Out<'a, f32>,
        /// Weight of the total variation; for `gather_grid` only.
        pub total_variation: f32,
        /// Padding.
        pub reserved: u32,
    }

    /// `coast_table`: applies steps without a gradient.
    pub struct CoastArgs<'a> {
        /// `[width]`
        pub values: Out<'a, f32>,
        /// `[width]`
        pub first_moments: Out<'a, f32>,
        /// `[width]`
        pub second_moments: Out<'a, f32>,
        /// Motion of the values, in units of the first moment over the root of the second.
        pub drift: f32,
        /// Factor of the first moment.
        pub decay_1: f32,
        /// Factor of the second moment.
        pub decay_2: f32,
        /// Added to the root of the second moment.
        pub epsilon: f32,
        /// Number of values.
        pub width: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `move_table`: applies a step of Adam.
    pub struct MoveArgs<'a> {
        /// `[width]`
        pub values: Out<'a, f32>,
        /// `[width]`
        pub first_moments: Out<'a, f32>,
        /// `[width]`
        pub second_moments: Out<'a, f32>,
        /// `[width]`
        pub gradient: In<'a, f32>,
        /// Learning rate over the first moment's bias correction.
        pub rate: f32,
        /// 1 / √(bias correction of the second moment).
        pub inverse_root_correction: f32,
        /// Decay of the first moment.
        pub beta_1: f32,
        /// Decay of the second moment.
        pub beta_2: f32,
        /// 1 - `beta_1`, rounded once.
        pub one_less_beta_1: f32,
        /// 1 - `beta_2`, rounded once.
        pub one_less_beta_2: f32,
        /// Added to the root of the second moment.
        pub epsilon: f32,
        /// Number of values.
        pub width: u32,
    }

    /// `fit_colors`: sums for the fit of a render's colours to a photograph.
    pub struct FitArgs<'a> {
        /// [h, w, 3]
        pub image: In<'a, f32>,
        /// [h, w, 3]
        pub target: In<'a, u8>,
        /// [h, w], or null.
        pub mask: In<'a, u8>,
        /// [shares, 22]
        pub sums: Out<'a, f64>,
        /// Width and height in pixels.
        pub size: [u32; 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::appearance as math;

    #[test]
    fn constants_match_the_mathematics() {
        assert_eq!([GRID_X, GRID_Y, GRID_LUMA].map(|corners| corners as usize), math::GRID);
        assert_eq!(
            (AFFINE_WIDTH as usize, FIT_SUMS as usize),
            (math::AFFINE_WIDTH, math::FIT_SUMS)
        );
        assert_eq!(GRID_BWD_BLOCK, 4 * GRID_LUMA * AFFINE_WIDTH);
    }
}
