//! What the CUB library takes for a sort and a sum.
//!
//! As its release of CUDA 13.0 reckons for compute capability 9.0: a radix sort in one sweep per
//! digit of 8 bits keeps a count of each digit for every tile of its input, and a sum with a look
//! back keeps a word for every tile. Tiles of other capabilities are up to a half larger or smaller,
//! and keys of 16 bits below 9.0 take another way, with under 2 MiB; all of that is small beside
//! the rest.

/// The library's own alignment of the parts of its scratch.
const PART_ALIGNMENT: u64 = 256;

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

/// Scratch of a sort of keys of one width.
#[derive(Clone, Copy, Debug)]
pub struct Sort {
    tile: u64,
}

impl Sort {
    /// Bytes of scratch for `n` pairs by so many bits of their keys; a call without pairs takes none.
    pub fn bytes(&self, n: u64, bits: u32) -> u64 {
        if n <= SINGLE_TILE {
            return n.min(1);
        }
        let portion = PORTION / self.tile * self.tile;
        let digits = n.div_ceil(portion) * u64::from(passes(n, bits));
        let tiles = n.min(portion).div_ceil(self.tile);
        parts([digits * DIGITS * WORD, tiles * DIGITS * WORD, digits * WORD])
    }

    /// Whether the sort leaves its result in the second of its buffers.
    pub fn ends_in_second(&self, n: u64, bits: u32) -> bool {
        passes(n, bits) % 2 == 1
    }
}

/// Scratch of a sum.
#[derive(Clone, Copy, Debug)]
pub struct Curve {
    tile: u64,
    word: u64,
}

impl Curve {
    /// Bytes of scratch for `n` values; a call without values takes none.
    pub fn bytes(&self, n: u64) -> u64 {
        if n == 0 { 0 } else { parts([(n.div_ceil(self.tile) + SUM_PADDING) * self.word]) }
    }
}

/// What the library takes. A call with values never takes less than a byte.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// Sorts of keys of 16 bits.
    pub sort16: Sort,
    /// Sorts of keys of 32 bits.
    pub sort32: Sort,
    /// Sums of values of 32 bits.
    pub sum32: Curve,
    /// Sums of values of 64 bits.
    pub sum64: Curve,
}

impl Default for Library {
    fn default() -> Self {
        Self {
            sort16: Sort { tile: TILE_16 },
            sort32: Sort { tile: TILE_32 },
            sum32: Curve { tile: SUM_TILE, word: SUM_WORD },
            sum64: Curve { tile: WIDE_SUM_TILE, word: WIDE_SUM_WORD },
        }
    }
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

/// Each part begins at a round address, as does the first, wherever the caller has it.
fn parts<const N: usize>(parts: [u64; N]) -> u64 {
    parts.map(|part| part.next_multiple_of(PART_ALIGNMENT)).iter().sum::<u64>() + PART_ALIGNMENT - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sort_keeps_a_count_of_each_digit_for_every_tile() {
        let library = Library::default();
        assert_eq!(library.sort32.bytes(4864, 32), 1);
        // 4 passes' digits, 1 tile's, counters.
        assert_eq!(library.sort32.bytes(4865, 32), 4096 + 1024 + 256 + 255);
        assert_eq!(library.sort16.bytes(7_500_000, 13), 2048 + 862 * 1024 + 256 + 255);
        assert_eq!(library.sum32.bytes(3072 * 1000), 1032 * 8 + 192 + 255);
        assert_eq!(library.sum64.bytes(2688 * 1000), 1032 * 16 + 128 + 255);
        assert_eq!((library.sum32.bytes(0), library.sort32.bytes(0, 32)), (0, 0));
    }

    #[test]
    fn each_pass_changes_buffers() {
        let sort = Library::default().sort32;
        for (n, bits, second) in [
            (0, 32, false),
            (100, 32, true),
            (10_000, 32, false),
            (10_000, 13, false),
            (10_000, 17, true),
        ] {
            assert_eq!(sort.ends_in_second(n, bits), second, "{n} by {bits} bits");
        }
    }
}
