//! The 3D filter's part in a run.

use super::Trainer;
use crate::backend::{DeviceError, Filter3d, TrainDevice};
use crate::dataset::{Dataset, View};
use crate::train::{SceneScale, TrainError, smoothing};

/// Share of the scene's unit from which on views tell of what they see. Mip-Splatting begins at 0.2,
/// whatever a scene's size is; cameras of common scenes stand 4 from what they look at.
const SAMPLED_SHARE: f64 = 0.05;

/// Smooths a model as far as the views of a scene that are trained on could tell nothing finer.
pub(super) fn smooth<B: Filter3d>(
    device: &mut B,
    model: &mut B::Model,
    dataset: &Dataset,
) -> Result<(), DeviceError> {
    let views: Vec<&View> = dataset.train.iter().map(|&view| &dataset.views[view]).collect();
    device.update_filter_3d(model, &views, SAMPLED_SHARE * SceneScale::of(dataset).unit)
}

impl<B: TrainDevice> Trainer<'_, B> {
    /// Computes the filter where the run has one.
    pub(super) fn smooth(&mut self) -> Result<(), TrainError> {
        if !self.setup.config.optimize.filter_3d {
            return Ok(());
        }
        self.with_memory_retry(|trainer| {
            Ok(smooth(trainer.device, &mut trainer.model, trainer.setup.dataset)?)
        })
    }

    /// The same when it is due between rounds of density control, and where a run begins without one,
    /// as one that a checkpoint without a filter is the start of.
    pub(super) fn smooth_in_time(&mut self) -> Result<(), TrainError> {
        let lacks_one = !self.device.optional(&self.model).filter_3d;
        let is_empty = self.device.len(&self.model) == 0;
        if smoothing::is_due(self.setup.config, self.last_step) || (lacks_one && !is_empty) {
            self.smooth()?;
        }
        Ok(())
    }
}
