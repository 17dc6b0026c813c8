//! One iteration on the device.

use super::appearance::ColorStep;
use super::coarse::Asked;
use crate::backend::{AdamStep, DeviceError, LossTerms, RenderSettings, Surface, SurfaceMaps};
use crate::dataset::View;
use crate::memory::Bytes;

/// What an iteration does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descent {
    pub(crate) settings: RenderSettings,
    pub(crate) terms: LossTerms,
    /// Weight of the inverse depths, where these are drawn and the view has a map of them.
    pub(crate) depth_weight: Option<f64>,
    pub(crate) step: AdamStep,
}

/// What an iteration asks of surfaces, and of what lists of neighbours.
pub(crate) struct Surfaces<'a, N> {
    pub(crate) asked: Asked,
    pub(crate) near: Option<&'a N>,
}

/// The losses of an iteration's surface terms: of opacities and samples, and of drawn normals.
pub(crate) type SurfaceLosses<B> =
    (<B as Surface>::SurfaceLoss, Option<<B as SurfaceMaps>::NormalLoss>);

/// What an iteration leaves behind.
pub(crate) struct Descended<B: Surface + SurfaceMaps> {
    pub(crate) loss: B::Loss,
    /// Where surfaces were asked for.
    pub(crate) surfaces: Option<SurfaceLosses<B>>,
    /// Bytes of the frame.
    pub(crate) activations: Bytes,
    /// Bytes of the gradients.
    pub(crate) gradients: Bytes,
}

/// One step of every parameter down the gradient of one view's loss, and of what is asked of surfaces;
/// and of the view's colours where these are learned.
pub(crate) fn descend<B: Surface + SurfaceMaps>(
    device: &mut B,
    model: &mut B::Model,
    (view, target): (&View, &B::Target),
    descent: &Descent,
    mut colors: Option<ColorStep<'_, B::Appearance>>,
    surfaces: Option<&Surfaces<'_, B::Neighbours>>,
) -> Result<Descended<B>, DeviceError> {
    let surface = surfaces.is_some_and(|surfaces| surfaces.asked.wants_maps());
    let settings = RenderSettings { surface, ..descent.settings };
    let mut frame = device.render(model, view, &settings)?;
    if let Some(weight) = descent.depth_weight {
        device.compare_depths(&mut frame, target, weight)?;
    }
    if let Some(ColorStep { appearance, view, step }) = &mut colors {
        device.compensate(appearance, *view, &mut frame, step)?;
    }
    let loss = device.loss(&mut frame, target, &descent.terms)?;
    // Before colours are learned: a frame that there is no room for is drawn again, and they are not to
    // learn of it twice.
    let normals = match surfaces {
        Some(surfaces) => compare_maps(device, model, &mut frame, surfaces)?,
        None => None,
    };
    if let Some(ColorStep { appearance, view, step }) = &mut colors {
        device.learn_appearance(appearance, *view, &mut frame, step)?;
    }
    let mut sums = device.gradients(model)?;
    let activations = device.frame_bytes(&frame);
    device.backward(model, frame, &mut sums)?;
    let terms = surfaces
        .map(|Surfaces { asked, near }| device.regularise(model, *near, &mut sums, &asked.rule))
        .transpose()?;
    let gradients = device.gradient_bytes(&sums);
    device.step(model, sums, &descent.step)?;
    let surfaces = terms.map(|terms| (terms, normals));
    Ok(Descended { loss, surfaces, activations, gradients })
}

/// Compares what is drawn of surfaces, where that is asked for.
fn compare_maps<B: Surface + SurfaceMaps>(
    device: &mut B,
    model: &B::Model,
    frame: &mut B::Frame,
    Surfaces { asked, near }: &Surfaces<'_, B::Neighbours>,
) -> Result<Option<B::NormalLoss>, DeviceError> {
    let normals = asked
        .normals
        .map(|(weight, rule)| device.compare_normals(frame, weight, rule))
        .transpose()?;
    if asked.rule.compares_distances() {
        let near = near.ok_or(DeviceError::NoNeighbours)?;
        device.compare_sampled_depths(model, frame, near, &asked.rule)?;
    }
    Ok(normals)
}
