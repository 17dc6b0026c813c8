//! Drawing a view.

use std::marker::PhantomData;

use super::view::Frame;
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::primitive::{CudaPrimitive, require};
use crate::backend::cuda::session::Session;
use crate::backend::cuda::stage::appearance::ColorScratch;
use crate::backend::cuda::stage::blend::{self, Canvas};
use crate::backend::cuda::stage::project::DrawnView;
use crate::backend::cuda::stage::{bands, bin, normals, project};
use crate::backend::frame_state::Fresh;
use crate::backend::{Capability, DeviceError, Drawing};
use crate::dataset::View;
use crate::layout::PixelGradients;

/// Draws a view, in bands where the session says so.
pub(in crate::backend::cuda) fn draw<S: Fresh, P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    view: &View,
    settings: &Drawing,
) -> Result<Frame<S, P>, DeviceError> {
    let wants = &blend::wants(settings);
    require::<P>(Capability::Surfaces, wants.maps)?;
    let camera = project::camera(view, settings)?;
    let mut splats = project::forward(session, model, &camera, settings.sh_degree)?;
    if wants.maps {
        normals::add_features(session, model, &camera, wants, &mut splats)?;
    }
    let front_to_back = bin::sort_by_depth(session, &mut splats)?;
    let sizes = splats.sizes(model.len(), &camera);
    let mut canvas = Canvas::reserve(&session.heap, &sizes, wants)?;
    // Here, where a refusal finds room: the loss is computed when the photograph is in use.
    let (mut d_image, mut d_inverse_depths, mut d_surface) = (None, None, None);
    if wants.backward() {
        let of_pixels = PixelGradients::reserve(&session.heap, &sizes, wants)?;
        (d_inverse_depths, d_surface) = (of_pixels.inverse_depths, of_pixels.maps);
        d_image = Some(of_pixels.image);
    }
    let reserve = |kind| ColorScratch::reserve(&session.heap, &sizes, kind);
    let colors = wants.colors.map(reserve).transpose()?;
    let drawn = DrawnView { camera: &camera, settings };
    let lists = bands::draw(session, &mut splats, front_to_back, drawn, &mut canvas)?;
    Ok(Frame {
        d_image,
        d_inverse_depths,
        d_surface,
        kept: S::nothing(),
        colors,
        canvas,
        lists,
        splats,
        camera,
        settings: *settings,
        primitive: PhantomData,
    })
}
