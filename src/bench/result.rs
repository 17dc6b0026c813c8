//! Results of a benchmark at one number of Gaussians.

use serde::Serialize;

use super::costs::{Pairs, StageCost};
use crate::backend::{CopySpeed, MemoryEntry, MemoryKind, Work};
use crate::memory::Bytes;

/// Cost of an image.
#[derive(Clone, Debug, Serialize)]
pub struct Bench {
    /// Number of Gaussians.
    pub gaussians: usize,
    /// Number of timed steps.
    pub iterations: u32,
    /// Median wall time of an image over groups of ten steps.
    pub ms_median: f64,
    /// Mean wall time of an image.
    pub ms_mean: f64,
    /// Median device time of each stage per image, timed in separate steps, and lower bounds of the traffic; empty if
    /// the device does not time stages.
    pub stages: Vec<StageCost>,
    /// Speed of copies within the device's memory, if measured.
    pub copy: Option<CopySpeed>,
    /// Work of a view, mean of a few; `None` if the device does not count.
    pub work: Option<Work>,
    /// Pairs that the blend stages evaluate, and pairs that contribute.
    pub pairs: Pairs,
    /// Largest use of the memory.
    pub peak: Peak,
    /// Uses of the memory, with the peaks since the warm-up. For a device that shares the host's memory: its model,
    /// frame and gradients.
    pub memory: Vec<MemoryEntry>,
}

/// Largest use of the device's memory since the warm-up, and its parts at that moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// Sum of the parts, as allocated on the device.
    pub total: Bytes,
    /// Context and code.
    pub context: Bytes,
    /// Photographs.
    pub photographs: Bytes,
    /// Model and training: everything else.
    pub training: Bytes,
    /// Page-locked memory of the host, not in the total; the sum of each entry's own peak.
    pub pinned: Bytes,
}

impl Peak {
    pub(super) fn of(memory: &[MemoryEntry]) -> Self {
        let mut peak = Self::default();
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
