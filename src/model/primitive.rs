//! Models of every kind of primitive: columns of rows that a schema describes.

use std::ops::Range;

use crate::layout::Schema;

/// A set of parameter columns on the host: the form that is loaded, saved and exchanged between devices.
pub trait Primitive: Clone {
    /// Columns, and the tables that devices store them in.
    const SCHEMA: &'static Schema;

    /// Creates a model without rows, with harmonics up to this degree. A primitive without harmonics has none above
    /// degree 0.
    fn empty(sh_degree: u32) -> Self;
    /// Returns the highest degree of the spherical harmonics; 0 for a primitive without them.
    fn sh_degree(&self) -> u32;
    /// Returns the columns' values, in the order of the schema.
    fn values(&self) -> Vec<&[f32]>;
    /// Returns the columns' values to be changed.
    fn groups_mut(&mut self) -> Vec<&mut Vec<f32>>;

    /// Returns the columns in the order of the schema.
    fn groups(&self) -> Vec<Group<'_>> {
        let columns = Self::SCHEMA.columns.iter().zip(self.values());
        columns
            .map(|(column, values)| Group {
                name: column.name,
                width: column.width.values(self.sh_degree()) as usize,
                values,
            })
            .collect()
    }

    /// Creates `count` rows of zeros.
    fn zeros(sh_degree: u32, count: usize) -> Self {
        let mut zeros = Self::empty(sh_degree);
        for (values, column) in zeros.groups_mut().into_iter().zip(Self::SCHEMA.columns) {
            *values = vec![0.0; count * column.width.values(sh_degree) as usize];
        }
        zeros
    }

    /// Returns the number of rows.
    fn len(&self) -> usize {
        self.groups().first().map_or(0, |first| first.values.len() / first.width)
    }

    /// Returns true if there are no rows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies these rows. Rows after the last are left out.
    fn rows(&self, rows: Range<usize>) -> Self {
        let mut part = Self::empty(self.sh_degree());
        let end = rows.end.min(self.len());
        let rows = rows.start.min(end)..end;
        for (to, from) in part.groups_mut().into_iter().zip(self.groups()) {
            *to = from.values[rows.start * from.width..rows.end * from.width].to_vec();
        }
        part
    }

    /// Copies these rows, in this order.
    fn gather(&self, rows: impl Iterator<Item = usize> + Clone) -> Self {
        let mut gathered = Self::empty(self.sh_degree());
        let count = rows.clone().count();
        for (to, from) in gathered.groups_mut().into_iter().zip(self.groups()) {
            to.reserve_exact(count * from.width);
            for row in rows.clone() {
                to.extend_from_slice(&from.values[row * from.width..][..from.width]);
            }
        }
        gathered
    }

    /// Appends rows with harmonics of the same degree.
    fn append(&mut self, mut others: Self) {
        for (column, more) in self.groups_mut().into_iter().zip(others.groups_mut()) {
            column.append(more);
        }
    }

    /// Drops the harmonics above this degree. Does nothing if the degree is not lower.
    fn lower_sh_degree(&mut self, sh_degree: u32) {
        if sh_degree < self.sh_degree() {
            self.set_sh_degree(sh_degree);
        }
    }

    /// Drops the harmonics above this degree, or adds zeros up to it.
    fn set_sh_degree(&mut self, sh_degree: u32) {
        let (count, degrees) = (self.len(), [self.sh_degree(), sh_degree]);
        let mut changed = Self::empty(sh_degree);
        let columns = Self::SCHEMA.columns.iter().zip(self.groups_mut());
        for ((column, from), to) in columns.zip(changed.groups_mut()) {
            *to = std::mem::take(from);
            fit(to, count, degrees.map(|degree| column.width.values(degree) as usize));
        }
        *self = changed;
    }
}

/// Changes the width of rows: drops the last values or adds zeros. Coefficients are in the order of their degrees.
fn fit(values: &mut Vec<f32>, count: usize, [before, after]: [usize; 2]) {
    if after > before {
        let mut wide = vec![0.0; count * after];
        for row in 0..count {
            wide[row * after..][..before].copy_from_slice(&values[row * before..][..before]);
        }
        *values = wide;
    } else if after < before {
        for row in 0..count {
            values.copy_within(row * before..row * before + after, row * after);
        }
        values.truncate(count * after);
    }
}

/// A column: `values` is `[rows, width]`.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// Name in checkpoints.
    pub name: &'static str,
    /// Values per row.
    pub width: usize,
    /// All values.
    pub values: &'a [f32],
}
