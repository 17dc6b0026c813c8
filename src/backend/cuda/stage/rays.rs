//! Stage `rays`: the visible Gaussians as rays meet them: median depths of pixels, transmittances to positions, and the
//! gradients.

use super::bin::Bins;
use super::blend::Pixels;
use super::project::{Rays, Splats};
use super::surface::zeros;
use crate::abi::{MedianArgs, MedianBwdArgs, RaysArgs, RaysBwdArgs, TransmittanceArgs};
use crate::backend::cuda::prelude::*;
use crate::layout::{PLACES, TRANSMITTANCES, ViewRequest};

/// Computes the ray records of a view's splats, and allocates their gradients if a backward pass follows.
pub(crate) fn add<P: CudaPrimitive>(
    session: &Session,
    model: &Model<P>,
    camera: &ViewCamera,
    request: &ViewRequest,
    splats: &mut Splats,
) -> Result {
    let gaussians = model.len();
    let mut rays = Rays::reserve(&session.heap, &splats.sizes(gaussians, camera), request)?;
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
) -> Result {
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

/// Computes the depth of each pixel of the listed tiles at which half of the light is stopped, [height, width], if
/// requested.
pub(crate) fn median_depths(
    session: &Session,
    splats: &Splats,
    bins: &Bins,
    camera: &ViewCamera,
    depths: Option<&mut Block<f32>>,
) -> Result {
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
pub(crate) fn add_median_gradients(
    session: &Session,
    splats: &mut Splats,
    bins: &Bins,
    camera: &ViewCamera,
    pixels: &Pixels<'_>,
) -> Result {
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

/// Positions and their transmittances after the bands so far.
pub(crate) struct Query {
    /// World units; [places, 3].
    places: Block<f32>,
    transmittances: Block<f32>,
    count: usize,
}

impl Query {
    pub(crate) fn new(session: &Session, places: &[[f32; 3]]) -> Result<Self> {
        let count = places.len();
        // A buffer has one element at least.
        let room = count.max(1) as u64;
        let mut on_device = session.heap.take(&PLACES, &room)?;
        on_device.upload(&session.stream, 0, places.as_flattened())?;
        let transmittances = session.heap.take(&TRANSMITTANCES, &room)?;
        Ok(Self { places: on_device, transmittances, count })
    }

    /// Computes the transmittances of positions in the listed tiles.
    pub(crate) fn answer(
        &mut self,
        session: &Session,
        splats: &Splats,
        bins: &Bins,
        camera: &ViewCamera,
    ) -> Result {
        let Some(rays) = &splats.rays else { return Ok(()) };
        let begun = session.timers.begin(Stage::BlendForward, &session.stream)?;
        let args = TransmittanceArgs {
            rays: rays.values.read(),
            splat_from_instance: bins.splat_from_instance.read(),
            ranges: bins.ranges.read(),
            places: self.places.read(),
            transmittances: self.transmittances.write(),
            camera: *camera,
            count: count_u32(self.count)?,
            first_row: bins.extent.rows.start,
            end_row: bins.extent.rows.end,
            reserved: 0,
        };
        session.kernels.transmittances.over(&session.stream, self.count, &args)?;
        session.timers.end(&begun, &session.stream)
    }

    pub(crate) fn read(&self, session: &Session) -> Result<Vec<f32>> {
        self.transmittances.download_vec(&session.stream, 0..self.count)
    }
}
