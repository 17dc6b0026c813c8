//! Stage `blend` of triangles. The backward pass needs the lists and, with one sample per pixel, the image.

use super::bin::Bins;
use super::blend::{Canvas, Pixels, lists};
use super::project::{DrawnView, Splats, window};
use crate::abi::{BlendArgs, In, Out};
use crate::backend::DeviceError;
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::session::Session;
use crate::math::Real;

/// Draws the listed tiles.
pub(crate) fn forward(
    session: &Session,
    splats: &Splats,
    bins: &Bins,
    DrawnView { camera, settings }: DrawnView<'_>,
    canvas: &mut Canvas,
) -> Result<(), DeviceError> {
    let window = window(settings.footprint).ok_or(DeviceError::NoView)?;
    let begun = session.timers.begin(Stage::BlendForward, &session.stream)?;
    let args = BlendArgs {
        image: canvas.image.write(),
        inverse_depths: canvas.inverse_depths.as_mut().map_or(Out::NULL, Block::write),
        background: settings.background,
        first_tile: bins.extent.rows.start * camera.tiles[0],
        window_exponent: f32::of(window.exponent),
        ..lists(splats.records.read(), None, bins, camera)
    };
    let [kernel, _] = session.kernels.of_triangles(window.samples);
    kernel.blocks(&session.stream, bins.extent.tiles_listed(), &args)?;
    session.timers.end(&begun, &session.stream)
}

/// Adds the gradients from the pixels of the listed tiles, and raises the faces' weights if these are observed.
pub(crate) fn add_gradients(
    session: &Session,
    splats: &mut Splats,
    bins: &Bins,
    DrawnView { camera, settings }: DrawnView<'_>,
    Pixels { canvas, d_image, d_inverse_depths, face_weights, .. }: &mut Pixels<'_>,
) -> Result<(), DeviceError> {
    let window = window(settings.footprint).ok_or(DeviceError::NoView)?;
    let Splats { records, gradients, .. } = splats;
    let args = BlendArgs {
        image: canvas.image.write(),
        inverse_depths: canvas.inverse_depths.as_mut().map_or(Out::NULL, Block::write),
        d_image: d_image.read(),
        d_inverse_depths: d_inverse_depths.map_or(In::NULL, Block::read),
        gradients: gradients.write(),
        face_weights: *face_weights,
        background: settings.background,
        first_tile: bins.extent.rows.start * camera.tiles[0],
        window_exponent: f32::of(window.exponent),
        strip_px: f32::of(window.strip_px),
        ..lists(records.read(), None, bins, camera)
    };
    let [_, kernel] = session.kernels.of_triangles(window.samples);
    kernel.blocks(&session.stream, bins.extent.tiles_listed(), &args)
}
