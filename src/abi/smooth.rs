//! Of the 3D filter.

use super::{In, Out};

constants! {
    /// Threads in a block of the kernels of `smooth`.
    pub const SMOOTH_BLOCK: u32 = 256;
    /// Views that a block looks at between two loads, at most `SMOOTH_BLOCK`.
    pub const SMOOTH_VIEWS: u32 = 64;
    /// Least determinant of a covariance, px⁴.
    pub const DET_MIN_PX4: f32 = 1e-6;
    /// How far beyond the image's border a view still samples, as a share of its side.
    pub const SAMPLED_MARGIN: f32 = 0.15;
}

abi! {
    /// A view that tells how fine Gaussians may be.
    pub struct SmoothView {
        /// Rotation from world to camera, in rows.
        pub rotation: [f32; 9],
        /// Translation from world to camera.
        pub translation: [f32; 3],
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Width and height in pixels.
        pub size: [f32; 2],
    }

    /// `smooth_nearest` and `smooth_spread`: the filter of every Gaussian.
    pub struct SmoothArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// `[views_len]`
        pub views: In<'a, SmoothView>,
        /// Depths after the first kernel, standard deviations after the second, world units; [n]
        pub filter_3d: Out<'a, f32>,
        /// Bits of the greatest depth, 0 at first.
        pub farthest: Out<'a, u32>,
        /// Gaussians.
        pub n: u32,
        /// Views.
        pub views_len: u32,
        /// Standard deviation of the filter of a Gaussian in depth 1.
        pub smoothing_per_depth: f32,
        /// Depth that a Gaussian must exceed for a view to sample it, world units.
        pub sampled_from: f32,
    }

    /// `reset_smoothed_opacity`: lowers opacities as they are through the filter, and forgets their
    /// moments.
    pub struct ResetSmoothedArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: Out<'a, f32>,
        /// [lane blocks, `first_width`, 32]
        pub geometry_first: Out<'a, u32>,
        /// [lane blocks, 11, 32]
        pub geometry_second: Out<'a, f32>,
        /// Standard deviations, world units; [n]
        pub filter_3d: In<'a, f32>,
        /// Words of a row's first moments: the last is the opacity's.
        pub first_width: u32,
        /// Gaussians.
        pub n: u32,
        /// Largest opacity.
        pub ceiling: f32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }
}
