//! Schema of a primitive: its columns, and the tables that hold them on a device.
//!
//! Files and messages name columns; memory and kernels use tables. Code that only moves rows depends on the schema
//! and not on the primitive.

/// A kind of primitive.
#[derive(Debug, PartialEq, Eq)]
pub struct Schema {
    /// Kinds of rows. The first is the rows of the model; meshes have triangles as a second kind.
    pub spaces: &'static [Space],
    /// Tables in the order of growth.
    pub tables: &'static [Table],
    /// Columns in the order of files; the columns of a table are consecutive and in its order.
    pub columns: &'static [Column],
}

/// A kind of rows.
#[derive(Debug, PartialEq, Eq)]
pub struct Space {
    /// Singular in messages.
    pub one: &'static str,
    /// Plural in messages.
    pub many: &'static str,
}

/// A parameter of every row.
#[derive(Debug, PartialEq, Eq)]
pub struct Column {
    /// Name in checkpoints.
    pub name: &'static str,
    /// Values per row.
    pub width: Width,
    /// Learning rate of the column.
    pub rate: Rate,
    /// Index of the table that holds the column.
    pub table: u8,
    /// Name in messages.
    pub words: &'static str,
}

/// Parts of a table: values, first and second moments.
pub const TABLE_PARTS: usize = 3;

/// Columns that are adjacent on a device, three times: values, first and second moments.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Labels in the ledger of the values, the first and the second moments.
    pub labels: [&'static str; TABLE_PARTS],
    /// Kind of the rows.
    pub space: u8,
    /// Encoding in full precision.
    pub full: Forms,
    /// Encoding in compact storage.
    pub compact: Forms,
    /// True if updates of invisible rows may be deferred until they are needed.
    pub is_lazy: bool,
}

/// Encodings of a table's values and moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms {
    /// The values.
    pub values: RowForm,
    /// The first moments.
    pub first: RowForm,
    /// The second moments.
    pub second: RowForm,
}

impl Forms {
    /// Single precision for all parts.
    pub const FLOATS: Self =
        Self { values: RowForm::Floats, first: RowForm::Floats, second: RowForm::Floats };

    /// Returns the encodings of the values, first and second moments.
    pub const fn all(self) -> [RowForm; TABLE_PARTS] {
        [self.values, self.first, self.second]
    }
}

/// Encoding of a row's values in the words of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowForm {
    /// One value of single precision per word.
    Floats,
    /// Two values of half precision per word.
    Halves,
    /// Two values of bfloat16 per word.
    Bfloats,
    /// Four first moments per word, after a word with their scale.
    Firsts,
    /// Four second moments per word, after a word with their scale.
    Seconds,
}

impl RowForm {
    /// Returns the words of a row with this number of values.
    pub const fn words(self, values: u32) -> u32 {
        match self {
            Self::Floats => values,
            Self::Halves | Self::Bfloats => values.div_ceil(2),
            Self::Firsts | Self::Seconds => 1 + values.div_ceil(4),
        }
    }
}

/// Values of a row in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Fixed number.
    Fixed(u32),
    /// Coefficients of the spherical harmonics above degree 0, three for each.
    ShRest,
}

impl Width {
    /// Returns the number of values for harmonics up to this degree.
    pub const fn values(self, sh_degree: u32) -> u32 {
        match self {
            Self::Fixed(width) => width,
            Self::ShRest => sh_rest_values(sh_degree),
        }
    }
}

/// Returns the values of the harmonics above degree 0, all channels: 3 ((degree + 1)² - 1).
pub const fn sh_rest_values(sh_degree: u32) -> u32 {
    3 * ((sh_degree + 1) * (sh_degree + 1) - 1)
}

/// Learning rate of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Positions, world units.
    Means,
    /// Logarithms of scales.
    LogScales,
    /// Quaternions.
    Quats,
    /// Opacity logits.
    OpacityLogits,
    /// Colours, or SH coefficients of degree 0.
    ShDc,
    /// SH coefficients above degree 0.
    ShRest,
}

impl Schema {
    /// Returns the columns of a table with their indices among all columns.
    pub fn columns_of(&self, table: usize) -> impl Iterator<Item = (usize, &'static Column)> + '_ {
        let columns = self.columns.iter().enumerate();
        columns.filter(move |(_, column)| usize::from(column.table) == table)
    }

    /// Returns the values of a row in each table.
    pub fn values(&self, sh_degree: u32) -> impl Iterator<Item = u32> + '_ {
        let width = move |(_, column): (usize, &Column)| column.width.values(sh_degree);
        (0..self.tables.len()).map(move |table| self.columns_of(table).map(width).sum())
    }

    /// Returns true if there are triangles between the rows.
    pub fn has_faces(&self) -> bool {
        self.spaces.len() > 1
    }

    /// Returns true if a table is lazy.
    pub fn is_lazy(&self) -> bool {
        self.tables.iter().any(|table| table.is_lazy)
    }

    /// Returns the values of a row in all columns.
    pub fn row_values(&self, sh_degree: u32) -> u32 {
        self.columns.iter().map(|column| column.width.values(sh_degree)).sum()
    }

    /// Returns the singular of the rows in messages.
    pub fn one(&self) -> &'static str {
        self.spaces.first().map_or("row", |space| space.one)
    }

    /// Returns the plural of the rows in messages.
    pub fn many(&self) -> &'static str {
        self.spaces.first().map_or("rows", |space| space.many)
    }

    /// Returns the index of the column of positions, by which rows are ordered; the first of its table.
    pub fn places(&self) -> Option<usize> {
        self.columns.iter().position(|column| column.rate == Rate::Means)
    }
}

/// Rows of a lane block, one for each lane of a warp. Tables have whole lane blocks.
pub const LANES: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_the_values_of_a_row() {
        let forms = [
            (RowForm::Floats, 48),
            (RowForm::Halves, 24),
            (RowForm::Bfloats, 24),
            (RowForm::Firsts, 13),
            (RowForm::Seconds, 13),
        ];
        for (form, words) in forms {
            assert_eq!(form.words(48), words, "{form:?}");
        }
        assert_eq!(RowForm::Bfloats.words(11), 6);
        assert_eq!([0, 1, 2, 3].map(sh_rest_values), [0, 9, 24, 45]);
    }
}
