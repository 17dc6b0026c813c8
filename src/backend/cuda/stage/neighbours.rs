//! Stage `neighbours`: the nearest centres of each Gaussian, and of each row of a palette. The twin of
//! `backend/cpu/stage/neighbours.rs`.
//!
//! The rows are sorted into leaves of 32 rows: all rows along the widest side of their box, then each half along its
//! own, and so on. Halves hold 2^n leaves, so that their positions are implicit. A sort key holds the number of the
//! half and up to 24 bits of the position along the side. Rows with equal keys may go to either half. The neighbours
//! found do not depend on the order.

use std::marker::PhantomData;
use std::ops::Range;

use splat_formats::{CellLists, NearRow};

use crate::abi::{
    JoinArgs, NEAREST_BLOCK, NearCellsArgs, NearEntriesArgs, NearestArgs, PALETTE_CELLS,
    PALETTE_WIDTH, PlaceArgs, SplitArgs, TREE_LEVELS,
};
use crate::backend::cuda::memory::heap::{Region, host_len};
use crate::backend::cuda::memory::sort::{self, SortPairs};
use crate::backend::cuda::model::tables::centres;
use crate::backend::cuda::prelude::*;
use crate::backend::neighbours::list_len;
use crate::backend::rows::RowsVersion;
use crate::backend::{Held, NeighbourLists};
use crate::layout::{
    self, NEIGHBOURS, PALETTE_ROWS, SearchLengths, SearchLists, SearchOrder, SearchSizes,
    SearchTree, along_bits,
};
use crate::model::{Gaussians, Primitive};

/// Centres per leaf and boxes per group: one per lane of a warp.
const FAN: usize = layout::FAN as usize;

/// Maximum number of neighbours of the kernel with fewer registers.
const FEW_NEIGHBOURS: u32 = 16;

/// Rows of the nearest centres of each Gaussian. Drop old lists before a new search.
pub struct NearestLists<P = Gaussians> {
    count: u32,
    len: usize,
    /// [len, count]
    rows: Region<u32>,
    rows_version: RowsVersion,
    primitive: PhantomData<P>,
}

impl<P> NeighbourLists for NearestLists<P> {
    fn count(&self) -> u32 {
        self.count
    }
}

impl<P> Held for NearestLists<P> {
    fn bytes(&self) -> Bytes {
        Bytes::of::<u32>(self.len * self.count as usize)
    }
}

impl<P: Primitive> NearestLists<P> {
    /// Returns all neighbours, `[len, count]`.
    pub fn rows(&self) -> In<'_, u32> {
        self.rows.read()
    }

    /// Fails for another model, or if its rows were added, removed or moved since the search.
    pub fn check(&self, model: &Model<P>) -> Result {
        if self.rows_version == *model.rows_version() {
            Ok(())
        } else {
            Err(DeviceError::StaleNeighbours { found: self.len, len: model.len() })
        }
    }

    pub(crate) fn read(&self, session: &Session, rows: &Range<usize>) -> Result<Vec<u32>> {
        let (len, count) = (self.len, self.count as usize);
        if rows.end > len {
            return Err(DeviceError::NoSuchRow { row: rows.end - 1, len });
        }
        self.rows.download_vec(&session.stream, rows.start * count..rows.end * count)
    }
}

pub(crate) fn neighbours<P: Primitive>(
    session: &Session,
    model: &Model<P>,
    count: u32,
) -> Result<NearestLists<P>> {
    let len = model.len();
    let count = list_len(count, len)?;
    let mut rows = session.heap.region(&NEIGHBOURS)?;
    if len > 0 {
        let sizes = SearchSizes::of(len as u64, count);
        rows.grow(host_len(NEIGHBOURS.len(&sizes)))?;
        let row_from_place = ordered_rows(session, model, &sizes)?;
        let tree = Tree::over(session, model, &row_from_place, &sizes)?;
        drop(row_from_place);
        tree.search(session, count, rows.write())?;
    }
    let rows_version = model.rows_version().clone();
    Ok(NearestLists { count, len, rows, rows_version, primitive: PhantomData })
}

/// Returns the rows in the order of the leaves; `[len]`.
fn ordered_rows<P: Primitive>(
    session: &Session,
    model: &Model<P>,
    sizes: &SearchSizes,
) -> Result<Block<u32>> {
    let Session { heap, stream, kernels, .. } = session;
    let (len, n) = (model.len(), count_u32(model.len())?);
    let (table, width) = centres::<P>(&model.tables, model.sh_degree());
    let halvings = sizes.halvings();
    let SearchOrder { mut rows, mut keys, mut extents } = SearchOrder::reserve(heap, sizes)?;
    let numbered =
        SplitArgs { table, row_from_place: rows[0].write(), n, width, ..SplitArgs::default() };
    kernels.number_rows.over(stream, len, &numbered)?;
    for halving in 0..halvings {
        extents.fill_ones(stream)?;
        let along_bits = along_bits(halving);
        let args = SplitArgs {
            table,
            row_from_place: rows[0].write(),
            extents: extents.write(),
            keys: keys[0].write(),
            n,
            segment_shift: FAN.ilog2() + halvings - halving,
            along_bits,
            width,
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

/// Boxes around the leaves, and around groups of 32 boxes.
struct Tree {
    /// Centres in the order of the leaves, [leaves, 32, 4].
    placed: Block<f32>,
    /// Boxes, [boxes, 8], level by level from the leaves up.
    boxes: Block<f32>,
    levels: Vec<Level>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    first_box: u32,
    boxes: u32,
}

/// Returns the levels of a tree, from the leaves up.
fn levels(sizes: &SearchSizes) -> Result<Vec<Level>> {
    let mut first_box = 0;
    let of = |boxes| {
        let level = Level { first_box, boxes: count_u32(host_len(boxes))? };
        // At most 2^27, and their sum is less than twice that.
        first_box += level.boxes;
        Ok(level)
    };
    sizes.levels().into_iter().map(of).collect()
}

impl Tree {
    fn over<P: Primitive>(
        session: &Session,
        model: &Model<P>,
        row_from_place: &Block<u32>,
        sizes: &SearchSizes,
    ) -> Result<Self> {
        let Session { heap, stream, kernels, .. } = session;
        let len = model.len();
        let levels = levels(sizes)?;
        let SearchTree { centres: mut placed, mut boxes } = SearchTree::reserve(heap, sizes)?;
        let places = len.div_ceil(FAN) * FAN;
        let (table, width) = centres::<P>(&model.tables, model.sh_degree());
        let args = PlaceArgs {
            table,
            row_from_place: row_from_place.read(),
            placed: placed.write(),
            boxes: boxes.write(),
            n: count_u32(len)?,
            width,
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

    fn search(&self, session: &Session, count: u32, near: Out<'_, u32>) -> Result {
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
        let kernel =
            if count <= FEW_NEIGHBOURS { &kernels.nearest_16 } else { &kernels.nearest_32 };
        kernel.blocks(stream, blocks, &args)
    }
}

/// Widths of rows that kernels exist for.
const WIDTHS: [usize; 4] = [8, 16, 24, PALETTE_WIDTH as usize];

/// The rows to search for.
pub struct PaletteRows {
    /// [n, width]
    rows: Block<f32>,
    width: usize,
    count: usize,
    /// Memory of earlier searches, for reuse.
    lists: Option<SearchLists<Heap>>,
}

impl Held for PaletteRows {
    fn bytes(&self) -> Bytes {
        self.rows.bytes() + Bytes(self.lists.as_ref().map_or(0, SearchLists::bytes))
    }
}

impl PaletteRows {
    pub(crate) fn new(session: &Session, values: &[f32], width: usize) -> Result<Self> {
        if !WIDTHS.contains(&width) {
            return Err(DeviceError::Unsupported {
                primitives: "rows of numbers",
                what: "search for rows of this width",
            });
        }
        let mut rows = session.heap.take(&PALETTE_ROWS, &(values.len().max(1) as u64))?;
        rows.upload(&session.stream, 0, values)?;
        Ok(Self { rows, width, count: values.len() / width, lists: None })
    }

    /// Returns the nearest centre of each row among those in its cells.
    pub(crate) fn near_entries(
        &mut self,
        session: &Session,
        centers: &[f32],
        cells: &CellLists<'_>,
    ) -> Result<Vec<NearRow>> {
        let Self { rows, lists, width, count } = self;
        let lengths = SearchLengths::of(*count, centers.len(), cells.starts.len(), cells.per_row);
        let lists = lists_for(lists, session, &lengths)?;
        lists.centers.upload(&session.stream, 0, centers)?;
        lists.starts.upload(&session.stream, 0, cells.starts)?;
        lists.cells.upload(&session.stream, 0, cells.of_rows)?;
        lists.order.upload(&session.stream, 0, cells.order)?;
        lists.nearest.zero(&session.stream)?;
        let args = NearEntriesArgs {
            rows: rows.read(),
            centers: lists.centers.read(),
            starts: lists.starts.read(),
            cells: lists.cells.read(),
            order: lists.order.read(),
            nearest: lists.nearest.write(),
            count: count_u32(cells.of_rows.len())?,
            width: count_u32(*width)?,
            per_row: count_u32(cells.per_row)?,
            reserved: 0,
        };
        session.kernels.near_entries.over(&session.stream, cells.of_rows.len(), &args)?;
        let words = lists.nearest.download_vec(&session.stream, 0..*count)?;
        Ok(words.into_iter().map(near_row).collect())
    }

    /// Returns the `count` nearest cells of each row.
    pub(crate) fn near_cells(
        &mut self,
        session: &Session,
        centers: &[f32],
        count: usize,
    ) -> Result<Vec<u32>> {
        if count > PALETTE_CELLS as usize {
            return Err(DeviceError::Unsupported {
                primitives: "rows of numbers",
                what: "search in this many cells",
            });
        }
        let Self { rows, lists, width, count: row_count } = self;
        let lengths = SearchLengths::of(*row_count, centers.len(), 1, count);
        let lists = lists_for(lists, session, &lengths)?;
        lists.centers.upload(&session.stream, 0, centers)?;
        let args = NearCellsArgs {
            rows: rows.read(),
            centers: lists.centers.read(),
            cells: lists.cells.write(),
            count: count_u32(*row_count)?,
            width: count_u32(*width)?,
            cell_count: count_u32(centers.len() / *width)?,
            per_row: count_u32(count)?,
        };
        session.kernels.near_cells.over(&session.stream, *row_count, &args)?;
        lists.cells.download_vec(&session.stream, 0..*row_count * count)
    }
}

/// Decodes the result of a row's threads.
fn near_row(word: u64) -> NearRow {
    let [a, b, c, d, e, f, g, h] = (!word).to_le_bytes();
    let squared_distance = f32::from_le_bytes([e, f, g, h]);
    NearRow { number: u32::from_le_bytes([a, b, c, d]), squared_distance }
}

/// Returns memory for a search, reused if it is large enough.
fn lists_for<'a>(
    lists: &'a mut Option<SearchLists<Heap>>,
    session: &Session,
    lengths: &SearchLengths,
) -> Result<&'a mut SearchLists<Heap>> {
    let fits = |lists: &SearchLists<Heap>| {
        lists.centers.len() as u64 >= lengths.centers
            && lists.starts.len() as u64 >= lengths.starts
            && lists.cells.len() as u64 >= lengths.cells
    };
    // Memory that is too small is freed before more is taken.
    let kept = match lists.take().filter(fits) {
        Some(lists) => lists,
        None => SearchLists::reserve(&session.heap, lengths)?,
    };
    Ok(lists.insert(kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::MOST_NEIGHBOURS;

    #[test]
    fn levels_are_contiguous_and_end_with_one_group() {
        let level = |first_box, boxes| Level { first_box, boxes };
        let levels = |rows| levels(&SearchSizes::of(rows, 1));
        assert_eq!(levels(1).unwrap(), [level(0, 1)]);
        assert_eq!(levels(1024).unwrap(), [level(0, 32)]);
        assert_eq!(levels(1025).unwrap(), [level(0, 33), level(33, 2)]);
        let many = levels(6_000_000).unwrap();
        let expected =
            [level(0, 187_500), level(187_500, 5860), level(193_360, 184), level(193_544, 6)];
        assert_eq!(many, expected);
        assert_eq!(levels(u32::MAX.into()).unwrap().len(), TREE_LEVELS as usize);
    }

    #[test]
    fn there_is_a_kernel_for_the_longest_lists() {
        assert_eq!(MOST_NEIGHBOURS, 2 * FEW_NEIGHBOURS);
    }
}
