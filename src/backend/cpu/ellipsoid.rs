//! An ellipsoid as a view sees it, and the derivative of that, for all primitives that are drawn as 3D
//! Gaussians.

use super::splat::{DrawnView, Splat};
use crate::math::blend::ScreenGradient;
use crate::math::field::GEOMETRY;
use crate::math::normals::{facing_normal, facing_normal_bwd};
use crate::math::splat::{Ellipse, EllipseGradient, Shape, bounds, project, project_bwd};
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
    /// Where the view sees it, were it opaque; nothing where it does not.
    pub fn ellipse(&self, view: &DrawnView<R>) -> Option<Ellipse<R>> {
        project(&view.viewpoint, &self.shape)
    }

    /// The splat of this row, black; nothing where the view does not see it.
    pub fn splat(&self, row: usize, view: &DrawnView<R>) -> Option<Splat<R>> {
        let ellipse = self.ellipse(view)?;
        let opacity = sigmoid(self.opacity_logit) * ellipse.kept;
        let bounds = bounds(&ellipse, opacity, view.viewpoint.size)?;
        let surface = if view.surface {
            let [x, y, _] = facing_normal(&view.viewpoint, &self.shape);
            [ellipse.depth, x, y]
        } else {
            [R::ZERO; 3]
        };
        Some(Splat {
            row,
            ellipse,
            opacity,
            color: [R::ZERO; 3],
            surface,
            pixels: bounds.pixels,
            exponent_min: bounds.exponent_min,
        })
    }

    /// Adds the gradients of centre, log-scales, quaternion and opacity logit to `sums`. That of the
    /// colour is for the primitive to carry on.
    pub fn splat_bwd(
        &self,
        view: &DrawnView<R>,
        ellipse: &Ellipse<R>,
        d_splat: &ScreenGradient<R>,
        sums: &mut [R; GEOMETRY],
    ) {
        let (viewpoint, &Ellipse { depth, kept, .. }) = (&view.viewpoint, ellipse);
        let [mean, log_scale, quat, opacity_logit] = parts(sums);
        let opacity = sigmoid(self.opacity_logit);
        add(opacity_logit, &[sigmoid_bwd(opacity, d_splat.d_opacity * kept)]);

        let [d_depth, d_normal_x, d_normal_y] = d_splat.d_surface;
        if d_normal_x != R::ZERO || d_normal_y != R::ZERO {
            let d_normal = [d_normal_x, d_normal_y, R::ZERO];
            add(quat, &facing_normal_bwd(viewpoint, &self.shape, d_normal));
        }
        let d_ellipse = EllipseGradient {
            d_mean_px: d_splat.d_mean_px,
            d_conic: d_splat.d_conic,
            d_log_kept: d_splat.d_opacity * opacity * kept,
            d_depth: d_depth - d_splat.d_inverse_depth / (depth * depth),
        };
        if let Some(d) = project_bwd(viewpoint, &self.shape, &d_ellipse) {
            add(mean, &d.d_mean_world);
            add(log_scale, &d.d_log_scale);
            add(quat, &d.d_quat);
        }
    }
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
