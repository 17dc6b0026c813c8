//! One iteration on the device.

use super::appearance::Learner;
use crate::backend::{AdamStep, DeviceError, LossTerms, Raster, RenderSettings};
use crate::dataset::View;
use crate::memory::Bytes;
use crate::model::Gaussians;

/// What an iteration does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descent {
    pub(super) settings: RenderSettings,
    pub(super) terms: LossTerms,
    /// Weight of the inverse depths, where these are drawn and the view has a map of them.
    pub(super) depth_weight: Option<f64>,
    pub(super) step: AdamStep,
}

/// What an iteration leaves behind.
pub(super) struct Descended<L> {
    pub(super) loss: L,
    /// Bytes of the frame.
    pub(super) activations: Bytes,
    /// Bytes of the gradients.
    pub(super) gradients: Bytes,
}

/// One step of every parameter down the gradient of one view's loss, and of the view's colours where
/// these are learned.
pub(super) fn descend<B: Raster<Gaussians>>(
    device: &mut B,
    model: &mut B::Model,
    view: &View,
    target: &B::Target,
    descent: &Descent,
    mut colors: Option<Learner<'_, B::Appearance>>,
) -> Result<Descended<B::Loss>, DeviceError> {
    let mut frame = device.render(model, view, &descent.settings)?;
    if let Some(weight) = descent.depth_weight {
        device.compare_depths(&mut frame, target, weight)?;
    }
    if let Some(Learner { appearance, view, step }) = &mut colors {
        device.compensate(appearance, *view, &mut frame, step)?;
    }
    let loss = device.loss(&mut frame, target, &descent.terms)?;
    if let Some(Learner { appearance, view, step }) = &mut colors {
        device.learn_appearance(appearance, *view, &mut frame, step)?;
    }
    let mut sums = device.gradients(model)?;
    let activations = device.frame_bytes(&frame);
    device.backward(model, frame, &mut sums)?;
    let gradients = device.gradient_bytes(&sums);
    device.step(model, sums, &descent.step)?;
    Ok(Descended { loss, activations, gradients })
}
