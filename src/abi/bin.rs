//! Arguments of the kernels of `bin`.

use super::view::{TileRange, TileRect, ViewCamera};
use super::{In, Out};

constants! {
    /// Threads in a block of the kernels of `bin`.
    pub const BIN_BLOCK: u32 = 256;
}

abi! {
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
}
