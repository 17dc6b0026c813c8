//! Copying, removing and reordering rows of a model, in float and packed storage.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::model::{Model, ModelColumn};
use super::packed::PackedPart;
use crate::math::Real;
use crate::model::Primitive;

impl<R: Real, P: Primitive> Model<R, P> {
    /// Reserves exactly `count` more rows. Growing on demand would double each column.
    pub(super) fn reserve_rows(&mut self, count: usize) {
        floats(&mut self.columns).for_each(|part| part.values.reserve_exact(count * part.width));
        words(&mut self.packed).for_each(|part| part.values.reserve_exact(count * part.width));
    }

    /// Appends a copy of a row with zero moments to every column.
    pub(super) fn append_copy(&mut self, row: usize) {
        floats(&mut self.columns).for_each(|part| part.append_copy(row));
        words(&mut self.packed).for_each(|part| part.append_copy(row));
    }

    /// Appends the mean of two rows with zero moments to every column.
    pub(super) fn append_mean(&mut self, ends: [usize; 2]) {
        for RowPart { width, is_moment, values } in floats(&mut self.columns) {
            let [a, b] = ends.map(|row| row * width);
            for k in 0..width {
                let mean = (values[a + k] + values[b + k]) * R::HALF;
                values.push(if is_moment { R::ZERO } else { mean });
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

    /// Appends copies of these rows with zero moments and statistics.
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
        self.optional_columns().for_each(|column| column.resize(count, R::ZERO));
    }

    /// Copies the parameters of one row to another.
    pub(super) fn copy_row(&mut self, from: usize, to: usize) {
        floats(&mut self.columns).for_each(|part| part.copy_parameters(from, to));
        words(&mut self.packed).for_each(|part| part.copy_parameters(from, to));
    }

    /// Zeros the moments of a row.
    pub(super) fn forget_row(&mut self, row: usize) {
        floats(&mut self.columns).for_each(|part| part.forget_moments(row..row + 1));
        words(&mut self.packed).for_each(|part| part.forget_moments(row..row + 1));
    }

    /// Zeros the moments of a column. Packed moments must have 16 bits.
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
        let rows = 0..self.len();
        floats(&mut self.columns).for_each(|part| part.forget_moments(rows.clone()));
        words(&mut self.packed).for_each(|part| part.forget_moments(rows.clone()));
    }

    /// Moves the kept rows to the front, in place. Does not change the statistics.
    pub(super) fn retain_rows(&mut self, keep: &[bool]) {
        floats(&mut self.columns).for_each(|part| part.retain(keep));
        words(&mut self.packed).for_each(|part| part.retain(keep));
    }

    /// Reorders the rows and their statistics.
    pub(super) fn reorder_rows(&mut self, row_from_place: &[usize]) {
        self.invalidate_rows();
        floats(&mut self.columns).for_each(|part| part.reorder(row_from_place));
        words(&mut self.packed).for_each(|part| part.reorder(row_from_place));
        self.gradient_norm_sums = gathered(&self.gradient_norm_sums, 1, row_from_place);
        self.views_seen = gathered(&self.views_seen, 1, row_from_place);
        self.faces.follow(row_from_place);
        self.optional_columns().for_each(|column| *column = gathered(column, 1, row_from_place));
    }
}

/// Values or moments of a column, or words of a packed part; `[n, width]`.
struct RowPart<'a, T> {
    width: usize,
    is_moment: bool,
    values: &'a mut Vec<T>,
}

/// Returns the parts of columns that are not packed.
fn floats<R>(columns: &mut [ModelColumn<R>]) -> impl Iterator<Item = RowPart<'_, R>> {
    let parts = columns.iter_mut().flat_map(|column| {
        let width = column.width;
        let parts = [false, true, true].into_iter().zip(column.parts_mut());
        parts.map(move |(is_moment, values)| RowPart { width, is_moment, values })
    });
    parts.filter(|part| !part.values.is_empty())
}

fn words(packed: &mut [PackedPart]) -> impl Iterator<Item = RowPart<'_, u32>> {
    packed.iter_mut().map(|part| {
        let (width, is_moment) = (part.width(), part.of.is_moment());
        RowPart { width, is_moment, values: &mut part.words }
    })
}

impl<T: Copy + Default> RowPart<'_, T> {
    fn span(&self, rows: Range<usize>) -> Range<usize> {
        rows.start * self.width..rows.end * self.width
    }

    fn append_copy(self, row: usize) {
        if self.is_moment {
            self.values.resize(self.values.len() + self.width, T::default());
        } else {
            let span = self.span(row..row + 1);
            self.values.extend_from_within(span);
        }
    }

    fn copy_parameters(self, from: usize, to: usize) {
        if !self.is_moment {
            let span = self.span(from..from + 1);
            self.values.copy_within(span, to * self.width);
        }
    }

    fn forget_moments(self, rows: Range<usize>) {
        if self.is_moment {
            let span = self.span(rows);
            self.values[span].fill(T::default());
        }
    }

    fn retain(self, keep: &[bool]) {
        let mut end = 0;
        for (row, _) in keep.iter().enumerate().filter(|&(_, &keep)| keep) {
            let span = self.span(row..row + 1);
            self.values.copy_within(span, end);
            end += self.width;
        }
        self.values.truncate(end);
    }

    fn reorder(self, row_from_place: &[usize]) {
        *self.values = gathered(self.values, self.width, row_from_place);
    }
}

/// Returns the rows of a column in another order, without spare capacity.
pub(super) fn gathered<T: Copy>(values: &[T], width: usize, row_from_place: &[usize]) -> Vec<T> {
    let mut gathered = Vec::with_capacity(values.len());
    for row in row_from_place {
        gathered.extend_from_slice(&values[row * width..(row + 1) * width]);
    }
    gathered
}

// Serialised rows that travel between processes.

/// Rows with their moments and statistics.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct RowBlock<R> {
    /// Values, first and second moments of each column, in schema order; empty if packed.
    floats: Vec<Vec<R>>,
    /// Packed parts.
    words: Vec<Vec<u32>>,
    gradient_norm_sums: Vec<R>,
    views_seen: Vec<u32>,
    absolute_norm_sums: Vec<R>,
    filter_3d: Vec<R>,
}

impl<R: Real, P: Primitive> Model<R, P> {
    /// True if the block holds `rows` complete rows of a model with this layout.
    pub(super) fn takes(&self, block: &RowBlock<R>, rows: usize) -> bool {
        let is = |found: usize, width: usize| found == rows * width;
        let may_be = |found: usize, width: usize| found == 0 || is(found, width);
        let widths = self.columns.iter().flat_map(|column| [column.width; 3]);
        let floats = block.floats.iter().zip(widths);
        let words = block.words.iter().zip(&self.packed);
        block.floats.len() == 3 * self.columns.len()
            && block.words.len() == self.packed.len()
            && floats.into_iter().all(|(part, width)| may_be(part.len(), width))
            && words.into_iter().all(|(part, packed)| is(part.len(), packed.width()))
            && is(block.gradient_norm_sums.len(), 1)
            && is(block.views_seen.len(), 1)
            && may_be(block.absolute_norm_sums.len(), 1)
            && may_be(block.filter_3d.len(), 1)
    }

    /// Copies these rows, in this order.
    pub(super) fn block(&self, rows: &[usize]) -> RowBlock<R> {
        let some = |values: &[R], width: usize| match values {
            [] => Vec::new(),
            values => gathered(values, width, rows),
        };
        let columns = self.columns.iter();
        let floats =
            columns.flat_map(|column| [0, 1, 2].map(|part| some(column.part(part), column.width)));
        let words = self.packed.iter().map(|part| gathered(&part.words, part.width(), rows));
        RowBlock {
            floats: floats.collect(),
            words: words.collect(),
            gradient_norm_sums: gathered(&self.gradient_norm_sums, 1, rows),
            views_seen: gathered(&self.views_seen, 1, rows),
            absolute_norm_sums: some(&self.absolute_norm_sums, 1),
            filter_3d: some(&self.filter_3d, 1),
        }
    }

    /// Appends the rows of a block from a model with this layout.
    pub(super) fn append_block(&mut self, block: &RowBlock<R>) {
        self.invalidate_rows();
        let parts = self.columns.iter_mut().flat_map(|column| column.parts_mut());
        for (part, more) in parts.zip(&block.floats) {
            part.extend_from_slice(more);
        }
        for (part, more) in self.packed.iter_mut().zip(&block.words) {
            part.words.extend_from_slice(more);
        }
        self.gradient_norm_sums.extend_from_slice(&block.gradient_norm_sums);
        self.views_seen.extend_from_slice(&block.views_seen);
        self.absolute_norm_sums.extend_from_slice(&block.absolute_norm_sums);
        self.filter_3d.extend_from_slice(&block.filter_3d);
    }

    /// Overwrites the parameters of these rows. Does not change moments and statistics.
    pub(super) fn take_parameters(&mut self, rows: &[usize], block: &RowBlock<R>) {
        for (column, parts) in self.columns.iter_mut().zip(block.floats.chunks(3)) {
            place(&mut column.values, column.width, rows, &parts[0]);
        }
        for (part, words) in self.packed.iter_mut().zip(&block.words) {
            if !part.of.is_moment() {
                let width = part.width();
                place(&mut part.words, width, rows, words);
            }
        }
    }
}

/// Writes rows of values to these indices. Does nothing if `from` is empty.
fn place<T: Copy>(to: &mut [T], width: usize, rows: &[usize], from: &[T]) {
    if width == 0 || from.is_empty() {
        return;
    }
    for (&row, values) in rows.iter().zip(from.chunks(width)) {
        to[row * width..(row + 1) * width].copy_from_slice(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::plan::Storage;
    use crate::model::Gaussians;

    fn all_different(storage: Storage) -> Model<f32> {
        let mut host = Gaussians::zeros(2, 70);
        let groups = host.groups_mut().into_iter().flatten();
        groups.enumerate().for_each(|(number, value)| *value = (number % 89) as f32 / 64.0);
        let mut model = Model::stored(&host, storage);
        model.views_seen = (0..70).collect();
        model.filter_3d = (0..70_u8).map(f32::from).collect();
        model
    }

    #[test]
    fn blocks_keep_rows_in_any_storage() {
        for storage in [Storage::Full, Storage::Compact] {
            let model = all_different(storage);
            let mut there = Model::<f32>::with_room(&Gaussians::empty(2), 0, storage);
            for rows in [&[69, 3][..], &[], &[40]] {
                there.append_block(&model.block(rows));
            }
            assert_eq!((there.len(), &*there.views_seen), (3, &[69, 3, 40][..]));
            assert_eq!(there.sample(&[0, 1, 2]), model.sample(&[69, 3, 40]));
            assert_eq!(there.filter_3d, [69.0, 3.0, 40.0]);
            assert!(there.takes(&model.block(&[1, 2]), 2) && !there.takes(&model.block(&[1]), 2));
            let other = Model::<f32>::with_room(&Gaussians::empty(1), 0, storage);
            assert!(!other.takes(&model.block(&[1]), 1), "of other widths");
            there.take_parameters(&[2, 0], &model.block(&[5, 6]));
            assert_eq!(there.sample(&[0, 1, 2]), model.sample(&[6, 3, 5]));
            assert_eq!(there.views_seen, [69, 3, 40], "statistics stay");
        }
    }
}
