//! Schemas of Gaussians and of triangles.

use super::model::ModelCount;
use super::schema::{Column, Forms, Rate, RowForm, Schema, Space, Table, Width};

slots! {
    ModelCount {
        GEOMETRY: u32 = "geometry", Parameters, ModelCount::Table(0), 1,
            "centres, scales, rotations and opacities";
        GEOMETRY_FIRST: u32 = "geometry, first moments", Moments, ModelCount::Table(1), 1,
            "means of their gradients (Adam)";
        GEOMETRY_SECOND: u32 = "geometry, second moments", Moments, ModelCount::Table(2), 1,
            "means of the squares of their gradients (Adam)";
        SH: u32 = "sh", Parameters, ModelCount::Table(3), 1, "colours";
        SH_FIRST: u32 = "sh, first moments", Moments, ModelCount::Table(4), 1,
            "means of their gradients (Adam)";
        SH_SECOND: u32 = "sh, second moments", Moments, ModelCount::Table(5), 1,
            "means of the squares of their gradients (Adam)";
    }
}

/// Position, shape, opacity and colour of Gaussians. Compact state (`kernels/state.cuh`) is rounded stochastically,
/// so that it is unbiased.
pub const GAUSSIANS: Schema = Schema {
    spaces: &[Space { one: "Gaussian", many: "Gaussians" }],
    tables: &[
        Table {
            labels: [GEOMETRY.label, GEOMETRY_FIRST.label, GEOMETRY_SECOND.label],
            space: 0,
            full: Forms::FLOATS,
            compact: Forms { first: RowForm::Bfloats, ..Forms::FLOATS },
            is_lazy: false,
        },
        Table {
            labels: [SH.label, SH_FIRST.label, SH_SECOND.label],
            space: 0,
            full: Forms::FLOATS,
            compact: Forms {
                values: RowForm::Halves,
                first: RowForm::Firsts,
                second: RowForm::Seconds,
            },
            is_lazy: true,
        },
    ],
    columns: &[
        column("means", Width::Fixed(3), Rate::Means, 0, "centre"),
        column("log_scales", Width::Fixed(3), Rate::LogScales, 0, "log-scale"),
        column("quats", Width::Fixed(4), Rate::Quats, 0, "rotation"),
        column("opacity_logits", Width::Fixed(1), Rate::OpacityLogits, 0, "opacity"),
        column("sh_dc", Width::Fixed(3), Rate::ShDc, 1, "colour"),
        column("sh_rest", Width::ShRest, Rate::ShRest, 1, "SH coefficient"),
    ],
};

/// Vertices of triangles in the tables of Gaussians. Scales and rotations are unused.
pub const TRIANGLES: Schema = Schema {
    spaces: &[
        Space { one: "vertex", many: "vertices" },
        Space { one: "triangle", many: "triangles" },
    ],
    ..GAUSSIANS
};

const fn column(
    name: &'static str,
    width: Width,
    rate: Rate,
    table: u8,
    words: &'static str,
) -> Column {
    Column { name, width, rate, table, words }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi;

    #[test]
    fn a_row_has_the_values_that_kernels_read() {
        for (degree, sh) in [(0, 3), (1, 12), (2, 27), (3, 48)] {
            let values: Vec<u32> = GAUSSIANS.values(degree).collect();
            assert_eq!(values, [abi::GEOMETRY_WIDTH, sh]);
        }
        assert_eq!(3 * GAUSSIANS.tables.len(), abi::TABLES as usize);
        assert!(GAUSSIANS.columns.is_sorted_by_key(|column| column.table));
        let spaces = GAUSSIANS.spaces.len();
        assert!(GAUSSIANS.tables.iter().all(|table| usize::from(table.space) < spaces));
        assert_eq!(GAUSSIANS.places(), Some(0));
    }
}
