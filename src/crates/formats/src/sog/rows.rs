//! Rows of numbers.

use rayon::prelude::*;

/// Numbers that are subtracted at a time; rows are padded to a multiple.
pub(super) const LANES: usize = 8;

/// Rows of as many numbers each, padded with zeros.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RowTable {
    width: usize,
    values: Vec<f32>,
}

impl RowTable {
    /// Rows of so many numbers, none yet.
    pub(super) fn of_width(numbers: usize) -> Self {
        Self { width: numbers.next_multiple_of(LANES).max(LANES), values: Vec::new() }
    }

    /// So many rows of so many numbers, each as `fill` makes it of zeros.
    pub(super) fn filled(
        numbers: usize,
        count: usize,
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Self {
        let Self { width, .. } = Self::of_width(numbers);
        let mut values = vec![0.0; count * width];
        let rows = values.par_chunks_exact_mut(width).enumerate();
        rows.for_each(|(row, to)| fill(row, &mut to[..numbers]));
        Self { width, values }
    }

    /// No rows, as wide as these.
    pub(super) const fn like(other: &Self) -> Self {
        Self { width: other.width, values: Vec::new() }
    }

    pub(super) fn push(&mut self, row: &[f32]) {
        let end = self.values.len() + self.width;
        self.values.extend_from_slice(row);
        self.values.resize(end, 0.0);
    }

    /// Numbers of a row, padding included.
    pub(super) const fn width(&self) -> usize {
        self.width
    }

    pub(super) fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// A row with its padding.
    pub(super) fn row(&self, number: usize) -> &[f32] {
        &self.values[number * self.width..][..self.width]
    }

    pub(super) fn row_mut(&mut self, number: usize) -> &mut [f32] {
        &mut self.values[number * self.width..][..self.width]
    }

    /// All numbers, row by row.
    pub(super) fn values(&self) -> &[f32] {
        &self.values
    }
}
