//! Of the quantile of the absolute gradients.

use super::{In, Out};

constants! {
    /// Threads in a block of `count_digits`.
    pub const DIGITS_BLOCK: u32 = 256;
    /// Values of a digit, at most.
    pub const DIGITS: u32 = 2048;
}

abi! {
    /// `count_digits`: how often each value of a digit comes up.
    pub struct DigitsArgs<'a> {
        /// [n]
        pub absolute_norm_sums: In<'a, f32>,
        /// [n]
        pub views_seen: In<'a, u32>,
        /// [`DIGITS`]; zero in the beginning.
        pub counts: Out<'a, u32>,
        /// Gaussians.
        pub n: u32,
        /// Bits above the digit, which are known.
        pub known: u32,
        /// What these bits are in the numbers that count.
        pub prefix: u32,
        /// Place of the digit's lowest bit.
        pub shift: u32,
        /// The digit's bits, shifted down.
        pub digit: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }
}
