//! A primitive that the product does not know: a ball of one colour, without harmonics.

use splat::export::{Field, PlyRows};
use splat::layout::{Column, Forms, Rate, RowForm, Schema, Space, Table, Width};
use splat::model::Primitive;

/// Balls as a structure of arrays, raw parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Balls {
    /// Centres in the world, [n, 3].
    pub means: Vec<f32>,
    /// Logarithms of the standard deviations, world units, `[n]`.
    pub log_scales: Vec<f32>,
    /// Opacities before the sigmoid, `[n]`.
    pub opacity_logits: Vec<f32>,
    /// Colours, [n, 3].
    pub colors: Vec<f32>,
}

const BALLS: Schema = Schema {
    spaces: &[Space { one: "ball", many: "balls" }],
    tables: &[Table {
        labels: ["balls", "balls, first moments", "balls, second moments"],
        space: 0,
        full: Forms::FLOATS,
        compact: Forms { first: RowForm::Bfloats, ..Forms::FLOATS },
        is_lazy: false,
    }],
    columns: &[
        column("means", 3, Rate::Means, "centre"),
        column("log_scales", 1, Rate::LogScales, "log-scale"),
        column("opacity_logits", 1, Rate::OpacityLogits, "opacity"),
        column("colors", 3, Rate::ShDc, "colour"),
    ],
};

const fn column(name: &'static str, width: u32, rate: Rate, words: &'static str) -> Column {
    Column { name, width: Width::Fixed(width), rate, table: 0, words }
}

impl Primitive for Balls {
    const SCHEMA: &'static Schema = &BALLS;

    fn empty(_sh_degree: u32) -> Self {
        Self::default()
    }

    fn sh_degree(&self) -> u32 {
        0
    }

    fn values(&self) -> Vec<&[f32]> {
        vec![&self.means, &self.log_scales, &self.opacity_logits, &self.colors]
    }

    fn groups_mut(&mut self) -> Vec<&mut Vec<f32>> {
        vec![&mut self.means, &mut self.log_scales, &mut self.opacity_logits, &mut self.colors]
    }
}

impl PlyRows for Balls {
    const FIELDS: &'static [Field] = &[
        Field::Values { column: 0, names: &["x", "y", "z"] },
        Field::Values { column: 3, names: &["red", "green", "blue"] },
        Field::Values { column: 2, names: &["opacity"] },
        Field::Values { column: 1, names: &["scale"] },
    ];
}
