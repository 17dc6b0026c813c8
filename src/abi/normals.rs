//! Arguments of the kernels that compare surfaces: normals, patches of photographs, rays, and the 3D filter.

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

    /// Threads in a block of `ray_gaussians`.
    pub const RAYS_BLOCK: u32 = 256;
    /// Floats of a Gaussian as rays meet it.
    pub const RAY_WIDTH: u32 = 16;

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

    /// `compare_normal_map`: the normals of the drawn inverse depths against those of the photograph's map,
    /// and the gradient of the inverse depths.
    pub struct NormalMapArgs<'a> {
        /// [h, w]
        pub inverse_depths: In<'a, f32>,
        /// x, y and z times 127 in camera axes, [h, w, 3]; short where a pixel has none.
        pub target: In<'a, i8>,
        /// The photograph's, [h, w], 0 where it excludes a pixel; or null.
        pub mask: In<'a, u8>,
        /// Added to; [h, w].
        pub d_inverse_depths: Out<'a, f32>,
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
        /// Fills up to the alignment.
        pub reserved: u32,
    }

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
