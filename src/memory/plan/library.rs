//! What the CUB library takes for a sort and a sum.
//!
//! As its release of CUDA 13.0 reckons for compute capability 9.0: a radix sort in one sweep per
//! digit of 8 bits keeps a count of each digit for every tile of its input, and a sum with a look
//! back keeps a word for every tile. Tiles of other capabilities are up to a half larger or smaller,
//! and keys of 16 bits below 9.0 take another way, with under 2 MiB; all of that is small beside
//! the rest.

use crate::memory::Bytes;

/// The library's own alignment of the parts of its scratch.
const ALIGNMENT: u64 = 256;

const DIGIT_BITS: u32 = 8;
const DIGITS: u64 = 1 << DIGIT_BITS;
const WORD: u64 = 4;

/// Up to so many pairs one block of threads sorts them all, without scratch.
const SINGLE_TILE: u64 = 256 * 19;

/// Pairs of a tile with keys of 32 bits, and of 16.
const TILE_32: u64 = 384 * 23;
const TILE_16: u64 = 512 * 17;

/// Larger inputs come in portions.
const PORTION: u64 = (1 << 28) - 1;

/// Values of a tile of a sum; a word of 8 bytes for each, and for 32 before the first.
const SUM_TILE: u64 = 128 * 24;
const SUM_WORD: u64 = 8;
const SUM_PADDING: u64 = 32;

/// The same of values of 8 bytes.
const WIDE_SUM_TILE: u64 = 224 * 12;
const WIDE_SUM_WORD: u64 = 16;

/// Width of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Bits16,
    Bits32,
}

impl Key {
    /// Bytes of a key.
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Bits16 => 2,
            Self::Bits32 => 4,
        }
    }
}

/// Scratch of a sort of `n` pairs by so many bits of their keys.
pub(super) fn sort(n: u64, key: Key, bits: u32) -> Bytes {
    if n <= SINGLE_TILE {
        return Bytes(1);
    }
    let tile = match key {
        Key::Bits16 => TILE_16,
        Key::Bits32 => TILE_32,
    };
    let portion = PORTION / tile * tile;
    let digits = n.div_ceil(portion) * u64::from(passes(n, bits));
    let tiles = n.min(portion).div_ceil(tile);
    parts([digits * DIGITS * WORD, tiles * DIGITS * WORD, digits * WORD])
}

/// Whether the sort leaves its result in the second of its buffers.
pub(super) fn ends_in_second(n: u64, bits: u32) -> bool {
    passes(n, bits) % 2 == 1
}

fn passes(n: u64, bits: u32) -> u32 {
    if n == 0 {
        0
    } else if n <= SINGLE_TILE {
        1
    } else {
        bits.div_ceil(DIGIT_BITS)
    }
}

/// Scratch of a sum over `n` values.
pub(super) fn sum(n: u64) -> Bytes {
    parts([(n.div_ceil(SUM_TILE) + SUM_PADDING) * SUM_WORD])
}

/// Scratch of a sum over `n` values of 8 bytes.
pub(super) fn wide_sum(n: u64) -> Bytes {
    parts([(n.div_ceil(WIDE_SUM_TILE) + SUM_PADDING) * WIDE_SUM_WORD])
}

/// Each part begins at a round address, as does the first, wherever the caller has it.
fn parts<const N: usize>(parts: [u64; N]) -> Bytes {
    Bytes(parts.map(|part| part.next_multiple_of(ALIGNMENT)).iter().sum::<u64>() + ALIGNMENT - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sort_keeps_a_count_of_each_digit_for_every_tile() {
        assert_eq!(sort(4864, Key::Bits32, 32), Bytes(1));
        // 4 passes' digits, 1 tile's, counters.
        assert_eq!(sort(4865, Key::Bits32, 32), Bytes(4096 + 1024 + 256 + 255));
        assert_eq!(sort(7_500_000, Key::Bits16, 13), Bytes(2048 + 862 * 1024 + 256 + 255));
        assert_eq!(sum(3072 * 1000), Bytes(1032 * 8 + 192 + 255));
        assert_eq!(wide_sum(2688 * 1000), Bytes(1032 * 16 + 128 + 255));
    }

    #[test]
    fn each_pass_changes_buffers() {
        for (n, bits, second) in [
            (0, 32, false),
            (100, 32, true),
            (10_000, 32, false),
            (10_000, 13, false),
            (10_000, 17, true),
        ] {
            assert_eq!(ends_in_second(n, bits), second, "{n} by {bits} bits");
        }
    }
}
