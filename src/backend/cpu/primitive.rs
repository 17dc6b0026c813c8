//! Kinds of primitives for the stages: how a view sees a row, and the derivative of that.

use serde::{Deserialize, Serialize};

use super::model::{Model, NotFinite};
use crate::backend::{Capability, DeviceError, Drawing, Footprint, unsupported};
use crate::math::blend::{ALPHA_MAX, ScreenGradient, Shade, alpha, alpha_bwd, exponent};
use crate::math::field::GEOMETRY;
use crate::math::linalg::Vec3;
use crate::math::normals::{facing_normal, facing_normal_bwd, flat};
use crate::math::splat::{
    Bounds, Ellipse, EllipseGradient, Meeting, Rect, Shape, Surfel, SurfelGradient, Vertex,
    Viewpoint, bounds, project, project_bwd, project_surfel, project_surfel_bwd,
};
use crate::math::{Real, sigmoid, sigmoid_bwd};
use crate::model::Primitive;

/// Primitives that the processor draws and trains.
///
/// What only moves rows about goes by the schema; this is the rest.
pub trait Drawable: Primitive + Send + Sync {
    /// A row as the view sees it; nothing where the view does not.
    ///
    /// A value that is not finite and decides what is seen is an error: the row is left out, since in
    /// the image it would spread to every other. A colour is looked at only where the row is seen.
    fn project<R: Real>(
        model: &Model<R, Self>,
        row: usize,
        view: &DrawnView<R>,
    ) -> Result<Option<Splat<R>>, NotFinite>;

    /// Adds the gradients of the row's raw parameters to `d_row`, which holds those of all columns in the
    /// order of the schema.
    fn project_bwd<R: Real>(
        model: &Model<R, Self>,
        row: usize,
        view: &DrawnView<R>,
        d_splat: &ScreenGradient<R>,
        d_row: &mut [R],
    );

    /// The model as a density in space, where its rows make up one. Without it there are no surface
    /// terms and maps, no 3D filter, no noise and no regularisers of opacity and scale.
    fn density_field<R: Real>(_model: &Model<R, Self>) -> Option<&dyn DensityField<R>> {
        None
    }

    /// The model as vertices of triangles, where its rows are such; the derivative is that of
    /// [`Self::project_bwd`] in views of triangles. Without it there are no triangles.
    fn vertex_rows<R: Real>(_model: &Model<R, Self>) -> Option<&dyn VertexRows<R>> {
        None
    }
}

/// A model whose rows are ellipsoids that together make up a density in space.
pub trait DensityField<R>: Sync {
    /// A row, with its 3D filter.
    fn ellipsoid(&self, row: usize) -> Ellipsoid<R>;

    /// Adds the gradients of a row's centre, log-scales, quaternion and opacity logit to those of its
    /// columns in the order of the schema.
    fn ellipsoid_bwd(&self, d_ellipsoid: &[R; GEOMETRY], d_row: &mut [R]);
}

/// A model whose rows are vertices of triangles.
pub trait VertexRows<R>: Sync {
    /// A row as a view of triangles sees it; nothing where it is not beyond the nearest depth.
    ///
    /// As of [`Drawable::project`], a value that is not finite is an error.
    fn vertex(&self, row: usize, view: &DrawnView<R>) -> Result<Option<Vertex<R>>, NotFinite>;
}

/// The column of the centres, by its place in the schema.
pub(super) fn places<P: Primitive>() -> Result<usize, DeviceError> {
    P::SCHEMA.places().ok_or(unsupported::<P>("centres"))
}

/// The model as a density in space; an error where its rows do not make up one and `capability` needs it.
pub(super) fn density_field<R: Real, P: Drawable>(
    model: &Model<R, P>,
    capability: Capability,
) -> Result<&dyn DensityField<R>, DeviceError> {
    P::density_field(model).ok_or(unsupported::<P>(capability.words()))
}

/// The model as vertices of triangles; an error where its rows are none.
pub(super) fn vertex_rows<R: Real, P: Drawable>(
    model: &Model<R, P>,
) -> Result<&dyn VertexRows<R>, DeviceError> {
    P::vertex_rows(model).ok_or(unsupported::<P>("triangles"))
}

/// A view, and what is drawn in it.
#[derive(Clone, Copy, Debug)]
pub struct DrawnView<R> {
    /// From where.
    pub viewpoint: Viewpoint<R>,
    /// Degree of the spherical harmonics in use, at most the model's.
    pub sh_degree: u32,
    /// True if the depths and normals of the surface are drawn.
    pub surface: bool,
    /// What rows are on the screen; the filter of ellipses is the viewpoint's.
    pub footprint: Footprint,
}

impl<R> DrawnView<R> {
    pub(super) fn new(viewpoint: Viewpoint<R>, drawing: &Drawing) -> Self {
        let &Drawing { sh_degree, surface, footprint, .. } = drawing;
        Self { viewpoint, sh_degree, surface, footprint }
    }
}

/// A row as a view sees it: an ellipse or a surfel, of one colour.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Splat<R> {
    /// Which row.
    pub row: usize,
    /// Place, form and depth; of a surfel the ellipse that covers it.
    pub ellipse: Ellipse<R>,
    /// What rays meet of it, where it is not the ellipse.
    pub surfel: Option<Surfel<R>>,
    /// Opacity at its centre.
    pub opacity: R,
    /// Colour, not below 0.
    pub color: Vec3<R>,
    /// Depth, and x and y of the normal in camera axes; zero where they are not drawn.
    pub surface: Vec3<R>,
    /// Pixels that it can reach.
    pub pixels: Rect,
    /// Exponent below which it is certainly invisible.
    pub exponent_min: R,
}

/// A splat in a pixel that it changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct InPixel<R> {
    /// The pixel's centre less the splat's, px.
    offset_px: [R; 2],
    /// Opacity there.
    pub(super) alpha: R,
    /// Where the pixel's ray meets a surfel.
    meeting: Option<Meeting<R>>,
}

impl<R: Real> InPixel<R> {
    /// The depth there over that of the splat's centre.
    fn depth_share(&self) -> R {
        self.meeting.map_or(R::ONE, |meeting| meeting.depth_share)
    }
}

impl<R: Real> Splat<R> {
    /// In a pixel; nothing where it leaves it as it is. Most misses are told without an exponential.
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

    /// Its depth in a pixel.
    pub(super) fn depth_in(&self, at: &InPixel<R>) -> R {
        self.ellipse.depth * at.depth_share()
    }

    /// What a pixel is blended of.
    pub(super) fn shade(&self, at: &InPixel<R>) -> Shade<R> {
        let [depth, normal_x, normal_y] = self.surface;
        Shade {
            color: self.color,
            inverse_depth: R::ONE / self.depth_in(at),
            surface: [depth * at.depth_share(), normal_x, normal_y],
        }
    }

    /// Adds what a pixel gives to its gradients. `of_shade` has those of its [`Self::shade`], which are added
    /// with it.
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
        // With i = 1 + g·d the depth is depth / i, and the inverse depth i / depth.
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

// An ellipsoid as a view sees it, and the derivative of that, for all primitives that are drawn as 3D
// Gaussians or as surfels.

/// A 3D Gaussian without its colour, raw parameters.
#[derive(Clone, Copy, Debug)]
pub struct Ellipsoid<R> {
    /// Place and form.
    pub shape: Shape<R>,
    /// Opacity before the sigmoid.
    pub opacity_logit: R,
}

impl<R: Real> Ellipsoid<R> {
    /// The splat of this row, black; nothing where the view does not see it.
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
            // A vertex is nothing by itself.
            Footprint::Triangle(_) => None,
        }
    }

    /// Adds the gradients of centre, log-scales, quaternion and opacity logit to `sums`; none of what the
    /// view does not see. That of the colour is for the primitive to carry on.
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
        add(opacity_logit, &[sigmoid_bwd(opacity, d_splat.d_opacity * kept)]);

        let [d_depth, d_normal_x, d_normal_y] = d_splat.d_surface;
        if d_normal_x != R::ZERO || d_normal_y != R::ZERO {
            let d_normal = [d_normal_x, d_normal_y, R::ZERO];
            add(quat, &facing_normal_bwd(viewpoint, &self.faced(view), d_normal));
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
            add(mean, &d.d_mean_world);
            add(log_scale, &d.d_log_scale);
            add(quat, &d.d_quat);
        }
    }

    /// The shape whose shortest axis is the normal.
    fn faced(&self, view: &DrawnView<R>) -> Shape<R> {
        match view.footprint {
            Footprint::Ellipse { .. } | Footprint::Triangle(_) => self.shape,
            Footprint::Surfel => flat(&self.shape),
        }
    }
}

/// What a view sees of an ellipsoid beside its colour.
struct Outline<R> {
    ellipse: Ellipse<R>,
    surfel: Option<Surfel<R>>,
    opacity: R,
    bounds: Bounds<R>,
}

/// Centre, log-scales, quaternion and opacity logit of a row of geometry.
fn parts<R>(row: &mut [R; GEOMETRY]) -> [&mut [R]; 4] {
    let (mean, rest) = row.split_at_mut(3);
    let (log_scale, rest) = rest.split_at_mut(3);
    let (quat, opacity_logit) = rest.split_at_mut(4);
    [mean, log_scale, quat, opacity_logit]
}

fn add<R: Real>(sums: &mut [R], values: &[R]) {
    for (sum, &value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}
