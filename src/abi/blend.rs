//! Arguments of the kernels that follow the light of a view: blending, distortion, transmittances, weights, worths
//! and medians.

use super::view::TileRange;
use super::{In, Out, ViewCamera};

constants! {
    /// Threads in a block of `blend_fwd` and `blend_counted`: one per pixel of a tile.
    pub const BLEND_BLOCK: u32 = 256;
    /// Parts of a tile's pixels, a warp each.
    pub const BLEND_PARTS: u32 = 8;
    /// Instances of a tile that a piece of work of `blend_bwd` has at most.
    pub const BLEND_CHUNK: u32 = 256;
    /// Threads in a block of `blend_bwd`.
    pub const BLEND_BWD_BLOCK: u32 = 128;

    /// Threads in a block of `measure_distortion`.
    pub const DISTORTION_BLOCK: u32 = 256;
    /// Depth that is mapped to 0.
    pub const DISTORTION_NEAR: f32 = 0.2;
    /// Depth that is mapped to 1.
    pub const DISTORTION_FAR: f32 = 100.0;

    /// Threads in a block of `transmittances`.
    pub const TRANSMITTANCE_BLOCK: u32 = 256;
    /// In place of a transmittance where the view does not see the place.
    pub const NOT_SEEN: f32 = -1.0;

    /// Threads in a block of the kernels of `weights`.
    pub const WEIGHTS_BLOCK: u32 = 256;

    /// Threads in a block of `worth_pixels`: one per pixel of a tile.
    pub const WORTH_BLOCK: u32 = 256;
    /// Values of a Gaussian: sum and maximum of its blend weights, the change of the squared error, and the
    /// squared change of the view.
    pub const WORTH_WIDTH: u32 = 4;
    /// Transmittance below which nobody knows what lies behind a splat.
    pub const BEHIND_MIN: f32 = 1e-3;

    /// Threads in a block of `median_depths`: one per pixel of a tile.
    pub const MEDIAN_BLOCK: u32 = 256;
    /// Depths at which a round of the search looks.
    pub const MEDIAN_ABSCISSAE: u32 = 16;
    /// Rounds that leave a fifteenth of the interval each.
    pub const MEDIAN_NARROWINGS: u32 = 2;
    /// Rounds in which an interval that does not hold the median is moved.
    pub const MEDIAN_MOVES: u32 = 4;
    /// Steps of Newton's method after the search.
    pub const MEDIAN_NEWTON_STEPS: u32 = 5;
    /// Distances from peaks at which the search begins and ends, in standard deviations.
    pub const MEDIAN_REACH: f32 = 3.0;
    /// Smallest transmittance where the search begins.
    pub const MEDIAN_FROM: f32 = 0.9;
    /// Largest transmittance where the search ends.
    pub const MEDIAN_TO: f32 = 0.1;
    /// Least slope of the logarithm at a median, per share of its depth.
    pub const MEDIAN_SLOPE_MIN: f32 = 1e-4;
    /// Least such slope of a median that has a gradient.
    pub const MEDIAN_FALL_MIN: f32 = 0.1;
}

abi! {
    /// `blend_fwd`, `blend_counted`, `blend_fwd_depth`, `blend_fwd_surface`: splats to pixels.
    /// `blend_bwd`, `blend_bwd_depth`, `blend_bwd_surface`, and each of them with `_absolute` or `_squares`:
    /// pixel gradients to splats. All of them with `_surfels`: of these. `blend_fwd_triangles_*` and
    /// `blend_bwd_triangles_*`: of triangles, with so many samples along a pixel's sides; they keep no states.
    pub struct BlendArgs<'a> {
        /// [visible, record]
        pub splats: In<'a, f32>,
        /// [visible, 4], as in `FeaturesArgs`. Of `blend_fwd_surface` and `blend_bwd_surface` only.
        pub features: In<'a, f32>,
        /// `[instances]`
        pub splat_from_instance: In<'a, u32>,
        /// `[tiles]`
        pub ranges: In<'a, TileRange>,
        /// Pieces of work of the backward pass: tile, chunk of its list; [chunks, 2].
        pub chunks: Out<'a, u32>,
        /// Number of them, 0 at first.
        pub chunk_count: Out<'a, u32>,
        /// Colour and transmittance before a chunk, the latter negative where the pixel is finished;
        /// [instances / chunk + 1, 256, 4]. Null where no backward pass follows.
        pub states: Out<'a, f32>,
        /// Inverse depth before a chunk; [instances / chunk + 1, 256]. Of `blend_fwd_depth` and
        /// `blend_bwd_depth`, and of surfels' surfaces the squares of inverse depths; null where no backward pass follows.
        pub depth_states: Out<'a, f32>,
        /// Sums of the weights times the features before a chunk; [instances / chunk + 1, 256, 4]. Of
        /// `blend_fwd_surface` and `blend_bwd_surface` only, and null where no backward pass follows.
        pub surface_states: Out<'a, f32>,
        /// Bits of the instances that reach a part of a tile; [instances / 32 + tiles + 1, 8]. Null
        /// where no backward pass follows.
        pub hits: Out<'a, u32>,
        /// [h, w, 3]. Backward passes read it; of triangles that of one sample a pixel alone.
        pub image: Out<'a, f32>,
        /// Instances looked at until all pixels of a part of a tile were finished; [tiles, 8]. Null
        /// where no backward pass follows.
        pub reached: Out<'a, u32>,
        /// Splats that changed the pixel; [h, w]. Of `blend_counted` only.
        pub blended: Out<'a, u32>,
        /// [h, w]. Of `blend_fwd_depth` and `blend_bwd_depth`; null in those of surfaces where nobody
        /// asks for it. Of triangles the backward pass reads it where `d_inverse_depths` is there.
        pub inverse_depths: Out<'a, f32>,
        /// Sums of the weights over the squares of the depths; [h, w]. Null where nobody asks for them.
        pub inverse_squares: Out<'a, f32>,
        /// [h, w, 4]: depth, x and y of the normal, opacity. Of `blend_fwd_surface` and
        /// `blend_bwd_surface` only.
        pub surface: Out<'a, f32>,
        /// [h, w]. Of `blend_fwd_surface_surfels` only; null where nobody asks for it.
        pub median_depths: Out<'a, f32>,
        /// [h, w, 3]
        pub d_image: In<'a, f32>,
        /// [h, w]. Of `blend_bwd_depth`; null in `blend_bwd_surface` and of triangles where they were not
        /// compared.
        pub d_inverse_depths: In<'a, f32>,
        /// [h, w]. Null where nothing was compared with them.
        pub d_inverse_squares: In<'a, f32>,
        /// [h, w, 4], the last of a pixel being that of the final transmittance. Of
        /// `blend_bwd_surface` only; null where neither normals nor depths were compared.
        pub d_surface: In<'a, f32>,
        /// `SplatGradient` of each splat, added to; [visible, record].
        pub gradients: Out<'a, f32>,
        /// Added to; [visible, 4]: depth, x and y of the normal, 0. Of `blend_bwd_surface` only.
        pub d_features: Out<'a, f32>,
        /// Largest weight of each face so far; `[faces]`. Of `blend_bwd_triangles_*`; null where nobody asks for it.
        pub face_weights: Out<'a, f32>,
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Colour behind everything.
        pub background: [f32; 3],
        /// Tiles in a row.
        pub tiles_wide: u32,
        /// Tile of the first block of the forward pass, and of triangles of the backward pass.
        pub first_tile: u32,
        /// Of triangles only.
        pub window_exponent: f32,
        /// Of `blend_bwd_triangles_*` only.
        pub strip_px: f32,
    }

    /// `measure_distortion`: how far apart along its ray lies what a pixel is blended of, and the
    /// gradients of the maps that say so.
    pub struct DistortionArgs<'a> {
        /// [h, w]
        pub inverse_depths: In<'a, f32>,
        /// Blended of the squares of the inverse depths; [h, w].
        pub inverse_squares: In<'a, f32>,
        /// [h, w, 4]: depth, x and y of the normal, opacity.
        pub surface: In<'a, f32>,
        /// The photograph's, [h, w], 0 where it excludes a pixel; or null.
        pub mask: In<'a, u8>,
        /// Added to; [h, w].
        pub d_inverse_depths: Out<'a, f32>,
        /// [h, w]
        pub d_inverse_squares: Out<'a, f32>,
        /// [h, w, 4], to whose last values, those of the final transmittance, is added.
        pub d_surface: Out<'a, f32>,
        /// One; added to.
        pub sum: Out<'a, f64>,
        /// Pixels.
        pub pixels: u32,
        /// Gradient of what a pixel adds.
        pub d_mean: f32,
    }

    /// `transmittances`: what passes between the view's camera and places.
    pub struct TransmittanceArgs<'a> {
        /// [visible, 16], as in `RaysArgs`.
        pub rays: In<'a, f32>,
        /// `[instances]`
        pub splat_from_instance: In<'a, u32>,
        /// `[tiles]`
        pub ranges: In<'a, TileRange>,
        /// World units; [places, 3].
        pub places: In<'a, f32>,
        /// `[places]`; those seen in rows of tiles that are not listed stay as they are.
        pub transmittances: Out<'a, f32>,
        /// The view.
        pub camera: ViewCamera,
        /// Number of places.
        pub count: u32,
        /// The first row of tiles that is listed.
        pub first_row: u32,
        /// The row behind the last.
        pub end_row: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `whiten`: makes all splats white.
    pub struct WhitenArgs<'a> {
        /// [visible, record]
        pub splats: Out<'a, f32>,
        /// Splats.
        pub visible: u32,
        /// Floats of a record of a splat, and of its gradients.
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

    /// `worth_pixels`: a view without the Gaussians that are left out, and what each would change in it.
    pub struct WorthArgs<'a> {
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
        /// Added to; [visible, 4].
        pub worths: Out<'a, f32>,
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Colour behind everything.
        pub background: [f32; 3],
        /// Tiles in a row.
        pub tiles_wide: u32,
        /// The first tile that is listed.
        pub first_tile: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `add_worths`: adds those of a view's splats to those of all Gaussians.
    pub struct AddWorthsArgs<'a> {
        /// [visible, record]
        pub splats: In<'a, f32>,
        /// Worths of the view's splats; [visible, 4].
        pub worths: In<'a, f32>,
        /// [n, 4]
        pub sums: Out<'a, f32>,
        /// Splats.
        pub visible: u32,
        /// Floats of a record of a splat.
        pub record_width: u32,
    }

    /// `median_depths`: the depth of each pixel by which half of the light is stopped.
    pub struct MedianArgs<'a> {
        /// [visible, 16], as in `RaysArgs`.
        pub rays: In<'a, f32>,
        /// `[instances]`
        pub splat_from_instance: In<'a, u32>,
        /// `[tiles]`
        pub ranges: In<'a, TileRange>,
        /// [h, w]; 0 where there is none.
        pub depths: Out<'a, f32>,
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Tiles in a row.
        pub tiles_wide: u32,
        /// The first tile that is listed.
        pub first_tile: u32,
        /// Depth that a median must exceed, world units.
        pub near: f32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `median_depths_bwd`: gradients of the Gaussians as rays meet them.
    pub struct MedianBwdArgs<'a> {
        /// [visible, 16], as in `RaysArgs`.
        pub rays: In<'a, f32>,
        /// `[instances]`
        pub splat_from_instance: In<'a, u32>,
        /// `[tiles]`
        pub ranges: In<'a, TileRange>,
        /// [h, w]; 0 where there is none.
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
        /// Tiles in a row.
        pub tiles_wide: u32,
        /// The first tile that is listed.
        pub first_tile: u32,
    }
}
