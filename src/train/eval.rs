//! Renders held against their photographs.

use std::sync::Arc;

use super::TrainError;
use super::event::{Evaluation, Metrics, Split, ViewMetrics};
use super::views::Views;
use crate::backend::{Pass, Raster, RenderSettings, Rendered, ScreenFilter};
use crate::dataset::Image;
use crate::model::Gaussians;

/// Views that an evaluation shows as images; the others are measured and never leave the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// None.
    Nothing,
    /// So many from the first on, with what each pixel is blended of.
    First(usize),
    /// All.
    All,
}

impl Shown {
    /// What the frame of the view at this position is drawn for.
    fn pass(self, position: usize) -> Pass {
        match self {
            Self::First(count) if position < count => Pass::Picture,
            _ => Pass::Eval,
        }
    }

    fn includes(self, position: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::First(count) => position < count,
            Self::All => true,
        }
    }
}

/// One shown view of an evaluation.
#[derive(Debug)]
pub struct EvaluatedView<'a> {
    /// Position in the split.
    pub position: usize,
    /// Name of the image in the scene.
    pub name: &'a str,
    /// The model's image.
    pub rendered: &'a Rendered,
    /// The photograph.
    pub image: &'a Arc<Image>,
}

/// What is evaluated.
#[derive(Clone, Copy, Debug)]
pub struct EvalRequest {
    /// Which views.
    pub split: Split,
    /// Finished iterations of the model.
    pub iteration: u32,
    /// SH degree in use.
    pub sh_degree: u32,
    /// Colour behind everything.
    pub background: [f32; 3],
    /// What keeps splats from falling between pixels.
    pub screen_filter: ScreenFilter,
    /// Which views are shown.
    pub shown: Shown,
}

/// Draws and measures every view of a split, shows those that are to be shown to `visit`, and
/// averages the metrics. Photographs that the device does not hold take no place there that one of
/// training could keep.
///
/// Views whose image cannot be decoded are left out, as in training; `None` if no view is left.
pub fn evaluate<B: Raster<Gaussians>>(
    device: &mut B,
    model: &B::Model,
    views: &mut Views<'_>,
    request: &EvalRequest,
    mut visit: impl FnMut(&EvaluatedView<'_>) -> Result<(), TrainError>,
) -> Result<Option<Evaluation>, TrainError> {
    let indices = views.split(request.split).to_vec();
    let wanted = indices
        .iter()
        .enumerate()
        .filter(|&(position, &index)| request.shown.includes(position) || !device.holds(index));
    views.announce(&wanted.map(|(_, &index)| index).collect::<Vec<_>>());
    let mut per_view = Vec::with_capacity(indices.len());
    for (position, index) in indices.into_iter().enumerate() {
        let resident = device.resident(index);
        let is_shown = request.shown.includes(position);
        let image = if is_shown || resident.is_none() { views.fetch(index) } else { None };
        let target = match (resident, &image) {
            (_, None) if is_shown => continue,
            (Some(target), _) => target,
            (None, Some(image)) => device.glance(image)?,
            (None, None) => continue,
        };
        let settings = RenderSettings {
            pass: request.shown.pass(position),
            sh_degree: request.sh_degree,
            background: request.background,
            near: views.near(),
            screen_filter: request.screen_filter,
            ..RenderSettings::DEFAULT
        };
        let view = views.view(index);
        let name = view.name.as_str();
        let frame = device.render(model, view, &settings)?;
        let metrics = device.measure(&frame, &target)?.into();
        if let Some(image) = image.filter(|_| is_shown) {
            let rendered = &device.image(&frame)?;
            visit(&EvaluatedView { position, name, rendered, image: &image })?;
        }
        per_view.push(ViewMetrics { name: name.to_owned(), metrics });
        views.let_go(device, index);
    }
    if per_view.is_empty() {
        return Ok(None);
    }
    let count = per_view.len() as f64;
    let mean =
        |of: fn(&Metrics) -> f64| per_view.iter().map(|v| of(&v.metrics)).sum::<f64>() / count;
    Ok(Some(Evaluation {
        iteration: request.iteration,
        split: request.split,
        mean: Metrics { psnr: mean(|m| m.psnr), ssim: mean(|m| m.ssim), l1: mean(|m| m.l1) },
        gaussians: device.len(model),
        views: per_view,
    }))
}
