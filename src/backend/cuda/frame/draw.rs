//! Drawing a view.

use std::marker::PhantomData;

use super::view::Frame;
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::primitive::{CudaPrimitive, require};
use crate::backend::cuda::session::Session;
use crate::backend::cuda::stage::appearance::ColorScratch;
use crate::backend::cuda::stage::bin::Bins;
use crate::backend::cuda::stage::blend::{self, Canvas};
use crate::backend::cuda::stage::project::{DrawnView, Splats};
use crate::backend::cuda::stage::{bands, bin, median, normals, project, rays, transmittance};
use crate::backend::frame_state::Fresh;
use crate::backend::{Capability, DeviceError, Drawing};
use crate::dataset::View;
use crate::layout::{PixelGradients, ViewRequest};

/// Draws a view, in bands where the session says so.
pub(in crate::backend::cuda) fn draw<S: Fresh, P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    view: &View,
    settings: &Drawing,
) -> Result<Frame<S, P>, DeviceError> {
    let wants = &blend::wants(settings);
    require::<P>(Capability::Surfaces, wants.maps || wants.median)?;
    let camera = project::camera(view, settings)?;
    let mut splats = project::forward(session, model, &camera, settings.sh_degree)?;
    if wants.maps {
        normals::add_features(session, model, &camera, wants, &mut splats)?;
    }
    if wants.median {
        rays::add(session, model, &camera, wants, &mut splats)?;
    }
    let front_to_back = bin::sort_by_depth(session, &mut splats)?;
    let sizes = splats.sizes(model.len(), &camera);
    let mut canvas = Canvas::reserve(&session.heap, &sizes, wants)?;
    // Here, where a refusal finds room: the loss is computed when the photograph is in use.
    let (mut d_image, mut d_inverse_depths) = (None, None);
    let (mut d_surface, mut d_median_depths) = (None, None);
    if wants.backward() {
        let of_pixels = PixelGradients::reserve(&session.heap, &sizes, wants)?;
        (d_inverse_depths, d_surface) = (of_pixels.inverse_depths, of_pixels.maps);
        d_median_depths = of_pixels.median_depths;
        d_image = Some(of_pixels.image);
    }
    let reserve = |kind| ColorScratch::reserve(&session.heap, &sizes, kind);
    let colors = wants.colors.map(reserve).transpose()?;
    let drawn = DrawnView { camera: &camera, settings };
    let lists = {
        let mut paint = |session: &Session, splats: &Splats, bins: &Bins, view: DrawnView<'_>| {
            blend::forward(session, splats, bins, view, &mut canvas)?;
            median::depths(session, splats, bins, view.camera, canvas.median_depths.as_mut())
        };
        bands::draw(session, &mut splats, front_to_back, drawn, &mut paint)?
    };
    Ok(Frame {
        d_image,
        d_inverse_depths,
        d_surface,
        d_median_depths,
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

/// How much light passes between the view's camera and each place.
pub(in crate::backend::cuda) fn transmittances<P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    view: &View,
    settings: &Drawing,
    places: &[[f32; 3]],
) -> Result<Vec<f32>, DeviceError> {
    require::<P>(Capability::Surfaces, true)?;
    let camera = project::camera(view, settings)?;
    let mut splats = project::forward(session, model, &camera, settings.sh_degree)?;
    rays::add(session, model, &camera, &ViewRequest::default(), &mut splats)?;
    let front_to_back = bin::sort_by_depth(session, &mut splats)?;
    let mut asked = transmittance::Asked::new(session, places)?;
    let drawn = DrawnView { camera: &camera, settings };
    let mut paint = |session: &Session, splats: &Splats, bins: &Bins, view: DrawnView<'_>| {
        asked.answer(session, splats, bins, view.camera)
    };
    bands::draw(session, &mut splats, front_to_back, drawn, &mut paint)?;
    asked.read(session)
}
