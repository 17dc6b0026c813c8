//! Arguments of the nearest-neighbour search among rows of values.

use super::{In, Out};

constants! {
    /// Threads per block of the searches: one per row, or per row and cell.
    pub const PALETTE_BLOCK: u32 = 128;
    /// Largest number of cells that a row is searched in.
    pub const PALETTE_CELLS: u32 = 8;
    /// Largest number of values per row.
    pub const PALETTE_WIDTH: u32 = 48;
}

abi! {
    /// `near_entries`: finds each row's nearest centre in its cells.
    pub struct NearEntriesArgs<'a> {
        /// [n, width]
        pub rows: In<'a, f32>,
        /// [centres, width]
        pub centers: In<'a, f32>,
        /// First centre of each cell, and the number of centres; [cells + 1].
        pub starts: In<'a, u32>,
        /// Cells of each row; [n, cells per row].
        pub cells: In<'a, u32>,
        /// Index into `cells` of each thread; [n x cells per row].
        pub order: In<'a, u32>,
        /// Initially 0; bitwise inverse of the nearest centre: the bits of the squared distance above its index;
        /// `[n]`.
        pub nearest: Out<'a, u64>,
        /// Number of rows times cells per row.
        pub count: u32,
        /// Values per row: 8, 16, 24 or 48.
        pub width: u32,
        /// Cells per row.
        pub per_row: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `near_cells`: finds each row's nearest cells, nearest first.
    pub struct NearCellsArgs<'a> {
        /// [n, width]
        pub rows: In<'a, f32>,
        /// [cells, width]
        pub centers: In<'a, f32>,
        /// [n, cells per row]
        pub cells: Out<'a, u32>,
        /// Number of rows.
        pub count: u32,
        /// Values per row: 8, 16, 24 or 48.
        pub width: u32,
        /// Number of cells.
        pub cell_count: u32,
        /// Cells per row, at most 8.
        pub per_row: u32,
    }
}
