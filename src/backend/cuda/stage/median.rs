//! Stage `median`: the depth of each pixel at which half of the light is stopped, and its gradients.

use super::bin::Bins;
use super::blend::Pixels;
use super::project::{Rays, Splats};
use crate::abi::{MedianArgs, MedianBwdArgs, ViewCamera};
use crate::backend::DeviceError;
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::session::Session;

/// Computes the depths of the listed tiles, [height, width], if requested.
pub(crate) fn depths(
    session: &Session,
    splats: &Splats,
    bins: &Bins,
    camera: &ViewCamera,
    depths: Option<&mut Block<f32>>,
) -> Result<(), DeviceError> {
    let (Some(depths), Some(rays)) = (depths, &splats.rays) else { return Ok(()) };
    let begun = session.timers.begin(Stage::BlendForward, &session.stream)?;
    let args = MedianArgs {
        rays: rays.values.read(),
        splat_from_instance: bins.splat_from_instance.read(),
        ranges: bins.ranges.read(),
        depths: depths.write(),
        focal_px: camera.focal_px,
        centre_px: camera.centre_px,
        size: camera.size,
        tiles_wide: camera.tiles[0],
        first_tile: bins.extent.rows.start * camera.tiles[0],
        near: camera.near,
        reserved: 0,
    };
    let tiles = bins.extent.tiles_listed();
    session.kernels.median_depths.blocks(&session.stream, tiles, &args)?;
    session.timers.end(&begun, &session.stream)
}

/// Adds the ray gradients of the splats from the listed tiles, if the depths were compared.
pub(crate) fn add_gradients(
    session: &Session,
    splats: &mut Splats,
    bins: &Bins,
    camera: &ViewCamera,
    pixels: &Pixels<'_>,
) -> Result<(), DeviceError> {
    let (Some(depths), Some(d_depths)) = (&pixels.canvas.median_depths, pixels.d_median_depths)
    else {
        return Ok(());
    };
    let Some(Rays { values, gradients: Some(gradients) }) = &mut splats.rays else { return Ok(()) };
    let begun = session.timers.begin(Stage::BlendBackward, &session.stream)?;
    let args = MedianBwdArgs {
        rays: values.read(),
        splat_from_instance: bins.splat_from_instance.read(),
        ranges: bins.ranges.read(),
        depths: depths.read(),
        d_depths: d_depths.read(),
        d_rays: gradients.write(),
        focal_px: camera.focal_px,
        centre_px: camera.centre_px,
        size: camera.size,
        tiles_wide: camera.tiles[0],
        first_tile: bins.extent.rows.start * camera.tiles[0],
    };
    let tiles = bins.extent.tiles_listed();
    session.kernels.median_depths_bwd.blocks(&session.stream, tiles, &args)?;
    session.timers.end(&begun, &session.stream)
}
