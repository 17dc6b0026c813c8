//! Of relocation and multiplication.

use super::{In, Out, TABLES};

constants! {
    /// Threads in a block of the kernels of `relocate`.
    pub const RELOCATE_BLOCK: u32 = 256;
    /// Stands for a row that is not copied to.
    pub const NO_SOURCE: u32 = 4_294_967_295;
}

abi! {
    /// `weigh`: how often each row is drawn.
    pub struct WeighArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// [n]
        pub weights: Out<'a, u64>,
        /// Whether the row is dead, [n]; or null where the dead are drawn, too.
        pub flags: Out<'a, u32>,
        /// Opacity that the living exceed.
        pub opacity_min: f64,
        /// Gaussians.
        pub n: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `draw_sources`: which row each copy is of.
    pub struct DrawArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// Sums of the weights, each row's own included; the last is not 0. [n]
        pub sums: In<'a, u64>,
        /// [copies]; over the dead, in the beginning how many dead there are up to each row.
        pub sources: Out<'a, u32>,
        /// Copies of each row, [n]; zero in the beginning.
        pub counts: Out<'a, u32>,
        /// Of the stream of random numbers.
        pub key: u64,
        /// Opacity that the living exceed.
        pub opacity_min: f64,
        /// Gaussians.
        pub n: u32,
        /// Copies; over the dead, as many as there are Gaussians.
        pub copies: u32,
        /// 0 where the copies stand behind the last row.
        pub over_the_dead: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `split_opacity`: gives each row that is copied its share of opacity and scale.
    pub struct SplitOpacityArgs<'a> {
        /// All rows.
        pub tables: [Out<'a, u32>; TABLES as usize],
        /// [n]
        pub counts: In<'a, u32>,
        /// Smallest opacity of a share.
        pub opacity_min: f64,
        /// Words of a row in each table.
        pub widths: [u32; TABLES as usize],
        /// Gaussians.
        pub n: u32,
        /// 0 where the rows keep their moments.
        pub forgets: u32,
    }

    /// `copy_sources`: the parameters of the rows that were drawn, to the rows of their copies.
    pub struct CopyArgs<'a> {
        /// All rows.
        pub tables: [Out<'a, u32>; TABLES as usize],
        /// [copies]
        pub sources: In<'a, u32>,
        /// Words of a row in each table.
        pub widths: [u32; TABLES as usize],
        /// Row of the first copy.
        pub first: u32,
        /// Copies.
        pub copies: u32,
        /// 0 where the copies' rows keep the moments they have.
        pub forgets: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }
}
