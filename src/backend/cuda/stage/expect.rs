//! Colours of the host's memory come to the device before a view needs them: a part of stage `project`.

use super::project;
use crate::abi::{In, Out, ProjectArgs};
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::primitive::CudaPrimitive;
use crate::backend::cuda::session::Session;
use crate::backend::{DeviceError, Drawing};
use crate::dataset::View;
use crate::layout::Records;

/// Threads that fill lines: they keep the bus busy, and leave most of the multiprocessors to the step.
const FILLING_THREADS: usize = 8192;

/// Brings what the view after the coming step sees into lines that neither of the two needs. Before a view of
/// the coming step is projected, nothing is known of what that needs, and nothing is done. What is read of the
/// geometry may be from before the step or from after it: a view that sees more than was expected finds
/// the rest where it lies.
pub(crate) fn expect<P: CudaPrimitive>(
    session: &Session,
    model: &mut Model<P>,
    view: &View,
    drawing: &Drawing,
) -> Result<(), DeviceError> {
    if drawing.footprint.records() != Records::Ellipses
        || model.stored_kernels().expect.is_none()
        || !model.lines.is_projected_for(model.momentum.steps() + 1)
        || !model.lines.make_ready(&session.stream)?
    {
        return Ok(());
    }
    let camera = project::camera(view, drawing)?;
    session.copies.wait(&session.seen)?;
    model.lines.begin(&session.copies)?;
    let args = ProjectArgs {
        geometry: model.geometry(),
        filter_3d: model.filter(),
        sh: In::NULL,
        sh_first: In::NULL,
        sh_second: In::NULL,
        sh_steps: In::NULL,
        sh_drifts: In::NULL,
        cache: model.color_cache(),
        splat_from_gaussian: Out::NULL,
        splats: Out::NULL,
        tiles: Out::NULL,
        depth_keys: Out::NULL,
        splat_indices: Out::NULL,
        instance_counts: Out::NULL,
        fault: Out::NULL,
        counts: Out::NULL,
        camera,
        lazy: model.momentum.now(),
        gaussians: count_u32(model.len())?,
        capacity: 0,
        sh_degree: drawing.sh_degree,
        sh_width: model.sh_width(),
        opacity_floor: 0.0,
        reserved: 0,
    };
    if let Some([plain, extended]) = &model.stored_kernels().expect {
        let kernel = if project::is_extended(model, &camera) { extended } else { plain };
        kernel.over(&session.copies, model.len(), &args)?;
    }
    session.kernels.fill_lines.over(&session.copies, FILLING_THREADS, &model.cache_args())?;
    session.filled.record(&session.copies)
}
