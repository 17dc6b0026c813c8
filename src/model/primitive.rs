//! What every kind of model is made of: named columns of rows.

use std::ops::Range;

/// A set of named parameter columns.
pub trait Primitive: Clone {
    /// A copy of these rows; those after the last are left out.
    fn rows(&self, rows: Range<usize>) -> Self;
    /// The columns in a fixed order.
    fn groups(&self) -> Vec<Group<'_>>;
    /// The columns' values, in the order of [`Self::groups`].
    fn groups_mut(&mut self) -> Vec<&mut Vec<f32>>;
}

/// One column: `values` is [rows, width].
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// Name in checkpoints.
    pub name: &'static str,
    /// Values per row.
    pub width: usize,
    /// All values.
    pub values: &'a [f32],
}
