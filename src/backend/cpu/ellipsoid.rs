//! An ellipsoid as a view sees it, and the derivative of that, for all primitives that are drawn as 3D
//! Gaussians or as surfels.

use super::splat::{DrawnView, Splat};
use crate::backend::Footprint;
use crate::math::blend::ScreenGradient;
use crate::math::field::GEOMETRY;
use crate::math::normals::{facing_normal, facing_normal_bwd, flat};
use crate::math::splat::{
    Bounds, Ellipse, EllipseGradient, Shape, Surfel, SurfelGradient, bounds, project, project_bwd,
    project_surfel, project_surfel_bwd,
};
use crate::math::{Real, sigmoid, sigmoid_bwd};

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
