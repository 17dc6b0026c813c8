//! Of the tables of a compact model.

use super::{In, Out};

constants! {
    /// Threads in a block of `pack_rows` and `unpack_rows`.
    pub const PACK_BLOCK: u32 = 128;
    /// Two values of half precision to a word.
    pub const FORM_HALVES: u32 = 0;
    /// Two values of bfloat16 to a word.
    pub const FORM_BFLOATS: u32 = 1;
    /// First moments in codes of 8 bits behind their scale.
    pub const FORM_FIRSTS: u32 = 2;
    /// Second moments in codes of 8 bits behind their scale.
    pub const FORM_SECONDS: u32 = 3;
    /// One value of single precision to a word.
    pub const FORM_FLOATS: u32 = 4;
}

abi! {
    /// `pack_rows`: single precision to words.
    pub struct PackArgs<'a> {
        /// [lane blocks, `values`, 32]
        pub floats: In<'a, f32>,
        /// [lane blocks, words of `values`, 32]
        pub words: Out<'a, u32>,
        /// First lane block of the floats.
        pub float_block: u32,
        /// First lane block of the words.
        pub word_block: u32,
        /// Lane blocks.
        pub blocks: u32,
        /// Values of a row.
        pub values: u32,
        /// A `FORM_` number.
        pub form: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `unpack_rows`: the way back.
    pub struct UnpackArgs<'a> {
        /// [lane blocks, words of `values`, 32]
        pub words: In<'a, u32>,
        /// [lane blocks, `values`, 32]
        pub floats: Out<'a, f32>,
        /// First lane block of the words.
        pub word_block: u32,
        /// First lane block of the floats.
        pub float_block: u32,
        /// Lane blocks.
        pub blocks: u32,
        /// Values of a row.
        pub values: u32,
        /// A `FORM_` number.
        pub form: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }
}
