//! Of the search for the nearest centres.

use super::{In, Out};

/// The most neighbours of a Gaussian: a warp on a GPU has one lane for each.
pub const MOST_NEIGHBOURS: u32 = 32;

constants! {
    /// Threads in a block of the kernels that build the tree of `neighbours`.
    pub const NEIGHBOURS_BLOCK: u32 = 256;
    /// Threads in a block of those that search it.
    pub const NEAREST_BLOCK: u32 = 128;
    /// Levels of boxes in a tree, at most: 32 boxes to the one above, and as many centres as 32 bits
    /// number.
    pub const TREE_LEVELS: u32 = 6;
    /// Numbers of a box: its least corner and, as bits, the least row in it; its greatest corner, and
    /// one that fills up.
    pub const BOX_WIDTH: u32 = 8;
    /// Numbers of a centre in the order of the leaves: three coordinates and, as bits, its row.
    pub const PLACED_WIDTH: u32 = 4;
    /// Numbers of a segment's extent: for each axis two that order as the least coordinate does and,
    /// backwards, as the greatest.
    pub const EXTENT_WIDTH: u32 = 6;
    /// In place of a row: there is none.
    pub const NO_ROW: u32 = 4294967295;
}

abi! {
    /// `number_rows`, `measure_segments` and `split_keys`: every segment of the order is to be halved
    /// across its widest side.
    pub struct SplitArgs<'a> {
        /// Of each row its centre and then more, [lane blocks, `width`, 32]
        pub table: In<'a, f32>,
        /// The order so far, [n]; `number_rows` writes 0, 1, 2, ...
        pub row_from_place: Out<'a, u32>,
        /// [segments, 6], all bits one in the beginning.
        pub extents: Out<'a, u32>,
        /// The segment, and behind it how far along its widest side the centre lies; [n]
        pub keys: Out<'a, u32>,
        /// Gaussians.
        pub n: u32,
        /// A segment has 2 to this power centres; the last may have fewer.
        pub segment_shift: u32,
        /// Bits of a key behind the segment, at most 24.
        pub along_bits: u32,
        /// Values of a row of the table.
        pub width: u32,
    }

    /// `place_centres`: the leaves of the tree.
    pub struct PlaceArgs<'a> {
        /// Of each row its centre and then more, [lane blocks, `width`, 32]
        pub table: In<'a, f32>,
        /// [n]
        pub row_from_place: In<'a, u32>,
        /// [32 leaves, 4]
        pub placed: Out<'a, f32>,
        /// [boxes, 8], of which the first are the leaves'.
        pub boxes: Out<'a, f32>,
        /// Gaussians.
        pub n: u32,
        /// Values of a row of the table.
        pub width: u32,
    }

    /// `join_boxes`: a level of boxes from the one below.
    pub struct JoinArgs<'a> {
        /// [boxes, 8]
        pub boxes: Out<'a, f32>,
        /// First box of the level below.
        pub first_below: u32,
        /// How many it has.
        pub below: u32,
        /// First box of the level.
        pub first: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `nearest_16` and `nearest_32`: the nearest centres of all.
    pub struct NearestArgs<'a> {
        /// [32 leaves, 4]
        pub placed: In<'a, f32>,
        /// [boxes, 8]
        pub boxes: In<'a, f32>,
        /// [n, `count`]
        pub near: Out<'a, u32>,
        /// First box of each level.
        pub first_box: [u32; 6],
        /// Boxes of each level, the leaves first.
        pub boxes_of: [u32; 6],
        /// Levels.
        pub levels: u32,
        /// Neighbours of a Gaussian.
        pub count: u32,
    }
}
