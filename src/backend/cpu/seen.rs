//! What a view sees of a model: splats, each with its triangle where they are faces, and the lists of its tiles.

use super::model::Model;
use super::primitive::Drawable;
use super::splat::{DrawnView, Splat};
use super::stage::bin::{self, Bins};
use super::stage::blend::{self, Canvas, CanvasGradient};
use super::stage::blend_triangles::{self, FaceLayers};
use super::stage::faces::{self, SeenFaces};
use super::stage::vertices::Vertices;
use super::stage::{densify, project};
use crate::backend::{DeviceError, Drawing, Footprint, Window};
use crate::math::Real;
use crate::math::blend::ScreenGradient;
use crate::math::splat::Triangle;
use crate::memory::Bytes;

/// What a view sees of a model.
pub(super) struct Seen<R> {
    /// Rows, or faces.
    pub(super) splats: Vec<Splat<R>>,
    /// What the splats cover where they are faces, else none.
    triangles: Vec<Triangle<R>>,
    pub(super) bins: Bins,
    /// The first row that was left out because it is broken.
    pub(super) fault: Option<DeviceError>,
}

impl<R: Real> Seen<R> {
    pub(super) fn of<P: Drawable>(
        model: &Model<R, P>,
        view: &DrawnView<R>,
    ) -> Result<Self, DeviceError> {
        let size = view.viewpoint.size;
        let SeenFaces { splats, triangles, fault } = match view.footprint {
            Footprint::Ellipse { .. } | Footprint::Surfel => {
                let (splats, fault) = project::project(model, view);
                SeenFaces { splats, triangles: Vec::new(), fault }
            }
            Footprint::Triangle(window) => {
                let vertices = Vertices::of(model, view)?;
                faces::faces(&model.faces.corners, vertices, size, &window)
            }
        };
        let bins = bin::bin(&splats, size);
        Ok(Self { splats, triangles, bins, fault })
    }

    /// What a view sees of splats that were found before.
    pub(super) fn of_splats(splats: Vec<Splat<R>>, size: [u32; 2]) -> Self {
        let bins = bin::bin(&splats, size);
        Self { splats, triangles: Vec::new(), bins, fault: None }
    }

    fn layers(&self, drawing: &Drawing, window: Window) -> FaceLayers<'_, R> {
        let Self { splats, triangles, bins, .. } = self;
        let background = drawing.background.map(R::of_f32);
        FaceLayers { splats, triangles, bins, window, background }
    }

    /// Draws the image.
    pub(super) fn blended(&self, size: [u32; 2], drawing: &Drawing) -> Canvas<R> {
        match drawing.footprint {
            Footprint::Ellipse { .. } | Footprint::Surfel => {
                blend::forward(&self.splats, &self.bins, size, drawing)
            }
            Footprint::Triangle(window) => {
                blend_triangles::forward(&self.layers(drawing, window), size, drawing)
            }
        }
    }

    /// The rows that are seen and their gradients on the screen; adds to the statistics of a view that is observed.
    pub(super) fn blended_bwd<P: Drawable>(
        &self,
        model: &mut Model<R, P>,
        view: &DrawnView<R>,
        drawing: &Drawing,
        canvas: &Canvas<R>,
        d_canvas: CanvasGradient<'_, R>,
    ) -> Result<(Vec<usize>, Vec<ScreenGradient<R>>), DeviceError> {
        let (splats, size) = (&self.splats, view.viewpoint.size);
        match drawing.footprint {
            Footprint::Ellipse { .. } | Footprint::Surfel => {
                let screen = blend::backward(splats, &self.bins, canvas, d_canvas);
                densify::observe(model, splats, &screen, size, drawing);
                Ok((splats.iter().map(|splat| splat.row).collect(), screen))
            }
            Footprint::Triangle(window) => {
                let vertices = Vertices::of(model, view)?;
                let layers = self.layers(drawing, window);
                let sums = blend_triangles::backward(&layers, size, d_canvas);
                let corners = &model.faces.corners;
                let per_face = faces::backward(corners, &vertices, splats, &sums, &window);
                let gathered = faces::gather(corners, &vertices, splats, &per_face);
                if drawing.observe.is_some() {
                    faces::observe(model, &vertices, splats, &sums, &per_face);
                }
                Ok(gathered)
            }
        }
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes::of::<Splat<R>>(self.splats.capacity())
            + Bytes::of::<Triangle<R>>(self.triangles.capacity())
            + self.bins.bytes()
    }
}
