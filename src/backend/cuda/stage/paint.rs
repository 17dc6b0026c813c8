//! Part of the stage `blend`: which kernels blend what the records of a view hold.

use super::bin::Bins;
use super::blend::{self, Canvas, Pixels};
use super::blend_triangles;
use super::project::{DrawnView, Splats};
use crate::backend::DeviceError;
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::session::Session;
use crate::layout::Records;

/// Draws the tiles that are listed.
pub(crate) fn forward(
    session: &Session,
    splats: &Splats,
    bins: &Bins,
    view: DrawnView<'_>,
    canvas: &mut Canvas,
) -> Result<(), DeviceError> {
    match splats.kind {
        Records::Ellipses | Records::Surfels => blend::forward(session, splats, bins, view, canvas),
        Records::Triangles => blend_triangles::forward(session, splats, bins, view, canvas),
    }
}

/// Gradients of every splat from those of the pixels, in the splats' own room for them.
pub(crate) fn backward(
    session: &Session,
    splats: &mut Splats,
    bins: &Bins,
    view: DrawnView<'_>,
    pixels: &mut Pixels<'_>,
) -> Result<(), DeviceError> {
    let begun = session.timers.begin(Stage::BlendBackward, &session.stream)?;
    splats.clear_gradients(&session.stream)?;
    add_gradients(session, splats, bins, view, pixels)?;
    session.timers.end(&begun, &session.stream)
}

/// Adds what comes from the pixels of the tiles that are listed.
pub(crate) fn add_gradients(
    session: &Session,
    splats: &mut Splats,
    bins: &Bins,
    view: DrawnView<'_>,
    pixels: &mut Pixels<'_>,
) -> Result<(), DeviceError> {
    match splats.kind {
        Records::Ellipses | Records::Surfels => {
            blend::add_gradients(session, splats, bins, view, pixels)
        }
        Records::Triangles => blend_triangles::add_gradients(session, splats, bins, view, pixels),
    }
}
