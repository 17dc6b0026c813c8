//! Of patches of a photograph that another view's photograph should have, too.

use super::{In, Out};

constants! {
    /// Threads in a block of `compare_patches`: a warp for each patch.
    pub const PATCHES_BLOCK: u32 = 256;
    /// Pixels along a side of a patch.
    pub const PATCH_SIDE: u32 = 7;
    /// Pixels between its middle and its side.
    pub const PATCH_REACH: u32 = 3;
    /// Pixels from one whose patch is compared to the next, along each axis.
    pub const PATCH_STRIDE: u32 = 2;
    /// Added to the variances of patches.
    pub const VARIANCE_FLOOR: f32 = 1e-5;
    /// Least standard deviation of a patch that says something.
    pub const CONTRAST_MIN: f32 = 0.01;
    /// Greatest cosine between a plane's normal and the ray towards it.
    pub const FACING_MAX: f32 = -0.1;
    /// Correlation below which something else hides the patch in the other view.
    pub const AGREEMENT_MIN: f32 = 0.1;
}

abi! {
    /// `compare_patches`: patches against what another view has in their place, and the gradients of the
    /// planes that put them there.
    pub struct PatchesArgs<'a> {
        /// [h, w, 4]: depth, x and y of the normal, opacity.
        pub surface: In<'a, f32>,
        /// Median depths, [h, w].
        pub medians: In<'a, f32>,
        /// The photograph, [h, w, 3].
        pub target: In<'a, u8>,
        /// Its mask, [h, w], 0 where it excludes a pixel; or null.
        pub mask: In<'a, u8>,
        /// The other view's photograph, [its h, its w, 3].
        pub other: In<'a, u8>,
        /// Its mask, or null.
        pub other_mask: In<'a, u8>,
        /// [h, w, 4], of x and y of the normal and of the transmittance; added to.
        pub d_surface: Out<'a, f32>,
        /// [h, w]; added to.
        pub d_medians: Out<'a, f32>,
        /// One; added to: what the patches stand for of 1 - their correlations.
        pub sum: Out<'a, f64>,
        /// Rotation from camera axes to the other's, in rows.
        pub rotation: [f32; 9],
        /// Translation in the other's axes.
        pub translation: [f32; 3],
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// The other camera's focal lengths in pixels.
        pub other_focal_px: [f32; 2],
        /// Its principal point in pixels.
        pub other_centre_px: [f32; 2],
        /// Its width and height in pixels.
        pub other_size: [u32; 2],
        /// The first pixel whose patch is compared.
        pub first_px: [u32; 2],
        /// Patches in a row and in a column.
        pub patches: [u32; 2],
        /// Pixels that a patch stands for.
        pub shown: f32,
        /// Gradient of what a patch adds, with that.
        pub d_cost: f32,
    }
}
