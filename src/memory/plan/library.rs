//! What the CUB library takes for a sort and a sum, on the GPU that plans are made for.

use crate::layout::Library;
use crate::memory::Bytes;

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
    let library = Library::default();
    Bytes(match key {
        Key::Bits16 => library.sort16.bytes(n, bits),
        Key::Bits32 => library.sort32.bytes(n, bits),
    })
}

/// Whether the sort leaves its result in the second of its buffers.
pub(super) fn ends_in_second(n: u64, key: Key, bits: u32) -> bool {
    let library = Library::default();
    match key {
        Key::Bits16 => library.sort16.ends_in_second(n, bits),
        Key::Bits32 => library.sort32.ends_in_second(n, bits),
    }
}

/// Scratch of a sum over `n` values.
pub(super) fn sum(n: u64) -> Bytes {
    Bytes(Library::default().sum32.bytes(n))
}

/// Scratch of a sum over `n` values of 8 bytes.
pub(super) fn wide_sum(n: u64) -> Bytes {
    Bytes(Library::default().sum64.bytes(n))
}
