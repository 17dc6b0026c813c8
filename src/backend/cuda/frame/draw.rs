//! Drawing a view.

use std::marker::PhantomData;

use super::view::Frame;
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::photos::Target;
use crate::backend::cuda::primitive::{CudaPrimitive, require};
use crate::backend::cuda::session::Session;
use crate::backend::cuda::stage::appearance::ColorScratch;
use crate::backend::cuda::stage::bin::Bins;
use crate::backend::cuda::stage::blend::{self, Canvas};
use crate::backend::cuda::stage::project::{DrawnView, Splats};
use crate::backend::cuda::stage::shrink::Shrunk;
use crate::backend::cuda::stage::worth::{ListedSplats, SeenWorths, WorthSums};
use crate::backend::cuda::stage::{
    bands, bin, loss, median, normals, paint, project, rays, transmittance, triangles,
};
use crate::backend::frame_state::Fresh;
use crate::backend::settings::{MEDIAN_GRADIENTS, TRANSMITTANCES};
use crate::backend::{Capability, DeviceError, Drawing, Measured};
use crate::dataset::View;
use crate::layout::{PixelGradients, Records, ViewRequest};

/// Draws a view, in bands where the session says so.
pub(in crate::backend::cuda) fn draw<S: Fresh, P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    view: &View,
    settings: &Drawing,
) -> Result<Frame<S, P>, DeviceError> {
    settings.check_footprint()?;
    let wants = &blend::wants(settings);
    require::<P>(Capability::Surfaces, wants.maps || wants.median)?;
    if wants.median && wants.backward() {
        settings.footprint.require_volumes(MEDIAN_GRADIENTS)?;
    }
    let camera = project::camera(view, settings)?;
    let drawn = DrawnView { camera: &camera, settings };
    let mut splats = match triangles::window(settings.footprint) {
        Some(window) => triangles::forward(session, model, drawn, &window)?,
        None => project::forward(session, model, drawn)?,
    };
    if wants.maps {
        normals::add_features(session, model, &camera, wants, &mut splats)?;
    }
    // Surfels have theirs from being blended.
    if wants.median && wants.records == Records::Ellipses {
        rays::add(session, model, &camera, wants, &mut splats)?;
    }
    draw_splats(session, model.len(), drawn, &mut Some(splats))
}

/// Draws the splats of a view, which are taken once that is done. Where it fails it may be tried again.
pub(in crate::backend::cuda) fn draw_splats<S: Fresh, P: CudaPrimitive>(
    session: &mut Session,
    gaussians: usize,
    drawn: DrawnView<'_>,
    projected: &mut Option<Splats>,
) -> Result<Frame<S, P>, DeviceError> {
    let DrawnView { camera, settings } = drawn;
    let wants = &blend::wants(settings);
    let splats = projected.as_mut().ok_or(DeviceError::NoView)?;
    let front_to_back = bin::sort_by_depth(session, splats)?;
    let sizes = splats.sizes(gaussians, camera);
    let mut canvas = Canvas::reserve(&session.heap, &sizes, wants)?;
    // Here, where a refusal finds room: the loss is computed when the photograph is in use.
    let (mut d_image, mut d_inverse_depths, mut d_inverse_squares) = (None, None, None);
    let (mut d_surface, mut d_median_depths) = (None, None);
    if wants.backward() {
        let of_pixels = PixelGradients::reserve(&session.heap, &sizes, wants)?;
        (d_inverse_depths, d_surface) = (of_pixels.inverse_depths, of_pixels.maps);
        d_inverse_squares = of_pixels.inverse_squares;
        d_median_depths = of_pixels.median_depths;
        d_image = Some(of_pixels.image);
    }
    let reserve = |kind| ColorScratch::reserve(&session.heap, &sizes, kind);
    let colors = wants.colors.map(reserve).transpose()?;
    let shrunk = Shrunk::reserve(&session.heap, &sizes, wants)?;
    let lists = {
        let mut paint = |session: &Session, splats: &Splats, bins: &Bins, view: DrawnView<'_>| {
            paint::forward(session, splats, bins, view, &mut canvas)?;
            median::depths(session, splats, bins, view.camera, canvas.median_depths.as_mut())
        };
        bands::draw(session, splats, front_to_back, drawn, &mut paint)?
    };
    let splats = projected.take().ok_or(DeviceError::NoView)?;
    Ok(Frame {
        d_image,
        d_inverse_depths,
        d_inverse_squares,
        d_surface,
        d_median_depths,
        kept: S::nothing(),
        colors,
        shrunk,
        canvas,
        lists,
        splats,
        camera: *camera,
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
    settings.footprint.require_volumes(TRANSMITTANCES)?;
    let camera = project::camera(view, settings)?;
    let drawn = DrawnView { camera: &camera, settings };
    let mut splats = project::forward(session, model, drawn)?;
    rays::add(session, model, &camera, &ViewRequest::default(), &mut splats)?;
    let front_to_back = bin::sort_by_depth(session, &mut splats)?;
    let mut asked = transmittance::Asked::new(session, places)?;
    let mut paint = |session: &Session, splats: &Splats, bins: &Bins, view: DrawnView<'_>| {
        asked.answer(session, splats, bins, view.camera)
    };
    bands::draw(session, &mut splats, front_to_back, drawn, &mut paint)?;
    asked.read(session)
}

/// Draws a view without the Gaussians that are left out, adds what each is worth in it, and measures it.
pub(in crate::backend::cuda) fn add_worths<P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    view: &View,
    settings: &Drawing,
    target: &Target,
    sums: &mut WorthSums,
) -> Result<Measured, DeviceError> {
    let camera = project::camera(view, settings)?;
    if target.size() != camera.size {
        return Err(DeviceError::TargetSize { target_px: target.size(), view_px: camera.size });
    }
    let drawn = DrawnView { camera: &camera, settings };
    let mut splats = project::forward(session, model, drawn)?;
    let front_to_back = bin::sort_by_depth(session, &mut splats)?;
    let sizes = splats.sizes(model.len(), &camera);
    let mut canvas = Canvas::reserve(&session.heap, &sizes, &blend::wants(settings))?;
    let mut seen = SeenWorths::new(session, &splats)?;
    target.wait(&session.stream)?;
    let mut paint = |session: &Session, splats: &Splats, bins: &Bins, view: DrawnView<'_>| {
        let listed = ListedSplats { splats, bins, view };
        seen.judge(session, listed, sums, target, &mut canvas.image)
    };
    bands::draw(session, &mut splats, front_to_back, drawn, &mut paint)?;
    let measured = loss::measure(session, &canvas.image, &camera, target)?;
    // Last of all: what was refused memory is tried again.
    seen.add_to(session, &splats, sums)?;
    Ok(measured)
}
