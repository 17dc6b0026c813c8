//! Part of the stage `densify`: what views add to the statistics that candidates are chosen by.

use super::project::{DrawnView, Splats};
use crate::abi::{
    OBSERVE_ABSOLUTE, OBSERVE_DISAGREEMENT, OBSERVE_NORMS, ObserveArgs, Out, ViewCamera,
};
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::Buffer;
use crate::backend::cuda::model::tables::{Model, centres};
use crate::backend::cuda::session::Session;
use crate::backend::{DeviceError, Drawing, Statistics};
use crate::layout::Records;
use crate::math::Real;
use crate::model::Primitive;

/// Adds one view to the statistics where it is observed: the norm of the centre's gradient, half the image being 1, or what
/// the statistics ask for.
pub(crate) fn observe<P: Primitive>(
    session: &Session,
    model: &mut Model<P>,
    splats: &Splats,
    DrawnView { camera, settings }: DrawnView<'_>,
) -> Result<(), DeviceError> {
    // What is observed of triangles the backward pass writes down itself.
    let statistics = settings.observe.filter(|_| splats.kind != Records::Triangles);
    let Some(statistics) = statistics else { return Ok(()) };
    let [.., axis_x, axis_y, axis_z] = camera.rotation;
    let sums_absolute = statistics == Statistics::Both;
    if sums_absolute {
        model.enable_absolute_norms(session)?;
    }
    let begun = session.timers.begin(Stage::Observe, &session.stream)?;
    let (table, width) = centres::<P>(&model.tables, model.sh_degree());
    let gaussians = splats.splat_from_gaussian.len();
    let args = ObserveArgs {
        splat_from_gaussian: splats.splat_from_gaussian.read(),
        gradients: splats.gradients.read(),
        table,
        gradient_norm_sums: model.gradient_norm_sums.write(),
        views_seen: model.views_seen.write(),
        absolute_norm_sums: match sums_absolute {
            true => model.absolute_norm_sums.write(),
            false => Out::NULL,
        },
        gaussians: count_u32(gaussians)?,
        half_size: half_size(camera, settings),
        observed: match statistics {
            Statistics::Norms | Statistics::Both => OBSERVE_NORMS,
            Statistics::AbsoluteNorms => OBSERVE_ABSOLUTE,
            Statistics::Disagreement => OBSERVE_DISAGREEMENT,
        },
        axis: [axis_x, axis_y, axis_z, camera.translation[2]],
        fade_depth: f32::of(settings.fade_depth),
        width,
        record_width: splats.kind.width(),
        reserved: 0,
    };
    session.kernels.observe.over(&session.stream, gaussians, &args)?;
    session.timers.end(&begun, &session.stream)
}

/// Half the width and height of a view in pixels. What [`Statistics::Disagreement`] takes of it is the
/// area, which counts the squares of the photograph that a smaller view's pixels are as the CPU does.
fn half_size(camera: &ViewCamera, settings: &Drawing) -> [f32; 2] {
    let [width, height] = camera.size.map(|side| f64::from(side) / 2.0);
    let times = match settings.observe {
        Some(Statistics::Disagreement) => f64::from(settings.divisor.get()),
        _ => 1.0,
    };
    [width * times, height].map(f32::of)
}
