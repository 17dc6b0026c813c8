//! Stage `median`: the depth of each pixel by which half of the light is stopped.

use super::bin::Bins;
use super::project::Splats;
use crate::abi::{MedianArgs, ViewCamera};
use crate::backend::DeviceError;
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::session::Session;

/// Finds the depths in the tiles that are listed, [height, width], where they are wanted.
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
        rays: rays.read(),
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
