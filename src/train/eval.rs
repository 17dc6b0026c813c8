//! Renders held against their photographs.

use std::sync::Arc;

use super::TrainError;
use super::event::{Evaluation, Metrics, Split, ViewMetrics};
use super::metrics::metrics;
use super::views::Views;
use crate::backend::{Pass, Raster, RenderSettings, Rendered};
use crate::dataset::Image;
use crate::model::Gaussians;

/// One view of an evaluation.
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
}

/// Draws every view of a split, shows each to `visit`, and averages the metrics.
///
/// Views whose image cannot be decoded are left out, as in training; `None` if no view is left.
pub fn evaluate<B: Raster<Gaussians>>(
    device: &mut B,
    model: &B::Model,
    views: &mut Views<'_>,
    request: &EvalRequest,
    mut visit: impl FnMut(&EvaluatedView<'_>) -> Result<(), TrainError>,
) -> Result<Option<Evaluation>, TrainError> {
    let settings = RenderSettings {
        pass: Pass::Eval,
        sh_degree: request.sh_degree,
        background: request.background,
    };
    let indices = views.split(request.split).to_vec();
    views.announce(&indices);
    let mut per_view = Vec::with_capacity(indices.len());
    for (position, index) in indices.into_iter().enumerate() {
        let Some(image) = views.fetch(index) else { continue };
        let view = views.view(index);
        let frame = device.render(model, view, &settings)?;
        let rendered = device.image(&frame)?;
        let name = view.name.as_str();
        visit(&EvaluatedView { position, name, rendered: &rendered, image: &image })?;
        per_view.push(ViewMetrics { name: name.to_owned(), metrics: metrics(&rendered, &image) });
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
