//! Of Gaussians as the rays of a view meet them.

use super::{In, Out, ViewCamera};

constants! {
    /// Threads in a block of `ray_gaussians`.
    pub const RAYS_BLOCK: u32 = 256;
    /// Floats of a Gaussian as rays meet it.
    pub const RAY_WIDTH: u32 = 16;
}

abi! {
    /// `ray_gaussians`: the Gaussians that a view sees, in camera axes.
    pub struct RaysArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// Standard deviations of the 3D filter, or null; `[gaussians]`.
        pub filter_3d: In<'a, f32>,
        /// Index of each Gaussian's splat; `[gaussians]`.
        pub splat_from_gaussian: In<'a, u32>,
        /// [visible, 16]: thrice a row of the whitening and an axis of the centre, then the opacity.
        pub rays: Out<'a, f32>,
        /// The view.
        pub camera: ViewCamera,
        /// Number of Gaussians.
        pub gaussians: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `ray_gaussians_bwd`: gradients of the geometry from those of what rays meet.
    pub struct RaysBwdArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// Standard deviations of the 3D filter, or null; `[gaussians]`.
        pub filter_3d: In<'a, f32>,
        /// Index of each Gaussian's splat; `[gaussians]`.
        pub splat_from_gaussian: In<'a, u32>,
        /// [visible, 16]
        pub d_rays: In<'a, f32>,
        /// [gaussians, 12]; added to.
        pub d_geometry: Out<'a, f32>,
        /// The view.
        pub camera: ViewCamera,
        /// Number of Gaussians.
        pub gaussians: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }
}
