//! Allocation granules of a device, and the blocks of them that it takes back.

use crate::layout::block_beside;
use crate::memory::Bytes;

/// Smallest allocation of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granule(pub Bytes);

impl Default for Granule {
    /// 2 MiB, the granule of NVIDIA's GPUs.
    fn default() -> Self {
        Self(Bytes(2 << 20))
    }
}

impl Granule {
    /// Rounds up to whole granules.
    pub fn whole(self, bytes: Bytes) -> Bytes {
        Bytes(bytes.0.checked_next_multiple_of(self.0.0.max(1)).unwrap_or(u64::MAX))
    }

    /// Returns the largest number of mapped bytes after a trim to `bytes`: the block in which they end stays whole.
    pub fn after_trim(self, bytes: Bytes) -> Bytes {
        let block = self.whole(Bytes(block_beside(bytes.0)));
        Bytes(self.whole(bytes).0.saturating_add(block.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_in_granules_and_freed_in_blocks() {
        let granule = Granule::default();
        for (bytes, whole, after_trim) in [
            (0, 0, 2),
            (1, 2, 4),
            (2 << 20, 2, 4),
            ((2 << 20) + 1, 4, 6),
            (100 << 20, 100, 102),
            (1 << 30, 1 << 10, (1 << 10) + 8),
            (10 << 30, 10 << 10, (10 << 10) + 64),
        ] {
            let mib = |bytes: Bytes| bytes.0 >> 20;
            assert_eq!(mib(granule.whole(Bytes(bytes))), whole, "{bytes}");
            assert_eq!(mib(granule.after_trim(Bytes(bytes))), after_trim, "{bytes}");
        }
        assert_eq!(granule.whole(Bytes(u64::MAX)), Bytes(u64::MAX));
    }
}
