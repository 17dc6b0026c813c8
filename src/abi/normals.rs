//! Arguments of the kernels that compare surfaces: normals, patches of photographs, rays, and the 3D filter.

use super::{In, Out, ViewCamera};

constants! {
    /// Threads per block of `splat_features`.
    pub const FEATURES_BLOCK: u32 = 256;
    /// Side of the square of pixels per block of `compare_normals` and `compare_normal_map`.
    pub const NORMALS_SIDE: u32 = 16;
    /// Threads in such a block.
    pub const NORMALS_BLOCK: u32 = 256;
    /// Floats per splat of features and their gradients, and per pixel of a surface's maps.
    pub const FEATURES_WIDTH: u32 = 4;
    /// Smallest opacity of a pixel that shows a surface.
    pub const OPAQUE_MIN: f32 = 0.5;
    /// Largest depth difference of neighbouring pixels on one surface, in pixel widths.
    pub const STEP_MAX: f32 = 4.0;
    /// Smallest squared length of a normal that is stored times 127.
    pub const STORED_SQUARE_MIN: f32 = 4032.25;

    /// Threads per block of `compare_patches`: a warp per patch.
    pub const PATCHES_BLOCK: u32 = 256;
    /// Pixels along a side of a patch.
    pub const PATCH_SIDE: u32 = 7;
    /// Pixels between the middle of a patch and its side.
    pub const PATCH_REACH: u32 = 3;
    /// Distance between compared patches along each axis, px.
    pub const PATCH_STRIDE: u32 = 2;
    /// Offset of patch variances.
    pub const VARIANCE_FLOOR: f32 = 1e-5;
    /// Smallest standard deviation of a patch that can be located.
    pub const CONTRAST_MIN: f32 = 0.01;
    /// Largest cosine between a plane's normal and the ray towards it.
    pub const FACING_MAX: f32 = -0.1;
    /// Correlation below which the patch is hidden in the other view.
    pub const AGREEMENT_MIN: f32 = 0.1;

    /// Threads per block of `ray_gaussians`.
    pub const RAYS_BLOCK: u32 = 256;
    /// Floats per ray Gaussian.
    pub const RAY_WIDTH: u32 = 16;

    /// Threads per block of the kernels of `smooth`.
    pub const SMOOTH_BLOCK: u32 = 256;
    /// Views per load of a block, at most `SMOOTH_BLOCK`.
    pub const SMOOTH_VIEWS: u32 = 64;
    /// Smallest determinant of a covariance, px⁴.
    pub const DET_MIN_PX4: f32 = 1e-6;
    /// Margin around the image inside which a view samples points, as a share of the side.
    pub const SAMPLED_MARGIN: f32 = 0.15;
}

abi! {
    /// `splat_features`: values of splats for the surface's maps.
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
        /// Floats per record of a splat.
        pub record_width: u32,
    }

    /// `compare_normals`: compares rendered normals with those of the rendered depths; gradients of both.
    pub struct NormalsArgs<'a> {
        /// [h, w, 4]: depth, x and y of the normal, opacity.
        pub surface: In<'a, f32>,
        /// Median depths that replace those of `surface`; [h, w], or null.
        pub medians: In<'a, f32>,
        /// Gradients of `medians`; [h, w].
        pub d_medians: Out<'a, f32>,
        /// [h, w, 4]: gradients of depth, x and y of the normal, and transmittance.
        pub d_surface: Out<'a, f32>,
        /// Mask of the photograph; [h, w], 0 for an excluded pixel; or null.
        pub mask: In<'a, u8>,
        /// Sum of 1 - cos of the angle between the normals; added to.
        pub sum: Out<'a, f64>,
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Gradient of a pixel's term.
        pub d_mean: f32,
        /// Not 0: depths are divided by the opacity, and only opaque pixels away from outlines count.
        pub opaque: u32,
    }

    /// `compare_normal_map`: compares the normals of the rendered inverse depths with the photograph's normal map;
    /// gradient of the inverse depths.
    pub struct NormalMapArgs<'a> {
        /// [h, w]
        pub inverse_depths: In<'a, f32>,
        /// x, y and z times 127 in camera axes; [h, w, 3], short for a pixel without a normal.
        pub target: In<'a, i8>,
        /// Mask of the photograph; [h, w], 0 for an excluded pixel; or null.
        pub mask: In<'a, u8>,
        /// Added to; [h, w].
        pub d_inverse_depths: Out<'a, f32>,
        /// Sum of 1 - cos of the angle between the normals; added to.
        pub sum: Out<'a, f64>,
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Gradient of a pixel's term.
        pub d_mean: f32,
        /// Padding.
        pub reserved: u32,
    }

    /// `compare_patches`: compares patches with another view; gradients of the planes that project them.
    pub struct PatchesArgs<'a> {
        /// [h, w, 4]: depth, x and y of the normal, opacity.
        pub surface: In<'a, f32>,
        /// Median depths, [h, w].
        pub medians: In<'a, f32>,
        /// The photograph, [h, w, 3].
        pub target: In<'a, u8>,
        /// Mask of the photograph; [h, w], 0 for an excluded pixel; or null.
        pub mask: In<'a, u8>,
        /// Photograph of the other view; [its h, its w, 3].
        pub other: In<'a, u8>,
        /// Mask of the other view, or null.
        pub other_mask: In<'a, u8>,
        /// [h, w, 4], for x and y of the normal and the transmittance; added to.
        pub d_surface: Out<'a, f32>,
        /// [h, w]; added to.
        pub d_medians: Out<'a, f32>,
        /// Sum of 1 - correlation, times `shown`; added to.
        pub sum: Out<'a, f64>,
        /// Rotation from camera axes to the other camera's, in rows.
        pub rotation: [f32; 9],
        /// Translation in the other camera's axes.
        pub translation: [f32; 3],
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Focal lengths of the other camera in pixels.
        pub other_focal_px: [f32; 2],
        /// Principal point of the other camera in pixels.
        pub other_centre_px: [f32; 2],
        /// Width and height of the other image in pixels.
        pub other_size: [u32; 2],
        /// First pixel whose patch is compared.
        pub first_px: [u32; 2],
        /// Number of patches per row and per column.
        pub patches: [u32; 2],
        /// Number of pixels that each patch represents.
        pub shown: f32,
        /// Gradient of a patch's 1 - correlation, `shown` included.
        pub d_cost: f32,
    }

    /// `ray_gaussians`: converts the visible Gaussians to camera axes.
    pub struct RaysArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// Standard deviations of the 3D filter, or null; `[gaussians]`.
        pub filter_3d: In<'a, f32>,
        /// Index of each Gaussian's splat; `[gaussians]`.
        pub splat_from_gaussian: In<'a, u32>,
        /// [visible, 16]: for each axis a row of the whitening and the centre's coordinate, then the opacity.
        pub rays: Out<'a, f32>,
        /// The view.
        pub camera: ViewCamera,
        /// Number of Gaussians.
        pub gaussians: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `ray_gaussians_bwd`: gradients of the geometry from those of the ray Gaussians.
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
        /// Padding.
        pub reserved: u32,
    }

    /// A view that limits the size of Gaussians from below.
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

    /// `smooth_nearest` and `smooth_spread`: compute the 3D filter of every Gaussian.
    pub struct SmoothArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// `[views_len]`
        pub views: In<'a, SmoothView>,
        /// Depths after the first kernel, standard deviations after the second, world units; [n].
        pub filter_3d: Out<'a, f32>,
        /// Bits of the largest depth, initially 0.
        pub farthest: Out<'a, u32>,
        /// Number of Gaussians.
        pub n: u32,
        /// Number of views.
        pub views_len: u32,
        /// Standard deviation of the filter at depth 1.
        pub smoothing_per_depth: f32,
        /// Depth that a Gaussian must exceed for a view to sample it, world units.
        pub sampled_from: f32,
    }

    /// `reset_smoothed_opacity`: lowers opacities, measured through the filter, and clears their moments.
    pub struct ResetSmoothedArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: Out<'a, f32>,
        /// [lane blocks, `first_width`, 32]
        pub geometry_first: Out<'a, u32>,
        /// [lane blocks, 11, 32]
        pub geometry_second: Out<'a, f32>,
        /// Standard deviations, world units; [n].
        pub filter_3d: In<'a, f32>,
        /// Words per row of the first moments; the last is the opacity's.
        pub first_width: u32,
        /// Number of Gaussians.
        pub n: u32,
        /// Largest opacity.
        pub ceiling: f32,
        /// Padding.
        pub reserved: u32,
    }
}
