//! Reading Gaussians from a PLY file.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::ops::RangeInclusive;
use std::path::Path;

use splat_mesh::file::ply::{PlyElement, PlyEncoding, PlyProperty};

use super::fields::{
    self, FaceLayout, FilterField, FlatField, PlyError, PlyField, PlyRows, PlyTriangles,
};
use crate::config::PrimitiveName;
use crate::layout::Width;
use crate::math::Real;
use crate::math::sh::MAX_DEGREE;
use crate::model::Gaussians;
use crate::ply::{self, PlyFileError, VertexHeader};

const CHUNK_BYTES: usize = 1 << 20;

/// Reads Gaussians from a binary PLY. Columns are found by name in any order, as float or double, and the number of
/// `f_rest` columns gives the SH degree. Scales and opacities are fused with Mip-Splatting's column `filter_3D`.
/// Other columns are ignored. Without `scale_2` the Gaussians are flat surfels.
///
/// Uses about a megabyte beyond the result. The file's size is checked before the result is allocated.
pub fn read_ply(path: &Path) -> Result<Gaussians, PlyError> {
    read_ply_rows(path)
}

/// Gaussians of a file with their primitive.
#[derive(Clone, Debug, PartialEq)]
pub struct PlyModel {
    /// The Gaussians; of triangles, their vertices.
    pub gaussians: Gaussians,
    /// Primitive to draw them as.
    pub primitive: PrimitiveName,
    /// The triangles between the rows, if the rows are vertices.
    pub triangles: Option<PlyTriangles>,
}

/// Reads Gaussians as [`read_ply`] does, with their primitive. Rows without scales are vertices of triangles if faces
/// follow.
pub fn read_ply_model(path: &Path) -> Result<PlyModel, PlyError> {
    OpenedPly::open(path)?.read_any()
}

/// Reads the primitive of a file from its header.
pub fn read_ply_primitive(path: &Path) -> Result<PrimitiveName, PlyError> {
    let opened = OpenedPly::open(path)?;
    if fields::are_in(&opened.header) {
        return Ok(PrimitiveName::Triangles);
    }
    let layout = PlyLayout::of::<Gaussians>(path, &opened.header, Gaussians::FIELDS)?;
    Ok(primitive_of(layout.is_flat))
}

fn primitive_of(is_flat: bool) -> PrimitiveName {
    if is_flat { PrimitiveName::Surfels } else { PrimitiveName::Gaussians }
}

/// Reads the rows of any kind of primitive.
pub fn read_ply_rows<P: PlyRows>(path: &Path) -> Result<P, PlyError> {
    let (rows, _) = OpenedPly::open(path)?.read_rows(P::FIELDS)?;
    Ok(rows)
}

struct OpenedPly<'a> {
    path: &'a Path,
    input: BufReader<File>,
    header: VertexHeader,
    file_bytes: u64,
}

impl<'a> OpenedPly<'a> {
    fn open(path: &'a Path) -> Result<Self, PlyError> {
        let (file, file_bytes) = ply::open(path)?;
        let mut input = BufReader::new(file);
        let header = VertexHeader::read(path, &mut input)?;
        let format = match header.header.encoding {
            PlyEncoding::Little => return Ok(Self { path, input, header, file_bytes }),
            PlyEncoding::Ascii => "ascii 1.0",
            PlyEncoding::Big => "binary_big_endian 1.0",
        };
        Err(PlyError::Format { path: path.to_owned(), format: format.to_owned() })
    }

    fn read_any(mut self) -> Result<PlyModel, PlyError> {
        let vertex = Gaussians::VERTEX.filter(|_| fields::are_in(&self.header));
        let Some(vertex) = vertex else {
            let (gaussians, is_flat) = self.read_rows::<Gaussians>(Gaussians::FIELDS)?;
            return Ok(PlyModel { gaussians, primitive: primitive_of(is_flat), triangles: None });
        };
        let Self { path, ref header, file_bytes, .. } = self;
        let count = header.rows_within(path, file_bytes)?;
        let vertices_end = header.data_start + (count * header.vertices().row_bytes) as u64;
        let layout = FaceLayout::of(path, header, vertices_end, file_bytes)?;
        let (mut gaussians, _) = self.read_rows::<Gaussians>(vertex.fields)?;
        (vertex.complete)(&mut gaussians, count);
        let triangles = layout.read(path, &mut self.input, count)?;
        if self.header.after().len() == 1 {
            let end = vertices_end.saturating_add(layout.bytes());
            ply::warn_about_rest(path, file_bytes.saturating_sub(end));
        }
        let primitive = PrimitiveName::Triangles;
        Ok(PlyModel { gaussians, primitive, triangles: Some(triangles) })
    }

    /// Reads rows of these fields. Returns true with them if they are flat.
    fn read_rows<P: PlyRows>(&mut self, fields: &[PlyField]) -> Result<(P, bool), PlyError> {
        let Self { path, input, header, file_bytes } = self;
        let unreadable = |source| PlyFileError::unreadable(path, source);
        let layout = PlyLayout::of::<P>(path, header, fields)?;
        let rows = header.rows_within(path, *file_bytes)?;
        input.seek(SeekFrom::Start(header.data_start)).map_err(unreadable)?;
        if header.after().is_empty() {
            let end = header.data_start.saturating_add((rows * header.vertices().row_bytes) as u64);
            ply::warn_about_rest(path, file_bytes.saturating_sub(end));
        }
        let filter = layout.filter::<P>(path, header)?;
        let (mut primitives, mut filters) = (layout.allocate::<P>(rows), Vec::new());
        let row_bytes = header.vertices().row_bytes;
        let rows_at_a_time = (CHUNK_BYTES / row_bytes).max(1);
        let mut chunk = vec![0; rows_at_a_time * row_bytes];
        let mut row = 0;
        while row < rows {
            let chunk = &mut chunk[..rows_at_a_time.min(rows - row) * row_bytes];
            input.read_exact(chunk).map_err(unreadable)?;
            let mut columns = primitives.groups_mut();
            for bytes in chunk.chunks_exact(row_bytes) {
                layout.take_row(path, row, bytes, &mut columns)?;
                filters.extend(filter.as_ref().map(|(column, _)| column.value(bytes).to_f32()));
                row += 1;
            }
        }
        if let Some((_, fuse)) = filter {
            fuse(&mut primitives, &filters);
        }
        Ok((primitives, layout.is_flat))
    }
}

/// A column of a 3D filter, and the function that fuses it with the rows.
type FoundFilter<P> = (PlyProperty, fn(&mut P, &[f32]));

/// Positions of a primitive's values in a row of the file, in the order of this program's files.
struct PlyLayout {
    sh_degree: u32,
    fields: Vec<LocatedField>,
    /// True if rows lack the value of [`PlyRows::FLAT`].
    is_flat: bool,
}

struct LocatedField {
    field: PlyField,
    column: usize,
    values: Vec<PlyProperty>,
    /// Last value of the column if the file lacks it.
    default: Option<f32>,
    /// Range of the values, if it is limited.
    range: Option<&'static RangeInclusive<f32>>,
}

impl PlyLayout {
    fn of<P: PlyRows>(
        path: &Path,
        header: &VertexHeader,
        wanted: &[PlyField],
    ) -> Result<Self, PlyError> {
        let (sh_degree, rest) = sh_degree::<P>(path, header)?;
        let mut fields = Vec::new();
        for &field in wanted {
            let Some(column) = field.column() else { continue };
            let mut names = field.names(rest);
            let missing = P::FLAT.filter(|FlatField { name, .. }| {
                names.last().is_some_and(|last| last == name) && !header.vertices().has(name)
            });
            names.truncate(names.len() - usize::from(missing.is_some()));
            let values = names.iter().map(|name| find(path, header.vertices(), name));
            let values = values.collect::<Result<_, _>>()?;
            let range = P::RANGES.iter().find(|known| known.column == column);
            let range = range.map(|it| &it.range);
            let default = missing.map(|flat| flat.value);
            fields.push(LocatedField { field, column, values, default, range });
        }
        let is_flat = fields.iter().any(|field| field.default.is_some());
        Ok(Self { sh_degree, fields, is_flat })
    }

    /// Returns the 3D filter if rows are Gaussians. It would make flat ones thick.
    fn filter<P: PlyRows>(
        &self,
        path: &Path,
        header: &VertexHeader,
    ) -> Result<Option<FoundFilter<P>>, PlyError> {
        let has_shapes = self.fields.iter().any(|it| matches!(it.field, PlyField::Rotation { .. }));
        let Some(FilterField { name, fuse }) = P::FILTER.filter(|_| has_shapes && !self.is_flat)
        else {
            return Ok(None);
        };
        let is_there = |c: &PlyProperty| c.name == name && c.scalar.is_float();
        if !header.vertices().properties.iter().any(is_there) {
            return Ok(None);
        }
        Ok(Some((find(path, header.vertices(), name)?, fuse)))
    }

    fn allocate<P: PlyRows>(&self, rows: usize) -> P {
        let mut primitives = P::empty(self.sh_degree);
        for (values, column) in primitives.groups_mut().into_iter().zip(P::SCHEMA.columns) {
            values.reserve_exact(rows * column.width.values(self.sh_degree) as usize);
        }
        primitives
    }

    fn take_row(
        &self,
        path: &Path,
        row: usize,
        bytes: &[u8],
        columns: &mut [&mut Vec<f32>],
    ) -> Result<(), PlyError> {
        for LocatedField { field, column, values, default, range } in &self.fields {
            let to = &mut *columns[*column];
            let first = to.len();
            for source in values {
                let exact = source.value(bytes);
                let value = exact.to_f32();
                let named = || (path.to_owned(), source.name.clone());
                if !value.is_finite() {
                    let (path, column) = named();
                    return Err(PlyError::NotFinite { path, row, column, value: exact });
                }
                if let Some(range) = range.filter(|range| !range.contains(&value)) {
                    let ((path, column), range) = (named(), range.clone());
                    return Err(PlyError::OutOfRange { path, row, column, value: exact, range });
                }
                to.push(value);
            }
            to.extend(default);
            let read = &mut to[first..];
            match field {
                PlyField::Rotation { .. } if read.iter().all(|&part| part == 0.0) => {
                    return Err(PlyError::NoRotation { path: path.to_owned(), row });
                }
                PlyField::Harmonics { .. } => interleave(read),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Reorders harmonics from red, green and blue planes to three channels for each coefficient.
fn interleave(harmonics: &mut [f32]) {
    let coefficients = harmonics.len() / 3;
    let planar = harmonics.to_vec();
    for (k, channels) in harmonics.as_chunks_mut::<3>().0.iter_mut().enumerate() {
        *channels = [0, 1, 2].map(|channel| planar[channel * coefficients + k]);
    }
}

/// Returns the degree of the harmonics, and the number of their values in a row.
fn sh_degree<P: PlyRows>(path: &Path, header: &VertexHeader) -> Result<(u32, usize), PlyError> {
    let prefix = P::FIELDS.iter().find_map(|field| match field {
        PlyField::Harmonics { prefix, .. } => Some(prefix),
        _ => None,
    });
    let Some(&prefix) = prefix else { return Ok((0, 0)) };
    let count = header.vertices().properties.iter().filter(|c| c.name.starts_with(prefix)).count();
    let values = |degree| Width::ShRest.values(degree) as usize;
    let degree = (0..=MAX_DEGREE).find(|&degree| values(degree) == count);
    let degree = degree.ok_or_else(|| PlyError::RestCount { path: path.to_owned(), count })?;
    Ok((degree, count))
}

/// Returns the only column called `name`, which must hold floating-point numbers.
fn find(path: &Path, vertices: &PlyElement, name: &str) -> Result<PlyProperty, PlyError> {
    let path = || path.to_owned();
    let mut named = vertices.properties.iter().filter(|column| column.name == name);
    let Some(column) = named.next() else {
        return Err(PlyError::MissingColumn { path: path(), column: name.to_owned() });
    };
    if named.next().is_some() {
        return Err(PlyError::DoubleColumn { path: path(), column: name.to_owned() });
    }
    if !column.scalar.is_float() {
        let (column, found) = (name.to_owned(), column.scalar.name().to_owned());
        return Err(PlyError::ColumnType { path: path(), column, found });
    }
    Ok(column.clone())
}
