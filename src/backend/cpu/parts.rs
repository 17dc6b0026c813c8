//! Parts of a model's rows, whether its storage keeps them in floats or in words.

use std::borrow::Cow;
use std::ops::Range;

use super::model::{Model, ModelColumn, host, precise};
use super::packed::{PackedPart, TablePart};
use crate::math::Real;
use crate::model::{Group, Primitive};

impl<R: Real, P: Primitive> Model<R, P> {
    /// The words that hold a part of a column, if any do.
    fn packed_part(&self, column: usize, part: usize) -> Option<&PackedPart> {
        let of = TablePart::of_column::<P>(column)[part];
        self.packed.iter().find(|packed| packed.of == of)
    }

    /// A part of a column of one row, in any storage.
    pub(super) fn row_part(&self, column: usize, part: usize, row: usize) -> Cow<'_, [R]> {
        if let Some(packed) = self.packed_part(column, part) {
            let values = self.span_in_table(column);
            return values.map(|k| R::of_f32(packed.value(row, k))).collect();
        }
        let column = &self.columns[column];
        Cow::Borrowed(&column.part(part)[row * column.width..][..column.width])
    }

    /// Where a column's values lie among those of a row of its table.
    pub(super) fn span_in_table(&self, column: usize) -> Range<usize> {
        let table = P::SCHEMA.columns[column].table;
        let before = (0..column).filter(|&other| P::SCHEMA.columns[other].table == table);
        let start = before.map(|other| self.columns[other].width).sum();
        start..start + self.columns[column].width
    }

    /// A part of these rows.
    pub(super) fn gather(&self, rows: &Range<usize>, part: usize) -> P {
        let mut gathered = P::empty(self.sh_degree);
        for (number, values) in gathered.groups_mut().into_iter().enumerate() {
            let column = &self.columns[number];
            *values = if self.packed_part(number, part).is_some() {
                rows.clone().flat_map(|row| host(&self.row_part(number, part, row))).collect()
            } else {
                host(&column.part(part)[rows.start * column.width..rows.end * column.width])
            };
        }
        gathered
    }

    /// Adds rows of these values, first and second moments behind the last; statistics stay as they are.
    pub(super) fn append_parts(&mut self, parts: [&P; 3]) {
        let groups = parts.map(P::groups);
        for packed in &mut self.packed {
            let columns: Vec<&Group<'_>> = P::SCHEMA
                .columns_of(packed.of.table)
                .map(|(number, _)| &groups[packed.of.part][number])
                .collect();
            for row in 0..parts[0].len() {
                let values = columns
                    .iter()
                    .flat_map(|group| &group.values[row * group.width..][..group.width]);
                packed.push(&values.copied().collect::<Vec<f32>>());
            }
        }
        for number in 0..self.columns.len() {
            for (part, groups) in groups.iter().enumerate() {
                if self.packed_part(number, part).is_none() {
                    let values = precise::<R>(groups[number].values);
                    self.columns[number].parts_mut()[part].extend(values);
                }
            }
        }
    }
}

impl<R> ModelColumn<R> {
    /// Values, first or second moments.
    pub(super) fn part(&self, part: usize) -> &Vec<R> {
        [&self.values, &self.first_moments, &self.second_moments][part]
    }

    /// All three.
    pub(super) fn parts_mut(&mut self) -> [&mut Vec<R>; 3] {
        [&mut self.values, &mut self.first_moments, &mut self.second_moments]
    }
}
