//! Stage `rays`: the Gaussians that a view sees, as its rays meet them.

use super::project::Splats;
use crate::abi::{RaysArgs, ViewCamera};
use crate::backend::DeviceError;
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::Buffer;
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::primitive::CudaPrimitive;
use crate::backend::cuda::session::Session;
use crate::layout::RAYS;

/// Gives the splats of a view what rays meet of them.
pub(crate) fn add<P: CudaPrimitive>(
    session: &Session,
    model: &Model<P>,
    camera: &ViewCamera,
    splats: &mut Splats,
) -> Result<(), DeviceError> {
    let gaussians = model.len();
    let mut rays = session.heap.take(&RAYS, &splats.sizes(gaussians, camera))?;
    let begun = session.timers.begin(Stage::Project, &session.stream)?;
    let args = RaysArgs {
        geometry: model.geometry(),
        filter_3d: model.filter(),
        splat_from_gaussian: splats.splat_from_gaussian.read(),
        rays: rays.write(),
        camera: *camera,
        gaussians: count_u32(gaussians)?,
        reserved: 0,
    };
    session.kernels.ray_gaussians.over(&session.stream, gaussians, &args)?;
    session.timers.end(&begun, &session.stream)?;
    splats.rays = Some(rays);
    Ok(())
}
