//! How the rows of a kind of primitive stand in a PLY.

use std::ops::RangeInclusive;

use splat_mesh::file::ply::Scalar;

use crate::model::Primitive;

/// A kind of primitive that can be written as a PLY.
pub trait PlyRows: Primitive {
    /// What a row of the file consists of, in the order of the file.
    const FIELDS: &'static [PlyField];
    /// Columns whose values are of a range.
    const RANGES: &'static [ColumnRange] = &[];
    /// What files of flat rows leave out; nothing of a kind that is never flat.
    const FLAT: Option<FlatField> = None;
    /// How it goes about a 3D filter; nothing of a kind that has none.
    const FILTER: Option<FilterField<Self>> = None;
    /// What files have of rows that are vertices of triangles; nothing of a kind that never is.
    const VERTEX: Option<VertexFields<Self>> = None;
}

/// Rows that are vertices of triangles.
#[derive(Debug)]
pub struct VertexFields<P> {
    /// What a row of the file consists of, in the order of the file.
    pub fields: &'static [PlyField],
    /// Gives so many rows that were read what a vertex has no use for, and no file.
    pub complete: fn(&mut P, usize),
}

/// What the values of a column may be: others are no model that can be drawn.
#[derive(Debug)]
pub struct ColumnRange {
    /// Which column, by its place in the schema.
    pub column: usize,
    /// From here to there.
    pub range: RangeInclusive<f32>,
}

/// A value that is in the file of each row, but where all rows are flat.
#[derive(Clone, Copy, Debug)]
pub struct FlatField {
    /// What it is called. It is the last of its column's values.
    pub name: &'static str,
    /// What is read where it is not in the file.
    pub value: f32,
}

/// Standard deviations of a 3D filter beside the rows, world units.
#[derive(Debug)]
pub struct FilterField<P> {
    /// What other programs call them in a file. Ours hold rows that they are baked into.
    pub name: &'static str,
    /// Bakes them into the rows, one for each.
    pub fuse: fn(&mut P, &[f32]),
}

/// Meaning of values in space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A position.
    Position,
    /// Natural logarithms of lengths.
    LogLength,
    /// The same in all coordinates.
    Other,
}

/// Neighbouring values of a row in the file. A column is a place in the schema.
#[derive(Clone, Copy, Debug)]
pub enum PlyField {
    /// Values that readers expect and no column holds: zero when written, passed over when read.
    Zeros(&'static [&'static str]),
    /// Colours of 8 bits for viewers, of a column of harmonics of degree 0: passed over when read.
    Colors {
        /// Which column.
        column: usize,
        /// What their channels are called.
        names: &'static [&'static str],
    },
    /// The values of a column in their order.
    Values {
        /// Which column.
        column: usize,
        /// What they are called.
        names: &'static [&'static str],
        /// Change of the values with the coordinates.
        meaning: Meaning,
    },
    /// The same of a quaternion, which is not all zeros; it is written at unit length.
    Rotation {
        /// Which column.
        column: usize,
        /// What its parts are called.
        names: &'static [&'static str],
    },
    /// The harmonics above degree 0, all of red, then of green, then of blue. In memory each
    /// coefficient holds its three channels.
    Harmonics {
        /// Which column.
        column: usize,
        /// What their names begin with; numbers from 0 follow.
        prefix: &'static str,
    },
}

impl PlyField {
    /// The column that its values are read into.
    pub(super) fn column(self) -> Option<usize> {
        match self {
            Self::Zeros(_) | Self::Colors { .. } => None,
            Self::Values { column, .. }
            | Self::Rotation { column, .. }
            | Self::Harmonics { column, .. } => Some(column),
        }
    }

    /// Its names in the file, where the harmonics have so many values.
    pub(super) fn names(self, harmonics: usize) -> Vec<String> {
        match self {
            Self::Zeros(names)
            | Self::Colors { names, .. }
            | Self::Values { names, .. }
            | Self::Rotation { names, .. } => names.iter().map(|&name| name.to_owned()).collect(),
            Self::Harmonics { prefix, .. } => {
                (0..harmonics).map(|index| format!("{prefix}{index}")).collect()
            }
        }
    }

    /// The type of its values in the file.
    pub(super) fn scalar(self) -> Scalar {
        if matches!(self, Self::Colors { .. }) { Scalar::U8 } else { Scalar::F32 }
    }
}
