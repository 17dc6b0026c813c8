//! What NCCL takes of GPUs that share a model.

use crate::memory::Bytes;

/// A budget below which NCCL makes do with less memory, and is slower.
const SMALL_BUDGET: Bytes = Bytes(32 << 30);

/// Thread blocks of NCCL's kernels, which its own memory goes by, where so much of each GPU may be taken.
pub fn nccl_blocks(budget: Bytes) -> u32 {
    if budget < SMALL_BUDGET { 16 } else { 32 }
}

/// What NCCL takes of each of so many GPUs for itself with so many thread blocks: with 32, 1,020 MiB of each of two and
/// 1,788 of each of four, with 16 of four 1,116; measured with 2.28 on H200s.
pub fn nccl(gpus: u32, blocks: u32) -> Bytes {
    if gpus < 2 {
        return Bytes(0);
    }
    Bytes((444 + u64::from(blocks) * (6 + 12 * u64::from(gpus - 1))) << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nccl_takes_what_was_measured() {
        assert_eq!([1, 2, 4].map(|gpus| nccl(gpus, 32).0 >> 20), [0, 1020, 1788]);
        assert_eq!(nccl(4, 16).0 >> 20, 1116);
        assert_eq!([16, 80].map(|gib| nccl_blocks(Bytes(gib << 30))), [16, 32]);
    }
}
