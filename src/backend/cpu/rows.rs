//! Rows of a model that are copied, removed and put in another order, in floats and words alike.

use super::model::{Model, ModelColumn};
use crate::math::Real;
use crate::model::Primitive;

impl<R: Real, P: Primitive> Model<R, P> {
    /// Makes room for exactly so many births: growing step by step would double each column.
    pub(super) fn reserve_rows(&mut self, births: usize) {
        for column in &mut self.columns {
            let width = column.width;
            for part in held(column) {
                part.reserve_exact(births * width);
            }
        }
        for part in &mut self.packed {
            let width = part.width();
            part.words.reserve_exact(births * width);
        }
    }

    /// Appends a copy of a row with fresh moments to every column.
    pub(super) fn append_copy(&mut self, row: usize) {
        for ModelColumn { width, values, first_moments, second_moments } in &mut self.columns {
            if !values.is_empty() {
                values.extend_from_within(row * *width..(row + 1) * *width);
            }
            for moments in [first_moments, second_moments] {
                if !moments.is_empty() {
                    moments.resize(moments.len() + *width, R::ZERO);
                }
            }
        }
        for part in &mut self.packed {
            let width = part.width();
            if part.of.is_moment() {
                part.words.resize(part.words.len() + width, 0);
            } else {
                part.words.extend_from_within(row * width..(row + 1) * width);
            }
        }
    }

    /// Appends the mean of two rows with fresh moments to every column.
    pub(super) fn append_mean(&mut self, ends: [usize; 2]) {
        for ModelColumn { width, values, first_moments, second_moments } in &mut self.columns {
            if !values.is_empty() {
                let [a, b] = ends.map(|row| row * *width);
                values.extend_from_within(a..a + *width);
                let mean = values.len() - *width;
                for k in 0..*width {
                    values[mean + k] = (values[a + k] + values[b + k]) * R::HALF;
                }
            }
            for moments in [first_moments, second_moments] {
                if !moments.is_empty() {
                    moments.resize(moments.len() + *width, R::ZERO);
                }
            }
        }
        for part in &mut self.packed {
            if part.of.is_moment() {
                part.words.resize(part.words.len() + part.width(), 0);
            } else {
                part.push_mean(ends);
            }
        }
    }

    /// Appends a copy of each of these rows, with moments and statistics of zero.
    pub(super) fn append_copies(&mut self, sources: &[usize]) {
        if !sources.is_empty() {
            self.invalidate_rows();
        }
        self.reserve_rows(sources.len());
        for &source in sources {
            self.append_copy(source);
        }
        let count = self.len();
        self.gradient_norm_sums.resize(count, R::ZERO);
        self.views_seen.resize(count, 0);
        for column in [&mut self.absolute_norm_sums, &mut self.filter_3d] {
            if !column.is_empty() {
                column.resize(count, R::ZERO);
            }
        }
    }

    /// Gives a row the parameters of another.
    pub(super) fn copy_row(&mut self, from: usize, to: usize) {
        for ModelColumn { width, values, .. } in &mut self.columns {
            if !values.is_empty() {
                values.copy_within(from * *width..(from + 1) * *width, to * *width);
            }
        }
        for part in self.packed.iter_mut().filter(|part| !part.of.is_moment()) {
            let width = part.width();
            part.words.copy_within(from * width..(from + 1) * width, to * width);
        }
    }

    /// Zeros the moments of a row.
    pub(super) fn forget_row(&mut self, row: usize) {
        for ModelColumn { width, first_moments, second_moments, .. } in &mut self.columns {
            for moments in [first_moments, second_moments] {
                if !moments.is_empty() {
                    moments[row * *width..(row + 1) * *width].fill(R::ZERO);
                }
            }
        }
        for part in self.packed.iter_mut().filter(|part| part.of.is_moment()) {
            let width = part.width();
            part.words[row * width..(row + 1) * width].fill(0);
        }
    }

    /// Zeros the moments of a column. In words it has to be one of 16 bits.
    pub(super) fn forget_moments(&mut self, column: usize) {
        let values = self.span_in_table(column);
        let table = usize::from(P::SCHEMA.columns[column].table);
        let ModelColumn { first_moments, second_moments, .. } = &mut self.columns[column];
        first_moments.fill(R::ZERO);
        second_moments.fill(R::ZERO);
        let parts = self.packed.iter_mut().filter(|part| part.of.table == table);
        for part in parts.filter(|part| part.of.is_moment()) {
            part.clear(values.clone());
        }
    }

    /// Zeros the moments of all columns.
    pub(super) fn forget_all_moments(&mut self) {
        for ModelColumn { first_moments, second_moments, .. } in &mut self.columns {
            first_moments.fill(R::ZERO);
            second_moments.fill(R::ZERO);
        }
        for part in self.packed.iter_mut().filter(|part| part.of.is_moment()) {
            part.words.fill(0);
        }
    }

    /// Moves the kept rows to the front, in place; statistics stay as they are.
    pub(super) fn retain_rows(&mut self, keep: &[bool]) {
        for column in &mut self.columns {
            let width = column.width;
            for part in held(column) {
                retain(part, width, keep);
            }
        }
        for part in &mut self.packed {
            let width = part.width();
            retain(&mut part.words, width, keep);
        }
    }

    /// Puts the rows in another order, with their statistics.
    pub(super) fn reorder_rows(&mut self, row_from_place: &[usize]) {
        self.invalidate_rows();
        for column in &mut self.columns {
            let width = column.width;
            for part in held(column) {
                *part = gathered(part, width, row_from_place);
            }
        }
        for part in &mut self.packed {
            part.words = gathered(&part.words, part.width(), row_from_place);
        }
        self.gradient_norm_sums = gathered(&self.gradient_norm_sums, 1, row_from_place);
        self.views_seen = gathered(&self.views_seen, 1, row_from_place);
        self.faces.follow(row_from_place);
        for column in [&mut self.absolute_norm_sums, &mut self.filter_3d] {
            if !column.is_empty() {
                *column = gathered(column, 1, row_from_place);
            }
        }
    }
}

/// The parts of a column that are kept in floats.
fn held<R>(column: &mut ModelColumn<R>) -> impl Iterator<Item = &mut Vec<R>> {
    column.parts_mut().into_iter().filter(|part| !part.is_empty())
}

/// Moves the kept rows to the front, in place.
fn retain<T: Copy>(values: &mut Vec<T>, width: usize, keep: &[bool]) {
    let mut end = 0;
    for (row, _) in keep.iter().enumerate().filter(|&(_, &keep)| keep) {
        values.copy_within(row * width..(row + 1) * width, end);
        end += width;
    }
    values.truncate(end);
}

/// The rows of a column in another order, in exactly as much memory as they need.
pub(super) fn gathered<T: Copy>(values: &[T], width: usize, row_from_place: &[usize]) -> Vec<T> {
    let mut gathered = Vec::with_capacity(values.len());
    for row in row_from_place {
        gathered.extend_from_slice(&values[row * width..(row + 1) * width]);
    }
    gathered
}
