//! What is found of a view without a frame: how much light passes, and what each Gaussian is worth.

use super::model::Model;
use super::primitive::{Drawable, density_field};
use super::splat::DrawnView;
use super::stage::worth::{self, Judged, WorthSums};
use super::stage::{bin, blend, loss, project, rays, transmittance};
use crate::backend::settings::TRANSMITTANCES;
use crate::backend::viewpoint::viewpoint;
use crate::backend::{Capability, DeviceError, Drawing, Look, Measured, RenderSettings};
use crate::dataset::{Image, View};
use crate::math::Real;

/// How much light passes between the view's camera and each place.
pub(super) fn transmittances<R: Real, P: Drawable>(
    model: &Model<R, P>,
    view: &View,
    settings: &RenderSettings,
    places: &[[f32; 3]],
) -> Result<Vec<f32>, DeviceError> {
    let field = density_field(model, Capability::Surfaces)?;
    settings.footprint.require_volumes(TRANSMITTANCES)?;
    let drawing = Drawing::shown(settings, Look::IMAGE);
    let viewpoint = viewpoint(view, drawing.near, drawing.footprint);
    let (splats, _) = project::project(model, &DrawnView::new(viewpoint, &drawing));
    let bins = bin::bin(&splats, viewpoint.size);
    let rays = rays::rays(field, &viewpoint, &splats);
    Ok(transmittance::at_places(&rays, &bins, &viewpoint, places))
}

/// Draws a view without the Gaussians that are left out, adds what each is worth in it, and measures it.
pub(super) fn add_worths<R: Real, P: Drawable>(
    model: &Model<R, P>,
    view: &View,
    settings: &RenderSettings,
    target: &Image,
    sums: &mut WorthSums<R>,
) -> Result<Measured, DeviceError> {
    settings.footprint.require_gaussians("worths")?;
    let drawing = Drawing::shown(settings, Look::IMAGE);
    let viewpoint = viewpoint(view, drawing.near, drawing.footprint);
    let (splats, _) = project::project(model, &DrawnView::new(viewpoint, &drawing));
    let bins = bin::bin(&splats, viewpoint.size);
    let drawn = worth::drawn(&splats, &sums.absent);
    let canvas = blend::forward(&drawn, &bins, viewpoint.size, &drawing);
    let measured = loss::measure(&canvas.image, viewpoint.size, target)?;
    let background = drawing.background.map(R::of_f32);
    let judged = Judged { image: &canvas.image, background, target };
    let shares = worth::shares(&splats, &bins, &sums.absent, judged);
    sums.add(&splats, &shares);
    Ok(measured)
}
