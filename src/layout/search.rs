//! Buffers of the search for the nearest neighbours of all Gaussians.

use super::slot::{CallLen, Count, Lifetime, Source, StageLen, Taken as _};
use crate::abi::{BOX_WIDTH, EXTENT_WIDTH, PLACED_WIDTH};

/// Centres of a leaf of the search tree, and boxes of a group: one for each lane of a warp.
pub const FAN: u32 = 32;

/// Maximum number of key bits for the position along an axis: 24 bits distinguish single-precision numbers of one
/// sign and exponent.
const ALONG_BITS_MAX: u32 = 24;

slots! {
    SearchCount {
        pub NEIGHBOURS: u32 = "neighbours", Search, SearchCount::Neighbours, 1,
            "which Gaussians are nearest to each";
        ROWS: u32 = "neighbour rows", Search, SearchCount::Rows, 1,
            "finding the nearest Gaussians";
        KEYS: u32 = "neighbour keys", Search, SearchCount::Rows, 1,
            "finding the nearest Gaussians";
        EXTENTS: u32 = "neighbour extents", Search, SearchCount::Segments, EXTENT_WIDTH,
            "finding the nearest Gaussians";
        CENTRES: f32 = "neighbour centres", Search, SearchCount::Places, PLACED_WIDTH,
            "finding the nearest Gaussians";
        BOXES: f32 = "neighbour boxes", Search, SearchCount::Boxes, BOX_WIDTH,
            "finding the nearest Gaussians";
    }
    StageLen {
        pub PALETTE_ROWS: f32 = "palette rows", Statistics, StageLen, 1,
            "harmonics that are to share a palette";
    }
    CallLen {
        CENTERS: f32 = "palette centres", Statistics, CallLen, 1, "harmonics of a palette";
        STARTS: u32 = "palette cells", Statistics, CallLen, 1, "harmonics of a palette";
        CELLS: u32 = "cells of palette rows", Statistics, CallLen, 1, "which harmonics are alike";
        ORDER: u32 = "order of palette rows", Statistics, CallLen, 1, "which harmonics are alike";
        NEAREST: u64 = "palette entries", Statistics, CallLen, 1, "which harmonics are alike";
    }
}

/// Sizes of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchSizes {
    /// Gaussians.
    pub rows: u64,
    /// Neighbours of each Gaussian.
    pub neighbours: u64,
}

impl SearchSizes {
    /// Creates the sizes for a model. Lists are never longer than the model.
    pub fn of(rows: u64, neighbours: u32) -> Self {
        Self { rows, neighbours: rows.min(neighbours.into()) }
    }

    /// Returns the number of leaves of the tree.
    pub fn leaves(&self) -> u64 {
        self.rows.div_ceil(FAN.into())
    }

    /// Returns the number of sorts of all rows.
    pub fn halvings(&self) -> u32 {
        self.leaves().next_power_of_two().ilog2()
    }

    /// Returns the number of boxes on each level of the tree, leaves first; the last level has at most 32.
    pub fn levels(&self) -> Vec<u64> {
        let mut boxes = self.leaves();
        let mut levels = vec![boxes];
        while boxes > u64::from(FAN) {
            boxes = boxes.div_ceil(FAN.into());
            levels.push(boxes);
        }
        levels
    }
}

/// Returns the key bits of this halving for the position along an axis. The index of the row's segment takes
/// `halving` bits more.
pub fn along_bits(halving: u32) -> u32 {
    ALONG_BITS_MAX.min(u32::BITS - halving)
}

/// Index spaces of a search.
#[derive(Clone, Copy, Debug)]
pub enum SearchCount {
    /// Neighbours of all Gaussians.
    Neighbours,
    /// Gaussians.
    Rows,
    /// Segments of the last halving, which has the most: one for each two leaves.
    Segments,
    /// Rows of whole leaves.
    Places,
    /// Boxes of all levels.
    Boxes,
}

impl Count for SearchCount {
    type Sizes = SearchSizes;

    const LIFETIME: Lifetime = Lifetime::Model;

    fn of(self, sizes: &SearchSizes) -> u64 {
        match self {
            Self::Neighbours => sizes.rows.saturating_mul(sizes.neighbours),
            Self::Rows => sizes.rows,
            Self::Segments => sizes.rows.div_ceil(u64::from(2 * FAN)),
            Self::Places => sizes.leaves() * u64::from(FAN),
            Self::Boxes => sizes.levels().iter().sum(),
        }
    }
}

buffers! {
    /// Buffers that put rows in the order of the leaves; one buffer of rows stays.
    pub struct SearchOrder(sizes: SearchSizes) {
        /// Rows, with a second buffer for the sort.
        rows: u32 = ROWS, two;
        /// Sort keys, with a second buffer.
        keys: u32 = KEYS, two;
        /// Extent of each segment.
        extents: u32 = EXTENTS;
    }

    /// Boxes of the leaves, and of each group of 32 boxes.
    pub struct SearchTree(sizes: SearchSizes) {
        /// Centres in the order of the leaves, [leaves, 32, 4].
        centres: f32 = CENTRES;
        /// Boxes, level after level, leaves first; [boxes, 8].
        boxes: f32 = BOXES;
    }
}

// The search for nearest palette entries.

/// Lengths of the buffers of a search, in elements.
#[derive(Clone, Copy, Debug)]
pub struct SearchLengths {
    /// Rows.
    pub rows: u64,
    /// Values of all centres.
    pub centers: u64,
    /// Starts of cells: one more than cells.
    pub starts: u64,
    /// Cells of all rows.
    pub cells: u64,
}

impl SearchLengths {
    /// Creates the lengths; each of the rows has `per_row` cells.
    pub fn of(rows: usize, centers: usize, starts: usize, per_row: usize) -> Self {
        let [rows, centers, starts, cells] =
            [rows, centers, starts, rows * per_row].map(|length| length as u64);
        Self { rows, centers, starts, cells }
    }
}

/// Buffers of a search beside the rows.
pub struct SearchLists<A: Source> {
    /// [centres, width]
    pub centers: A::Block<f32>,
    /// [cells + 1]
    pub starts: A::Block<u32>,
    /// [n, cells of a row]
    pub cells: A::Block<u32>,
    /// [n x cells of a row]
    pub order: A::Block<u32>,
    /// `[n]`
    pub nearest: A::Block<u64>,
}

impl<A: Source> SearchLists<A> {
    /// Reserves the buffers for a search.
    pub fn reserve(source: &A, lengths: &SearchLengths) -> Result<Self, A::Error> {
        // A buffer has at least one element.
        let cells = lengths.cells.max(1);
        Ok(Self {
            centers: source.take(&CENTERS, &lengths.centers.max(1))?,
            starts: source.take(&STARTS, &lengths.starts.max(1))?,
            cells: source.take(&CELLS, &cells)?,
            order: source.take(&ORDER, &cells)?,
            nearest: source.take(&NEAREST, &lengths.rows.max(1))?,
        })
    }

    /// Returns the bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        let lists = self.starts.bytes() + self.cells.bytes() + self.order.bytes();
        self.centers.bytes() + lists + self.nearest.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_take_four_bytes_a_neighbour_and_are_no_longer_than_the_model() {
        let bytes = |rows, count| NEIGHBOURS.bytes(&SearchSizes::of(rows, count));
        assert_eq!(bytes(6_000_000, 16), 384_000_000);
        assert_eq!(bytes(7, 16), 7 * 7 * 4);
        assert_eq!(bytes(0, 16), 0);
    }

    #[test]
    fn a_tree_has_a_box_for_each_32_of_a_level() {
        let sizes = SearchSizes::of(1 << 20, 16);
        assert_eq!(sizes.levels(), [32_768, 1024, 32]);
        assert_eq!(BOXES.bytes(&sizes), (32_768 + 1024 + 32) * 32);
        assert_eq!(CENTRES.bytes(&sizes), 16 << 20);
        assert_eq!(EXTENTS.bytes(&sizes), (1 << 20) / 64 * 24);
        let few = SearchSizes::of(5, 16);
        assert_eq!((few.levels(), few.halvings()), (vec![1], 0));
        assert_eq!(CENTRES.bytes(&few), 32 * 16);
        assert_eq!([0, 8, 9, 20].map(along_bits), [24, 24, 23, 12]);
    }
}
