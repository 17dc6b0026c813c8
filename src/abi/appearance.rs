//! Of the colours that cameras changed.

use super::{In, Out};

constants! {
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
        /// Of the compensated colours at first, of those drawn at last; [h, w, 3].
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
