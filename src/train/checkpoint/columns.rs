//! Which columns a checkpoint has, and where a chunk of rows holds them.

use safetensors::tensor::{Dtype, Metadata};

use crate::backend::Snapshot;
use crate::layout::{Schema, Width};
use crate::memory::plan::OptionalColumns;
use crate::model::Primitive;

/// Bytes of a value; all columns are of 32 bits.
pub(super) const VALUE_BYTES: usize = 4;

/// What the names of the parameters begin with.
const PARAMETERS: &str = "parameters";

/// Columns that not every model has.
pub(super) const ABSOLUTE_NORM_SUMS: &str = "statistics.absolute_norm_sums";
pub(super) const FILTER_3D: &str = "filter_3d";

/// A column of the file.
pub(super) struct CheckpointColumn {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    /// Length of the second dimension, where there is one.
    pub(super) width: Option<usize>,
    /// Whether it is a parameter, a moment or the 3D filter, all of whose values are finite.
    pub(super) is_of_training: bool,
}

impl CheckpointColumn {
    /// Its shape with so many rows.
    pub(super) fn shape(&self, rows: usize) -> Vec<usize> {
        [rows].into_iter().chain(self.width).collect()
    }

    /// Values per row.
    pub(super) fn row_values(&self) -> usize {
        self.width.unwrap_or(1)
    }

    /// Bytes per row.
    pub(super) fn row_bytes(&self) -> usize {
        self.row_values() * VALUE_BYTES
    }
}

/// Where in a file the tensor of this name begins, which must be of this type and shape.
pub(super) fn place(
    header: &Metadata,
    data_start: u64,
    name: &str,
    dtype: Dtype,
    shape: &[usize],
) -> Result<u64, String> {
    let info = header.info(name).ok_or_else(|| format!("it has no tensor `{name}`"))?;
    if info.dtype != dtype || info.shape != shape {
        return Err(format!(
            "`{name}` is {:?} {:?} instead of {dtype:?} {shape:?}",
            info.dtype, info.shape
        ));
    }
    Ok(data_start + info.data_offsets.0 as u64)
}

fn parameter_name(part: &str, column: &str) -> String {
    format!("{part}.{column}")
}

/// The column whose length is the number of rows: the first that has one value a row, or else the
/// first.
pub(super) fn counting_column(schema: &Schema) -> String {
    let single = schema.columns.iter().find(|column| column.width == Width::Fixed(1));
    let column = single.or(schema.columns.first()).map_or("", |column| column.name);
    parameter_name(PARAMETERS, column)
}

/// The columns in the order of the file.
pub(super) fn columns(
    schema: &Schema,
    sh_degree: u32,
    optional: OptionalColumns,
) -> Vec<CheckpointColumn> {
    let mut columns = Vec::new();
    for part in [PARAMETERS, "first_moments", "second_moments"] {
        for column in schema.columns {
            columns.push(CheckpointColumn {
                name: parameter_name(part, column.name),
                dtype: Dtype::F32,
                width: Some(column.width.values(sh_degree) as usize),
                is_of_training: true,
            });
        }
    }
    let statistics = [
        ("statistics.gradient_norm_sums", Dtype::F32, true),
        ("statistics.views_seen", Dtype::U32, true),
        (ABSOLUTE_NORM_SUMS, Dtype::F32, optional.absolute_norm_sums),
        (FILTER_3D, Dtype::F32, optional.filter_3d),
    ];
    for (name, dtype, _) in statistics.into_iter().filter(|&(_, _, there)| there) {
        // The filter goes into every scale.
        let is_of_training = name == FILTER_3D;
        columns.push(CheckpointColumn {
            name: name.to_owned(),
            dtype,
            width: None,
            is_of_training,
        });
    }
    columns
}

/// The values of a chunk as the file holds them, in the order of [`columns`].
pub(super) fn bytes<P: Primitive>(chunk: &Snapshot<P>) -> Vec<&[u8]> {
    let parts = [&chunk.parameters, &chunk.first_moments, &chunk.second_moments];
    let groups = parts.into_iter().flat_map(|part| part.groups());
    let mut bytes: Vec<&[u8]> = groups.map(|group| bytemuck::cast_slice(group.values)).collect();
    bytes.push(bytemuck::cast_slice(&chunk.gradient_norm_sums));
    bytes.push(bytemuck::cast_slice(&chunk.views_seen));
    let optional = [&chunk.absolute_norm_sums, &chunk.filter_3d].into_iter();
    bytes.extend(optional.filter(|v| !v.is_empty()).map(|v| bytemuck::cast_slice(v)));
    bytes
}

/// The same to be filled.
pub(super) fn bytes_mut<P: Primitive>(chunk: &mut Snapshot<P>) -> Vec<&mut [u8]> {
    let parts = [&mut chunk.parameters, &mut chunk.first_moments, &mut chunk.second_moments];
    let groups = parts.into_iter().flat_map(|part| part.groups_mut());
    let mut bytes: Vec<&mut [u8]> = groups.map(|values| bytemuck::cast_slice_mut(values)).collect();
    bytes.push(bytemuck::cast_slice_mut(&mut chunk.gradient_norm_sums));
    bytes.push(bytemuck::cast_slice_mut(&mut chunk.views_seen));
    let optional = [&mut chunk.absolute_norm_sums, &mut chunk.filter_3d].into_iter();
    bytes.extend(optional.filter(|v| !v.is_empty()).map(|v| bytemuck::cast_slice_mut(v)));
    bytes
}
