//! Stage `rays`: the visible Gaussians as rays meet them, and the gradients.

use super::project::{Rays, Splats};
use super::surface::zeros;
use crate::abi::{RaysArgs, RaysBwdArgs, ViewCamera};
use crate::backend::DeviceError;
use crate::backend::cuda::device::driver::count_u32;
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::primitive::CudaPrimitive;
use crate::backend::cuda::session::Session;
use crate::layout::ViewRequest;

/// Computes the ray records of a view's splats, and allocates their gradients if a backward pass follows.
pub(crate) fn add<P: CudaPrimitive>(
    session: &Session,
    model: &Model<P>,
    camera: &ViewCamera,
    wants: &ViewRequest,
    splats: &mut Splats,
) -> Result<(), DeviceError> {
    let gaussians = model.len();
    let mut rays = Rays::reserve(&session.heap, &splats.sizes(gaussians, camera), wants)?;
    let begun = session.timers.begin(Stage::Project, &session.stream)?;
    let args = RaysArgs {
        geometry: model.geometry(),
        filter_3d: model.filter(),
        splat_from_gaussian: splats.splat_from_gaussian.read(),
        rays: rays.values.write(),
        camera: *camera,
        gaussians: count_u32(gaussians)?,
        reserved: 0,
    };
    session.kernels.ray_gaussians.over(&session.stream, gaussians, &args)?;
    session.timers.end(&begun, &session.stream)?;
    splats.rays = Some(rays);
    Ok(())
}

/// Adds the ray gradients to those of the geometry, [n, 12], which are allocated if needed, and frees the ray records.
pub(crate) fn backward<P: CudaPrimitive>(
    session: &Session,
    model: &Model<P>,
    camera: &ViewCamera,
    splats: &mut Splats,
    geometry: &mut Option<Block<f32>>,
) -> Result<(), DeviceError> {
    let Some(Rays { gradients: Some(d_rays), .. }) = &splats.rays else { return Ok(()) };
    let gaussians = model.len();
    if splats.visible > 0 {
        let begun = session.timers.begin(Stage::Project, &session.stream)?;
        let d_geometry = match geometry {
            Some(there) => there,
            None => geometry.insert(zeros(session, &splats.sizes(gaussians, camera))?),
        };
        let args = RaysBwdArgs {
            geometry: model.geometry(),
            filter_3d: model.filter(),
            splat_from_gaussian: splats.splat_from_gaussian.read(),
            d_rays: d_rays.read(),
            d_geometry: d_geometry.write(),
            camera: *camera,
            gaussians: count_u32(gaussians)?,
            reserved: 0,
        };
        session.kernels.ray_gaussians_bwd.over(&session.stream, gaussians, &args)?;
        session.timers.end(&begun, &session.stream)?;
    }
    splats.rays = None;
    Ok(())
}
