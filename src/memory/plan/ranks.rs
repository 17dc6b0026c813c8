//! A run on several GPUs, each of which has a share of the model.

use super::run::PlannedRun;
use super::seen::{ViewGrowth, ViewSize};
use crate::layout::{Records, splat_capacity};
use crate::memory::Bytes;

/// Bytes of the list of a view for each pair of a splat and a tile, with those to sort them.
const BYTES_OF_INSTANCE: u64 = 24;

/// Bytes that say which splat a Gaussian is.
const BYTES_OF_SLOT: u64 = 4;

impl PlannedRun {
    /// Returns the run on each of several GPUs: it has its share of the Gaussians and draws one view of a step of
    /// all of them, beside the splats of its own in the views of the others. These and NCCL's memory, which is given, are
    /// held all the time, and count as context.
    pub fn of_rank(&self, gpus: u32, nccl: Bytes) -> Self {
        if gpus < 2 {
            return self.clone();
        }
        let world = u64::from(gpus.max(1));
        let (all, own) = (self.model.gaussians, self.model.gaussians.div_ceil(world));
        let view = self.seen.of(all);
        let seen = ViewGrowth::counted(own, &view);
        let beyond = self.beyond(own, &view, &seen.of(own));
        // Of those that are sent, splats and gradients lie in the same place.
        let part = self.splats(view.visible.div_ceil(world), own) / 2 + BYTES_OF_SLOT * own;
        // Those of all rounds stay until the step.
        let rounds = self.batch_views.div_ceil(gpus.max(1));
        let parts = u64::from(rounds) * (world - 1) * part;
        Self {
            model: self.model.with(own),
            start: self.start.div_ceil(world),
            seen,
            batch_views: rounds,
            context: Bytes(self.context.0 + nccl.0 + parts + beyond),
            ..self.clone()
        }
    }

    /// Bytes of the splats of a view with their gradients.
    fn splats(&self, visible: u64, gaussians: u64) -> u64 {
        let record = u64::from(self.records.width()) * size_of::<f32>() as u64;
        2 * record * splat_capacity(visible, gaussians)
    }

    /// Bytes of the splats of a view beyond the Gaussians of the share.
    fn beyond(&self, own: u64, view: &ViewSize, counted: &ViewSize) -> u64 {
        let splats = self.splats(view.visible, u64::MAX);
        let beyond = splats.saturating_sub(self.splats(counted.visible, own));
        beyond + BYTES_OF_INSTANCE * view.instances.saturating_sub(counted.instances)
    }

    /// Returns true if ranks can draw it.
    pub fn can_be_shared(&self) -> bool {
        self.records == Records::Ellipses && self.coarse.is_none() && self.colors.is_none()
    }
}
