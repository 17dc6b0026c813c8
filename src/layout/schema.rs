//! What a kind of primitive consists of: its columns, and the tables that hold them on a device.
//!
//! A column is what files and messages name; a table is what memory and kernels know. All that only
//! moves rows about goes by these descriptions and knows no primitive by name.

/// A kind of primitive.
#[derive(Debug, PartialEq, Eq)]
pub struct Schema {
    /// What its rows stand for: models have one number of rows. Of a mesh these are the vertices, and its
    /// triangles are a second sort.
    pub spaces: &'static [Space],
    /// The tables in the order in which they grow.
    pub tables: &'static [Table],
    /// The columns in the order of files; those of one table follow one another in its order.
    pub columns: &'static [Column],
}

/// A sort of rows.
#[derive(Debug, PartialEq, Eq)]
pub struct Space {
    /// One of them, as messages call it.
    pub one: &'static str,
    /// Several of them.
    pub many: &'static str,
}

/// A parameter of every row.
#[derive(Debug, PartialEq, Eq)]
pub struct Column {
    /// Name in checkpoints.
    pub name: &'static str,
    /// Values per row.
    pub width: Width,
    /// The learning rate that it takes.
    pub rate: Rate,
    /// The table that holds it.
    pub table: u8,
    /// What messages call it.
    pub words: &'static str,
}

/// Parts of a table: values, first and second moments.
pub const TABLE_PARTS: usize = 3;

/// Columns that lie together on a device, thrice: values, first and second moments.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// What the ledger calls the values, the first and the second moments.
    pub labels: [&'static str; TABLE_PARTS],
    /// The sort of its rows.
    pub space: u8,
    /// How it lies in memory in full precision.
    pub full: Forms,
    /// How it lies in memory in compact storage.
    pub compact: Forms,
    /// True if rows that no view sees may be left behind, and catch up when they are needed.
    pub is_lazy: bool,
}

/// How values and moments of a table lie in its words.
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
    /// Single precision throughout.
    pub const FLOATS: Self =
        Self { values: RowForm::Floats, first: RowForm::Floats, second: RowForm::Floats };

    /// Values, first and second moments.
    pub const fn all(self) -> [RowForm; TABLE_PARTS] {
        [self.values, self.first, self.second]
    }
}

/// How the values of a row lie in the words of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowForm {
    /// One value of single precision to a word.
    Floats,
    /// Two of half precision.
    Halves,
    /// Two of bfloat16.
    Bfloats,
    /// Four first moments, after a word that is their scale.
    Firsts,
    /// Four second moments, after their scale.
    Seconds,
}

impl RowForm {
    /// Words that a row of so many values takes.
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
    /// So many.
    Fixed(u32),
    /// Those of the spherical harmonics above degree 0, three for each.
    ShRest,
}

impl Width {
    /// How many where the harmonics go up to this degree.
    pub const fn values(self, sh_degree: u32) -> u32 {
        match self {
            Self::Fixed(width) => width,
            Self::ShRest => sh_rest_values(sh_degree),
        }
    }
}

/// Values of the harmonics above degree 0, all channels: 3 ((degree + 1)² - 1).
pub const fn sh_rest_values(sh_degree: u32) -> u32 {
    3 * ((sh_degree + 1) * (sh_degree + 1) - 1)
}

/// Learning rates that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Of places, world units.
    Means,
    /// Of logarithms of scales.
    LogScales,
    /// Of quaternions.
    Quats,
    /// Of opacity logits.
    OpacityLogits,
    /// Of colours, or SH coefficients of degree 0.
    ShDc,
    /// Of SH coefficients above.
    ShRest,
}

impl Schema {
    /// The columns of a table with their places among all.
    pub fn columns_of(&self, table: usize) -> impl Iterator<Item = (usize, &'static Column)> + '_ {
        let columns = self.columns.iter().enumerate();
        columns.filter(move |(_, column)| usize::from(column.table) == table)
    }

    /// Values of a row in each table.
    pub fn values(&self, sh_degree: u32) -> impl Iterator<Item = u32> + '_ {
        let width = move |(_, column): (usize, &Column)| column.width.values(sh_degree);
        (0..self.tables.len()).map(move |table| self.columns_of(table).map(width).sum())
    }

    /// True if there are triangles between the rows.
    pub fn has_faces(&self) -> bool {
        self.spaces.len() > 1
    }

    /// True if rows of a table may be left behind.
    pub fn is_lazy(&self) -> bool {
        self.tables.iter().any(|table| table.is_lazy)
    }

    /// Values of a row in all columns.
    pub fn row_values(&self, sh_degree: u32) -> u32 {
        self.columns.iter().map(|column| column.width.values(sh_degree)).sum()
    }

    /// What messages call one of its rows.
    pub fn one(&self) -> &'static str {
        self.spaces.first().map_or("row", |space| space.one)
    }

    /// What messages call several of them.
    pub fn many(&self) -> &'static str {
        self.spaces.first().map_or("rows", |space| space.many)
    }

    /// The column that says where a row is, which rows are put in order by; the first of its table.
    pub fn places(&self) -> Option<usize> {
        self.columns.iter().position(|column| column.rate == Rate::Means)
    }
}

// Lane blocks.

/// Rows of a lane block, one for each lane of a warp: tables come in whole ones.
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
