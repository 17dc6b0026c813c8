//! Comparison of renders with photographs.

use std::sync::Arc;

use super::TrainError;
use super::event::{Corrected, Evaluation, Metrics, ReferenceMetrics, Split, ViewMetrics};
use super::feed::Views;
use super::pictures::{SurfaceMaps, photo_picture, render_picture};
use crate::backend::{
    Compensation, DeviceError, Extra, Footprint, Measured, Photo, PixelDepth, RenderRequest,
    RenderSettings, Rendered, Shown, Stay, TrainDevice,
};
use crate::config::MetricSet;
use crate::dataset::{Image, View, evenly_spread};
use crate::math::ssim::{Pair, zero_padded_ssim};
use crate::memory::TrainingScale;
use crate::perceptual::{LpipsInput, LpipsNet, LpipsWeights};

/// Views that an evaluation shows as images. The others are only measured on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownViews {
    /// None.
    Nothing,
    /// The first N views, with the number of splats per pixel.
    First(usize),
    /// All.
    All,
}

impl ShownViews {
    /// Returns the extra output of the view at this position: splat counts, except for triangles,
    /// which hide each other.
    fn extra(self, position: usize, footprint: Footprint) -> Extra {
        let counts = !matches!(footprint, Footprint::Triangle(_));
        match self {
            Self::First(count) if position < count && counts => Extra::Counts,
            _ => Extra::None,
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

/// Depth and normal maps of shown views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownSurface {
    /// No maps.
    None,
    /// Maps, or a warning if memory is short.
    WhereItFits,
    /// Maps with these depths, or an error.
    Required(PixelDepth),
}

/// Shown view of an evaluation.
#[derive(Debug)]
pub struct EvaluatedView<'a> {
    /// Position in the split.
    pub position: usize,
    /// Name of the image in the scene.
    pub name: &'a str,
    /// Render of the model.
    pub rendered: &'a Rendered,
    /// The photograph.
    pub image: &'a Arc<Image>,
    /// Depths and normals, if requested and if memory allowed them.
    pub surface: Option<&'a SurfaceMaps>,
}

/// Request of an evaluation.
#[derive(Clone, Copy, Debug)]
pub struct EvalRequest<'a> {
    /// Split of the views.
    pub split: Split,
    /// Number of views, evenly spread. `None` means all.
    pub most: Option<usize>,
    /// Finished iterations of the model.
    pub iteration: u32,
    /// SH degree in use.
    pub sh_degree: u32,
    /// Background colour.
    pub background: [f32; 3],
    /// Footprint of the primitives on the screen.
    pub footprint: Footprint,
    /// Colour change of the training. The renders are then also measured with corrected colours.
    pub compensation: Option<Compensation>,
    /// Shown views.
    pub shown: ShownViews,
    /// Measured metrics.
    pub metrics: MetricSet,
    /// Depths and normals of the shown views.
    pub surface: ShownSurface,
    /// Network weights for LPIPS.
    pub lpips: Option<&'a LpipsWeights>,
}

/// LPIPS network of an evaluation. Unloaded if memory is short.
struct Perception<B: TrainDevice> {
    /// Kind of the network, and the network on the device.
    loaded: Option<(LpipsNet, B::Net)>,
}

impl<B: TrainDevice> Perception<B> {
    fn new(
        device: &mut B,
        views: &mut Views<'_>,
        weights: Option<&LpipsWeights>,
    ) -> Result<Self, TrainError> {
        let Some(weights) = weights else { return Ok(Self { loaded: None }) };
        match device.load_lpips(weights) {
            Ok(net) => Ok(Self { loaded: Some((weights.net(), net)) }),
            Err(error) if error.is_out_of_memory() => {
                let mut none = Self { loaded: None };
                none.give_up(views, &error);
                Ok(none)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the kind of the network.
    fn net(&self) -> Option<LpipsNet> {
        self.loaded.as_ref().map(|&(kind, _)| kind)
    }

    /// Measures LPIPS of a view. After a failure no further view is measured, because a mean over some of the views
    /// is not comparable.
    fn of(
        &mut self,
        device: &mut B,
        views: &mut Views<'_>,
        frame: &B::Frame<Shown>,
        target: &B::Target,
        input: LpipsInput,
    ) -> Result<Option<f64>, TrainError> {
        let Some((_, net)) = &self.loaded else { return Ok(None) };
        match device.lpips(net, frame, target, input) {
            Ok(found) => Ok(Some(found)),
            Err(error)
                if error.is_out_of_memory()
                    || matches!(error, DeviceError::TooSmallForLpips { .. }) =>
            {
                self.give_up(views, &error);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Unloads the network with a warning.
    fn give_up(&mut self, views: &mut Views<'_>, error: &DeviceError) {
        self.loaded = None;
        views.warn(format!("this evaluation goes without LPIPS: {error}"));
    }
}

/// Renders and measures every view of a split, passes the shown views to `visit` and averages the
/// metrics. LPIPS is left out, with a warning, if it cannot be measured. Photographs that the
/// device does not hold are uploaded temporarily.
///
/// Views whose image cannot be decoded are left out, as in training. Views that their masks hide are shown but not
/// measured. `None` if no view is left.
pub fn evaluate<B: TrainDevice>(
    device: &mut B,
    model: &B::Model,
    views: &mut Views<'_>,
    request: &EvalRequest<'_>,
    mut visit: impl FnMut(&EvaluatedView<'_>) -> Result<(), TrainError>,
) -> Result<Option<Evaluation>, TrainError> {
    let all = views.split(request.split);
    let most = request.most.unwrap_or(all.len());
    let indices: Vec<usize> = evenly_spread(most, all.len()).map(|at| all[at]).collect();
    let with_reference = request.metrics == MetricSet::Reference;
    // Photographs at a reduced size are for training only.
    let is_full = views.training_scale() == TrainingScale::FULL;
    // Photographs on the device are compared there, except for the reference metrics.
    let is_fetched = |position| with_reference || request.shown.includes(position);
    let wanted = indices
        .iter()
        .enumerate()
        .filter(|&(at, &index)| is_fetched(at) || !(is_full && device.is_resident(index)));
    views.schedule_decoding(&wanted.map(|(_, &index)| index).collect::<Vec<_>>());
    let mut perception = Perception::new(device, views, request.lpips)?;
    let mut surface = request.surface;
    let mut per_view = Vec::with_capacity(indices.len());
    for (position, index) in indices.into_iter().enumerate() {
        let resident = if is_full { device.resident(index) } else { None };
        let is_shown = request.shown.includes(position);
        let is_fetched = is_fetched(position);
        let image = if is_fetched || resident.is_none() { views.fetch(index) } else { None };
        // A hidden view has an error of 0 and would get the highest PSNR.
        let is_hidden = views.is_hidden(index);
        if is_hidden && !is_shown {
            continue;
        }
        let target = match (resident, &image) {
            (_, None) if is_fetched => continue,
            (Some(target), _) => target,
            (None, Some(image)) => device.upload_target(Photo { image, stay: Stay::Transient })?,
            (None, None) => continue,
        };
        let settings = RenderSettings {
            sh_degree: request.sh_degree,
            background: request.background,
            near: views.near(),
            footprint: request.footprint,
            ..RenderSettings::DEFAULT
        };
        let corrects_colors = request.compensation.is_some();
        let render_request = RenderRequest {
            extra: request.shown.extra(position, request.footprint),
            corrects_colors,
        };
        let view = views.view(index);
        let name = view.name.as_str();
        let mut frame = match device.render(model, view, &settings, render_request) {
            // A failure of LPIPS must not cost the other metrics.
            Err(error) if error.is_out_of_memory() && perception.loaded.is_some() => {
                perception.give_up(views, &error);
                device.render(model, view, &settings, render_request)?
            }
            done => done?,
        };
        if !is_hidden {
            let mut metrics = Metrics::from(device.measure(&frame, &target)?);
            metrics.lpips = perception.of(device, views, &frame, &target, LpipsInput::Stretched)?;
            if let Some(image) = image.as_ref().filter(|_| with_reference) {
                let lpips = if perception.net() == Some(LpipsNet::Vgg) {
                    perception.of(device, views, &frame, &target, LpipsInput::EightBits)?
                } else {
                    None
                };
                let ssim = reference_ssim(&device.image(&frame)?, image);
                metrics.reference = Some(ReferenceMetrics { ssim, lpips });
            }
            if corrects_colors {
                frame = device.correct(frame, &target)?;
                metrics.corrected = Some(device.measure(&frame, &target)?.into());
            }
            let px = [view.camera.width, view.camera.height];
            per_view.push(ViewMetrics { position, name: name.to_owned(), px, metrics });
        }
        if let Some(image) = image.filter(|_| is_shown) {
            let rendered = &device.image(&frame)?;
            // Free the frame: two frames take more memory than training.
            drop(frame);
            let maps = match surface {
                ShownSurface::None => None,
                ShownSurface::Required(depth) => {
                    surface_maps(device, model, view, &settings, depth)?
                }
                ShownSurface::WhereItFits => {
                    match surface_maps(device, model, view, &settings, PixelDepth::Mean) {
                        Err(error) if error.is_out_of_memory() => {
                            surface = ShownSurface::None;
                            views.warn(format!(
                                "this evaluation shows no depths and normals: {error}"
                            ));
                            None
                        }
                        found => found?,
                    }
                }
            };
            let surface = maps.as_ref();
            visit(&EvaluatedView { position, name, rendered, image: &image, surface })?;
        }
        views.release(device, index);
    }
    if per_view.is_empty() {
        return Ok(None);
    }
    let lpips_net = perception.net();
    if lpips_net.is_none() {
        for ViewMetrics { metrics, .. } in &mut per_view {
            metrics.lpips = None;
            metrics.reference.iter_mut().for_each(|reference| reference.lpips = None);
        }
    }
    Ok(Some(Evaluation {
        iteration: request.iteration,
        split: request.split,
        mean: mean(&per_view),
        lpips_net,
        gaussians: device.len(model),
        views: per_view,
    }))
}

/// Renders the depths and normals of a view, or only the depths of triangles.
fn surface_maps<B: TrainDevice>(
    device: &mut B,
    model: &B::Model,
    view: &View,
    settings: &RenderSettings,
    depth: PixelDepth,
) -> Result<Option<SurfaceMaps>, DeviceError> {
    let (render_request, maps): (_, fn(&Rendered) -> Option<SurfaceMaps>) = match settings.footprint
    {
        Footprint::Ellipse { .. } | Footprint::Surfel => (depth.render_request(), SurfaceMaps::of),
        Footprint::Triangle(_) => (RenderRequest::INVERSE_DEPTHS, SurfaceMaps::of_inverse_depths),
    };
    let frame = device.render(model, view, settings, render_request)?;
    Ok(maps(&device.image(&frame)?))
}

/// Averages the metrics of all views. Optional metrics are averaged only if every view has them.
fn mean(views: &[ViewMetrics]) -> Metrics {
    let count = views.len() as f64;
    let mean = |of: fn(&Metrics) -> f64| views.iter().map(|v| of(&v.metrics)).sum::<f64>() / count;
    let optional = |of: fn(&Metrics) -> Option<f64>| {
        views.iter().map(|view| of(&view.metrics)).sum::<Option<f64>>().map(|sum| sum / count)
    };
    Metrics {
        psnr: mean(|m| m.psnr),
        ssim: mean(|m| m.ssim),
        l1: mean(|m| m.l1),
        lpips: optional(|m| m.lpips),
        corrected: optional(|m| Some(m.corrected?.psnr))
            .zip(optional(|m| Some(m.corrected?.ssim)))
            .map(|(psnr, ssim)| Corrected { psnr, ssim }),
        reference: optional(|m| Some(m.reference?.ssim))
            .map(|ssim| ReferenceMetrics { ssim, lpips: optional(|m| m.reference?.lpips) }),
    }
}

// PSNR, SSIM and LPIPS of a render.

/// PSNR of a perfect render, dB: a mean squared error of 1e-10.
const PSNR_MAX_DB: f64 = 100.0;

impl From<Measured> for Metrics {
    /// Computes PSNR = 10 log₁₀(1 / mean squared error). LPIPS is measured separately.
    fn from(Measured { mse, l1, ssim }: Measured) -> Self {
        Self { psnr: psnr(mse), ssim, l1, lpips: None, corrected: None, reference: None }
    }
}

impl From<Measured> for Corrected {
    fn from(Measured { mse, ssim, .. }: Measured) -> Self {
        Self { psnr: psnr(mse), ssim }
    }
}

fn psnr(mse: f64) -> f64 {
    if mse > 0.0 { (-10.0 * mse.log10()).min(PSNR_MAX_DB) } else { PSNR_MAX_DB }
}

// SSIM of PNG files as in the reference's `metrics.py`.

/// Returns the SSIM of a render and its photograph, both rounded to 8 bits and multiplied by the mask.
pub(super) fn reference_ssim(rendered: &Rendered, image: &Image) -> f64 {
    let counts = |at: usize| image.mask.as_ref().is_none_or(|mask| mask[at / 3] != 0);
    let values = |rgb: Vec<u8>| -> Vec<f64> {
        let masked = |(at, value)| if counts(at) { f64::from(value) / 255.0 } else { 0.0 };
        rgb.into_iter().enumerate().map(masked).collect()
    };
    let (x, y) = (values(render_picture(rendered).rgb), values(photo_picture(image).rgb));
    let size = [rendered.width, rendered.height].map(|side| side as usize);
    zero_padded_ssim(Pair { x: &x, y: &y, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_tenth_is_20_db_and_none_is_100_db() {
        let psnr = |mse| Metrics::from(Measured { mse, l1: 0.0, ssim: 1.0 }).psnr;
        // Rounding of 0.1² and of the logarithm.
        assert!((psnr(0.1 * 0.1) - 20.0).abs() < 1e-12);
        assert_eq!([psnr(0.0), psnr(1e-12)], [100.0; 2]);
    }
}
