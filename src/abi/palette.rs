//! Of searching rows of numbers for their nearest ones.

use super::{In, Out};

constants! {
    /// Threads in a block of the searches: one per row, or per row and cell.
    pub const PALETTE_BLOCK: u32 = 128;
    /// Cells that a row is searched in, at most.
    pub const PALETTE_CELLS: u32 = 8;
    /// Numbers of a row, at most.
    pub const PALETTE_WIDTH: u32 = 48;
}

abi! {
    /// `near_entries`: of each row the nearest centre of its cells.
    pub struct NearEntriesArgs<'a> {
        /// [n, width]
        pub rows: In<'a, f32>,
        /// [centres, width]
        pub centers: In<'a, f32>,
        /// The first centre of each cell, and their number; [cells + 1].
        pub starts: In<'a, u32>,
        /// Cells of each row; [n, cells of a row].
        pub cells: In<'a, u32>,
        /// For each thread a place in `cells`; [n x cells of a row].
        pub order: In<'a, u32>,
        /// Zeros before; the nearest centres inverted, the bits of the squared distance above those of the number; `[n]`.
        pub nearest: Out<'a, u64>,
        /// Rows times cells of a row.
        pub count: u32,
        /// Numbers of a row: 8, 16, 24 or 48.
        pub width: u32,
        /// Cells of a row.
        pub per_row: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `near_cells`: of each row the nearest cells, the nearest first.
    pub struct NearCellsArgs<'a> {
        /// [n, width]
        pub rows: In<'a, f32>,
        /// [cells, width]
        pub centers: In<'a, f32>,
        /// [n, cells of a row]
        pub cells: Out<'a, u32>,
        /// Rows.
        pub count: u32,
        /// Numbers of a row: 8, 16, 24 or 48.
        pub width: u32,
        /// Cells that there are.
        pub cell_count: u32,
        /// Cells of a row, at most 8.
        pub per_row: u32,
    }
}
