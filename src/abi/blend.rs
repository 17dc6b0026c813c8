//! Arguments of the kernels of `blend`.

use super::view::TileRange;
use super::{In, Out};

constants! {
    /// Threads in a block of `blend_fwd` and `blend_counted`: one per pixel of a tile.
    pub const BLEND_BLOCK: u32 = 256;
    /// Parts of a tile's pixels, a warp each.
    pub const BLEND_PARTS: u32 = 8;
    /// Instances of a tile that a piece of work of `blend_bwd` has at most.
    pub const BLEND_CHUNK: u32 = 256;
    /// Threads in a block of `blend_bwd`.
    pub const BLEND_BWD_BLOCK: u32 = 128;
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
}
