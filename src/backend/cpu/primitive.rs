//! Projection of one primitive into a view, and its derivative.

use serde::{Deserialize, Serialize};

use super::model::{Model, NotFinite};
use crate::backend::{Capability, DeviceError, DrawSettings, Footprint, unsupported};
use crate::math::blend::{ALPHA_MAX, ScreenGradient, Shade, alpha, alpha_bwd, exponent};
use crate::math::field::GEOMETRY;
use crate::math::linalg::{Vec3, add_to};
use crate::math::normals::{facing_normal, facing_normal_bwd, flat};
use crate::math::splat::{
    Bounds, Ellipse, EllipseGradient, Meeting, Rect, Shape, Surfel, SurfelGradient, Vertex,
    Viewpoint, bounds, project, project_bwd, project_surfel, project_surfel_bwd,
};
use crate::math::{Real, sigmoid, sigmoid_bwd};
use crate::model::Primitive;

/// Primitives that the CPU draws and trains.
pub trait Drawable: Primitive + Send + Sync {
    /// Projects a row; `None` if the view does not see it.
    ///
    /// Fails if a value that determines visibility is not finite. The colour is checked only if the row is visible.
    fn project<R: Real>(
        model: &Model<R, Self>,
        row: usize,
        view: &DrawnView<R>,
    ) -> Result<Option<Splat<R>>, NotFinite>;

    /// Adds the gradients of the row's raw parameters to `d_row`, which holds all columns in schema order.
    fn project_bwd<R: Real>(
        model: &Model<R, Self>,
        row: usize,
        view: &DrawnView<R>,
        d_splat: &ScreenGradient<R>,
        d_row: &mut [R],
    );

    /// Returns the model as a density in space. Required for surface terms and maps, the 3D filter, noise, and the
    /// regularisers of opacity and scale.
    fn density_field<R: Real>(_model: &Model<R, Self>) -> Option<&dyn DensityField<R>> {
        None
    }

    /// Returns the model as triangle vertices. [`Self::project_bwd`] is the derivative in triangle views.
    fn vertex_rows<R: Real>(_model: &Model<R, Self>) -> Option<&dyn VertexRows<R>> {
        None
    }
}

/// A model whose rows are ellipsoids that together form a density in space.
pub trait DensityField<R>: Sync {
    /// Returns a row, with its 3D filter.
    fn ellipsoid(&self, row: usize) -> Ellipsoid<R>;

    /// Adds the gradients of a row's centre, log-scales, quaternion and opacity logit to `d_row`, which is in schema
    /// order.
    fn ellipsoid_bwd(&self, d_ellipsoid: &[R; GEOMETRY], d_row: &mut [R]);
}

/// A model whose rows are vertices of triangles.
pub trait VertexRows<R>: Sync {
    /// Projects a row into a triangle view; `None` if it is not beyond the near plane.
    ///
    /// Fails if a value is not finite, like [`Drawable::project`].
    fn vertex(&self, row: usize, view: &DrawnView<R>) -> Result<Option<Vertex<R>>, NotFinite>;
}

/// Returns the index of the column of the centres in the schema.
pub(super) fn places<P: Primitive>() -> Result<usize, DeviceError> {
    P::SCHEMA.places().ok_or(unsupported::<P>("centres"))
}

/// Returns the model as a density in space; fails if `capability` needs one and the rows do not form one.
pub(super) fn density_field<R: Real, P: Drawable>(
    model: &Model<R, P>,
    capability: Capability,
) -> Result<&dyn DensityField<R>, DeviceError> {
    P::density_field(model).ok_or(unsupported::<P>(capability.words()))
}

/// Returns the model as triangle vertices; fails if its rows are none.
pub(super) fn vertex_rows<R: Real, P: Drawable>(
    model: &Model<R, P>,
) -> Result<&dyn VertexRows<R>, DeviceError> {
    P::vertex_rows(model).ok_or(unsupported::<P>("triangles"))
}

/// A view and the settings of its projection.
#[derive(Clone, Copy, Debug)]
pub struct DrawnView<R> {
    /// Camera with its near plane and the filter of ellipses.
    pub viewpoint: Viewpoint<R>,
    /// Degree of the spherical harmonics in use, at most the model's.
    pub sh_degree: u32,
    /// True if the depths and normals of the surface are drawn.
    pub surface: bool,
    /// Footprint of rows on the screen. The filter of ellipses is in the viewpoint.
    pub footprint: Footprint,
}

impl<R> DrawnView<R> {
    pub(super) fn new(viewpoint: Viewpoint<R>, drawing: &DrawSettings) -> Self {
        let &DrawSettings { sh_degree, surface, footprint, .. } = drawing;
        Self { viewpoint, sh_degree, surface, footprint }
    }
}

/// A projected row: an ellipse or a surfel of one colour.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Splat<R> {
    /// Index of the row.
    pub row: usize,
    /// Position, shape and depth; the bounding ellipse of a surfel.
    pub ellipse: Ellipse<R>,
    /// Surfel that rays intersect, if the row is not an ellipse.
    pub surfel: Option<Surfel<R>>,
    /// Opacity at the centre.
    pub opacity: R,
    /// Colour, not below 0.
    pub color: Vec3<R>,
    /// Depth, and x and y of the normal in camera axes; zero if surfaces are not drawn.
    pub surface: Vec3<R>,
    /// Pixels that the splat can reach.
    pub pixels: Rect,
    /// Exponent below which the splat is invisible.
    pub exponent_min: R,
}

/// A splat at a pixel that it changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct InPixel<R> {
    /// Offset from the splat's centre to the pixel's centre, px.
    offset_px: [R; 2],
    /// Opacity at the pixel.
    pub(super) alpha: R,
    /// Intersection of the pixel's ray with the surfel.
    meeting: Option<Meeting<R>>,
}

impl<R: Real> InPixel<R> {
    /// Returns the depth at the pixel, relative to the depth of the splat's centre.
    fn depth_share(&self) -> R {
        self.meeting.map_or(R::ONE, |meeting| meeting.depth_share)
    }
}

impl<R: Real> Splat<R> {
    /// Evaluates the splat at a pixel; `None` if it does not change the pixel. Rejects most misses without `exp`.
    pub(super) fn in_pixel(&self, x: u32, y: u32) -> Option<InPixel<R>> {
        let centre = self.surfel.map_or(self.ellipse.mean_px, |surfel| surfel.mean_px);
        let pixel = [x, y].map(|p| R::of(f64::from(p)) + R::HALF);
        let offset_px = [pixel[0] - centre[0], pixel[1] - centre[1]];
        let meeting = self.surfel.map(|surfel| surfel.meet(offset_px));
        let exponent = match meeting {
            Some(meeting) => meeting.exponent,
            None => exponent(self.ellipse.conic, offset_px),
        };
        if exponent < self.exponent_min {
            return None;
        }
        let alpha = alpha(self.opacity, exponent)?;
        Some(InPixel { offset_px, alpha, meeting })
    }

    /// Returns the splat's depth at a pixel.
    pub(super) fn depth_in(&self, at: &InPixel<R>) -> R {
        self.ellipse.depth * at.depth_share()
    }

    /// Returns the values that are blended into a pixel.
    pub(super) fn shade(&self, at: &InPixel<R>) -> Shade<R> {
        let [depth, normal_x, normal_y] = self.surface;
        Shade {
            color: self.color,
            inverse_depth: R::ONE / self.depth_in(at),
            surface: [depth * at.depth_share(), normal_x, normal_y],
        }
    }

    /// Adds the gradients of one pixel to `sums`, including `of_shade`, the gradients of [`Self::shade`].
    pub(super) fn in_pixel_bwd(
        &self,
        at: &InPixel<R>,
        d_alpha: R,
        of_shade: ScreenGradient<R>,
        sums: &mut ScreenGradient<R>,
    ) {
        let mut here = of_shade;
        let (Some(surfel), Some(meeting)) = (&self.surfel, &at.meeting) else {
            let conic = self.ellipse.conic;
            alpha_bwd(conic, at.offset_px, self.opacity, at.alpha, d_alpha, &mut here);
            return sums.add(&here);
        };
        let (depth, share) = (self.ellipse.depth, meeting.depth_share);
        // With i = 1 + g·d, the depth is depth / i and the inverse depth is i / depth.
        let [d_depth, ..] = here.d_surface;
        let d_inverse_share = here.d_inverse_depth / depth - d_depth * depth * share * share;
        here.d_surface[0] = d_depth * share;
        here.d_inverse_depth = here.d_inverse_depth / share;
        let is_clamped = at.alpha >= R::of(ALPHA_MAX);
        let d_exponent = if is_clamped { R::ZERO } else { d_alpha * at.alpha };
        here.pixels = R::ONE;
        here.squares = d_exponent * d_exponent;
        here.d_opacity = d_exponent / self.opacity;
        let mut d = SurfelGradient::default();
        let by_exponent =
            surfel.meet_bwd(at.offset_px, meeting, d_exponent, d_inverse_share, &mut d);
        here.d_mean_px = d.d_mean_px;
        here.d_mean_abs = by_exponent.map(Real::abs);
        here.d_surfel = [d.d_along_u, d.d_along_v, d.d_tilt];
        sums.add(&here);
    }
}

// Projection of an ellipsoid and its derivative, for primitives that are drawn as 3D Gaussians or surfels.

/// Raw parameters of a 3D Gaussian without its colour.
#[derive(Clone, Copy, Debug)]
pub struct Ellipsoid<R> {
    /// Position and shape.
    pub shape: Shape<R>,
    /// Opacity before the sigmoid.
    pub opacity_logit: R,
}

impl<R: Real> Ellipsoid<R> {
    /// Projects the ellipsoid as a black splat; `None` if the view does not see it.
    pub fn splat(&self, row: usize, view: &DrawnView<R>) -> Option<Splat<R>> {
        let Outline { ellipse, surfel, opacity, bounds } = self.outline(view)?;
        let surface = if view.surface {
            let [x, y, _] = facing_normal(&view.viewpoint, &self.faced(view));
            [ellipse.depth, x, y]
        } else {
            [R::ZERO; 3]
        };
        Some(Splat {
            row,
            ellipse,
            surfel,
            opacity,
            color: [R::ZERO; 3],
            surface,
            pixels: bounds.pixels,
            exponent_min: bounds.exponent_min,
        })
    }

    fn outline(&self, view: &DrawnView<R>) -> Option<Outline<R>> {
        let viewpoint = &view.viewpoint;
        match view.footprint {
            Footprint::Ellipse { .. } => {
                let ellipse = project(viewpoint, &self.shape)?;
                let opacity = sigmoid(self.opacity_logit) * ellipse.kept;
                let bounds = bounds(&ellipse, opacity, viewpoint.size)?;
                Some(Outline { ellipse, surfel: None, opacity, bounds })
            }
            Footprint::Surfel => {
                let surfel = project_surfel(viewpoint, &self.shape)?;
                let opacity = sigmoid(self.opacity_logit);
                let (ellipse, bounds) = surfel.bounds(opacity, viewpoint.size)?;
                Some(Outline { ellipse, surfel: Some(surfel), opacity, bounds })
            }
            // A single vertex covers nothing.
            Footprint::Triangle(_) => None,
        }
    }

    /// Adds the gradients of centre, log-scales, quaternion and opacity logit to `sums`; nothing if the view does not
    /// see the ellipsoid. The caller handles the gradient of the colour.
    pub fn splat_bwd(
        &self,
        view: &DrawnView<R>,
        d_splat: &ScreenGradient<R>,
        sums: &mut [R; GEOMETRY],
    ) {
        let viewpoint = &view.viewpoint;
        let Some(Outline { ellipse: Ellipse { depth, kept, .. }, .. }) = self.outline(view) else {
            return;
        };
        let [mean, log_scale, quat, opacity_logit] = parts(sums);
        let opacity = sigmoid(self.opacity_logit);
        add_to(opacity_logit, &[sigmoid_bwd(opacity, d_splat.d_opacity * kept)]);

        let [d_depth, d_normal_x, d_normal_y] = d_splat.d_surface;
        if d_normal_x != R::ZERO || d_normal_y != R::ZERO {
            let d_normal = [d_normal_x, d_normal_y, R::ZERO];
            add_to(quat, &facing_normal_bwd(viewpoint, &self.faced(view), d_normal));
        }
        let d_depth = d_depth - d_splat.d_inverse_depth / (depth * depth);
        let d_mean_px = d_splat.d_mean_px;
        let d_shape = match view.footprint {
            Footprint::Ellipse { .. } => {
                let d_log_kept = d_splat.d_opacity * opacity * kept;
                let d_conic = d_splat.d_conic;
                let d_ellipse = EllipseGradient { d_mean_px, d_conic, d_log_kept, d_depth };
                project_bwd(viewpoint, &self.shape, &d_ellipse)
            }
            Footprint::Surfel => {
                let [d_along_u, d_along_v, d_tilt] = d_splat.d_surfel;
                let d_surfel = SurfelGradient { d_mean_px, d_depth, d_along_u, d_along_v, d_tilt };
                project_surfel_bwd(viewpoint, &self.shape, &d_surfel)
            }
            Footprint::Triangle(_) => None,
        };
        if let Some(d) = d_shape {
            add_to(mean, &d.d_mean_world);
            add_to(log_scale, &d.d_log_scale);
            add_to(quat, &d.d_quat);
        }
    }

    /// Returns the shape whose shortest axis is the normal.
    fn faced(&self, view: &DrawnView<R>) -> Shape<R> {
        match view.footprint {
            Footprint::Ellipse { .. } | Footprint::Triangle(_) => self.shape,
            Footprint::Surfel => flat(&self.shape),
        }
    }
}

/// A projected ellipsoid without its colour.
struct Outline<R> {
    ellipse: Ellipse<R>,
    surfel: Option<Surfel<R>>,
    opacity: R,
    bounds: Bounds<R>,
}

/// Splits the geometry of a row into centre, log-scales, quaternion and opacity logit.
fn parts<R>(row: &mut [R; GEOMETRY]) -> [&mut [R]; 4] {
    let (mean, rest) = row.split_at_mut(3);
    let (log_scale, rest) = rest.split_at_mut(3);
    let (quat, opacity_logit) = rest.split_at_mut(4);
    [mean, log_scale, quat, opacity_logit]
}
