//! Stage `neighbours`: the twin of `backend/cpu/stage/neighbours.rs`.
//!
//! The rows are put in an order of which each 32 are a leaf of a tree: all are sorted along the widest
//! side of what they fill, each half along its own, and so on. Halves hold powers of two of leaves, so
//! that nothing has to be said of where they begin. A sort takes the half's number and how far along a
//! row lies in one key, of 24 bits along at most: rows that it does not tell apart may come to either
//! half, where the next sort looks closer. What is found does not depend on the order.

use std::ops::Range;

use crate::abi::{
    BOX_WIDTH, EXTENT_WIDTH, In, JoinArgs, NEAREST_BLOCK, NearestArgs, Out, PLACED_WIDTH,
    PlaceArgs, SplitArgs, TREE_LEVELS,
};
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::memory::heap::{Block, Buffer, Region};
use crate::backend::cuda::memory::sort::{self, SortPairs};
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::session::Session;
use crate::backend::neighbours::list_len;
use crate::backend::rows_version::RowsVersion;
use crate::backend::{DeviceError, Held, NeighbourLists};
use crate::memory::Bytes;

/// Centres of a leaf, and boxes of a group: one for each lane of a warp.
const FAN: usize = 32;

/// As many bits tell single-precision numbers of one sign and exponent apart.
const MOST_ALONG_BITS: u32 = 24;

/// NearestLists that the kernel with fewer registers finds.
const FEW: u32 = 16;

/// Label of the lists.
pub(crate) const LISTS: &str = "neighbours";

/// For each Gaussian the rows of those whose centres are nearest. Holds 4 bytes of the device's memory
/// for each: who finds new ones lets go of the old ones first.
pub struct NearestLists {
    count: u32,
    len: usize,
    /// [len, count]
    rows: Region<u32>,
    /// Of the model's rows.
    rows_version: RowsVersion,
}

impl NeighbourLists for NearestLists {
    fn count(&self) -> u32 {
        self.count
    }
}

impl Held for NearestLists {
    fn bytes(&self) -> Bytes {
        Bytes::of::<u32>(self.len * self.count as usize)
    }
}

impl NearestLists {
    /// All of them, `[len, count]`.
    pub fn rows(&self) -> In<'_, u32> {
        self.rows.read()
    }

    /// Fails for another model than the one they were found in, and where its rows have come, gone or
    /// changed places since.
    pub fn check(&self, model: &Model) -> Result<(), DeviceError> {
        if self.rows_version == *model.rows_version() {
            Ok(())
        } else {
            Err(DeviceError::StaleNeighbours { found: self.len, len: model.len() })
        }
    }

    pub(crate) fn read(
        &self,
        session: &Session,
        rows: &Range<usize>,
    ) -> Result<Vec<u32>, DeviceError> {
        let (len, count) = (self.len, self.count as usize);
        if rows.end > len {
            return Err(DeviceError::NoSuchRow { row: rows.end - 1, len });
        }
        let mut host = vec![0; rows.len() * count];
        self.rows.download(&session.stream, rows.start * count, &mut host)?;
        Ok(host)
    }
}

/// The `count` nearest centres of each.
pub(crate) fn neighbours(
    session: &Session,
    model: &Model,
    count: u32,
) -> Result<NearestLists, DeviceError> {
    let len = model.len();
    let count = list_len(count, len)?;
    let mut rows = session.heap.region(LISTS)?;
    if len > 0 {
        rows.grow(len.saturating_mul(count as usize))?;
        let row_from_place = ordered_rows(session, model)?;
        let tree = Tree::over(session, model, &row_from_place)?;
        drop(row_from_place);
        tree.search(session, (count, rows.write()))?;
    }
    Ok(NearestLists { count, len, rows, rows_version: model.rows_version().clone() })
}

/// The rows in the order of the leaves; `[len]`.
fn ordered_rows(session: &Session, model: &Model) -> Result<Block<u32>, DeviceError> {
    let Session { heap, stream, kernels, .. } = session;
    let (len, n) = (model.len(), count_u32(model.len())?);
    let halvings = len.div_ceil(FAN).next_power_of_two().ilog2();
    let mut rows = [heap.scratch("neighbour rows", len)?, heap.scratch("neighbour rows", len)?];
    let mut keys = [heap.scratch("neighbour keys", len)?, heap.scratch("neighbour keys", len)?];
    // The last halving has the most segments: one for each two leaves.
    let segments = len.div_ceil(2 * FAN);
    let mut extents = heap.scratch("neighbour extents", segments * EXTENT_WIDTH as usize)?;
    let numbered = SplitArgs {
        geometry: model.geometry(),
        row_from_place: rows[0].write(),
        extents: Out::NULL,
        keys: Out::NULL,
        n,
        segment_shift: 0,
        along_bits: 0,
        reserved: 0,
    };
    kernels.number_rows.over(stream, len, &numbered)?;
    for halving in 0..halvings {
        extents.fill_ones(stream)?;
        let along_bits = MOST_ALONG_BITS.min(u32::BITS - halving);
        let args = SplitArgs {
            geometry: model.geometry(),
            row_from_place: rows[0].write(),
            extents: extents.write(),
            keys: keys[0].write(),
            n,
            segment_shift: FAN.ilog2() + halvings - halving,
            along_bits,
            reserved: 0,
        };
        kernels.measure_segments.over(stream, len, &args)?;
        kernels.split_keys.over(stream, len, &args)?;
        let mut pairs = SortPairs {
            keys: keys.each_mut(),
            values: rows.each_mut(),
            n: len,
            bits: 0..along_bits + halving,
        };
        if sort::sort_pairs(heap, stream, &mut pairs)? == 1 {
            keys.swap(0, 1);
            rows.swap(0, 1);
        }
    }
    let [rows, _] = rows;
    Ok(rows)
}

/// Boxes around the leaves, and around each 32 boxes.
struct Tree {
    /// The centres in the order of the leaves, [leaves, 32, 4].
    placed: Block<f32>,
    /// [boxes, 8], level after level, the leaves' first.
    boxes: Block<f32>,
    levels: Vec<Level>,
}

/// A level of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    first_box: u32,
    boxes: u32,
}

/// The levels of a tree over so many centres, of which there is one at least; the last has at most 32
/// boxes.
fn levels(len: usize) -> Result<Vec<Level>, DeviceError> {
    let mut boxes = count_u32(len.div_ceil(FAN))?;
    let mut levels = vec![Level { first_box: 0, boxes }];
    let (mut first_box, fan) = (0, count_u32(FAN)?);
    while boxes > fan {
        // Two to the 27th at most, and their sum is less than twice that.
        first_box += boxes;
        boxes = boxes.div_ceil(fan);
        levels.push(Level { first_box, boxes });
    }
    Ok(levels)
}

impl Tree {
    fn over(
        session: &Session,
        model: &Model,
        row_from_place: &Block<u32>,
    ) -> Result<Self, DeviceError> {
        let Session { heap, stream, kernels, .. } = session;
        let len = model.len();
        let levels = levels(len)?;
        let boxes: usize = levels.iter().map(|level| level.boxes as usize).sum();
        let places = len.div_ceil(FAN) * FAN;
        let mut placed = heap.scratch("neighbour centres", places * PLACED_WIDTH as usize)?;
        let mut boxes = heap.scratch("neighbour boxes", boxes * BOX_WIDTH as usize)?;
        let args = PlaceArgs {
            geometry: model.geometry(),
            row_from_place: row_from_place.read(),
            placed: placed.write(),
            boxes: boxes.write(),
            n: count_u32(len)?,
            reserved: 0,
        };
        kernels.place_centres.over(stream, places, &args)?;
        for pair in levels.windows(2) {
            let args = JoinArgs {
                boxes: boxes.write(),
                first_below: pair[0].first_box,
                below: pair[0].boxes,
                first: pair[1].first_box,
                reserved: 0,
            };
            kernels.join_boxes.over(stream, pair[0].boxes as usize, &args)?;
        }
        Ok(Self { placed, boxes, levels })
    }

    fn search(
        &self,
        session: &Session,
        (count, near): (u32, Out<'_, u32>),
    ) -> Result<(), DeviceError> {
        let Session { stream, kernels, .. } = session;
        let mut args = NearestArgs {
            placed: self.placed.read(),
            boxes: self.boxes.read(),
            near,
            first_box: [0; TREE_LEVELS as usize],
            boxes_of: [0; TREE_LEVELS as usize],
            levels: count_u32(self.levels.len())?,
            count,
        };
        let places = args.first_box.iter_mut().zip(&mut args.boxes_of);
        for ((first_box, boxes), level) in places.zip(&self.levels) {
            (*first_box, *boxes) = (level.first_box, level.boxes);
        }
        let leaves = self.levels.first().map_or(0, |level| level.boxes as usize);
        let blocks = leaves.div_ceil(NEAREST_BLOCK as usize / FAN);
        let kernel = if count <= FEW { &kernels.nearest_16 } else { &kernels.nearest_32 };
        kernel.blocks(stream, blocks, &args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::MOST_NEIGHBOURS;

    #[test]
    fn levels_stand_one_behind_the_other_up_to_one_group() {
        let level = |first_box, boxes| Level { first_box, boxes };
        assert_eq!(levels(1).unwrap(), [level(0, 1)]);
        assert_eq!(levels(1024).unwrap(), [level(0, 32)]);
        assert_eq!(levels(1025).unwrap(), [level(0, 33), level(33, 2)]);
        let many = levels(6_000_000).unwrap();
        let expected =
            [level(0, 187_500), level(187_500, 5860), level(193_360, 184), level(193_544, 6)];
        assert_eq!(many, expected);
        assert_eq!(levels(u32::MAX as usize).unwrap().len(), TREE_LEVELS as usize);
    }

    #[test]
    fn there_is_a_kernel_for_the_longest_lists() {
        assert_eq!(MOST_NEIGHBOURS, 2 * FEW);
    }
}
