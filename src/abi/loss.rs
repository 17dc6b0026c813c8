//! Arguments of the losses, of LPIPS, of smaller photographs, and of the colours that cameras changed.

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

    /// Threads in a block of `shrink`: one per pixel of the smaller photograph.
    pub const SHRINK_BLOCK: u32 = 256;

    /// Threads in a block of the kernels that take one pixel or one value per thread.
    pub const APPEARANCE_BLOCK: u32 = 256;
    /// Blocks that share the pixels of an image where their colours are added up.
    pub const COLOR_SHARES: u32 = 256;
    /// Values of an affine map of colours.
    pub const AFFINE_WIDTH: u32 = 12;
    /// Corners of a bilateral grid from left to right.
    pub const GRID_X: u32 = 16;
    /// The same from top to bottom.
    pub const GRID_Y: u32 = 16;
    /// The same from dark to bright.
    pub const GRID_LUMA: u32 = 8;
    /// Threads in a block of `grid_bwd`: four for each value of a column of corners.
    pub const GRID_BWD_BLOCK: u32 = 384;
    /// Blocks of `grid_bwd` that share the pixels between four columns of corners.
    pub const GRID_SHARES: u32 = 4;
    /// Values that `fit_colors` adds up.
    pub const FIT_SUMS: u32 = 22;
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

    /// `shrink`: means over squares of pixels.
    pub struct ShrinkArgs<'a> {
        /// [full height, full width, 3]
        pub rgb: In<'a, u8>,
        /// [full height, full width], 0 where a pixel does not count; or null.
        pub mask: In<'a, u8>,
        /// Inverse depths in steps, [full height, full width]; or null.
        pub depths: In<'a, u16>,
        /// x, y and z of normals times 127, [full height, full width, 3]; or null.
        pub normals: In<'a, i8>,
        /// [h, w, 3]
        pub small_rgb: Out<'a, u8>,
        /// [h, w]; null where `mask` is.
        pub small_mask: Out<'a, u8>,
        /// [h, w]; null where `depths` is.
        pub small_depths: Out<'a, u16>,
        /// [h, w, 3]; null where `normals` is.
        pub small_normals: Out<'a, i8>,
        /// Width and height of the smaller photograph, pixels.
        pub size: [u32; 2],
        /// Width of the photograph in pixels.
        pub full_width: u32,
        /// Pixels along each axis that become one.
        pub divisor: u32,
    }

    /// `compensate_exposure` and `compensate_grid`: colours as a camera changed them.
    pub struct CompensateArgs<'a> {
        /// [h, w, 3]
        pub image: In<'a, f32>,
        /// [12], or [luma, y, x, 12].
        pub table: In<'a, f32>,
        /// [h, w, 3]
        pub compensated: Out<'a, f32>,
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Not 0: colours are held to 0..1 first.
        pub clamp: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `exposure_bwd` and `grid_bwd`: gradients of what was drawn, and of the table in shares.
    pub struct ColorBwdArgs<'a> {
        /// [h, w, 3]
        pub image: In<'a, f32>,
        /// As in `CompensateArgs`.
        pub table: In<'a, f32>,
        /// Gradient of the compensated colours at first, of those drawn at last; [h, w, 3].
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
        /// As the table.
        pub gradient: Out<'a, f32>,
        /// Weight of the total variation; of `gather_grid` only.
        pub total_variation: f32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `coast_table`: steps without a gradient.
    pub struct CoastArgs<'a> {
        /// `[width]`
        pub values: Out<'a, f32>,
        /// `[width]`
        pub first_moments: Out<'a, f32>,
        /// `[width]`
        pub second_moments: Out<'a, f32>,
        /// How far values move, in units of the first moment over the root of the second.
        pub drift: f32,
        /// What becomes of the first moment.
        pub decay_1: f32,
        /// What becomes of the second moment.
        pub decay_2: f32,
        /// Added to the root.
        pub epsilon: f32,
        /// Number of values.
        pub width: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `move_table`: a step of Adam.
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
        /// Added to the root.
        pub epsilon: f32,
        /// Number of values.
        pub width: u32,
    }

    /// `fit_colors`: what the fit of a render's colours to a photograph adds up.
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
    fn the_kernels_know_the_tables_of_the_mathematics() {
        assert_eq!([GRID_X, GRID_Y, GRID_LUMA].map(|corners| corners as usize), math::GRID);
        assert_eq!(
            (AFFINE_WIDTH as usize, FIT_SUMS as usize),
            (math::AFFINE_WIDTH, math::FIT_SUMS)
        );
        assert_eq!(GRID_BWD_BLOCK, 4 * GRID_LUMA * AFFINE_WIDTH);
    }
}
