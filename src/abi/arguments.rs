//! The constants and structs that kernels and host share.

use super::terms::TERM_VALUES;
use super::{In, Out};

constants! {
    /// Width and height of a tile in pixels.
    pub const TILE: u32 = 16;
    /// Variance added to every splat, px².
    pub const DILATION_PX2: f32 = 0.3;
    /// Opacity below which a splat leaves a pixel untouched.
    pub const ALPHA_MIN: f32 = 1.0 / 255.0;
    /// Opacities are held below 1.
    pub const ALPHA_MAX: f32 = 0.99;
    /// A pixel is finished before its transmittance falls below this.
    pub const TRANSMITTANCE_MIN: f32 = 1e-4;

    /// Threads in a block of `project_fwd`.
    pub const PROJECT_BLOCK: u32 = 128;
    /// Threads in a block of the kernels of `bin`.
    pub const BIN_BLOCK: u32 = 256;
    /// Threads in a block of `blend_fwd` and `blend_counted`: one per pixel of a tile.
    pub const BLEND_BLOCK: u32 = 256;
    /// Parts of a tile's pixels, a warp each.
    pub const BLEND_PARTS: u32 = 8;
    /// Instances of a tile that a piece of work of `blend_bwd` has at most.
    pub const BLEND_CHUNK: u32 = 256;
    /// Threads in a block of `blend_bwd`.
    pub const BLEND_BWD_BLOCK: u32 = 128;
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
    /// Threads in a block of `adam` and `catch_up_all`.
    pub const ADAM_BLOCK: u32 = 128;
    /// Most views of a step.
    pub const MAX_VIEWS: u32 = 8;
    /// Lengths of the tables of `LazyAdam`.
    pub const MOMENTUM_STEPS: u32 = 128;

    /// Values per Gaussian that are no colours: mean, log-scale, quaternion, opacity logit.
    pub const GEOMETRY_WIDTH: u32 = 11;
    /// Floats of a splat's record, and of its gradients'.
    pub const RECORD_WIDTH: u32 = 12;
    /// No splat of a view belongs to the Gaussian.
    pub const UNSEEN: u32 = 0xffff_ffff;
    /// Most rows of tiles of an image, which is at most 65,535 pixels high.
    pub const TILE_ROWS_MAX: u32 = 4_096;
    /// Most tiles whose numbers, and the number behind the last, fit keys of 16 bits.
    pub const SHORT_KEYS_MAX: u32 = 65_535;
    /// Groups of parameters that a fault may name.
    pub const FAULT_GROUPS: u32 = 8;
}

abi! {
    /// A view as the kernels take it.
    pub struct Camera {
        /// Rotation from world to camera, in rows.
        pub rotation: [f32; 9],
        /// Translation from world to camera.
        pub translation: [f32; 3],
        /// Where the camera stands.
        pub centre_world: [f32; 3],
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Bounds of x/z and of y/z within which the projection's Jacobian is evaluated: low x,
        /// high x, low y, high y.
        pub guard: [f32; 4],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Tiles in a row and in a column.
        pub tiles: [u32; 2],
        /// Depth that a Gaussian must exceed to be drawn, world units.
        pub near: f32,
        /// Variance added to every splat, px²; of the kernels that are `extended` only, the others add
        /// `DILATION_PX2`.
        pub variance_px2: f32,
        /// Not 0: opacity falls as a splat is widened by it; of the same kernels.
        pub compensates: u32,
    }

    /// Tiles x0..x1 by y0..y1.
    pub struct TileRect {
        /// First column.
        pub x0: u16,
        /// First row.
        pub y0: u16,
        /// Column behind the last.
        pub x1: u16,
        /// Row behind the last.
        pub y1: u16,
    }

    /// Instances `start..end`.
    pub struct TileRange {
        /// The first.
        pub start: u32,
        /// The one behind the last.
        pub end: u32,
    }

    /// What `project_fwd` counts.
    pub struct Counts {
        /// Pairs of a splat and a tile that it reaches.
        pub instances: u64,
        /// Gaussians that the view sees.
        pub visible: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// The gradients of a splat, as `blend_bwd` adds them up over the pixels. Once they are settled,
    /// `d_opacity` is that of the opacity's logarithm, `d_inverse_depth` that of the depth, and colour
    /// channels that were held at 0 have none.
    pub struct SplatGradient {
        /// Of the centre, px.
        pub d_mean_px: [f32; 2],
        /// Of the opacity.
        pub d_opacity: f32,
        /// Sum over the pixels of the absolute value of their share in `d_mean_px[0]`; 0 where no one
        /// asks for it.
        pub absolute_x: f32,
        /// Of the conic: xx, xy (counted once), yy; per px⁻².
        pub d_conic: [f32; 3],
        /// The same as `absolute_x`, of `d_mean_px[1]`.
        pub absolute_y: f32,
        /// Of the colour.
        pub d_color: [f32; 3],
        /// Of the inverse depth; 0 where none was compared.
        pub d_inverse_depth: f32,
    }

    /// What steps without a gradient do to the colours, as `lazy_adam.cuh` uses it.
    pub struct LazyAdam {
        /// `MOMENTUM_STEPS` of them: by how much a constant coefficient moves in so many steps up to now, in units of its first
        /// moment over the root of its second.
        pub drift_dc: [f32; 128],
        /// The same of the other coefficients.
        pub drift_rest: [f32; 128],
        /// Binary logarithm of the first moment's decay.
        pub log2_beta_1: f32,
        /// Binary logarithm of the second moment's decay.
        pub log2_beta_2: f32,
        /// Steps that the model has taken.
        pub steps: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `project_fwd` and `project_fwd_compact`: Gaussians to splats. `project_fwd_extended` and
    /// `project_fwd_extended_compact`: with the filters of the model and the view.
    pub struct ProjectArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// Standard deviations of the 3D filter, world units; `[gaussians]`. Null where there is none.
        pub filter_3d: In<'a, f32>,
        /// [lane blocks, words of `sh_width` values, 32]
        pub sh: In<'a, u32>,
        /// Its first moments.
        pub sh_first: In<'a, u32>,
        /// Its second moments.
        pub sh_second: In<'a, u32>,
        /// Steps that each lane block's SH has taken; [lane blocks].
        pub sh_steps: In<'a, u32>,
        /// Slot of each Gaussian's splat; `[gaussians]`.
        pub splat_from_gaussian: Out<'a, u32>,
        /// [capacity, 12]: centre x y, opacity, least exponent; conic xx xy yy, depth; colour,
        /// index of the Gaussian in its bits.
        pub splats: Out<'a, f32>,
        /// Tiles that may be reached; `[capacity]`.
        pub tiles: Out<'a, TileRect>,
        /// Bits of the depth; `[capacity]`.
        pub depth_keys: Out<'a, u32>,
        /// 0, 1, 2, ...; `[capacity]`.
        pub slots: Out<'a, u32>,
        /// Tiles that are reached; `[capacity]`.
        pub instance_counts: Out<'a, u32>,
        /// As in `AdamArgs`, of colours.
        pub fault: Out<'a, u64>,
        /// Starts at 0.
        pub counts: Out<'a, Counts>,
        /// The view.
        pub camera: Camera,
        /// What colours that were left behind have missed.
        pub lazy: LazyAdam,
        /// Number of Gaussians.
        pub gaussians: u32,
        /// Splats that there is room for.
        pub capacity: u32,
        /// Degree of the harmonics in use.
        pub sh_degree: u32,
        /// Values of harmonics per Gaussian.
        pub sh_width: u32,
    }

    /// `count_rows`: how many tiles splats reach in a band of rows of tiles.
    pub struct CountRowsArgs<'a> {
        /// [visible, 12]
        pub splats: In<'a, f32>,
        /// By slot; `[visible]`.
        pub tiles: In<'a, TileRect>,
        /// By slot; `[visible]`. Null where nobody asks for them.
        pub instance_counts: Out<'a, u32>,
        /// Added to, by row of tiles; `[tiles in a column]`. Null where nobody asks for them.
        pub rows: Out<'a, u64>,
        /// The view.
        pub camera: Camera,
        /// Number of splats.
        pub visible: u32,
        /// First row of tiles that counts.
        pub band_first: u32,
        /// The row behind the last.
        pub band_end: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `instances_16` and `instances_32`: every pair of a splat and a tile. `band_instances_16` and
    /// `band_instances_32`: those in a band of rows of tiles.
    pub struct InstancesArgs<'a> {
        /// [visible, 12]
        pub splats: In<'a, f32>,
        /// By slot; `[visible]`.
        pub tiles: In<'a, TileRect>,
        /// By slot, in the band where there is one; `[visible]`.
        pub instance_counts: In<'a, u32>,
        /// Slots front to back; `[visible]`.
        pub slots: In<'a, u32>,
        /// First instance of each, front to back; `[visible]`.
        pub firsts: In<'a, u32>,
        /// Tiles, of 16 or 32 bits; `[instances]`.
        pub keys: Out<'a, u8>,
        /// Slots; `[instances]`.
        pub splat_from_instance: Out<'a, u32>,
        /// The view.
        pub camera: Camera,
        /// Number of splats.
        pub visible: u32,
        /// First row of tiles of the band; of `band_instances_*` only.
        pub band_first: u32,
        /// The row behind the last.
        pub band_end: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `ranges_16` and `ranges_32`: where each tile's instances lie.
    pub struct RangesArgs<'a> {
        /// Sorted tiles, of 16 or 32 bits; `[instances]`.
        pub keys: In<'a, u8>,
        /// Empty ranges at first; `[tiles]`.
        pub ranges: Out<'a, TileRange>,
        /// Number of instances.
        pub instances: u64,
        /// Number of tiles.
        pub tiles: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `blend_fwd`, `blend_counted`, `blend_fwd_depth`, `blend_fwd_surface`: splats to pixels.
    /// `blend_bwd`, `blend_bwd_depth`, `blend_bwd_surface`, and each of them with `_absolute`: pixel
    /// gradients to splats.
    pub struct BlendArgs<'a> {
        /// [visible, 12]
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
        /// `blend_bwd_depth` only, and null where no backward pass follows.
        pub depth_states: Out<'a, f32>,
        /// Sums of the weights times the features before a chunk; [instances / chunk + 1, 256, 4]. Of
        /// `blend_fwd_surface` and `blend_bwd_surface` only, and null where no backward pass follows.
        pub surface_states: Out<'a, f32>,
        /// Bits of the instances that reach a part of a tile; [instances / 32 + tiles + 1, 8]. Null
        /// where no backward pass follows.
        pub hits: Out<'a, u32>,
        /// [h, w, 3]
        pub image: Out<'a, f32>,
        /// Instances looked at until all pixels of a part of a tile were finished; [tiles, 8]. Null
        /// where no backward pass follows.
        pub reached: Out<'a, u32>,
        /// Splats that changed the pixel; [h, w]. Of `blend_counted` only.
        pub blended: Out<'a, u32>,
        /// [h, w]. Of `blend_fwd_depth` and `blend_bwd_depth`; null in those of surfaces where nobody
        /// asks for it.
        pub inverse_depths: Out<'a, f32>,
        /// [h, w, 4]: depth, x and y of the normal, opacity. Of `blend_fwd_surface` and
        /// `blend_bwd_surface` only.
        pub surface: Out<'a, f32>,
        /// [h, w, 3]
        pub d_image: In<'a, f32>,
        /// [h, w]. Of `blend_bwd_depth`; null in `blend_bwd_surface` where they were not compared.
        pub d_inverse_depths: In<'a, f32>,
        /// [h, w, 4], the last of a pixel being that of the final transmittance. Of
        /// `blend_bwd_surface` only; null where neither normals nor depths were compared.
        pub d_surface: In<'a, f32>,
        /// `SplatGradient` of each splat, added to; [visible, 12].
        pub gradients: Out<'a, f32>,
        /// Added to; [visible, 4]: depth, x and y of the normal, 0. Of `blend_bwd_surface` only.
        pub d_features: Out<'a, f32>,
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Colour behind everything.
        pub background: [f32; 3],
        /// Tiles in a row.
        pub tiles_wide: u32,
        /// Tile of the first block of the forward pass.
        pub first_tile: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

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
        /// Added to: |x - y|, the windows' similarities and (x - y)², each at its place; [TERM_SUMS].
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
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `settle`: what `adam_extended` wants to know of splats goes into their gradients.
    pub struct FoldArgs<'a> {
        /// [visible, 12]
        pub splats: In<'a, f32>,
        /// [visible, 12]: of opacities those of their logarithms, of colours those of what was not held
        /// at 0, of inverse depths those of depths.
        pub gradients: Out<'a, f32>,
        /// Splats.
        pub visible: u32,
        /// Nothing.
        pub reserved: u32,
    }

    /// A view of a step: where its splats are, and their gradients.
    pub struct ViewArgs<'a> {
        /// Slot of each Gaussian's splat; `[gaussians]`.
        pub splat_from_gaussian: In<'a, u32>,
        /// [visible, 12]. Null where the gradients are settled, as all are of `adam_views` and
        /// `adam_views_compact`.
        pub splats: In<'a, f32>,
        /// [visible, 12]
        pub gradients: In<'a, f32>,
        /// [visible, 4], as in `BlendArgs`. Null where normals were not compared.
        pub d_features: In<'a, f32>,
        /// The view.
        pub camera: Camera,
        /// Degree of the harmonics in use.
        pub sh_degree: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `adam` and `adam_compact`: a step of every parameter. `adam_extended` and
    /// `adam_extended_compact`: with filters, inverse depths, surfaces, regularisers and noise.
    pub struct AdamArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: Out<'a, f32>,
        /// [lane blocks, words of 11 values, 32]
        pub geometry_first: Out<'a, u32>,
        /// [lane blocks, 11, 32]
        pub geometry_second: Out<'a, f32>,
        /// [lane blocks, words of `sh_width` values, 32]
        pub sh: Out<'a, u32>,
        /// Its first moments.
        pub sh_first: Out<'a, u32>,
        /// Its second moments.
        pub sh_second: Out<'a, u32>,
        /// Steps that each lane block's SH has taken; [lane blocks].
        pub sh_steps: Out<'a, u32>,
        /// The views whose mean gradient the step goes down, `view_count` of them.
        pub views: [ViewArgs<'a>; 8],
        /// Twice the least `index * FAULT_GROUPS + group` whose value or moment is not finite, plus 1 for
        /// an infinity.
        pub fault: Out<'a, u64>,
        /// Standard deviations of the 3D filter, world units; `[gaussians]`. Null where there is none.
        pub filter_3d: In<'a, f32>,
        /// Added to the gradients of the geometry; [gaussians, 12], of which the last of a row says
        /// nothing. Null where there is nothing to add.
        pub surface: In<'a, f32>,
        /// Of the stream of random numbers that `adam_compact` rounds with.
        pub key: u64,
        /// Of the stream of the random motion.
        pub noise_key: u64,
        /// What colours that were left behind have missed.
        pub lazy: LazyAdam,
        /// Learning rates over the first moment's bias correction: means, log-scales, quaternions,
        /// opacity logits, colours, harmonics.
        pub rates: [f32; 6],
        /// Decay of the first moment.
        pub beta_1: f32,
        /// Decay of the second moment.
        pub beta_2: f32,
        /// 1 - `beta_1`, rounded once.
        pub one_less_beta_1: f32,
        /// 1 - `beta_2`, rounded once.
        pub one_less_beta_2: f32,
        /// 1 / √(bias correction of the second moment).
        pub inverse_root_correction: f32,
        /// Added to the root.
        pub epsilon: f32,
        /// Number of Gaussians.
        pub gaussians: u32,
        /// Number of views: 1, but of `adam_views` and `adam_views_compact`.
        pub view_count: u32,
        /// What each view's gradients count for: 1 / `view_count`.
        pub view_share: f32,
        /// Values of harmonics per Gaussian.
        pub sh_width: u32,
        /// Gradient of every opacity.
        pub d_opacity: f32,
        /// Gradient of every scale.
        pub d_scale: f32,
        /// Factor of the random motion; 0 of none.
        pub noise_rate: f32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `catch_up_all` and `catch_up_all_compact`: bring the SH of every lane block up to date.
    pub struct CatchUpArgs<'a> {
        /// [lane blocks, words of `sh_width` values, 32]
        pub sh: Out<'a, u32>,
        /// Its first moments.
        pub sh_first: Out<'a, u32>,
        /// Its second moments.
        pub sh_second: Out<'a, u32>,
        /// Steps that each lane block's SH has taken; [lane blocks].
        pub sh_steps: Out<'a, u32>,
        /// As in `AdamArgs`.
        pub key: u64,
        /// What they have missed.
        pub lazy: LazyAdam,
        /// Number of lane blocks.
        pub lane_blocks: u32,
        /// Values of harmonics per Gaussian.
        pub sh_width: u32,
    }
}
