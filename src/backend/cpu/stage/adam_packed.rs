//! A step of Adam on a model of which words hold a part: read, moved, and rounded at random as a GPU
//! does (`kernels/adam_row.cuh`, `kernels/adam_sh_compact.cuh`), but that a second moment of 0 stays 0.
//!
//! A GPU leaves colours behind of which no view sees anything, and lets them catch up later. Here they
//! take every step, and are rounded in each; their moments keep their codes, and only the scales decay.

use std::ops::Range;

use rayon::prelude::*;

use super::adam_value::Constants;
use super::gradients::UNSEEN;
use crate::backend::AdamStep;
use crate::backend::cpu::model::Model;
use crate::backend::cpu::packed::{TablePart, set_code};
use crate::layout::{LANES, Rate, RowForm, TABLE_PARTS};
use crate::math::Real;
use crate::math::compact::{
    CODE_MAX, encode_bfloat, encode_first, encode_half, encode_second, inverse_scale, roll,
    rounded_scale,
};
use crate::math::random::{RandomStream, RandomUse};
use crate::model::Primitive;

/// What the step of every row takes.
pub(super) struct PackedStep<'a> {
    step: &'a AdamStep,
    /// Whether any view sees anything of each block of [`LANES`] rows.
    seen: Vec<bool>,
    /// Rounds what is seen, and what is not.
    streams: [RandomStream; 2],
}

/// Values, first and second moments of a column.
type RowParts<R> = [Vec<R>; TABLE_PARTS];

/// A row on its way through a step.
struct MovedRow<R> {
    /// By column.
    columns: Vec<RowParts<R>>,
    /// By packed part of the model.
    words: Vec<Vec<u32>>,
}

/// The words of a table's parts, as places among those of the model, and how they change.
struct PackedTable {
    words: [Option<usize>; TABLE_PARTS],
    /// First moments in 8 bits, or in 16.
    first: RowForm,
    /// 1 / the scales of moments in 8 bits, as they will be.
    inverse_scales: [f32; 2],
    dice: u32,
    /// Nothing is seen, and moments of 8 bits keep their codes.
    is_late: bool,
}

impl<'a> PackedStep<'a> {
    /// Nothing where the model is in full precision; `splat_from_row[view][row]` says what is seen.
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

    /// Moves these rows down their gradients, `[rows, values]`, with `factors` of the rates of their centres, if
    /// there are any. `is_seen` says of a row whether a view of the step shows it.
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
                let constants = Constants::new(&self.step.moments, rate);
                let constants = constants.of_row(described.rate, factor);
                let kept = if described.rate == Rate::ShRest { rest_kept } else { R::ONE };
                let [values, firsts, seconds] = &mut moved.columns[number];
                let ds = &d_row[spans[number].clone()];
                for (i, k) in model.span_in_table(number).enumerate() {
                    let (value, first, second) = (&mut values[i], &mut firsts[i], &mut seconds[i]);
                    if packed.holds_moments() {
                        constants.apply_held(value, first, second, ds[i]);
                    } else {
                        constants.apply(value, first, second, ds[i]);
                    }
                    *value = *value * kept;
                    packed.put(&mut moved.words, k, [*value, *first, *second]);
                }
            }
        }
        moved
    }

    /// Gives the scales of a row's table room for gradients up to `largest`.
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
    /// Whether both moments are in 8 bits.
    fn holds_moments(&self) -> bool {
        self.words[1].is_some() && self.words[2].is_some()
    }

    /// Rounds value `k` of the row and its moments into their words, as far as they are kept there.
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
