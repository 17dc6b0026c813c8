//! Stage `smooth`: the twin of `backend/cpu/stage/smooth.rs`.

use crate::abi::{ResetSmoothedArgs, SmoothArgs, SmoothView};
use crate::backend::RenderSettings;
use crate::backend::cuda::device::launch::Kernel;
use crate::backend::cuda::model::tables::{GEOMETRY, GEOMETRY_FIRST, pointers};
use crate::backend::cuda::prelude::*;
use crate::backend::settings::viewpoint;
use crate::dataset::View;
use crate::layout::Smoothing;
use crate::math::filter::smoothing_per_depth;

/// Computes every Gaussian's filter from the nearest view that samples it. On a refusal the model is unchanged.
pub(crate) fn smooth(
    session: &Session,
    model: &mut Model,
    views: &[&View],
    sampled_from: f64,
) -> Result {
    smooth_among(session, model, views, sampled_from, |_| Ok(()))
}

/// Filters a part of the Gaussians. `agree` makes the bits of their farthest depth, `[1]`, those of all parts.
pub(crate) fn smooth_among(
    session: &Session,
    model: &mut Model,
    views: &[&View],
    sampled_from: f64,
    agree: impl FnOnce(&mut Block<u32>) -> Result,
) -> Result {
    let rows = model.len();
    let Smoothing { views: mut on_device, mut farthest } =
        Smoothing::reserve(&session.heap, views.len() as u64)?;
    model.enable_filter(session)?;
    let host: Vec<SmoothView> = views.iter().map(|view| smooth_view(view)).collect();
    on_device.upload(&session.stream, 0, &host)?;
    farthest.zero(&session.stream)?;
    let focal_px = host.iter().map(|view| view.focal_px[0]).fold(0.0, f32::max);
    let smoothing_per_depth = if host.is_empty() { 0.0 } else { smoothing_per_depth(focal_px) };
    let launch =
        |kernel: &Kernel<SmoothArgs<'static>>, model: &mut Model, farthest: Out<'_, u32>| {
            let args = SmoothArgs {
                geometry: model.tables[GEOMETRY].read().floats(),
                views: on_device.read(),
                filter_3d: model.filter_3d.write(),
                farthest,
                n: count_u32(rows)?,
                views_len: count_u32(views.len())?,
                smoothing_per_depth,
                sampled_from: f32::of(sampled_from),
            };
            kernel.over(&session.stream, rows, &args)
        };
    launch(&session.kernels.smooth_nearest, model, farthest.write())?;
    agree(&mut farthest)?;
    launch(&session.kernels.smooth_spread, model, farthest.write())
}

fn smooth_view(view: &View) -> SmoothView {
    // Near plane and footprint do not matter here.
    let settings = RenderSettings::DEFAULT;
    let point = viewpoint::<f32>(view, settings.near, settings.footprint);
    let mut rotation = [0.0; 9];
    rotation.copy_from_slice(point.rotation.as_flattened());
    SmoothView {
        rotation,
        translation: point.translation,
        focal_px: point.focal_px,
        centre_px: point.centre_px,
        size: point.size.map(|side| f32::of(f64::from(side))),
    }
}

/// Lowers every filtered opacity to at most `ceiling` and clears the opacities' moments.
pub(crate) fn reset_opacity(session: &Session, model: &mut Model, ceiling: f64) -> Result {
    let rows = model.len();
    let first_width = model.kernel_widths()[GEOMETRY_FIRST];
    let [geometry, geometry_first, geometry_second, ..] = pointers(&mut model.tables);
    let args = ResetSmoothedArgs {
        geometry: geometry.floats(),
        geometry_first,
        geometry_second: geometry_second.floats(),
        filter_3d: model.filter_3d.read(),
        first_width,
        n: count_u32(rows)?,
        ceiling: f32::of(ceiling),
        reserved: 0,
    };
    session.kernels.reset_smoothed_opacity.over(&session.stream, rows, &args)
}
