//! Arguments of projection, of the sorting of instances into tiles, and of splats that ranks exchange.

use super::adam::{ColorCache, LazyAdam};
use super::view::{Counts, TileRange, TileRect, ViewCamera};
use super::{In, Out};

constants! {
    /// Threads per block of `project_fwd`.
    pub const PROJECT_BLOCK: u32 = 128;

    /// Threads per block of the kernels of `bin`.
    pub const BIN_BLOCK: u32 = 256;

    /// Threads per block of `unpack_splats`.
    pub const RANKS_BLOCK: u32 = 256;
}

abi! {
    /// `project_fwd` and `project_fwd_compact`: rows to splats. `project_fwd_extended` and
    /// `project_fwd_extended_compact`: with the filters of the model and the view. `place_vertices` and
    /// `color_vertices`: rows to vertices, [gaussians, `VERTEX_WIDTH`] instead of splats.
    pub struct ProjectArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// Standard deviations of the 3D filter, world units; `[gaussians]`. Null without a filter.
        pub filter_3d: In<'a, f32>,
        /// [lane blocks, words of `sh_width` values, 32]
        pub sh: In<'a, u32>,
        /// First moments of `sh`.
        pub sh_first: In<'a, u32>,
        /// Second moments of `sh`.
        pub sh_second: In<'a, u32>,
        /// Number of steps of each lane block's SH; [lane blocks].
        pub sh_steps: In<'a, u32>,
        /// As in `AdamArgs`.
        pub sh_drifts: In<'a, f32>,
        /// As in `AdamArgs`.
        pub cache: ColorCache<'a>,
        /// Index of each Gaussian's splat; `[gaussians]`.
        pub splat_from_gaussian: Out<'a, u32>,
        /// [capacity, record]: centre x y, opacity, smallest exponent; conic xx xy yy, depth; colour, index of the
        /// Gaussian as bits. Surfels have the tilt (x, y) instead of the conic, and the slopes of both coordinates
        /// at the end.
        pub splats: Out<'a, f32>,
        /// Bounding tiles; `[capacity]`. Null if another rank draws the splats: then the records hold the tiles and
        /// the number of reached tiles instead of the smallest exponent and the index, and the next three buffers
        /// are unused.
        pub tiles: Out<'a, TileRect>,
        /// Bits of the depth; `[capacity]`.
        pub depth_keys: Out<'a, u32>,
        /// 0, 1, 2, ...; `[capacity]`.
        pub splat_indices: Out<'a, u32>,
        /// Number of reached tiles; `[capacity]`.
        pub instance_counts: Out<'a, u32>,
        /// As in `AdamArgs`, for colours.
        pub fault: Out<'a, u64>,
        /// Initially 0.
        pub counts: Out<'a, Counts>,
        /// The view.
        pub camera: ViewCamera,
        /// Missed steps of colours.
        pub lazy: LazyAdam,
        /// Number of Gaussians.
        pub gaussians: u32,
        /// Capacity in splats.
        pub capacity: u32,
        /// Degree of the harmonics in use.
        pub sh_degree: u32,
        /// Values of harmonics per Gaussian.
        pub sh_width: u32,
        /// Smallest opacity of vertices.
        pub opacity_floor: f32,
        /// Padding.
        pub reserved: u32,
    }

    /// `count_rows`: counts the tiles that splats reach in a band of rows of tiles.
    pub struct CountRowsArgs<'a> {
        /// [visible, record]
        pub splats: In<'a, f32>,
        /// By splat; `[visible]`.
        pub tiles: In<'a, TileRect>,
        /// By splat; `[visible]`. Optional (null).
        pub instance_counts: Out<'a, u32>,
        /// By row of tiles, added to; `[tiles in a column]`. Optional (null).
        pub rows: Out<'a, u64>,
        /// The view.
        pub camera: ViewCamera,
        /// Number of splats.
        pub visible: u32,
        /// First counted row of tiles.
        pub band_first: u32,
        /// Row after the last.
        pub band_end: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `instances_16` and `instances_32`: list every pair of a splat and a tile. `band_instances_16` and
    /// `band_instances_32`: list the pairs in a band of rows of tiles.
    pub struct InstancesArgs<'a> {
        /// [visible, record]
        pub splats: In<'a, f32>,
        /// By splat; `[visible]`.
        pub tiles: In<'a, TileRect>,
        /// By splat, inside the band if there is one; `[visible]`.
        pub instance_counts: In<'a, u32>,
        /// Splat indices front to back; `[visible]`.
        pub splat_indices: In<'a, u32>,
        /// First instance of each splat, front to back; `[visible]`.
        pub firsts: In<'a, u32>,
        /// Tile indices of 16 or 32 bits; `[instances]`.
        pub keys: Out<'a, u8>,
        /// Splat indices; `[instances]`.
        pub splat_from_instance: Out<'a, u32>,
        /// The view.
        pub camera: ViewCamera,
        /// Number of splats.
        pub visible: u32,
        /// First row of tiles of the band; for `band_instances_*` only.
        pub band_first: u32,
        /// Row after the last.
        pub band_end: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `ranges_16` and `ranges_32`: find the range of each tile's instances.
    pub struct RangesArgs<'a> {
        /// Sorted tile indices of 16 or 32 bits; `[instances]`.
        pub keys: In<'a, u8>,
        /// Initially empty ranges; `[tiles]`.
        pub ranges: Out<'a, TileRange>,
        /// Number of instances.
        pub instances: u64,
        /// Number of tiles.
        pub tiles: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `unpack_splats`: fills the outputs of `project_fwd` for received splats.
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
        /// Index of the first received splat.
        pub first: u32,
        /// Index after the last.
        pub end: u32,
    }
}
