//! Stage `adam`: the projection's backward pass fused with Adam. Parameter gradients live in
//! registers only, but for what surface terms have added to those of the geometry; rows that no view
//! saw, and no such term, move on by their momentum, as in dense Adam.

use std::ops::Range;

use rayon::prelude::*;

use super::adam_packed::PackedStep;
use super::adam_value::Constants;
use super::gradients::Gradients;
use super::project::parameter_gradient;
use crate::backend::cpu::ellipsoid::Ellipsoid;
use crate::backend::cpu::model::{Model, NotFinite};
use crate::backend::cpu::primitive::{DensityField, Drawable, density_field, places};
use crate::backend::{AdamStep, Capability, DeviceError, Noise, Reach, Regularisers};
use crate::layout::Rate;
use crate::math::adam::RateBySize;
use crate::math::field::GEOMETRY;
use crate::math::linalg::{Vec3, add, scale};
use crate::math::random::RandomStream;
use crate::math::relocate::{jitter, standard_normals};
use crate::math::{Real, sigmoid, sigmoid_bwd};
use crate::model::Primitive;

/// Rows whose gradients are computed at a time.
const BLOCK: usize = 4096;

/// Moves every parameter of every row. What compact storage rounds at random follows from the seed.
/// Leaves the gradients of the geometry in `d_geometry`, [n, 11], where they are asked for.
pub(crate) fn step<R: Real, P: Drawable>(
    model: &mut Model<R, P>,
    gradients: &Gradients<R, P>,
    step: &AdamStep,
    seed: u64,
    mut d_geometry: Option<&mut [R]>,
) -> Result<(), DeviceError> {
    let regularises = !step.regularisers.are_off();
    if regularises {
        density_field(model, Capability::Regularisers)?;
    }
    if step.noise.is_some() {
        density_field(model, Capability::Noise)?;
    }
    let (count, all) = (model.len(), model.len_of_all());
    let (splat_from_row, width, spans) =
        (gradients.splat_from_row(count), model.row_width(), model.spans());
    if step.by_size.is_some() {
        density_field(model, Capability::SizedRates)?;
    }
    let mut columns = P::SCHEMA.columns.iter().zip(&spans);
    let of_opacity = columns
        .find(|(column, _)| column.rate == Rate::OpacityLogits)
        .map(|(_, span)| span.clone());
    let packed = PackedStep::new(model, &splat_from_row, step, seed);
    let mut d_rows = vec![R::ZERO; BLOCK.min(count) * width];
    for start in (0..count).step_by(BLOCK) {
        let block = start..(start + BLOCK).min(count);
        let d_rows = &mut d_rows[..block.len() * width];
        d_rows.par_chunks_mut(width).zip(block.clone()).for_each(|(d_row, row)| {
            d_row.fill(R::ZERO);
            parameter_gradient(model, gradients, &splat_from_row, row, d_row);
            let is_reached = step.regularisers.reach == Reach::All
                || of_opacity.clone().is_some_and(|at| d_row[at].iter().any(|&d| d != R::ZERO));
            if regularises
                && is_reached
                && let Some(field) = P::density_field(model)
            {
                regularise(field, &step.regularisers, all, row, d_row);
            }
        });
        if let Some(d_geometry) = &mut d_geometry {
            let of_block = &mut d_geometry[block.start * GEOMETRY..block.end * GEOMETRY];
            let rows = of_block.par_chunks_mut(GEOMETRY).zip(d_rows.par_chunks(width));
            rows.for_each(|(to, d_row)| to.copy_from_slice(&d_row[..GEOMETRY]));
        }
        let factors = rate_factors(model, step.by_size, block.clone());
        if let Some(packed) = &packed {
            packed.step_rows(model, block, d_rows, &factors);
            continue;
        }
        let columns = P::SCHEMA.columns.iter().zip(&mut model.columns).zip(&spans);
        for ((described, column), span) in columns {
            let constants = Constants::new(&step.moments, step.rates.of(described.rate));
            let of_row = column.width;
            if of_row == 0 {
                continue;
            }
            let of_block = block.start * of_row..block.end * of_row;
            column.values[of_block.clone()]
                .par_chunks_mut(of_row)
                .zip(column.first_moments[of_block.clone()].par_chunks_mut(of_row))
                .zip(column.second_moments[of_block].par_chunks_mut(of_row))
                .zip(d_rows.par_chunks(width))
                .enumerate()
                .with_min_len(256)
                .for_each(|(at, (((values, first), second), d_row))| {
                    let constants = constants.of_row(described.rate, factors.get(at));
                    for (i, &d) in d_row[span.clone()].iter().enumerate() {
                        constants.apply(&mut values[i], &mut first[i], &mut second[i], d);
                    }
                });
        }
    }
    if let Some(noise) = &step.noise {
        add_noise(model, noise)?;
    }
    check_finite(model, gradients)
}

/// By what the rates of the centres of these rows are multiplied; nothing where they are not.
fn rate_factors<R: Real, P: Drawable>(
    model: &Model<R, P>,
    by_size: Option<RateBySize>,
    rows: Range<usize>,
) -> Vec<R> {
    let (Some(by_size), Some(field)) = (by_size, P::density_field(model)) else {
        return Vec::new();
    };
    rows.into_par_iter().map(|row| by_size.factor(field.ellipsoid(row).shape.log_scale)).collect()
}

/// Adds the gradients of the mean opacity and of the mean scale (Kheradmand et al. 2024, section
/// 4.4), both of raw parameters, seen or not.
fn regularise<R: Real>(
    field: &dyn DensityField<R>,
    weights: &Regularisers,
    count: usize,
    row: usize,
    d_row: &mut [R],
) {
    let (ellipsoid, count) = (field.ellipsoid(row), count as f64);
    let (mut d_log_scale, mut d_logit) = ([R::ZERO; 3], R::ZERO);
    if weights.opacity != 0.0 {
        let opacity = sigmoid(ellipsoid.opacity_logit);
        d_logit = sigmoid_bwd(opacity, R::of(weights.opacity / count));
    }
    if weights.scale != 0.0 {
        let weight = R::of(weights.scale / (3.0 * count));
        d_log_scale = ellipsoid.shape.log_scale.map(|l| weight * l.exp());
    }
    let mut d_ellipsoid = [R::ZERO; GEOMETRY];
    d_ellipsoid[3..6].copy_from_slice(&d_log_scale);
    d_ellipsoid[GEOMETRY - 1] = d_logit;
    field.ellipsoid_bwd(&d_ellipsoid, d_row);
}

/// Moves every centre at random, as far as the Gaussian is transparent and large.
fn add_noise<R: Real, P: Drawable>(
    model: &mut Model<R, P>,
    noise: &Noise,
) -> Result<(), DeviceError> {
    let (stream, rate) = (RandomStream::of_key(noise.key), R::of(noise.rate));
    let (field, places) = (density_field(model, Capability::Noise)?, places::<P>()?);
    let means: Vec<Vec3<R>> = (0..model.len())
        .into_par_iter()
        .map(|row| {
            let Ellipsoid { shape, opacity_logit } = field.ellipsoid(row);
            let offset =
                jitter(&shape, sigmoid(opacity_logit), standard_normals(stream, model.number(row)));
            add(shape.mean_world, scale(offset, rate))
        })
        .collect();
    model.columns[places].values.copy_from_slice(means.as_flattened());
    Ok(())
}

/// A parameter that left the finite numbers would spread to all others through the images.
fn check_finite<R: Real, P: Drawable>(
    model: &Model<R, P>,
    gradients: &Gradients<R, P>,
) -> Result<(), DeviceError> {
    // Only rows that were seen got a gradient; the others move by finite moments. The surface terms
    // know no such bounds.
    if !gradients.geometry.is_empty() {
        return (0..model.len())
            .into_par_iter()
            .find_map_first(|row| not_finite(model, row))
            .map_or(Ok(()), Err);
    }
    gradients.views.iter().try_for_each(|view| {
        let seen = view.row_from_splat.par_iter();
        seen.find_map_first(|&row| not_finite(model, row)).map_or(Ok(()), Err)
    })
}

/// What of a row, if anything, is infinite or NaN.
fn not_finite<R: Real, P: Primitive>(model: &Model<R, P>, row: usize) -> Option<DeviceError> {
    (0..model.columns.len()).find_map(|number| {
        // A squared gradient may overflow where the parameter does not, and would freeze it.
        let [values, second_moments] = [0, 2].map(|part| model.row_part(number, part, row));
        let mut values = values.iter().chain(&*second_moments);
        let value = values.find(|value| !value.is_finite())?.to_f64();
        Some(NotFinite { column: number, value }.of_row::<P>(row))
    })
}
