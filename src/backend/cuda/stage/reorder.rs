//! Stage `reorder`: the twin of `backend/cpu/stage/reorder.rs`, in place.
//!
//! All scratch is taken before anything moves, and nothing waits for the device.

use crate::abi::{ColumnsArgs, MortonArgs};
use crate::backend::cuda::memory::heap::host_len;
use crate::backend::cuda::memory::sort::{self, SortPairs};
use crate::backend::cuda::model::tables::centres;
use crate::backend::cuda::prelude::*;
use crate::layout::{FETCHED_COLUMN, MOVED_COLUMNS, MemoryPlace, MoveSizes, Moves, Source as _};
use crate::math::morton::{Cube, KEY_BITS};
use crate::model::Primitive;

/// Sorts the rows by the Morton keys of their centres; rows of equal keys keep their order.
pub(crate) fn reorder<P: Primitive>(
    session: &Session,
    model: &mut Model<P>,
    cube: &Cube,
) -> Result {
    let rows = model.len();
    // Without positions there is no order.
    if rows == 0 || P::SCHEMA.places().is_none() {
        return Ok(());
    }
    let sizes = MoveSizes::of(&model.size());
    let row_from_place = sorted_rows(session, model, cube, &sizes)?;
    let scratch = session.heap.take(&MOVED_COLUMNS, &sizes)?;
    let fetched = session.heap.take_if(sizes.fetches, &FETCHED_COLUMN, &sizes)?;
    let at_once = host_len(sizes.columns_at_once());
    let places = model.size().memory_places();
    model.invalidate_rows();
    let mut mover = Mover { session, rows, row_from_place, at_once, scratch, fetched };
    for ((table, width), place) in model.regions().zip(places) {
        match place {
            MemoryPlace::Device => mover.turn(table.write().bytes(), width)?,
            MemoryPlace::Host => mover.turn_on_host(table.write().bytes(), width)?,
        }
    }
    // A single column has the same layout without lane blocks.
    mover.turn(model.gradient_norm_sums.write().bytes(), 1)?;
    mover.turn(model.views_seen.write().bytes(), 1)?;
    model.optional_columns().try_for_each(|column| mover.turn(column.write().bytes(), 1))
}

/// Returns the row that moves to each place; `[rows]`.
fn sorted_rows<P: Primitive>(
    session: &Session,
    model: &Model<P>,
    cube: &Cube,
    sizes: &MoveSizes,
) -> Result<Block<u32>> {
    let Session { heap, stream, kernels, .. } = session;
    let n = model.len();
    let Moves { mut rows, mut keys } = Moves::reserve(heap, sizes)?;
    let (table, width) = centres::<P>(&model.tables, model.sh_degree());
    let args = MortonArgs {
        table,
        keys: keys[0].write(),
        rows: rows[0].write(),
        centre: cube.centre,
        half_side: cube.half_side,
        n: count_u32(n)?,
        width,
    };
    kernels.morton_keys.over(stream, n, &args)?;
    let mut pairs =
        SortPairs { keys: keys.each_mut(), values: rows.each_mut(), n, bits: 0..KEY_BITS };
    let sorted = sort::sort_pairs(heap, stream, &mut pairs)?;
    let [first, second] = rows;
    Ok(if sorted == 0 { first } else { second })
}

struct Mover<'a> {
    session: &'a Session,
    rows: usize,
    row_from_place: Block<u32>,
    /// Number of columns that fit the scratch.
    at_once: usize,
    scratch: Block<u32>,
    /// Scratch for a column of a table in the host's memory.
    fetched: Option<Block<u32>>,
}

impl Mover<'_> {
    /// Moves the rows of a table, a few columns at a time. Lanes behind the last row stay.
    fn turn(&mut self, table: Out<'_, u8>, width: usize) -> Result {
        let Session { stream, kernels, .. } = self.session;
        for first in (0..width).step_by(self.at_once) {
            let args = ColumnsArgs {
                table,
                row_from_place: self.row_from_place.read(),
                scratch: self.scratch.write().bytes(),
                n: count_u32(self.rows)?,
                width: count_u32(width)?,
                first: count_u32(first)?,
                columns: count_u32(self.at_once.min(width - first))?,
            };
            kernels.gather_columns.over(stream, self.rows, &args)?;
            kernels.return_columns.over(stream, self.rows, &args)?;
        }
        Ok(())
    }

    /// Moves the rows of a table in the host's memory. Each column crosses the bus in its own order.
    fn turn_on_host(&mut self, table: Out<'_, u8>, width: usize) -> Result {
        let Session { stream, kernels, .. } = self.session;
        let Some(fetched) = &mut self.fetched else { return self.turn(table, width) };
        let (n, width) = (count_u32(self.rows)?, count_u32(width)?);
        for first in 0..width {
            let whole = ColumnsArgs {
                table,
                row_from_place: self.row_from_place.read(),
                scratch: Out::NULL,
                n,
                width,
                first,
                columns: 1,
            };
            let args = ColumnsArgs { scratch: fetched.write().bytes(), ..whole };
            kernels.fetch_column.over(stream, self.rows, &args)?;
            // A single column has the same layout without lane blocks.
            let args = ColumnsArgs {
                table: fetched.write().bytes(),
                scratch: self.scratch.write().bytes(),
                width: 1,
                first: 0,
                ..whole
            };
            kernels.gather_columns.over(stream, self.rows, &args)?;
            let args = ColumnsArgs { scratch: self.scratch.write().bytes(), ..whole };
            kernels.return_columns.over(stream, self.rows, &args)?;
        }
        Ok(())
    }
}
