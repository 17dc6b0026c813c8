//! Arguments of the kernels that trace a view's light: blending, transmittances, weights, contributions
//! and medians.

use super::view::TileRange;
use super::{In, Out, ViewCamera};

constants! {
    /// Threads per block of `blend_fwd` and `blend_counted`: one per pixel of a tile.
    pub const BLEND_BLOCK: u32 = 256;
    /// Warp tiles of a tile.
    pub const BLEND_WARP_TILES: u32 = 8;
    /// Largest number of a tile's instances in a chunk of `blend_bwd`.
    pub const BLEND_CHUNK: u32 = 256;
    /// Threads per block of `blend_bwd`.
    pub const BLEND_BWD_BLOCK: u32 = 128;

    /// Threads per block of `transmittances`.
    pub const TRANSMITTANCE_BLOCK: u32 = 256;
    /// Replacement of a transmittance outside the view.
    pub const NOT_SEEN: f32 = -1.0;

    /// Threads per block of `whiten` and `add_weights`.
    pub const WEIGHTS_BLOCK: u32 = 256;

    /// Threads per block of `contribution_pixels`: one per pixel of a tile.
    pub const CONTRIBUTION_BLOCK: u32 = 256;
    /// Values per Gaussian: sum and maximum of its blend weights, the change of the squared error, and the squared
    /// change of the view.
    pub const CONTRIBUTION_WIDTH: u32 = 4;
    /// Transmittance below which the colour behind a splat is unknown.
    pub const BEHIND_MIN: f32 = 1e-3;

    /// Threads per block of `median_depths`: one per pixel of a tile.
    pub const MEDIAN_BLOCK: u32 = 256;
    /// Depths that one pass of the search evaluates.
    pub const MEDIAN_ABSCISSAE: u32 = 16;
    /// Number of search passes that each keep a fifteenth of the interval.
    pub const MEDIAN_NARROWINGS: u32 = 2;
    /// Largest number of search passes that move an interval without the median.
    pub const MEDIAN_MOVES: u32 = 4;
    /// Number of Newton steps after the search.
    pub const MEDIAN_NEWTON_STEPS: u32 = 5;
    /// Margin of the search around peaks, in standard deviations.
    pub const MEDIAN_REACH: f32 = 3.0;
    /// Transmittance below which the search begins.
    pub const MEDIAN_FROM: f32 = 0.9;
    /// Transmittance below which the search ends.
    pub const MEDIAN_TO: f32 = 0.1;
    /// Smallest slope of the logarithm at a median, per relative depth.
    pub const MEDIAN_SLOPE_MIN: f32 = 1e-4;
    /// Smallest such slope of a median that has a gradient.
    pub const MEDIAN_FALL_MIN: f32 = 0.1;
}

abi! {
    /// `blend_fwd`, `blend_counted`, `blend_fwd_depth`, `blend_fwd_surface`: splats to pixels. `blend_bwd`,
    /// `blend_bwd_depth`, `blend_bwd_surface`, and each with `_absolute` or `_squares`: pixel gradients to splats.
    /// Each with `_surfels`: for surfels. `blend_fwd_triangles_*` and `blend_bwd_triangles_*`: for triangles, by
    /// samples along a pixel's side; they keep no states.
    pub struct BlendArgs<'a> {
        /// [visible, record]
        pub splats: In<'a, f32>,
        /// [visible, 4], as in `FeaturesArgs`. For `blend_fwd_surface` and `blend_bwd_surface` only.
        pub features: In<'a, f32>,
        /// `[instances]`
        pub splat_from_instance: In<'a, u32>,
        /// `[tiles]`
        pub ranges: In<'a, TileRange>,
        /// Work items of the backward pass (tile, chunk of its list); [chunks, 2].
        pub chunks: Out<'a, u32>,
        /// Number of chunks, 0 at first.
        pub chunk_count: Out<'a, u32>,
        /// Colour and transmittance before a chunk, the latter negative for a finished pixel; [instances / chunk + 1,
        /// 256, 4]. Null without a backward pass.
        pub states: Out<'a, f32>,
        /// Inverse depth before a chunk, for `blend_fwd_depth` and `blend_bwd_depth`, or squared inverse depth, for
        /// surfels' surfaces; [instances / chunk + 1, 256]. Null without a backward pass.
        pub depth_states: Out<'a, f32>,
        /// Weighted sums of the features before a chunk; [instances / chunk + 1, 256, 4]. For `blend_fwd_surface` and
        /// `blend_bwd_surface` only; null without a backward pass.
        pub surface_states: Out<'a, f32>,
        /// Bits of the instances that reach a warp tile; [instances / 32 + tiles + 1, 8]. Null without a backward
        /// pass.
        pub hits: Out<'a, u32>,
        /// [h, w, 3]. Read by backward passes, except by those of triangles with several samples per pixel.
        pub image: Out<'a, f32>,
        /// Instances until all pixels of a warp tile are finished; [tiles, 8]. Null without a backward pass.
        pub reached: Out<'a, u32>,
        /// Number of splats that changed the pixel; [h, w]. For `blend_counted` only.
        pub blended: Out<'a, u32>,
        /// [h, w]. For `blend_fwd_depth` and `blend_bwd_depth`; optional (null) in the `surface` kernels. The
        /// backward pass of triangles reads it if `d_inverse_depths` is not null.
        pub inverse_depths: Out<'a, f32>,
        /// Sums of the weights over the squared depths; [h, w]. Optional (null).
        pub inverse_squares: Out<'a, f32>,
        /// [h, w, 4]: depth, x and y of the normal, opacity. For `blend_fwd_surface` and `blend_bwd_surface` only.
        pub surface: Out<'a, f32>,
        /// [h, w]. For `blend_fwd_surface_surfels` only; optional (null).
        pub median_depths: Out<'a, f32>,
        /// [h, w, 3]
        pub d_image: In<'a, f32>,
        /// [h, w]. For `blend_bwd_depth`; null in `blend_bwd_surface`, and for triangles if inverse depths are not
        /// compared.
        pub d_inverse_depths: In<'a, f32>,
        /// [h, w]. Null if squared inverse depths are not compared.
        pub d_inverse_squares: In<'a, f32>,
        /// [h, w, 4], the last of a pixel for the final transmittance. For `blend_bwd_surface` only; null if neither
        /// normals nor depths are compared.
        pub d_surface: In<'a, f32>,
        /// `SplatGradient` of each splat; [visible, record]. Added to.
        pub gradients: Out<'a, f32>,
        /// [visible, 4]: depth, x and y of the normal, 0; added to. For `blend_bwd_surface` only.
        pub d_features: Out<'a, f32>,
        /// Largest weight of each face; `[faces]`, updated. For `blend_bwd_triangles_*`; optional (null).
        pub face_weights: Out<'a, f32>,
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Colour behind everything.
        pub background: [f32; 3],
        /// Tiles per row.
        pub tiles_wide: u32,
        /// Tile of the first block, in the forward pass and in the backward pass of triangles.
        pub first_tile: u32,
        /// Exponent of the window of triangles.
        pub window_exponent: f32,
        /// Width of the strips along edges, px. For `blend_bwd_triangles_*` only.
        pub strip_px: f32,
    }

    /// `transmittances`: transmittance between the camera and given points.
    pub struct TransmittanceArgs<'a> {
        /// [visible, 16], as in `RaysArgs`.
        pub rays: In<'a, f32>,
        /// `[instances]`
        pub splat_from_instance: In<'a, u32>,
        /// `[tiles]`
        pub ranges: In<'a, TileRange>,
        /// Points in the world, world units; [places, 3].
        pub places: In<'a, f32>,
        /// `[places]`; points in unlisted rows of tiles are left unchanged.
        pub transmittances: Out<'a, f32>,
        /// The view.
        pub camera: ViewCamera,
        /// Number of points.
        pub count: u32,
        /// First listed row of tiles.
        pub first_row: u32,
        /// Row after the last listed row.
        pub end_row: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `whiten`: makes all splats white.
    pub struct WhitenArgs<'a> {
        /// [visible, record]
        pub splats: Out<'a, f32>,
        /// Number of splats.
        pub visible: u32,
        /// Floats per record of a splat, and of its gradients.
        pub record_width: u32,
    }

    /// `add_weights`: adds a view's blend weights.
    pub struct AddWeightsArgs<'a> {
        /// Index of each Gaussian's splat; [n].
        pub splat_from_gaussian: In<'a, u32>,
        /// `SplatGradient` of each splat; [visible, record].
        pub gradients: In<'a, f32>,
        /// [n]
        pub weights: Out<'a, f32>,
        /// Number of Gaussians.
        pub gaussians: u32,
        /// Floats of a splat's gradients.
        pub record_width: u32,
    }

    /// `contribution_pixels`: renders a view without absent Gaussians and sums each Gaussian's contribution.
    pub struct ContributionArgs<'a> {
        /// [visible, record]
        pub splats: In<'a, f32>,
        /// `[instances]`
        pub splat_from_instance: In<'a, u32>,
        /// `[tiles]`
        pub ranges: In<'a, TileRange>,
        /// Not 0: left out; `[n]`.
        pub absent: In<'a, u8>,
        /// The photograph; [h, w, 3].
        pub target: In<'a, u8>,
        /// [h, w], or null.
        pub mask: In<'a, u8>,
        /// [h, w, 3]
        pub image: Out<'a, f32>,
        /// Contributions; [visible, 4]. Added to.
        pub contributions: Out<'a, f32>,
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Colour behind everything.
        pub background: [f32; 3],
        /// Tiles per row.
        pub tiles_wide: u32,
        /// First listed tile.
        pub first_tile: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `add_contributions`: adds the contributions of a view's splats to the Gaussians' sums.
    pub struct AddContributionsArgs<'a> {
        /// [visible, record]
        pub splats: In<'a, f32>,
        /// Contributions of the view's splats; [visible, 4].
        pub contributions: In<'a, f32>,
        /// [n, 4]
        pub sums: Out<'a, f32>,
        /// Number of splats.
        pub visible: u32,
        /// Floats per record of a splat.
        pub record_width: u32,
    }

    /// `median_depths`: the depth of each pixel at which half of the light is stopped.
    pub struct MedianArgs<'a> {
        /// [visible, 16], as in `RaysArgs`.
        pub rays: In<'a, f32>,
        /// `[instances]`
        pub splat_from_instance: In<'a, u32>,
        /// `[tiles]`
        pub ranges: In<'a, TileRange>,
        /// [h, w]; 0 without a median.
        pub depths: Out<'a, f32>,
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Tiles per row.
        pub tiles_wide: u32,
        /// First listed tile.
        pub first_tile: u32,
        /// Depth that a median must exceed, world units.
        pub near: f32,
        /// Padding.
        pub reserved: u32,
    }

    /// `median_depths_bwd`: gradients of the ray Gaussians.
    pub struct MedianBwdArgs<'a> {
        /// [visible, 16], as in `RaysArgs`.
        pub rays: In<'a, f32>,
        /// `[instances]`
        pub splat_from_instance: In<'a, u32>,
        /// `[tiles]`
        pub ranges: In<'a, TileRange>,
        /// [h, w]; 0 without a median.
        pub depths: In<'a, f32>,
        /// [h, w]
        pub d_depths: In<'a, f32>,
        /// [visible, 16], in the order of `rays`; added to.
        pub d_rays: Out<'a, f32>,
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Tiles per row.
        pub tiles_wide: u32,
        /// First listed tile.
        pub first_tile: u32,
    }
}
