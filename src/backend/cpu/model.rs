//! The CPU model: parameter columns with Adam moments, and density statistics.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;

use super::packed::{PackedPart, TablePart};
use crate::backend::rows::RowsVersion;
use crate::backend::{DeviceError, Snapshot};
use crate::math::Real;
use crate::math::linalg::{Quat, Vec3};
use crate::math::sh::MAX_COEFFICIENTS;
use crate::math::splat::Shape;
use crate::memory::Bytes;
use crate::memory::plan::{OptionalColumns, Storage};
use crate::model::{Gaussians, Group, Primitive};

/// Columns of [`Gaussians`] by name, in schema order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// Centres.
    Means,
    /// Logarithms of the scales.
    LogScales,
    /// Quaternions.
    Quats,
    /// Opacity logits.
    OpacityLogits,
    /// SH coefficients of degree 0.
    ShDc,
    /// SH coefficients above degree 0.
    ShRest,
}

impl Parameter {
    /// All columns in schema order.
    pub const ALL: [Self; 6] =
        [Self::Means, Self::LogScales, Self::Quats, Self::OpacityLogits, Self::ShDc, Self::ShRest];
}

/// An infinite or NaN value of a row.
#[derive(Clone, Copy, Debug)]
pub struct NotFinite {
    /// Index of the column in the schema.
    pub column: usize,
    /// The value.
    pub value: f64,
}

impl NotFinite {
    /// Converts to an error about row `index`.
    pub(super) fn of_row<P: Primitive>(self, index: usize) -> DeviceError {
        let group = P::SCHEMA.columns.get(self.column).map_or("parameter", |column| column.words);
        DeviceError::NotFinite { primitive: P::SCHEMA.one(), index, group, value: self.value }
    }
}

/// One parameter of all rows with its Adam moments. Each vector is `[n, width]`, or empty if compact storage packs
/// it into words.
#[derive(Clone, Debug)]
pub struct ModelColumn<R> {
    /// Number of values per row.
    pub width: usize,
    /// Parameter values.
    pub values: Vec<R>,
    /// Running mean of the gradient, before bias correction.
    pub first_moments: Vec<R>,
    /// Running mean of the squared gradient, before bias correction.
    pub second_moments: Vec<R>,
}

/// Rows of this rank within the model of all ranks.
#[derive(Clone, Debug)]
pub(super) struct AmongRanks {
    /// Global number of each row, ascending; `[n]`.
    pub(super) numbers: Vec<u64>,
    /// Number of rows of all ranks.
    pub(super) total: usize,
}

/// Primitives in training.
#[derive(Clone, Debug)]
pub struct Model<R, P = Gaussians> {
    /// Highest SH degree.
    pub sh_degree: u32,
    /// Columns in schema order.
    pub columns: Vec<ModelColumn<R>>,
    /// Sums of the norms of the screen-space gradients, `[n]`.
    pub gradient_norm_sums: Vec<R>,
    /// Number of views that saw the row, `[n]`.
    pub views_seen: Vec<u32>,
    /// Sums of the absolute screen-space gradients, `[n]`; empty until enabled.
    pub absolute_norm_sums: Vec<R>,
    /// Standard deviations of the 3D filter, world units, `[n]`; empty without the filter.
    pub filter_3d: Vec<R>,
    /// Triangles between the rows.
    pub(super) faces: ModelFaces<R>,
    /// Parts that compact storage packs into words.
    pub(super) packed: Vec<PackedPart>,
    /// Global row numbers; `None` if this model holds all rows.
    pub(super) among: Option<AmongRanks>,
    rows_version: RowsVersion,
    primitive: PhantomData<P>,
}

impl<R: Real, P: Primitive> Model<R, P> {
    /// Creates a model in full precision with zero moments and statistics.
    pub fn new(host: &P) -> Self {
        Self::stored(host, Storage::Full)
    }

    /// Creates a model in this storage with zero moments and statistics.
    pub(super) fn stored(host: &P, storage: Storage) -> Self {
        let (count, zeros) = (host.len(), P::zeros(host.sh_degree(), host.len()));
        let mut model = Self::with_room(host, count, storage);
        model.append_parts([host, &zeros, &zeros]);
        model.gradient_norm_sums = vec![R::ZERO; count];
        model.views_seen = vec![0; count];
        model
    }

    /// Returns the version of the rows. It changes when a row is added, removed or moved.
    pub(super) fn rows_version(&self) -> &RowsVersion {
        &self.rows_version
    }

    /// Invalidates earlier results that refer to rows by index.
    pub(super) fn invalidate_rows(&mut self) {
        self.rows_version = RowsVersion::new();
    }

    /// Returns the optional columns that exist.
    pub fn optional(&self) -> OptionalColumns {
        OptionalColumns {
            filter_3d: !self.filter_3d.is_empty(),
            absolute_norm_sums: !self.absolute_norm_sums.is_empty(),
        }
    }

    /// Enables the statistics of absolute gradients.
    pub fn enable_absolute_norms(&mut self) {
        self.absolute_norm_sums.resize(self.len(), R::ZERO);
    }

    /// Resets the density statistics to the current number of rows. The 3D filter is zero until the next `smooth`.
    pub(super) fn forget_statistics(&mut self) {
        let count = self.len();
        self.gradient_norm_sums = vec![R::ZERO; count];
        self.views_seen = vec![0; count];
        self.optional_columns().for_each(|column| *column = vec![R::ZERO; count]);
    }

    /// Returns the optional columns that exist, mutable.
    pub(super) fn optional_columns(&mut self) -> impl Iterator<Item = &mut Vec<R>> {
        let columns = [&mut self.absolute_norm_sums, &mut self.filter_3d];
        columns.into_iter().filter(|column| !column.is_empty())
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, |first| first.values.len() / first.width)
    }

    /// Returns the global number of a row, which keys its random numbers.
    pub(super) fn number(&self, row: usize) -> u64 {
        self.among.as_ref().map_or(row as u64, |among| among.numbers[row])
    }

    /// True if the model has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the span of each column within a row, in schema order.
    pub(super) fn spans(&self) -> Vec<Range<usize>> {
        let ends = self.columns.iter().scan(0, |end, column| {
            *end += column.width;
            Some(*end - column.width..*end)
        });
        ends.collect()
    }

    /// Returns the number of values per row in all columns.
    pub(super) fn row_width(&self) -> usize {
        self.columns.iter().map(|column| column.width).sum()
    }

    /// Returns one column of one row. `column` is an index into the schema. Not for columns that are packed into words.
    pub fn values(&self, column: usize, row: usize) -> &[R] {
        let ModelColumn { width, values, .. } = &self.columns[column];
        &values[row * width..][..*width]
    }

    /// Fails with the first infinite or NaN value of a row in these columns.
    pub fn check_finite(&self, row: usize, columns: Range<usize>) -> Result<(), NotFinite> {
        for column in columns {
            let values = self.row_part(column, 0, row);
            if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                return Err(NotFinite { column, value: value.to_f64() });
            }
        }
        Ok(())
    }

    /// Reads the parameters of a range of rows.
    pub fn read_parameters(&self, rows: Range<usize>) -> P {
        self.gather(&rows, 0)
    }

    /// Reads the parameters of these rows, in this order.
    pub fn sample(&self, rows: &[usize]) -> P {
        let mut sampled = P::empty(self.sh_degree);
        for (number, values) in sampled.groups_mut().into_iter().enumerate() {
            let rows = rows.iter().map(|&row| self.row_part(number, 0, row));
            *values = rows.flat_map(|row| host(&row)).collect();
        }
        sampled
    }

    /// Reads the parameters, moments and statistics of a range of rows.
    pub fn read(&self, rows: Range<usize>) -> Snapshot<P> {
        let if_there = |column: &[R]| host(column.get(rows.clone()).unwrap_or_default());
        Snapshot {
            parameters: self.read_parameters(rows.clone()),
            first_moments: self.gather(&rows, 1),
            second_moments: self.gather(&rows, 2),
            gradient_norm_sums: host(&self.gradient_norm_sums[rows.clone()]),
            views_seen: self.views_seen[rows.clone()].to_vec(),
            absolute_norm_sums: if_there(&self.absolute_norm_sums),
            filter_3d: if_there(&self.filter_3d),
        }
    }

    /// Creates a model without rows and reserves memory for `count` rows shaped like those of `shape`.
    pub(super) fn with_room(shape: &P, count: usize, storage: Storage) -> Self {
        let mut packed = PackedPart::all(P::SCHEMA, shape.sh_degree(), storage);
        for part in &mut packed {
            part.words.reserve_exact(count * part.width());
        }
        let room = |width: usize| Vec::with_capacity(count * width);
        let column = |(number, Group { width, .. }): (usize, Group<'_>)| {
            let [values, first_moments, second_moments] =
                TablePart::of_column::<P>(number).map(|of| {
                    room(if packed.iter().any(|packed| packed.of == of) { 0 } else { width })
                });
            ModelColumn { width, values, first_moments, second_moments }
        };
        Self {
            sh_degree: shape.sh_degree(),
            columns: shape.groups().into_iter().enumerate().map(column).collect(),
            gradient_norm_sums: room(1),
            views_seen: Vec::with_capacity(count),
            absolute_norm_sums: Vec::new(),
            filter_3d: Vec::new(),
            faces: ModelFaces::NONE,
            packed,
            among: None,
            rows_version: RowsVersion::new(),
            primitive: PhantomData,
        }
    }

    pub(super) fn append(&mut self, rows: &Snapshot<P>) {
        self.invalidate_rows();
        let Snapshot { parameters, first_moments, second_moments, .. } = rows;
        self.append_parts([parameters, first_moments, second_moments]);
        self.gradient_norm_sums.extend(precise::<R>(&rows.gradient_norm_sums));
        self.views_seen.extend_from_slice(&rows.views_seen);
        self.absolute_norm_sums.extend(precise::<R>(&rows.absolute_norm_sums));
        self.filter_3d.extend(precise::<R>(&rows.filter_3d));
    }

    /// Creates a model in full precision from a snapshot.
    pub fn restore(snapshot: &Snapshot<P>) -> Self {
        let mut model =
            Self::with_room(&snapshot.parameters, snapshot.views_seen.len(), Storage::Full);
        model.append(snapshot);
        model
    }

    /// Returns the bytes of parameters, 3D filter and triangles, and the bytes of moments and statistics.
    pub fn bytes(&self) -> [Bytes; 2] {
        let [values, first, second] = [0, 1, 2].map(|part| {
            let floats = self.columns.iter().map(|column| column.part(part).capacity()).sum();
            let packed = self.packed.iter().filter(|packed| packed.of.part == part);
            let words = packed.map(|packed| packed.words.capacity()).sum();
            Bytes::of::<R>(floats) + Bytes::of::<u32>(words)
        });
        let sums = self.gradient_norm_sums.capacity() + self.absolute_norm_sums.capacity();
        let statistics = Bytes::of::<R>(sums) + Bytes::of::<u32>(self.views_seen.capacity());
        let [faces, of_faces] = self.faces.bytes();
        let filter = Bytes::of::<R>(self.filter_3d.capacity());
        [values + filter + faces, first + second + statistics + of_faces]
    }
}

impl<R: Real> Model<R> {
    /// Returns one parameter of all Gaussians.
    pub fn column(&self, parameter: Parameter) -> &ModelColumn<R> {
        &self.columns[parameter as usize]
    }

    /// Returns one parameter of all Gaussians, mutable.
    pub fn column_mut(&mut self, parameter: Parameter) -> &mut ModelColumn<R> {
        &mut self.columns[parameter as usize]
    }

    /// Returns one parameter of one Gaussian.
    pub fn row(&self, parameter: Parameter, index: usize) -> &[R] {
        self.values(parameter as usize, index)
    }

    /// Returns the SH coefficients of one Gaussian. Missing coefficients are zero.
    pub(super) fn coefficients(&self, index: usize) -> [Vec3<R>; MAX_COEFFICIENTS] {
        let mut coefficients = [[R::ZERO; 3]; MAX_COEFFICIENTS];
        let [dc, rest] = [Parameter::ShDc, Parameter::ShRest]
            .map(|parameter| self.row_part(parameter as usize, 0, index));
        coefficients[0] = [dc[0], dc[1], dc[2]];
        for (to, from) in coefficients[1..].iter_mut().zip(rest.as_chunks::<3>().0) {
            *to = *from;
        }
        coefficients
    }

    /// Returns the position and shape of one Gaussian.
    pub fn shape(&self, index: usize) -> Shape<R> {
        let quat: Quat<R> = std::array::from_fn(|i| self.row(Parameter::Quats, index)[i]);
        Shape {
            mean_world: self.triple(Parameter::Means, index),
            log_scale: self.triple(Parameter::LogScales, index),
            quat,
            smoothing: self.filter_3d.get(index).copied().unwrap_or(R::ZERO),
        }
    }

    /// Returns a parameter of width 3 of one Gaussian.
    pub(super) fn triple(&self, parameter: Parameter, index: usize) -> Vec3<R> {
        let row = self.row(parameter, index);
        [row[0], row[1], row[2]]
    }
}

/// Converts host values to the precision of the computation.
pub(super) fn precise<R: Real>(values: &[f32]) -> impl Iterator<Item = R> {
    values.iter().map(|&value| R::of_f32(value))
}

/// Converts values to the precision of the host's columns.
pub(super) fn host<R: Real>(values: &[R]) -> Vec<f32> {
    values.iter().map(|value| value.to_f32()).collect()
}

/// Triangles of a model and their statistics.
#[derive(Clone, Debug)]
pub(super) struct ModelFaces<R> {
    /// Three row indices of each triangle.
    pub(super) corners: Vec<[u32; 3]>,
    /// Largest blend weight of each triangle in any sample.
    pub(super) weights: Vec<R>,
    /// Largest distance of each triangle's corners from its centre, px.
    pub(super) reaches_px: Vec<R>,
    /// Norms of the positional gradients of each triangle's corners, summed over corners and views.
    pub(super) gradient_norms: Vec<R>,
}

impl<R: Real> ModelFaces<R> {
    pub(super) const NONE: Self = Self {
        corners: Vec::new(),
        weights: Vec::new(),
        reaches_px: Vec::new(),
        gradient_norms: Vec::new(),
    };

    /// Creates triangles with zero statistics.
    pub(super) fn new(corners: &[[u32; 3]]) -> Self {
        let zeros = vec![R::ZERO; corners.len()];
        Self {
            corners: corners.to_vec(),
            weights: zeros.clone(),
            reaches_px: zeros.clone(),
            gradient_norms: zeros,
        }
    }

    /// Resets the statistics.
    pub(super) fn forget(&mut self) {
        self.weights.fill(R::ZERO);
        self.reaches_px.fill(R::ZERO);
        self.gradient_norms.fill(R::ZERO);
    }

    /// Remaps the corners after the rows were reordered.
    pub(super) fn follow(&mut self, row_from_place: &[usize]) {
        if self.corners.is_empty() {
            return;
        }
        let mut place_from_row = vec![0; row_from_place.len()];
        for (place, &row) in (0..).zip(row_from_place) {
            place_from_row[row] = place;
        }
        for corner in self.corners.as_flattened_mut() {
            *corner = place_from_row[*corner as usize];
        }
    }

    /// Fails if the model has triangles: rows of a mesh cannot be added or removed one by one.
    pub(super) fn require_none(&self, what: &'static str) -> Result<(), DeviceError> {
        match self.corners[..] {
            [] => Ok(()),
            [..] => Err(DeviceError::Unsupported { primitives: "triangles", what }),
        }
    }

    /// Returns the bytes of the triangles and of their statistics.
    pub(super) fn bytes(&self) -> [Bytes; 2] {
        let Self { weights, reaches_px, gradient_norms, .. } = self;
        let statistics = [weights, reaches_px, gradient_norms].map(Vec::capacity).iter().sum();
        [Bytes::of::<[u32; 3]>(self.corners.capacity()), Bytes::of::<R>(statistics)]
    }
}

// Access to parts of rows in float or packed storage.

impl<R: Real, P: Primitive> Model<R, P> {
    fn packed_part(&self, column: usize, part: usize) -> Option<&PackedPart> {
        let of = TablePart::of_column::<P>(column)[part];
        self.packed.iter().find(|packed| packed.of == of)
    }

    /// Returns a part of a column of one row, in any storage.
    pub(super) fn row_part(&self, column: usize, part: usize, row: usize) -> Cow<'_, [R]> {
        if let Some(packed) = self.packed_part(column, part) {
            let values = self.span_in_table(column);
            return values.map(|k| R::of_f32(packed.value(row, k))).collect();
        }
        let column = &self.columns[column];
        Cow::Borrowed(&column.part(part)[row * column.width..][..column.width])
    }

    /// Returns the span of a column within a row of its table.
    pub(super) fn span_in_table(&self, column: usize) -> Range<usize> {
        let table = P::SCHEMA.columns[column].table;
        let before = (0..column).filter(|&other| P::SCHEMA.columns[other].table == table);
        let start = before.map(|other| self.columns[other].width).sum();
        start..start + self.columns[column].width
    }

    /// Reads a part of a range of rows.
    pub(super) fn gather(&self, rows: &Range<usize>, part: usize) -> P {
        let mut gathered = P::empty(self.sh_degree);
        for (number, values) in gathered.groups_mut().into_iter().enumerate() {
            let column = &self.columns[number];
            *values = if self.packed_part(number, part).is_some() {
                rows.clone().flat_map(|row| host(&self.row_part(number, part, row))).collect()
            } else {
                host(&column.part(part)[rows.start * column.width..rows.end * column.width])
            };
        }
        gathered
    }

    /// Appends rows with these values, first and second moments. Does not change the statistics.
    pub(super) fn append_parts(&mut self, parts: [&P; 3]) {
        let groups = parts.map(P::groups);
        for packed in &mut self.packed {
            let columns: Vec<&Group<'_>> = P::SCHEMA
                .columns_of(packed.of.table)
                .map(|(number, _)| &groups[packed.of.part][number])
                .collect();
            for row in 0..parts[0].len() {
                let values = columns
                    .iter()
                    .flat_map(|group| &group.values[row * group.width..][..group.width]);
                packed.push(&values.copied().collect::<Vec<f32>>());
            }
        }
        for number in 0..self.columns.len() {
            for (part, groups) in groups.iter().enumerate() {
                if self.packed_part(number, part).is_none() {
                    let values = precise::<R>(groups[number].values);
                    self.columns[number].parts_mut()[part].extend(values);
                }
            }
        }
    }
}

impl<R> ModelColumn<R> {
    /// Returns the values, first moments or second moments.
    pub(super) fn part(&self, part: usize) -> &Vec<R> {
        [&self.values, &self.first_moments, &self.second_moments][part]
    }

    pub(super) fn parts_mut(&mut self) -> [&mut Vec<R>; 3] {
        [&mut self.values, &mut self.first_moments, &mut self.second_moments]
    }
}
