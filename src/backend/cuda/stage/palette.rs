//! Stage `palette`: nearest-neighbour search among rows of numbers. The twin of `backend/cpu/stage/palette.rs`.

use splat_formats::{CellLists, NearRow};

use crate::abi::{NearCellsArgs, NearEntriesArgs, PALETTE_CELLS, PALETTE_WIDTH};
use crate::backend::cuda::device::driver::count_u32;
use crate::backend::cuda::memory::heap::{Block, Buffer, Heap};
use crate::backend::cuda::session::Session;
use crate::backend::{DeviceError, Held};
use crate::layout::{PALETTE_ROWS, SearchLengths, SearchLists};
use crate::memory::Bytes;

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
    pub(crate) fn new(
        session: &Session,
        values: &[f32],
        width: usize,
    ) -> Result<Self, DeviceError> {
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
    ) -> Result<Vec<NearRow>, DeviceError> {
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
    ) -> Result<Vec<u32>, DeviceError> {
        if count > PALETTE_CELLS as usize {
            return Err(DeviceError::Unsupported {
                primitives: "rows of numbers",
                what: "search in so many cells",
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
) -> Result<&'a mut SearchLists<Heap>, DeviceError> {
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
