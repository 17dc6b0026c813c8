//! What was measured at one number of Gaussians.

use serde::Serialize;

use super::costs::{Pairs, StageCost};
use crate::backend::{CopySpeed, MemoryEntry, MemoryKind, Work};
use crate::memory::Bytes;

/// What an image costs.
#[derive(Clone, Debug, Serialize)]
pub struct Bench {
    /// Gaussians.
    pub gaussians: usize,
    /// Steps that were timed.
    pub iterations: u32,
    /// Median wall time of an image, over groups of ten steps.
    pub ms_median: f64,
    /// Mean wall time of an image.
    pub ms_mean: f64,
    /// Median time on the device of each stage per image, timed in steps of their own; nothing where
    /// the device does not tell. Beside it, what a stage moves at least.
    pub stages: Vec<StageCost>,
    /// How fast the device copies its own memory, where it tells.
    pub copy: Option<CopySpeed>,
    /// What a view gives the stages to do, mean of a few; nothing where the device does not count.
    pub work: Option<Work>,
    /// What the blend stages evaluate, and what that is good for.
    pub pairs: Pairs,
    /// The most memory at once.
    pub peak: Peak,
    /// What the memory is used for; of a device that shares the host's, what its model, frame and
    /// gradients take. Peaks are those since the warm-up.
    pub memory: Vec<MemoryEntry>,
}

/// The most memory that the device held at once since the warm-up, and its parts at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// All parts, as taken from the device.
    pub total: Bytes,
    /// Context and code.
    pub context: Bytes,
    /// Photographs.
    pub photographs: Bytes,
    /// Everything else: what the model and its training need.
    pub training: Bytes,
    /// Page-locked memory of the host, which is no part of the total; each entry at its own most.
    pub pinned: Bytes,
}

impl Peak {
    pub(super) fn of(memory: &[MemoryEntry]) -> Self {
        let zero = Bytes(0);
        let mut peak =
            Self { total: zero, context: zero, photographs: zero, training: zero, pinned: zero };
        for entry in memory {
            let part = match entry.kind {
                MemoryKind::Context => &mut peak.context,
                MemoryKind::Photographs => &mut peak.photographs,
                MemoryKind::Region | MemoryKind::Arena | MemoryKind::Block => &mut peak.training,
                MemoryKind::Pinned => {
                    peak.pinned += entry.peak;
                    continue;
                }
            };
            *part += entry.at_peak;
            peak.total += entry.at_peak;
        }
        peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_counts_each_byte_of_the_device_once() {
        let entry = |kind, at_peak, peak| {
            let (peak, at_peak) = (Bytes(peak), Bytes(at_peak));
            MemoryEntry { label: "", kind, bytes: peak, mapped: at_peak, peak, at_peak }
        };
        let peak = Peak::of(&[
            entry(MemoryKind::Context, 500, 500),
            entry(MemoryKind::Photographs, 60, 60),
            entry(MemoryKind::Photographs, 1, 2),
            entry(MemoryKind::Region, 700, 900),
            entry(MemoryKind::Arena, 300, 300),
            entry(MemoryKind::Block, 0, 290),
            entry(MemoryKind::Pinned, 7, 70),
        ]);
        let [total, context, photographs, training, pinned] = [1561, 500, 61, 1000, 70].map(Bytes);
        assert_eq!(peak, Peak { total, context, photographs, training, pinned });
    }
}
