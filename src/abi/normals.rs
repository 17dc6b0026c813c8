//! Of the maps of a surface, and of the comparison of their normals.

use super::{In, Out, ViewCamera};

constants! {
    /// Threads in a block of `splat_features`.
    pub const FEATURES_BLOCK: u32 = 256;
    /// Side of the square of pixels that a block of `compare_normals` and of `compare_normal_map` works on.
    pub const NORMALS_SIDE: u32 = 16;
    /// Threads in such a block.
    pub const NORMALS_BLOCK: u32 = 256;
    /// Floats of a splat's features and of their gradients, and of a pixel of a surface's maps.
    pub const FEATURES_WIDTH: u32 = 4;
    /// Least opacity of a pixel that is of a surface.
    pub const OPAQUE_MIN: f32 = 0.5;
    /// Most that depths of pixels side by side on one surface differ, in widths of a pixel.
    pub const STEP_MAX: f32 = 4.0;
    /// Least squared length of a normal that is stored times 127.
    pub const STORED_SQUARE_MIN: f32 = 4032.25;
}

abi! {
    /// `splat_features`: what splats give to the maps of a surface.
    pub struct FeaturesArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// Index of each Gaussian's splat; `[gaussians]`.
        pub splat_from_gaussian: In<'a, u32>,
        /// [visible, record]
        pub splats: In<'a, f32>,
        /// [visible, 4]: depth, x and y of the normal in camera axes, inverse depth.
        pub features: Out<'a, f32>,
        /// The view.
        pub camera: ViewCamera,
        /// Number of Gaussians.
        pub gaussians: u32,
        /// Floats of a record of a splat.
        pub record_width: u32,
    }

    /// `compare_normals`: drawn normals against those of the drawn depths, and the gradients of both.
    pub struct NormalsArgs<'a> {
        /// [h, w, 4]: depth, x and y of the normal, opacity.
        pub surface: In<'a, f32>,
        /// Median depths to take in place of those of `surface`, [h, w]; or null.
        pub medians: In<'a, f32>,
        /// Their gradients, [h, w].
        pub d_medians: Out<'a, f32>,
        /// [h, w, 4]: of depth, x and y of the normal, and the transmittance.
        pub d_surface: Out<'a, f32>,
        /// The photograph's, [h, w], 0 where it excludes a pixel; or null.
        pub mask: In<'a, u8>,
        /// One; added to: 1 - cos of the angle between the normals.
        pub sum: Out<'a, f64>,
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Gradient of what a pixel adds.
        pub d_mean: f32,
        /// Not 0: depths are divided by the opacity, and only opaque pixels away from outlines count.
        pub opaque: u32,
    }
}
