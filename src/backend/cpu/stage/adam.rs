//! Stage `step`: the projection's backward pass fused with Adam. Parameter gradients live in
//! registers only, but for what surface terms have added to those of the geometry; Gaussians that no
//! view saw, and no such term, move on by their momentum, as in dense Adam.

use rayon::prelude::*;

use super::gradients::Gradients;
use super::project::{ParameterGradient, parameter_gradient};
use crate::backend::cpu::model::{Model, Parameter};
use crate::backend::{AdamStep, DeviceError, Noise, Regularisers};
use crate::math::adam::Moments;
use crate::math::linalg::{Vec3, add, scale};
use crate::math::noise::{jitter, standard_normals};
use crate::math::random::Stream;
use crate::math::{Real, sigmoid, sigmoid_bwd};
use crate::model::{Gaussians, Primitive};

/// Gaussians whose gradients are computed at a time.
const BLOCK: usize = 4096;

/// What Adam needs besides gradient and moments.
#[derive(Clone, Copy)]
struct Constants<R> {
    beta_1: R,
    beta_2: R,
    one_less_beta_1: R,
    one_less_beta_2: R,
    /// Learning rate over the first moment's bias correction.
    rate: R,
    /// 1 / √(bias correction of the second moment).
    inverse_root_correction: R,
    epsilon: R,
}

/// Moves every parameter of every Gaussian.
pub(crate) fn step<R: Real>(
    model: &mut Model<R>,
    gradients: &Gradients<R>,
    step: &AdamStep,
) -> Result<(), DeviceError> {
    let count = model.len();
    let slots: Vec<Vec<usize>> = gradients.views.iter().map(|view| view.slots(count)).collect();
    for start in (0..count).step_by(BLOCK) {
        let block = start..(start + BLOCK).min(count);
        let rows: Vec<ParameterGradient<R>> = block
            .clone()
            .into_par_iter()
            .map(|index| {
                let mut gradient = parameter_gradient(model, gradients, &slots, index);
                regularise(model, &step.regularisers, index, &mut gradient);
                gradient
            })
            .collect();
        let columns = Gaussians::SCHEMA.columns.iter().zip(&mut model.columns);
        for (number, (described, column)) in columns.enumerate() {
            let constants = Constants::new(&step.moments, step.rates.of(described.rate));
            let width = column.width;
            if width == 0 {
                continue;
            }
            let span = block.start * width..block.end * width;
            column.values[span.clone()]
                .par_chunks_mut(width)
                .zip(column.first_moments[span.clone()].par_chunks_mut(width))
                .zip(column.second_moments[span].par_chunks_mut(width))
                .zip(&rows)
                .with_min_len(256)
                .for_each(|(((values, first), second), gradient)| {
                    for (i, &d) in gradient.rows()[number][..width].iter().enumerate() {
                        constants.apply(&mut values[i], &mut first[i], &mut second[i], d);
                    }
                });
        }
    }
    if let Some(noise) = &step.noise {
        add_noise(model, noise);
    }
    check_finite(model, gradients)
}

/// Adds the gradients of the mean opacity and of the mean scale (Kheradmand et al. 2024, section
/// 4.4), both of raw parameters, seen or not.
fn regularise<R: Real>(
    model: &Model<R>,
    weights: &Regularisers,
    index: usize,
    gradient: &mut ParameterGradient<R>,
) {
    let count = model.len() as f64;
    if weights.opacity != 0.0 {
        let opacity = sigmoid(model.row(Parameter::OpacityLogits, index)[0]);
        gradient.opacity_logit += sigmoid_bwd(opacity, R::of(weights.opacity / count));
    }
    if weights.scale != 0.0 {
        let weight = R::of(weights.scale / (3.0 * count));
        let log_scale = model.triple(Parameter::LogScales, index);
        gradient.log_scale = add(gradient.log_scale, log_scale.map(|l| weight * l.exp()));
    }
}

/// Moves every centre at random, as far as the Gaussian is transparent and large.
fn add_noise<R: Real>(model: &mut Model<R>, noise: &Noise) {
    let (stream, rate) = (Stream::of_key(noise.key), R::of(noise.rate));
    let means: Vec<Vec3<R>> = (0..model.len())
        .into_par_iter()
        .map(|index| {
            let shape = model.shape(index);
            let opacity = sigmoid(model.row(Parameter::OpacityLogits, index)[0]);
            let offset = jitter(&shape, opacity, standard_normals(stream, index as u64));
            add(shape.mean_world, scale(offset, rate))
        })
        .collect();
    model.column_mut(Parameter::Means).values.copy_from_slice(means.as_flattened());
}

impl<R: Real> Constants<R> {
    fn new(moments: &Moments, rate: f64) -> Self {
        let Moments { betas, corrections: [first_correction, second_correction], epsilon } =
            *moments;
        let [beta_1, beta_2] = betas.map(R::of);
        // In double precision: 1 - 0.999 in single precision is 1e-5 of itself off.
        let [one_less_beta_1, one_less_beta_2] = betas.map(|beta| R::of(1.0 - beta));
        Self {
            beta_1,
            beta_2,
            one_less_beta_1,
            one_less_beta_2,
            rate: R::of(rate / first_correction),
            inverse_root_correction: R::of(1.0 / second_correction.sqrt()),
            epsilon: R::of(epsilon),
        }
    }

    /// value -= rate · m̂ / (√v̂ + ε), with the bias-corrected moments m̂ and v̂.
    fn apply(&self, value: &mut R, first: &mut R, second: &mut R, d: R) {
        *first = self.beta_1 * *first + self.one_less_beta_1 * d;
        *second = self.beta_2 * *second + self.one_less_beta_2 * d * d;
        let root = second.sqrt() * self.inverse_root_correction;
        *value -= self.rate * *first / (root + self.epsilon);
    }
}

/// A parameter that left the finite numbers would spread to all others through the images.
fn check_finite<R: Real>(model: &Model<R>, gradients: &Gradients<R>) -> Result<(), DeviceError> {
    // Only Gaussians that were seen got a gradient; the others move by finite moments. The surface
    // terms know no such bounds.
    if !gradients.geometry.is_empty() {
        return (0..model.len())
            .into_par_iter()
            .find_map_first(|index| not_finite(model, index))
            .map_or(Ok(()), Err);
    }
    gradients.views.iter().try_for_each(|view| {
        let seen = view.gaussian_from_splat.par_iter();
        seen.find_map_first(|&index| not_finite(model, index)).map_or(Ok(()), Err)
    })
}

/// What of a row, if anything, is infinite or NaN.
fn not_finite<R: Real, P: Primitive>(model: &Model<R, P>, index: usize) -> Option<DeviceError> {
    P::SCHEMA.columns.iter().zip(&model.columns).find_map(|(described, column)| {
        // A squared gradient may overflow where the parameter does not, and would freeze it.
        let row = index * column.width..(index + 1) * column.width;
        let mut values = column.values[row.clone()].iter().chain(&column.second_moments[row]);
        let value = *values.find(|value| !value.is_finite())?;
        let (group, value) = (described.words, value.to_f64());
        Some(DeviceError::NotFinite { index, group, value })
    })
}
