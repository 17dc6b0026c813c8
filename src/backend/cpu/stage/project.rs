//! Stage `project`: Gaussians to splats, and screen-space gradients back to raw parameters.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::gradients::{Gradients, UNSEEN, ViewGradients};
use crate::backend::cpu::model::{Model, Parameter};
use crate::backend::{DeviceError, Drawing};
use crate::math::blend::{ScreenGradient, Shade};
use crate::math::field::GEOMETRY;
use crate::math::linalg::{Quat, Vec3, add, normalize, normalize_bwd, sub};
use crate::math::normals::{facing_normal, facing_normal_bwd};
use crate::math::splat::{
    Ellipse, EllipseGradient, Rect, Viewpoint, bounds, project as project_shape, project_bwd,
};
use crate::math::{Real, sh, sigmoid, sigmoid_bwd};
use crate::model::{Gaussians, Primitive};

/// A Gaussian as a view sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Splat<R> {
    /// Index of the Gaussian.
    pub(crate) gaussian: usize,
    pub(crate) ellipse: Ellipse<R>,
    pub(crate) opacity: R,
    pub(crate) color: Vec3<R>,
    /// Depth, and x and y of the normal in camera axes; zero where they are not drawn.
    pub(crate) surface: Vec3<R>,
    /// Pixels that it can reach.
    pub(crate) pixels: Rect,
    /// Exponent below which it is certainly invisible.
    pub(crate) exponent_min: R,
}

impl<R: Real> Splat<R> {
    /// What pixels are blended of.
    pub(crate) fn shade(&self) -> Shade<R> {
        let inverse_depth = R::ONE / self.ellipse.depth;
        Shade { color: self.color, inverse_depth, surface: self.surface }
    }
}

/// The Gaussians that the view sees, in the order of their indices, and the first that is broken.
///
/// A Gaussian whose place, form, opacity or colour is not finite is left out: in the image it would
/// spread to every other. A colour is looked at only where it is needed.
pub(crate) fn project<R: Real>(
    model: &Model<R>,
    view: &Viewpoint<R>,
    settings: &Drawing,
) -> (Vec<Splat<R>>, Option<DeviceError>) {
    let (sh_degree, with_surface) = (settings.sh_degree, settings.surface);
    let first_broken = AtomicUsize::new(usize::MAX);
    let left_out = |index| {
        first_broken.fetch_min(index, Ordering::Relaxed);
        None
    };
    let splats = (0..model.len())
        .into_par_iter()
        .filter_map(|index| {
            if !SHAPE.iter().all(|&parameter| model.is_finite(parameter, index)) {
                return left_out(index);
            }
            let ellipse = project_shape(view, &model.shape(index))?;
            let raw = sigmoid(model.row(Parameter::OpacityLogits, index)[0]);
            let opacity = raw * ellipse.kept;
            let bounds = bounds(&ellipse, opacity, view.size)?;
            let color = raw_color(model, view, sh_degree, index);
            if !color.iter().all(|c| c.is_finite()) {
                return left_out(index);
            }
            let surface = if with_surface {
                let [x, y, _] = facing_normal(view, &model.shape(index));
                [ellipse.depth, x, y]
            } else {
                [R::ZERO; 3]
            };
            Some(Splat {
                gaussian: index,
                ellipse,
                opacity,
                color: color.map(|c| c.max(R::ZERO)),
                surface,
                pixels: bounds.pixels,
                exponent_min: bounds.exponent_min,
            })
        })
        .collect();
    let index = first_broken.into_inner();
    (splats, (index < model.len()).then(|| fault(model, view, sh_degree, index)))
}

/// What decides where a Gaussian is seen.
const SHAPE: [Parameter; 4] =
    [Parameter::Means, Parameter::LogScales, Parameter::Quats, Parameter::OpacityLogits];

/// What is wrong with a Gaussian that was left out.
fn fault<R: Real>(
    model: &Model<R>,
    view: &Viewpoint<R>,
    sh_degree: u32,
    index: usize,
) -> DeviceError {
    let (group, value) = model.not_finite(index).unwrap_or_else(|| {
        // Finite coefficients, so large that their sum is not.
        let color = raw_color(model, view, sh_degree, index);
        let value = color.into_iter().find(|c| !c.is_finite()).unwrap_or(R::of(f64::NAN));
        (Gaussians::SCHEMA.columns[Parameter::ShDc as usize].words, value)
    });
    let value = value.to_f64();
    DeviceError::NotFinite { index, group, value }
}

/// Colour before it is held above 0: 0.5 + Σ `b_k(direction)` `sh_k`.
fn raw_color<R: Real>(
    model: &Model<R>,
    view: &Viewpoint<R>,
    sh_degree: u32,
    index: usize,
) -> Vec3<R> {
    let direction = normalize(sub(model.triple(Parameter::Means, index), view.centre_world));
    let basis = sh::basis(sh_degree, direction);
    let mut color = model.triple(Parameter::ShDc, index).map(|c| R::HALF + c * basis[0]);
    let rest = model.row(Parameter::ShRest, index).as_chunks::<3>().0;
    for (&weight, coefficient) in basis[1..sh::coefficients(sh_degree)].iter().zip(rest) {
        for (sum, &c) in color.iter_mut().zip(coefficient) {
            *sum += weight * c;
        }
    }
    color
}

/// Gradients of one Gaussian's raw parameters.
#[derive(Clone, Copy, Debug)]
pub struct ParameterGradient<R> {
    /// Of the centre.
    pub mean: Vec3<R>,
    /// Of the logarithms of the scales.
    pub log_scale: Vec3<R>,
    /// Of the quaternion.
    pub quat: Quat<R>,
    /// Of the opacity logit.
    pub opacity_logit: R,
    /// Of the SH coefficients, degree 0 first, `[k][3]`.
    pub sh: [Vec3<R>; sh::MAX_COEFFICIENTS],
}

impl<R: Real> ParameterGradient<R> {
    pub(crate) const ZERO: Self = Self {
        mean: [R::ZERO; 3],
        log_scale: [R::ZERO; 3],
        quat: [R::ZERO; 4],
        opacity_logit: R::ZERO,
        sh: [[R::ZERO; 3]; sh::MAX_COEFFICIENTS],
    };

    /// The gradients as rows of the columns, in the order of the schema.
    pub(crate) fn rows(&self) -> [&[R]; 6] {
        [
            &self.mean,
            &self.log_scale,
            &self.quat,
            std::slice::from_ref(&self.opacity_logit),
            &self.sh[0],
            self.sh[1..].as_flattened(),
        ]
    }

    /// The gradient of one parameter, as a row of its column.
    pub fn row(&self, parameter: Parameter) -> &[R] {
        self.rows()[parameter as usize]
    }

    fn scale(&mut self, factor: R) {
        let Self { mean, log_scale, quat, opacity_logit, sh } = self;
        let values = mean.iter_mut().chain(log_scale).chain(quat).chain([opacity_logit]);
        for value in values.chain(sh.as_flattened_mut()) {
            *value *= factor;
        }
    }
}

/// Mean over the views of the gradients of Gaussian `index`, and of what surface terms add to those of
/// its geometry; `slots[view][gaussian]` finds its splat.
pub(crate) fn parameter_gradient<R: Real>(
    model: &Model<R>,
    gradients: &Gradients<R>,
    slots: &[Vec<usize>],
    index: usize,
) -> ParameterGradient<R> {
    let mut sum = ParameterGradient::ZERO;
    for (view, slots) in gradients.views.iter().zip(slots) {
        if slots[index] != UNSEEN {
            add_view(model, view, index, &view.screen[slots[index]], &mut sum);
        }
    }
    if let Some(row) = gradients.geometry.as_chunks().0.get(index) {
        add_geometry(row, &mut sum);
    }
    if gradients.views.len() > 1 {
        sum.scale(R::of(1.0 / gradients.views.len() as f64));
    }
    sum
}

/// Adds a row of [`Gradients::geometry`].
fn add_geometry<R: Real>(row: &[R; GEOMETRY], sum: &mut ParameterGradient<R>) {
    let [x, y, z, a, b, c, quat @ .., opacity_logit] = *row;
    sum.mean = add(sum.mean, [x, y, z]);
    sum.log_scale = add(sum.log_scale, [a, b, c]);
    for (sum, d) in sum.quat.iter_mut().zip::<[R; 4]>(quat) {
        *sum += d;
    }
    sum.opacity_logit += opacity_logit;
}

/// Carries one view's screen-space gradient back to the raw parameters.
fn add_view<R: Real>(
    model: &Model<R>,
    gradients: &ViewGradients<R>,
    index: usize,
    screen: &ScreenGradient<R>,
    sum: &mut ParameterGradient<R>,
) {
    let view = &gradients.view;
    let shape = model.shape(index);
    let Some(Ellipse { depth, kept, .. }) = project_shape(view, &shape) else { return };
    let opacity = sigmoid(model.row(Parameter::OpacityLogits, index)[0]);
    sum.opacity_logit += sigmoid_bwd(opacity, screen.d_opacity * kept);

    let d_mean = color_bwd(model, gradients, index, screen.d_color, &mut sum.sh);
    sum.mean = add(sum.mean, d_mean);

    let d_ellipse = EllipseGradient {
        d_mean_px: screen.d_mean_px,
        d_conic: screen.d_conic,
        d_log_kept: screen.d_opacity * opacity * kept,
        d_depth: screen.d_surface[0] - screen.d_inverse_depth / (depth * depth),
    };
    let [_, d_normal_x, d_normal_y] = screen.d_surface;
    if d_normal_x != R::ZERO || d_normal_y != R::ZERO {
        let d_quat = facing_normal_bwd(view, &shape, [d_normal_x, d_normal_y, R::ZERO]);
        for (sum, d) in sum.quat.iter_mut().zip(d_quat) {
            *sum += d;
        }
    }
    if let Some(d) = project_bwd(view, &shape, &d_ellipse) {
        sum.mean = add(sum.mean, d.d_mean_world);
        sum.log_scale = add(sum.log_scale, d.d_log_scale);
        for (sum, d) in sum.quat.iter_mut().zip(d.d_quat) {
            *sum += d;
        }
    }
}

/// `d_mean` through the viewing direction; adds to the gradients of the coefficients.
///
/// A channel that was held at 0 takes no gradient.
fn color_bwd<R: Real>(
    model: &Model<R>,
    gradients: &ViewGradients<R>,
    index: usize,
    d_color: Vec3<R>,
    d_sh: &mut [Vec3<R>; sh::MAX_COEFFICIENTS],
) -> Vec3<R> {
    let (view, sh_degree) = (&gradients.view, gradients.sh_degree);
    let color = raw_color(model, view, sh_degree, index);
    let d_color: Vec3<R> =
        std::array::from_fn(|c| if color[c] > R::ZERO { d_color[c] } else { R::ZERO });

    let offset = sub(model.triple(Parameter::Means, index), view.centre_world);
    let direction = normalize(offset);
    let basis = sh::basis(sh_degree, direction);
    let rest = model.row(Parameter::ShRest, index).as_chunks::<3>().0;
    let mut d_basis = [R::ZERO; sh::MAX_COEFFICIENTS];
    for k in 0..sh::coefficients(sh_degree) {
        for c in 0..3 {
            d_sh[k][c] += basis[k] * d_color[c];
        }
        // The basis function of degree 0 does not depend on the direction.
        if k > 0 {
            d_basis[k] = (0..3).map(|c| rest[k - 1][c] * d_color[c]).sum();
        }
    }
    normalize_bwd(offset, sh::basis_bwd(sh_degree, direction, &d_basis))
}
