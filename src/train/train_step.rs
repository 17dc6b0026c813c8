//! One iteration on the device.

use super::appearance::ColorStep;
use crate::backend::{
    AdamStep, Compensation, DeviceError, Held as _, Objective, RenderSettings, Statistics, Terms,
    TrainDevice, Wants,
};
use crate::dataset::View;
use crate::memory::Bytes;

/// What an iteration does.
#[derive(Debug)]
pub(crate) struct StepInputs<'a, N> {
    pub(crate) settings: RenderSettings,
    /// What density control learns of the view.
    pub(crate) observe: Option<Statistics>,
    /// What changes the colours before they are compared.
    pub(crate) compensation: Option<Compensation>,
    pub(crate) terms: &'a Terms,
    /// The nearest neighbours of all Gaussians, where they are found.
    pub(crate) near: Option<&'a N>,
    pub(crate) step: AdamStep,
}

/// What comes of an iteration.
pub(crate) struct StepOutputs<B: TrainDevice> {
    /// Values of the terms at pixels.
    pub(crate) pixels: B::Losses,
    /// Values of the terms at samples.
    pub(crate) samples: B::Losses,
    /// Bytes of the frame.
    pub(crate) activations: Bytes,
    /// Bytes of the gradients.
    pub(crate) gradients: Bytes,
}

/// One step of every parameter down the gradient of one view's loss, and of the view's colours where
/// these are learned.
pub(crate) fn train_step<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    (view, target): (&View, &B::Target),
    inputs: &StepInputs<'_, B::Lists>,
    colors: Option<ColorStep<'_, B::Tables>>,
) -> Result<StepOutputs<B>, DeviceError> {
    let StepInputs { terms, near, .. } = *inputs;
    let wants =
        Wants { observe: inputs.observe, inputs: terms.needs(), compensation: inputs.compensation };
    let frame = device.render_train(model, view, &inputs.settings, &wants)?;
    let objective = Objective { target, terms, near };
    let (frame, pixels) = match colors {
        None => device.objective(model, frame, &objective)?,
        Some(ColorStep { tables, step }) => {
            let frame = device.compensate(tables, frame, &step)?;
            let (frame, losses) = device.objective(model, frame, &objective)?;
            (device.learn(tables, frame, &step)?, losses)
        }
    };
    let activations = frame.bytes();
    let mut gradients = B::Gradients::default();
    let samples = device.backward(model, frame, near, &mut gradients)?;
    let gradient_bytes = gradients.bytes();
    device.step(model, gradients, &inputs.step)?;
    Ok(StepOutputs { pixels, samples, activations, gradients: gradient_bytes })
}
