//! A run on several GPUs, each of which has a share of the model.

use super::run::PlannedRun;
use super::seen::{ViewGrowth, ViewSize};
use crate::layout::{Records, splat_capacity};
use crate::memory::Bytes;

/// Bytes of the list of a view for each pair of a splat and a tile, with those to sort them.
const BYTES_OF_INSTANCE: u64 = 24;

/// Bytes that say which splat a Gaussian is.
const BYTES_OF_SLOT: u64 = 4;

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

impl PlannedRun {
    /// The same run on each of so many GPUs: it has its share of the Gaussians and draws one view of a step of
    /// all of them, beside the splats of its own in the views of the others. These and NCCL's memory, which is given, are
    /// held all the time, and count as context.
    pub fn of_rank(&self, gpus: u32, nccl: Bytes) -> Self {
        let world = u64::from(gpus.max(1));
        let (all, own) = (self.model.gaussians, self.model.gaussians.div_ceil(world));
        let view = self.seen.of(all);
        let seen = ViewGrowth::counted(own, &view);
        let beyond = self.beyond(own, &view, &seen.of(own));
        let part = self.splats(view.visible.div_ceil(world), own) + BYTES_OF_SLOT * own;
        let parts = (world - 1) * part;
        Self {
            model: self.model.with(own),
            start: self.start.div_ceil(world),
            seen,
            batch_views: self.batch_views.div_ceil(gpus.max(1)),
            context: Bytes(self.context.0 + nccl.0 + parts + beyond),
            ..self.clone()
        }
    }

    /// Bytes of the splats of a view with their gradients.
    fn splats(&self, visible: u64, gaussians: u64) -> u64 {
        let record = u64::from(self.records.width()) * size_of::<f32>() as u64;
        2 * record * splat_capacity(visible, gaussians)
    }

    /// What a view takes of more splats than the share has Gaussians.
    fn beyond(&self, own: u64, view: &ViewSize, counted: &ViewSize) -> u64 {
        let splats = self.splats(view.visible, u64::MAX);
        let beyond = splats.saturating_sub(self.splats(counted.visible, own));
        beyond + BYTES_OF_INSTANCE * view.instances.saturating_sub(counted.instances)
    }

    /// Whether ranks can draw it.
    pub fn can_be_shared(&self) -> bool {
        self.records == Records::Ellipses && self.coarse.is_none() && self.colors.is_none()
    }
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
