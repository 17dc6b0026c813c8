//! A view of a step on the device.

use super::appearance::ColorStep;
use crate::backend::{
    Compensation, DeviceError, Held as _, Objective, OtherView, RenderSettings, Statistics, Terms,
    TrainDevice, Wants,
};
use crate::dataset::View;
use crate::math::Divisor;
use crate::memory::Bytes;

/// How a view takes part in a step.
#[derive(Debug)]
pub(crate) struct ViewInputs<'a, N, T> {
    pub(crate) view: &'a View,
    pub(crate) settings: RenderSettings,
    /// What density control learns of the view.
    pub(crate) observe: Option<Statistics>,
    /// By how much it is smaller than its photograph.
    pub(crate) divisor: Divisor,
    /// What changes the colours before they are compared.
    pub(crate) compensation: Option<Compensation>,
    pub(crate) terms: &'a Terms,
    /// The nearest neighbours of all Gaussians, where they are found.
    pub(crate) near: Option<&'a N>,
    /// Another view to compare it with, where there is one.
    pub(crate) other: Option<OtherView<'a, T>>,
}

/// What comes of a view.
pub(crate) struct ViewOutputs<B: TrainDevice> {
    /// Values of the terms at pixels.
    pub(crate) pixels: B::Losses,
    /// Values of the terms at samples.
    pub(crate) samples: B::Losses,
    /// Bytes of the frame.
    pub(crate) activations: Bytes,
}

/// Adds the gradients of a view's loss to those of a step, and moves the table of the view's colours
/// where these are learned.
pub(crate) fn add_view<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    target: &B::Target,
    inputs: &ViewInputs<'_, B::Lists, B::Target>,
    colors: Option<ColorStep<'_, B::Tables>>,
    gradients: &mut B::Gradients,
) -> Result<ViewOutputs<B>, DeviceError> {
    let &ViewInputs { view, observe, divisor, compensation, terms, near, other, .. } = inputs;
    let wants = Wants { observe, inputs: terms.needs(), compensation, divisor };
    let frame = device.render_train(model, view, &inputs.settings, &wants)?;
    let objective = Objective { target, terms, near, other };
    let (frame, pixels) = match colors {
        None => device.objective(model, frame, &objective)?,
        Some(ColorStep { tables, step }) => {
            let frame = device.compensate(tables, frame, &step)?;
            let (frame, losses) = device.objective(model, frame, &objective)?;
            (device.learn(tables, frame, &step)?, losses)
        }
    };
    let activations = frame.bytes();
    let samples = device.backward(model, frame, near, gradients)?;
    Ok(ViewOutputs { pixels, samples, activations })
}
