//! Gaussians as 3D Gaussian splatting writes them.

use super::fields::{
    ColumnRange, FilterField, FlatField, Meaning, PlyField, PlyRows, VertexFields,
};
use crate::dataset::FARTHEST;
use crate::model::{FLAT_LOG_SCALE, Gaussians, fuse};

/// The largest log-scale that is believed, of about 1e13 world units. Flat Gaussians of a few hundred
/// times that have gradients beyond the range of single precision.
const LARGEST_LOG_SCALE: f32 = 30.0;

/// The largest harmonic that is believed, either way: a colour of 1 needs no more than 4. The losses
/// square what is drawn, and beyond 1e19 that leaves the range of single precision.
const LARGEST_HARMONIC: f32 = 1e12;

impl PlyRows for Gaussians {
    const FIELDS: &'static [PlyField] = &[
        PlyField::Values { column: 0, names: &["x", "y", "z"], meaning: Meaning::Position },
        PlyField::Zeros(&["nx", "ny", "nz"]),
        PlyField::Values {
            column: 4,
            names: &["f_dc_0", "f_dc_1", "f_dc_2"],
            meaning: Meaning::Other,
        },
        PlyField::Harmonics { column: 5, prefix: "f_rest_" },
        PlyField::Values { column: 3, names: &["opacity"], meaning: Meaning::Other },
        PlyField::Values {
            column: 1,
            names: &["scale_0", "scale_1", "scale_2"],
            meaning: Meaning::LogLength,
        },
        PlyField::Rotation { column: 2, names: &["rot_0", "rot_1", "rot_2", "rot_3"] },
    ];
    const RANGES: &'static [ColumnRange] = &[
        ColumnRange { column: 0, range: -FARTHEST..=FARTHEST },
        ColumnRange { column: 1, range: f32::MIN..=LARGEST_LOG_SCALE },
        ColumnRange { column: 4, range: -LARGEST_HARMONIC..=LARGEST_HARMONIC },
        ColumnRange { column: 5, range: -LARGEST_HARMONIC..=LARGEST_HARMONIC },
    ];
    // As 2D Gaussian splatting writes its surfels.
    const FLAT: Option<FlatField> = Some(FlatField { name: "scale_2", value: FLAT_LOG_SCALE });
    // As Mip-Splatting writes it.
    const FILTER: Option<FilterField<Self>> = Some(FilterField { name: "filter_3D", fuse });
    // Without normals, for which viewers would light a mesh that has its colours already.
    const VERTEX: Option<VertexFields<Self>> = Some(VertexFields {
        fields: &[
            PlyField::Values { column: 0, names: &["x", "y", "z"], meaning: Meaning::Position },
            PlyField::Colors { column: 4, names: &["red", "green", "blue"] },
            PlyField::Values {
                column: 4,
                names: &["f_dc_0", "f_dc_1", "f_dc_2"],
                meaning: Meaning::Other,
            },
            PlyField::Harmonics { column: 5, prefix: "f_rest_" },
            PlyField::Values { column: 3, names: &["opacity"], meaning: Meaning::Other },
        ],
        complete: shapeless,
    });
}

/// Gives vertices the scales and rotations that are not looked at.
fn shapeless(vertices: &mut Gaussians, count: usize) {
    vertices.log_scales = vec![0.0; 3 * count];
    vertices.quats = [1.0, 0.0, 0.0, 0.0].repeat(count);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Primitive;

    #[test]
    fn every_column_is_in_the_file_once_with_all_its_values() {
        let mut columns: Vec<usize> = Gaussians::FIELDS.iter().filter_map(|f| f.column()).collect();
        columns.sort_unstable();
        assert_eq!(columns, (0..Gaussians::SCHEMA.columns.len()).collect::<Vec<_>>());
        for field in Gaussians::FIELDS {
            let Some(column) = field.column() else { continue };
            let width = Gaussians::SCHEMA.columns[column].width.values(3) as usize;
            assert_eq!(field.names(45).len(), width, "{field:?}");
        }
    }
}
