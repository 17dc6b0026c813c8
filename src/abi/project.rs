//! Arguments of projection, of the sorting of instances into tiles, and of splats that ranks exchange.

use super::adam::{ColorCache, LazyAdam};
use super::view::{Counts, TileRange, TileRect, ViewCamera};
use super::{In, Out};

constants! {
    /// Threads in a block of `project_fwd`.
    pub const PROJECT_BLOCK: u32 = 128;

    /// Threads in a block of the kernels of `bin`.
    pub const BIN_BLOCK: u32 = 256;

    /// Threads in a block of the kernels of `ranks`.
    pub const RANKS_BLOCK: u32 = 256;
}

abi! {
    /// `project_fwd` and `project_fwd_compact`: rows to splats. `project_fwd_extended` and
    /// `project_fwd_extended_compact`: with the filters of the model and the view. `place_vertices` and
    /// `color_vertices`: rows to vertices, [gaussians, `VERTEX_WIDTH`] in the place of splats.
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
        /// As in `AdamArgs`.
        pub sh_drifts: In<'a, f32>,
        /// As in `AdamArgs`.
        pub cache: ColorCache<'a>,
        /// Index of each Gaussian's splat; `[gaussians]`.
        pub splat_from_gaussian: Out<'a, u32>,
        /// [capacity, record]: centre x y, opacity, least exponent; conic xx xy yy, depth; colour,
        /// index of the Gaussian in its bits. Of surfels the tilt, x and y, in the place of the conic, and
        /// the slopes of both coordinates behind the rest.
        pub splats: Out<'a, f32>,
        /// Tiles that may be reached; `[capacity]`. Null where another rank draws the splats: then the tiles and
        /// how many are reached are in the records, in the place of the least exponent and of the index, and the next
        /// three are left alone.
        pub tiles: Out<'a, TileRect>,
        /// Bits of the depth; `[capacity]`.
        pub depth_keys: Out<'a, u32>,
        /// 0, 1, 2, ...; `[capacity]`.
        pub splat_indices: Out<'a, u32>,
        /// Tiles that are reached; `[capacity]`.
        pub instance_counts: Out<'a, u32>,
        /// As in `AdamArgs`, of colours.
        pub fault: Out<'a, u64>,
        /// Starts at 0.
        pub counts: Out<'a, Counts>,
        /// The view.
        pub camera: ViewCamera,
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
        /// Opacity that vertices have at least.
        pub opacity_floor: f32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `count_rows`: how many tiles splats reach in a band of rows of tiles.
    pub struct CountRowsArgs<'a> {
        /// [visible, record]
        pub splats: In<'a, f32>,
        /// By splat; `[visible]`.
        pub tiles: In<'a, TileRect>,
        /// By splat; `[visible]`. Null where nobody asks for them.
        pub instance_counts: Out<'a, u32>,
        /// Added to, by row of tiles; `[tiles in a column]`. Null where nobody asks for them.
        pub rows: Out<'a, u64>,
        /// The view.
        pub camera: ViewCamera,
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
        /// [visible, record]
        pub splats: In<'a, f32>,
        /// By splat; `[visible]`.
        pub tiles: In<'a, TileRect>,
        /// By splat, in the band where there is one; `[visible]`.
        pub instance_counts: In<'a, u32>,
        /// Splat indices front to back; `[visible]`.
        pub splat_indices: In<'a, u32>,
        /// First instance of each, front to back; `[visible]`.
        pub firsts: In<'a, u32>,
        /// Tiles, of 16 or 32 bits; `[instances]`.
        pub keys: Out<'a, u8>,
        /// Splat indices; `[instances]`.
        pub splat_from_instance: Out<'a, u32>,
        /// The view.
        pub camera: ViewCamera,
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

    /// `unpack_splats`: makes of splats that have come what `project_fwd` leaves.
    pub struct UnpackSplatsArgs<'a> {
        /// [capacity, record]
        pub splats: Out<'a, f32>,
        /// `[capacity]`
        pub tiles: Out<'a, TileRect>,
        /// `[capacity]`
        pub depth_keys: Out<'a, u32>,
        /// `[capacity]`
        pub splat_indices: Out<'a, u32>,
        /// `[capacity]`
        pub instance_counts: Out<'a, u32>,
        /// The first of them.
        pub first: u32,
        /// Behind the last.
        pub end: u32,
    }
}
