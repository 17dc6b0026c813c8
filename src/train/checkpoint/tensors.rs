//! Tensors of a checkpoint: columns of the model, and whole tensors of colours, bound meshes and triangles.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use safetensors::tensor::{Dtype, Metadata};

use crate::backend::{AppearanceTables, BoundState, Compensation, FaceStatistics, Snapshot};
use crate::layout::{Schema, Width};
use crate::memory::plan::OptionalColumns;
use crate::model::{BoundColumns, Primitive};

/// Size of a value in bytes. All columns have 32-bit values.
pub(super) const VALUE_BYTES: usize = 4;

/// Prefix of the parameters' names.
const PARAMETERS: &str = "parameters";

/// Names of optional columns.
pub(super) const ABSOLUTE_NORM_SUMS: &str = "statistics.absolute_norm_sums";
pub(super) const FILTER_3D: &str = "filter_3d";

pub(super) struct CheckpointColumn {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    /// Length of the second dimension, if there is one.
    pub(super) width: Option<usize>,
    /// True for parameters, moments and the 3D filter, whose values must be finite.
    pub(super) is_of_training: bool,
}

impl CheckpointColumn {
    /// Returns the shape for this number of rows.
    pub(super) fn shape(&self, rows: usize) -> Vec<usize> {
        [rows].into_iter().chain(self.width).collect()
    }

    /// Returns the number of values per row.
    pub(super) fn row_values(&self) -> usize {
        self.width.unwrap_or(1)
    }

    /// Returns the number of bytes per row.
    pub(super) fn row_bytes(&self) -> usize {
        self.row_values() * VALUE_BYTES
    }
}

/// Returns the offset of the tensor of this name, which must be of this type and shape.
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

/// Returns the column whose length is the number of rows: the first with one value per row, or else the first.
pub(super) fn counting_column(schema: &Schema) -> String {
    let single = schema.columns.iter().find(|column| column.width == Width::Fixed(1));
    let column = single.or(schema.columns.first()).map_or("", |column| column.name);
    parameter_name(PARAMETERS, column)
}

/// Returns the columns in file order.
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
        // A value that is not finite would spoil every scale.
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

/// Returns the bytes of a chunk's columns, in the order of [`columns`].
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

/// Returns the columns of a chunk, to be filled.
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

// Colour tables of the photographs.

/// Tensor names of values and moments, and of the step counts.
const TABLE_TENSORS: [&str; 3] =
    ["appearance.values", "appearance.first_moments", "appearance.second_moments"];

const STEPS: &str = "appearance.steps";

pub(super) struct Tensor<'a> {
    pub(super) name: &'static str,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    fn of_f32(name: &'static str, shape: Vec<usize>, values: &'a [f32]) -> Self {
        Self { name, dtype: Dtype::F32, shape, bytes: bytemuck::cast_slice(values) }
    }

    fn of_u32(name: &'static str, shape: Vec<usize>, values: &'a [u32]) -> Self {
        Self { name, dtype: Dtype::U32, shape, bytes: bytemuck::cast_slice(values) }
    }
}

/// Reads the values at an offset. Returns an error for values that are not finite.
fn read_finite(file: &mut File, name: &str, place: u64, values: &mut [f32]) -> io::Result<()> {
    file.seek(SeekFrom::Start(place))?;
    file.read_exact(bytemuck::cast_slice_mut(values))?;
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(damage(format!("`{name}` is not finite at element {at}"))),
        None => Ok(()),
    }
}

fn damage(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// Returns the tensors of colour tables in file order.
pub(super) fn table_tensors(tables: &AppearanceTables) -> Vec<Tensor<'_>> {
    let views = tables.steps.len();
    let parts = [&tables.values, &tables.first_moments, &tables.second_moments];
    let named = TABLE_TENSORS.into_iter().zip(parts);
    let values =
        named.map(|(name, values)| Tensor::of_f32(name, vec![views, tables.kind.width()], values));
    values.chain([Tensor::of_u32(STEPS, vec![views], &tables.steps)]).collect()
}

/// Location of colour tables in a file.
#[derive(Debug)]
pub(super) struct StoredTables {
    kind: Compensation,
    views: usize,
    /// Offsets of values and moments.
    places: [u64; 3],
    /// Offset of the numbers of steps.
    steps: u64,
}

impl StoredTables {
    /// Finds the tables of `views` views. `None` if the file has none.
    pub(super) fn find(
        header: &Metadata,
        data_start: u64,
        views: usize,
    ) -> Result<Option<Self>, String> {
        let Some(info) = header.info(TABLE_TENSORS[0]) else { return Ok(None) };
        let kinds = [Compensation::Exposure, Compensation::BilateralGrid];
        let width = info.shape.last().copied();
        let Some(kind) = kinds.into_iter().find(|kind| Some(kind.width()) == width) else {
            return Err(format!("`{}` is {:?}", TABLE_TENSORS[0], info.shape));
        };
        let [values, first, second] = TABLE_TENSORS
            .map(|name| place(header, data_start, name, Dtype::F32, &[views, kind.width()]));
        let places = [values?, first?, second?];
        let steps = place(header, data_start, STEPS, Dtype::U32, &[views])?;
        Ok(Some(Self { kind, views, places, steps }))
    }

    /// Reads the tables. Returns an error for values that are not finite.
    pub(super) fn read(&self, file: &mut File) -> io::Result<AppearanceTables> {
        let mut tables = AppearanceTables::identity(self.kind, self.views);
        let parts = [&mut tables.values, &mut tables.first_moments, &mut tables.second_moments];
        for ((values, place), name) in parts.into_iter().zip(self.places).zip(TABLE_TENSORS) {
            read_finite(file, name, place, values)?;
        }
        file.seek(SeekFrom::Start(self.steps))?;
        file.read_exact(bytemuck::cast_slice_mut(&mut tables.steps))?;
        Ok(tables)
    }
}

// Bound mesh.

/// Tensor names by part (values, first and second moments) and column.
const BOUND_TENSORS: [[&str; 3]; 3] = [
    ["bound.values.vertices", "bound.values.log_scales", "bound.values.turns"],
    ["bound.first_moments.vertices", "bound.first_moments.log_scales", "bound.first_moments.turns"],
    [
        "bound.second_moments.vertices",
        "bound.second_moments.log_scales",
        "bound.second_moments.turns",
    ],
];

/// Returns the tensors of a bound mesh in file order.
pub(super) fn bound_tensors(state: &BoundState) -> Vec<Tensor<'_>> {
    let parts = [&state.values, &state.first_moments, &state.second_moments];
    let all = BOUND_TENSORS
        .into_iter()
        .zip(parts)
        .flat_map(|(names, part)| names.into_iter().zip(part.values()).zip(BoundColumns::WIDTHS));
    all.map(|((name, values), width)| {
        Tensor::of_f32(name, vec![values.len() / width, width], values)
    })
    .collect()
}

/// Location of the bound mesh in a file.
#[derive(Debug)]
pub(super) struct StoredBound {
    /// Rows of each column.
    rows: [usize; 3],
    /// Offsets of the tensors.
    places: [[u64; 3]; 3],
}

impl StoredBound {
    /// Finds the bound mesh. `None` if the file has none.
    pub(super) fn find(header: &Metadata, data_start: u64) -> Result<Option<Self>, String> {
        let mut found = Self { rows: [0; 3], places: [[0; 3]; 3] };
        for (column, name) in BOUND_TENSORS[0].into_iter().enumerate() {
            let Some(info) = header.info(name) else { return Ok(None) };
            found.rows[column] = info.shape.first().copied().unwrap_or(0);
        }
        for (part, names) in BOUND_TENSORS.into_iter().enumerate() {
            for (column, name) in names.into_iter().enumerate() {
                let shape = [found.rows[column], BoundColumns::WIDTHS[column]];
                found.places[part][column] = place(header, data_start, name, Dtype::F32, &shape)?;
            }
        }
        Ok(Some(found))
    }

    /// Reads the bound mesh. Returns an error for values that are not finite.
    pub(super) fn read(&self, file: &mut File) -> io::Result<BoundState> {
        let mut state = BoundState::default();
        let parts = [&mut state.values, &mut state.first_moments, &mut state.second_moments];
        for (part, columns) in parts.into_iter().enumerate() {
            for (column, values) in columns.values_mut().into_iter().enumerate() {
                values.resize(self.rows[column] * BoundColumns::WIDTHS[column], 0.0);
                let name = BOUND_TENSORS[part][column];
                read_finite(file, name, self.places[part][column], values)?;
            }
        }
        Ok(state)
    }
}

// Triangles.

/// Tensor of the triangles' vertex indices.
const CORNERS: &str = "faces.corners";

/// Tensors of the statistics, in the order of [`FaceStatistics::columns`].
const STATISTICS: [&str; 3] = ["faces.weights", "faces.reaches_px", GRADIENT_NORMS];

/// Tensor that files from before `--split-by` lack.
const GRADIENT_NORMS: &str = "faces.gradient_norms";

/// Values per triangle: its corners and one value per statistic.
const ROW_VALUES: usize = 3 + STATISTICS.len();

/// Bytes per triangle in a checkpoint.
pub(in crate::train) const FACE_BYTES: usize = ROW_VALUES * VALUE_BYTES;

/// Triangles of a model and their statistics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaceState {
    /// Vertex indices of each triangle.
    pub faces: Vec<[u32; 3]>,
    /// Statistics gathered from views.
    pub statistics: FaceStatistics,
}

/// Returns the tensors of triangles in file order.
pub(super) fn face_tensors(state: &FaceState) -> Vec<Tensor<'_>> {
    let FaceState { faces, statistics } = state;
    let corners = Tensor::of_u32(CORNERS, vec![faces.len(), 3], faces.as_flattened());
    let columns = STATISTICS.into_iter().zip(statistics.columns());
    let statistics = columns.map(|(name, values)| Tensor::of_f32(name, vec![values.len()], values));
    [corners].into_iter().chain(statistics).collect()
}

/// Location of triangles in a file.
#[derive(Debug)]
pub(super) struct StoredFaces {
    faces: usize,
    /// Number of vertices.
    rows: usize,
    corners: u64,
    /// Offset of each statistic. The values of a missing statistic are 0.
    statistics: [Option<u64>; 3],
}

impl StoredFaces {
    /// Finds the triangles between `rows` vertices. `None` if the file has none.
    pub(super) fn find(
        header: &Metadata,
        data_start: u64,
        rows: usize,
    ) -> Result<Option<Self>, String> {
        let Some(info) = header.info(CORNERS) else { return Ok(None) };
        let faces = info.shape.first().copied().unwrap_or(0);
        let corners = place(header, data_start, CORNERS, Dtype::U32, &[faces, 3])?;
        let mut statistics = [None; 3];
        for (name, found) in STATISTICS.into_iter().zip(&mut statistics) {
            if name != GRADIENT_NORMS || header.info(name).is_some() {
                *found = Some(place(header, data_start, name, Dtype::F32, &[faces])?);
            }
        }
        Ok(Some(Self { faces, rows, corners, statistics }))
    }

    /// Reads the triangles. Returns an error for corners out of range and values that are not finite.
    pub(super) fn read(&self, file: &mut File) -> io::Result<FaceState> {
        let mut state = FaceState { faces: vec![[0; 3]; self.faces], ..FaceState::default() };
        file.seek(SeekFrom::Start(self.corners))?;
        file.read_exact(bytemuck::cast_slice_mut(&mut state.faces))?;
        let is_beyond = |face: &[u32; 3]| face.iter().any(|&row| row as usize >= self.rows);
        if let Some(at) = state.faces.iter().position(is_beyond) {
            let (face, rows) = (state.faces[at], self.rows);
            return Err(damage(format!(
                "`{CORNERS}` names {face:?} at row {at} of {rows} vertices"
            )));
        }
        state.statistics = FaceStatistics::zeros(self.faces);
        let FaceStatistics { weights, reaches_px, gradient_norms } = &mut state.statistics;
        let columns = [weights, reaches_px, gradient_norms];
        for ((name, values), place) in STATISTICS.into_iter().zip(columns).zip(self.statistics) {
            if let Some(place) = place {
                read_finite(file, name, place, values)?;
            }
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use safetensors::SafeTensors;

    use super::*;
    use crate::backend::Rows as _;
    use crate::config::Config;
    use crate::memory::TrainingScale;
    use crate::model::Gaussians;
    use crate::train::checkpoint::{Checkpoint, Occasion, StoredCheckpoint};

    fn about(views: usize) -> Checkpoint {
        let train_views = (0..views).map(|view| format!("{view}.png")).collect();
        let config = Config::default();
        let (occasion, training_scale) = (Occasion::Requested, TrainingScale::FULL);
        Checkpoint { iteration: 7, config, train_views, occasion, training_scale, paced: None }
    }

    fn model() -> Snapshot<Gaussians> {
        Snapshot::zeros(1, 5, OptionalColumns::NONE)
    }

    fn tables(kind: Compensation, views: usize) -> AppearanceTables {
        let mut tables = AppearanceTables::identity(kind, views);
        let mut next = 0_u16;
        let parts = [&mut tables.values, &mut tables.first_moments, &mut tables.second_moments];
        for value in parts.into_iter().flatten() {
            next = (next + 1) % 65_521;
            *value = f32::from(next) * 0.25;
        }
        tables.steps = (3..).take(views).collect();
        tables
    }

    #[test]
    fn tables_are_read_as_written_and_do_not_change_the_model() {
        let folder = tempfile::tempdir().unwrap();
        for kind in [Compensation::Exposure, Compensation::BilateralGrid] {
            let tables = tables(kind, 3);
            let path = about(3).write(folder.path(), &mut model(), Some(&tables)).unwrap();
            let mut stored = StoredCheckpoint::open(&path).unwrap();
            assert_eq!(stored.appearance().unwrap(), Some(tables));
            assert_eq!(stored.read(0..5).unwrap(), model());
            // Another reader of the format agrees.
            let bytes = fs::read(&path).unwrap();
            let table_tensors = SafeTensors::deserialize(&bytes).unwrap();
            assert_eq!(table_tensors.tensor(TABLE_TENSORS[1]).unwrap().shape(), [3, kind.width()]);
        }
        let path = about(3).write(folder.path(), &mut model(), None).unwrap();
        assert_eq!(StoredCheckpoint::open(&path).unwrap().appearance().unwrap(), None);
    }

    #[test]
    fn tables_of_other_views_and_values_that_are_not_finite_are_damage() {
        let folder = tempfile::tempdir().unwrap();
        let mut broken = tables(Compensation::Exposure, 3);
        let path = about(2).write(folder.path(), &mut model(), Some(&broken)).unwrap();
        let error = StoredCheckpoint::open(&path).unwrap_err().to_string();
        assert!(
            error.contains("`appearance.values` is F32 [3, 12] instead of F32 [2, 12]"),
            "{error}"
        );
        broken.second_moments[31] = f32::NAN;
        let path = about(3).write(folder.path(), &mut model(), Some(&broken)).unwrap();
        let error = StoredCheckpoint::open(&path).unwrap_err().to_string();
        assert!(error.contains("second_moments` is not finite at element 31"), "{error}");
    }

    #[test]
    fn a_bound_mesh_is_read_as_written_and_must_be_finite() {
        let folder = tempfile::tempdir().unwrap();
        let (about, mut model) = (about(0), model());
        let columns = |first: f32| BoundColumns {
            vertices: (0_u16..9).map(|i| first + f32::from(i)).collect(),
            log_scales: vec![first; 4],
            turns: vec![-first; 4],
        };
        let mut state = BoundState {
            values: columns(1.0),
            first_moments: columns(2.0),
            second_moments: columns(3.0),
        };
        let path = about.write_bound(folder.path(), &mut model, &state).unwrap();
        let mut stored = StoredCheckpoint::open(&path).unwrap();
        assert_eq!(stored.bound().unwrap(), Some(state.clone()));
        assert_eq!(stored.appearance().unwrap(), None);
        state.first_moments.turns[3] = f32::INFINITY;
        let path = about.write_bound(folder.path(), &mut model, &state).unwrap();
        let error = StoredCheckpoint::open(&path).unwrap_err().to_string();
        assert!(
            error.contains("`bound.first_moments.turns` is not finite at element 3"),
            "{error}"
        );
        let path = about.write(folder.path(), &mut model, None).unwrap();
        assert_eq!(StoredCheckpoint::open(&path).unwrap().bound().unwrap(), None);
    }

    fn state() -> FaceState {
        let statistics = FaceStatistics {
            weights: vec![0.25, 1e-30, 0.999],
            reaches_px: vec![3.5, 0.0, 1e6],
            gradient_norms: vec![0.0, 2e-9, 7.0],
        };
        FaceState { faces: vec![[0, 1, 2], [2, 1, 3], [4, 0, 2]], statistics }
    }

    fn written(folder: &Path, tables: Option<&AppearanceTables>, state: &FaceState) -> PathBuf {
        let mut tensors = tables.map(table_tensors).unwrap_or_default();
        tensors.extend(face_tensors(state));
        about(3).write_after(folder, &mut model(), &tensors, &[]).unwrap()
    }

    #[test]
    fn triangles_and_colour_tables_are_read_as_written() {
        let folder = tempfile::tempdir().unwrap();
        for tables in [None, Some(AppearanceTables::identity(Compensation::Exposure, 3))] {
            let path = written(folder.path(), tables.as_ref(), &state());
            let mut stored = StoredCheckpoint::open(&path).unwrap();
            assert_eq!(stored.faces().unwrap(), Some(state()));
            assert_eq!(stored.appearance().unwrap(), tables);
            assert_eq!(stored.read(0..5).unwrap(), model());
            // Another reader of the format agrees.
            let bytes = fs::read(&path).unwrap();
            let face_tensors = SafeTensors::deserialize(&bytes).unwrap();
            assert_eq!(face_tensors.tensor(CORNERS).unwrap().shape(), [3, 3]);
        }
        let path = about(3).write(folder.path(), &mut model(), None).unwrap();
        assert_eq!(StoredCheckpoint::open(&path).unwrap().faces().unwrap(), None);
        let none = FaceState::default();
        let path = written(folder.path(), None, &none);
        assert_eq!(StoredCheckpoint::open(&path).unwrap().faces().unwrap(), Some(none));
    }

    #[test]
    fn an_older_file_lacks_only_gradients() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), None, &state());
        let mut bytes = fs::read(&path).unwrap();
        // Renaming hides the tensor.
        let at = bytes.windows(GRADIENT_NORMS.len()).position(|w| w == GRADIENT_NORMS.as_bytes());
        bytes[at.unwrap()] = b'x';
        fs::write(&path, &bytes).unwrap();
        let found = StoredCheckpoint::open(&path).unwrap().faces().unwrap().unwrap();
        let mut expected = state();
        expected.statistics.gradient_norms = vec![0.0; 3];
        assert_eq!(found, expected);
    }

    #[test]
    fn invalid_corners_and_values_that_are_not_finite_are_damage() {
        let folder = tempfile::tempdir().unwrap();
        type Damage = fn(&mut FaceState);
        let cases: [(Damage, &str); 3] = [
            (|state| state.faces[1][2] = 5, "`faces.corners` names [2, 1, 5] at row 1 of 5"),
            (
                |state| state.statistics.reaches_px[2] = f32::NAN,
                "`faces.reaches_px` is not finite at element 2",
            ),
            (
                |state| state.statistics.weights.truncate(2),
                "`faces.weights` is F32 [2] instead of F32 [3]",
            ),
        ];
        for (damage, expected) in cases {
            let mut broken = state();
            damage(&mut broken);
            let path = written(folder.path(), None, &broken);
            let error = StoredCheckpoint::open(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn every_truncation_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), None, &state());
        let bytes = fs::read(&path).unwrap();
        for length in (1..bytes.len()).step_by(41).chain([bytes.len() - 1]) {
            fs::write(&path, &bytes[..length]).unwrap();
            let error = StoredCheckpoint::open(&path).unwrap_err().to_string();
            assert!(error.contains("damaged"), "{length}: {error}");
        }
    }
}
