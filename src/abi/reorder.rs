//! Of the order of a model's rows.

use super::{In, Out};

constants! {
    /// Threads in a block of the kernels of `reorder`.
    pub const REORDER_BLOCK: u32 = 256;
}

abi! {
    /// `morton_keys`: every row's place along the Z-curve, and its number.
    pub struct MortonArgs<'a> {
        /// Of each row its centre and then more, [lane blocks, width, 32]
        pub table: In<'a, f32>,
        /// [n]
        pub keys: Out<'a, u32>,
        /// 0, 1, 2, ...; [n]
        pub rows: Out<'a, u32>,
        /// Centre of the cube that the keys are for, world units.
        pub centre: [f32; 3],
        /// Half its side, world units.
        pub half_side: f32,
        /// Rows.
        pub n: u32,
        /// Values of a row.
        pub width: u32,
    }

    /// `fetch_column`: the first of the columns to scratch as it lies. `gather_columns` and `return_columns`: some
    /// columns of a table to scratch, in another order of the rows, and back.
    pub struct ColumnsArgs<'a> {
        /// Values of 4 bytes, [lane blocks, width, 32].
        pub table: Out<'a, u8>,
        /// [n]
        pub row_from_place: In<'a, u32>,
        /// Values of 4 bytes, [columns, n].
        pub scratch: Out<'a, u8>,
        /// Gaussians.
        pub n: u32,
        /// Columns of the table.
        pub width: u32,
        /// First of the columns.
        pub first: u32,
        /// How many.
        pub columns: u32,
    }
}
