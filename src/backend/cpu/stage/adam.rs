//! Stage `adam`: the projection's backward pass fused with Adam. Parameter gradients are not stored, except the
//! geometry gradients of surface terms. Rows without a gradient move on by momentum, as in dense Adam.

use std::ops::Range;

use rayon::prelude::*;

use super::gradients::{Gradients, UNSEEN};
use super::project::parameter_gradient;
use crate::backend::cpu::model::{Model, NotFinite};
use crate::backend::cpu::packed::{TablePart, set_code};
use crate::backend::cpu::primitive::{DensityField, Drawable, Ellipsoid, density_field, places};
use crate::backend::{
    AdamStep, Capability, DeviceError, MotionReach, Noise, Reach, Regularisers, unsupported,
};
use crate::layout::{LANES, Rate, RowForm, TABLE_PARTS};
use crate::math::adam::{AdamCoefficients, RateBySize};
use crate::math::compact::{
    CODE_MAX, encode_bfloat, encode_first, encode_half, encode_second, inverse_scale, roll,
    rounded_scale,
};
use crate::math::field::GEOMETRY;
use crate::math::linalg::{Vec3, add, dot, length, scale, sub};
use crate::math::random::{RandomStream, RandomUse};
use crate::math::relocate::{jitter, standard_normals};
use crate::math::{Real, sigmoid, sigmoid_bwd};
use crate::model::Primitive;

/// Number of rows whose gradients are computed together.
const BLOCK: usize = 4096;

/// Updates every parameter of every row. `seed` determines the stochastic rounding of compact storage.
/// Writes the gradients of the geometry to `d_geometry`, `[n, 11]`, if given.
pub(crate) fn step<R: Real, P: Drawable>(
    model: &mut Model<R, P>,
    gradients: &Gradients<R, P>,
    step: &AdamStep,
    seed: u64,
    mut d_geometry: Option<&mut [R]>,
) -> Result<(), DeviceError> {
    let regularises = !step.regularisers.are_off();
    if regularises || step.scale_limit > 0.0 {
        density_field(model, Capability::Regularisers)?;
    }
    if step.noise.is_some() {
        density_field(model, Capability::Noise)?;
    }
    let count = model.len();
    let count_of_ranks = model.among.as_ref().map_or(count, |among| among.total);
    let splat_from_row = gradients.splat_from_row(count);
    let (width, spans) = (model.row_width(), model.spans());
    if step.by_size.is_some() {
        density_field(model, Capability::SizedRates)?;
    }
    let mut columns = P::SCHEMA.columns.iter().zip(&spans);
    let of_opacity = columns
        .find(|(column, _)| column.rate == Rate::OpacityLogits)
        .map(|(_, span)| span.clone());
    let packed = PackedStep::new(model, &splat_from_row, step, seed);
    let is_seen = |row: usize| splat_from_row.iter().any(|view| view[row] != UNSEEN);
    let rest_kept = R::of(1.0 - step.sh_decay);
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
                regularise(field, &step.regularisers, count_of_ranks, row, d_row);
            }
        });
        if let Some(d_geometry) = &mut d_geometry {
            let of_block = &mut d_geometry[block.start * GEOMETRY..block.end * GEOMETRY];
            let rows = of_block.par_chunks_mut(GEOMETRY).zip(d_rows.par_chunks(width));
            rows.for_each(|(to, d_row)| to.copy_from_slice(&d_row[..GEOMETRY]));
        }
        let factors = rate_factors(model, step.by_size, block.clone());
        if let Some(packed) = &packed {
            packed.step_rows(model, block, d_rows, &factors, &is_seen);
            continue;
        }
        let columns = P::SCHEMA.columns.iter().zip(&mut model.columns).zip(&spans);
        for ((described, column), span) in columns {
            let coefficients = AdamCoefficients::new(&step.moments, step.rates.of(described.rate));
            let of_row = column.width;
            if of_row == 0 {
                continue;
            }
            let decays = described.rate == Rate::ShRest && step.sh_decay != 0.0;
            let of_block = block.start * of_row..block.end * of_row;
            column.values[of_block.clone()]
                .par_chunks_mut(of_row)
                .zip(column.first_moments[of_block.clone()].par_chunks_mut(of_row))
                .zip(column.second_moments[of_block].par_chunks_mut(of_row))
                .zip(d_rows.par_chunks(width))
                .enumerate()
                .with_min_len(256)
                .for_each(|(at, (((values, first), second), d_row))| {
                    let coefficients = with_factor(coefficients, described.rate, factors.get(at));
                    for (i, &d) in d_row[span.clone()].iter().enumerate() {
                        coefficients.apply(&mut values[i], &mut first[i], &mut second[i], d);
                    }
                    if decays && is_seen(block.start + at) {
                        values.iter_mut().for_each(|value| *value *= rest_kept);
                    }
                });
        }
    }
    if step.scale_limit > 0.0 {
        limit_scales(model, gradients, &splat_from_row, R::of(step.scale_limit))?;
    }
    if let Some(noise) = &step.noise {
        add_noise(model, noise, &is_seen)?;
    }
    check_finite(model, gradients)
}

/// Returns the learning-rate factors of the centres of these rows; empty if their rates do not vary.
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

/// Adds the gradients of the mean opacity and the mean scale of all rows (Kheradmand et al. 2024, section 4.4).
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

/// Limits the standard deviations to a share of the distance from the nearest camera that sees the row.
fn limit_scales<R: Real, P: Drawable>(
    model: &mut Model<R, P>,
    gradients: &Gradients<R, P>,
    splat_from_row: &[Vec<usize>],
    limit: R,
) -> Result<(), DeviceError> {
    // Keeps the logarithm finite.
    let square_min = R::of(1e-30);
    let places = places::<P>()?;
    let scales = P::SCHEMA.columns.iter().position(|column| column.rate == Rate::LogScales);
    let scales = scales.ok_or(unsupported::<P>("scales"))?;
    let means = std::mem::take(&mut model.columns[places].values);
    let of_row = model.columns[scales].width;
    let rows = model.columns[scales].values.par_chunks_mut(of_row);
    rows.zip(means.par_chunks(3)).enumerate().for_each(|(row, (log_scales, mean))| {
        let views = gradients.views.iter().zip(splat_from_row);
        let squares = views.filter(|(_, splats)| splats[row] != UNSEEN).map(|(seen, _)| {
            let offset = sub([mean[0], mean[1], mean[2]], seen.view.viewpoint.centre_world);
            dot(offset, offset).max(square_min)
        });
        let Some(nearest) = squares.reduce(R::min) else { return };
        let most = limit.ln() + R::of(0.5) * nearest.ln();
        for log_scale in log_scales {
            // Values that are not finite stay: they are reported.
            if *log_scale > most && log_scale.is_finite() {
                *log_scale = most;
            }
        }
    });
    model.columns[places].values = means;
    Ok(())
}

/// Perturbs the centres within the noise's reach; transparent and large Gaussians move farthest.
fn add_noise<R: Real, P: Drawable>(
    model: &mut Model<R, P>,
    noise: &Noise,
    is_seen: &(impl Fn(usize) -> bool + Sync),
) -> Result<(), DeviceError> {
    let (stream, rate) = (RandomStream::of_key(noise.key), R::of(noise.rate));
    let longest = match noise.moved {
        MotionReach::All => None,
        MotionReach::Unseen { longest } => Some(R::of(longest)),
    };
    let (field, places) = (density_field(model, Capability::Noise)?, places::<P>()?);
    let means: Vec<Vec3<R>> = (0..model.len())
        .into_par_iter()
        .map(|row| {
            let Ellipsoid { shape, opacity_logit } = field.ellipsoid(row);
            if longest.is_some() && is_seen(row) {
                return shape.mean_world;
            }
            let offset =
                jitter(&shape, sigmoid(opacity_logit), standard_normals(stream, model.number(row)));
            let far = rate * length(offset);
            let rate = match longest {
                Some(longest) if far > longest => rate * (longest / far),
                _ => rate,
            };
            add(shape.mean_world, scale(offset, rate))
        })
        .collect();
    model.columns[places].values.copy_from_slice(means.as_flattened());
    Ok(())
}

/// Fails on a value that is not finite: images would spread it to all other rows.
fn check_finite<R: Real, P: Drawable>(
    model: &Model<R, P>,
    gradients: &Gradients<R, P>,
) -> Result<(), DeviceError> {
    // Rows without a gradient move by finite moments. Surface terms may give gradients to any row.
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

/// Returns an error about the first infinite or NaN value of a row.
fn not_finite<R: Real, P: Primitive>(model: &Model<R, P>, row: usize) -> Option<DeviceError> {
    (0..model.columns.len()).find_map(|number| {
        // A squared gradient may overflow before the parameter does, which would freeze the parameter.
        let [values, second_moments] = [0, 2].map(|part| model.row_part(number, part, row));
        let mut values = values.iter().chain(&*second_moments);
        let value = values.find(|value| !value.is_finite())?.to_f64();
        Some(NotFinite { column: number, value }.of_row::<P>(row))
    })
}

/// Multiplies the learning rate by `factor` if it is the rate of the centres.
fn with_factor<R: Real>(
    coefficients: AdamCoefficients<R>,
    rate: Rate,
    factor: Option<&R>,
) -> AdamCoefficients<R> {
    match factor {
        Some(&factor) if rate == Rate::Means => {
            AdamCoefficients { rate: coefficients.rate * factor, ..coefficients }
        }
        _ => coefficients,
    }
}

// Adam on a model with packed parts: unpack, update, and round stochastically as a GPU does
// (`kernels/adam.cuh`, `kernels/adam_sh.cuh`). Unlike on a GPU, a second moment of 0 stays 0.
//
// A GPU skips colours that no view sees and catches up later. Here they take every step and are rounded
// each time; their moments keep their codes, and only the scales decay.

/// Inputs of a step on packed rows.
pub(super) struct PackedStep<'a> {
    step: &'a AdamStep,
    /// True for each block of [`LANES`] rows that any view sees.
    seen: Vec<bool>,
    /// Random streams that round visible and invisible rows.
    streams: [RandomStream; 2],
}

/// Values, first and second moments of a column.
type RowParts<R> = [Vec<R>; TABLE_PARTS];

/// A row during a step.
struct MovedRow<R> {
    columns: Vec<RowParts<R>>,
    /// Words of each packed part of the model.
    words: Vec<Vec<u32>>,
}

/// Packing of one table during a step. `words` holds indices of the model's packed parts.
struct PackedTable {
    words: [Option<usize>; TABLE_PARTS],
    /// Form of the first moments: 8 or 16 bits.
    first: RowForm,
    /// Inverses of the new scales of 8-bit moments.
    inverse_scales: [f32; 2],
    dice: u32,
    /// True if no view sees the row, so that 8-bit moments keep their codes.
    is_late: bool,
}

impl<'a> PackedStep<'a> {
    /// Returns `None` if the model has no packed parts. `splat_from_row[view][row]` tells which rows are visible.
    pub(super) fn new<R: Real, P: Primitive>(
        model: &Model<R, P>,
        splat_from_row: &[Vec<usize>],
        step: &'a AdamStep,
        seed: u64,
    ) -> Option<Self> {
        if model.packed.is_empty() {
            return None;
        }
        let mut seen = vec![false; model.len().div_ceil(LANES as usize)];
        for view in splat_from_row {
            for (block, rows) in seen.iter_mut().zip(view.chunks(LANES as usize)) {
                *block |= rows.iter().any(|&splat| splat != UNSEEN);
            }
        }
        let streams = [RandomUse::RoundStep, RandomUse::RoundCatchUp]
            .map(|drawn_for| RandomStream::new(seed, u64::from(step.number), drawn_for));
        Some(Self { step, seen, streams })
    }

    /// Updates these rows by their gradients, `[rows, values]`, with optional rate `factors` of their centres.
    /// `is_seen` returns true for rows that a view of the step sees.
    pub(super) fn step_rows<R: Real, P: Primitive + Sync>(
        &self,
        model: &mut Model<R, P>,
        rows: Range<usize>,
        d_rows: &[R],
        factors: &[R],
        is_seen: &(impl Fn(usize) -> bool + Sync),
    ) {
        let (width, first) = (model.row_width(), rows.start);
        let moved: Vec<MovedRow<R>> = rows
            .into_par_iter()
            .zip(d_rows.par_chunks(width))
            .map(|(row, d_row)| {
                let rest_kept = if is_seen(row) { R::of(1.0 - self.step.sh_decay) } else { R::ONE };
                self.moved(model, row, d_row, factors.get(row - first), rest_kept)
            })
            .collect();
        for (row, moved) in (first..).zip(moved) {
            for (column, parts) in model.columns.iter_mut().zip(moved.columns) {
                let of_row = row * column.width..(row + 1) * column.width;
                for (to, from) in column.parts_mut().into_iter().zip(parts) {
                    if !to.is_empty() {
                        to[of_row.clone()].copy_from_slice(&from);
                    }
                }
            }
            for (packed, words) in model.packed.iter_mut().zip(moved.words) {
                let width = packed.width();
                packed.words[row * width..][..width].copy_from_slice(&words);
            }
        }
    }

    fn moved<R: Real, P: Primitive>(
        &self,
        model: &Model<R, P>,
        row: usize,
        d_row: &[R],
        factor: Option<&R>,
        rest_kept: R,
    ) -> MovedRow<R> {
        let column = |number| [0, 1, 2].map(|part| model.row_part(number, part, row).into_owned());
        let mut moved = MovedRow {
            columns: (0..model.columns.len()).map(column).collect(),
            words: model.packed.iter().map(|packed| packed.row(row).to_vec()).collect(),
        };
        let spans = model.spans();
        for table in 0..P::SCHEMA.tables.len() {
            let columns = P::SCHEMA.columns_of(table);
            let of_table = columns.flat_map(|(number, _)| &d_row[spans[number].clone()]);
            let largest = of_table.fold(R::ZERO, |most, d| most.max(d.abs()));
            let mut packed = self.open(model, table, row, largest, &mut moved.words);
            for (number, described) in P::SCHEMA.columns_of(table) {
                let rate = self.step.rates.of(described.rate);
                let coefficients = AdamCoefficients::new(&self.step.moments, rate);
                let coefficients = with_factor(coefficients, described.rate, factor);
                let kept = if described.rate == Rate::ShRest { rest_kept } else { R::ONE };
                let [values, firsts, seconds] = &mut moved.columns[number];
                let ds = &d_row[spans[number].clone()];
                for (i, k) in model.span_in_table(number).enumerate() {
                    let (value, first, second) = (&mut values[i], &mut firsts[i], &mut seconds[i]);
                    if packed.holds_moments() {
                        coefficients.apply_held(value, first, second, ds[i]);
                    } else {
                        coefficients.apply(value, first, second, ds[i]);
                    }
                    *value *= kept;
                    packed.put(&mut moved.words, k, [*value, *first, *second]);
                }
            }
        }
        moved
    }

    /// Updates the scales of a row's table for gradients of magnitude up to `largest`.
    fn open<R: Real, P: Primitive>(
        &self,
        model: &Model<R, P>,
        table: usize,
        row: usize,
        largest: R,
        words: &mut [Vec<u32>],
    ) -> PackedTable {
        let place = |part| {
            let of = TablePart { table, part };
            model.packed.iter().position(|packed| packed.of == of)
        };
        let places = [0, 1, 2].map(place);
        let is_late = P::SCHEMA.tables[table].is_lazy && !self.seen[row / LANES as usize];
        let stream = self.streams[usize::from(is_late)];
        let [beta_1, beta_2] = self.step.moments.betas;
        let more = largest.to_f32() / CODE_MAX;
        let additions = [more, more * largest.to_f32()];
        let mut inverse_scales = [0.0; 2];
        if let [_, Some(first), Some(second)] = places {
            for (i, (beta, at)) in [(beta_1, first), (beta_2, second)].into_iter().enumerate() {
                let scale = f32::from_bits(words[at][0]);
                let decayed = R::of(beta).to_f32() * scale;
                let scale = rounded_scale(decayed + R::of(1.0 - beta).to_f32() * additions[i]);
                words[at][0] = scale.to_bits();
                inverse_scales[i] = inverse_scale(scale);
            }
        }
        let first = places[1].map_or(RowForm::Floats, |at| model.packed[at].form);
        let dice = u32::try_from(stream.bits(row as u64) >> 32).unwrap_or(0);
        PackedTable { words: places, first, inverse_scales, dice, is_late }
    }
}

impl PackedTable {
    /// True if both moments have 8 bits.
    fn holds_moments(&self) -> bool {
        self.words[1].is_some() && self.words[2].is_some()
    }

    /// Rounds value `k` of the row and its moments into their packed words, if any.
    fn put<R: Real>(&mut self, words: &mut [Vec<u32>], k: usize, parts: [R; TABLE_PARTS]) {
        let [value, first, second] = parts.map(R::to_f32);
        let [inverse_first, inverse_second] = self.inverse_scales;
        if self.words == [None; TABLE_PARTS] {
            return;
        }
        let keeps_codes = self.holds_moments() && self.is_late;
        if let Some(at) = self.words[0] {
            let code = encode_half(value, roll(&mut self.dice));
            set_code(RowForm::Halves, &mut words[at], k, code);
        }
        if let Some(at) = self.words[1].filter(|_| !keeps_codes) {
            let random = roll(&mut self.dice);
            let code = match self.first {
                RowForm::Bfloats => encode_bfloat(first, random),
                _ => encode_first(first * inverse_first, random),
            };
            set_code(self.first, &mut words[at], k, code);
        }
        if let Some(at) = self.words[2].filter(|_| !keeps_codes) {
            let code = encode_second(second * inverse_second, roll(&mut self.dice));
            set_code(RowForm::Seconds, &mut words[at], k, code);
        }
    }
}
