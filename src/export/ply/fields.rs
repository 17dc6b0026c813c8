//! Properties and comments of a PLY, and errors of reading.

use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use splat_mesh::file::ply::{NewPlyHeader, PlyElement, Scalar};
use splat_mesh::narrow::floor_u32;

use crate::dataset::FARTHEST;
use crate::math::Real;
use crate::model::{FLAT_LOG_SCALE, Gaussians, Primitive, fuse};
use crate::ply::{PlyFileError, VertexHeader, rows_within};

/// A kind of primitive that can be written as a PLY.
pub trait PlyRows: Primitive {
    /// Values of a row, in the order of the file.
    const FIELDS: &'static [PlyField];
    /// Columns with a limited range.
    const RANGES: &'static [ColumnRange] = &[];
    /// Value that files of flat rows leave out; `None` for primitives that are never flat.
    const FLAT: Option<FlatField> = None;
    /// 3D filter; `None` for primitives without one.
    const FILTER: Option<FilterField<Self>> = None;
    /// Format of rows that are vertices of triangles; `None` for primitives that never are.
    const VERTEX: Option<VertexFields<Self>> = None;
}

/// Format of rows that are vertices of triangles.
#[derive(Debug)]
pub struct VertexFields<P> {
    /// Values of a row, in the order of the file.
    pub fields: &'static [PlyField],
    /// Fills the columns that files of vertices leave out, for the given number of rows.
    pub complete: fn(&mut P, usize),
}

/// Range of a column's values. A model with other values cannot be drawn.
#[derive(Debug)]
pub struct ColumnRange {
    /// Index of the column in the schema.
    pub column: usize,
    /// Allowed values.
    pub range: RangeInclusive<f32>,
}

/// A value that is in every row of the file unless all rows are flat.
#[derive(Clone, Copy, Debug)]
pub struct FlatField {
    /// Name of the value, the last of its column.
    pub name: &'static str,
    /// Value of rows without it.
    pub value: f32,
}

/// Standard deviations of a 3D filter, world units.
#[derive(Debug)]
pub struct FilterField<P> {
    /// Column name of other programs. This program writes rows with the filter fused.
    pub name: &'static str,
    /// Fuses the filter with the rows; one value for each.
    pub fuse: fn(&mut P, &[f32]),
}

/// Meaning of values in space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A position.
    Position,
    /// Natural logarithms of lengths.
    LogLength,
    /// A value that does not depend on the coordinates.
    Other,
}

/// Consecutive values of a row in the file. A column is an index in the schema.
#[derive(Clone, Copy, Debug)]
pub enum PlyField {
    /// Values that readers expect without a column: zero when written, ignored when read.
    Zeros(&'static [&'static str]),
    /// Colours of 8 bits for viewers, from a column of harmonics of degree 0; ignored when read.
    Colors {
        /// Index of the column.
        column: usize,
        /// Names of the channels.
        names: &'static [&'static str],
    },
    /// The values of a column in their order.
    Values {
        /// Index of the column.
        column: usize,
        /// Names of the values.
        names: &'static [&'static str],
        /// Change of the values with the coordinates.
        meaning: Meaning,
    },
    /// The values of a quaternion, which must not be all zeros. Written at unit length.
    Rotation {
        /// Index of the column.
        column: usize,
        /// Names of the components.
        names: &'static [&'static str],
    },
    /// The harmonics above degree 0: all of red, then of green, then of blue. In memory each coefficient holds its
    /// three channels.
    Harmonics {
        /// Index of the column.
        column: usize,
        /// Prefix of the names; numbers from 0 follow.
        prefix: &'static str,
    },
}

impl PlyField {
    pub(super) fn column(self) -> Option<usize> {
        match self {
            Self::Zeros(_) | Self::Colors { .. } => None,
            Self::Values { column, .. }
            | Self::Rotation { column, .. }
            | Self::Harmonics { column, .. } => Some(column),
        }
    }

    /// Returns the names in the file, for `harmonics` values of harmonics.
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

    pub(super) fn scalar(self) -> Scalar {
        if matches!(self, Self::Colors { .. }) { Scalar::U8 } else { Scalar::F32 }
    }
}

// The format of 3D Gaussian splatting.

/// Largest accepted log-scale, about 1e13 world units. Flat Gaussians a few hundred times larger have gradients
/// beyond the range of single precision.
const MAX_LOG_SCALE: f32 = 30.0;

/// Largest accepted magnitude of a harmonic. A colour of 1 needs at most 4. Losses square the colours, and squares
/// beyond 1e19 leave the range of single precision.
const MAX_HARMONIC: f32 = 1e12;

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
        ColumnRange { column: 1, range: f32::MIN..=MAX_LOG_SCALE },
        ColumnRange { column: 4, range: -MAX_HARMONIC..=MAX_HARMONIC },
        ColumnRange { column: 5, range: -MAX_HARMONIC..=MAX_HARMONIC },
    ];
    // The format of 2D Gaussian splatting.
    const FLAT: Option<FlatField> = Some(FlatField { name: "scale_2", value: FLAT_LOG_SCALE });
    // The format of Mip-Splatting.
    const FILTER: Option<FilterField<Self>> = Some(FilterField { name: "filter_3D", fuse });
    // Without normals, because viewers would light a mesh that has its colours already.
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
        // Nothing reads the scales and rotations of vertices.
        complete: |vertices, count| {
            vertices.log_scales = vec![0.0; 3 * count];
            vertices.quats = [1.0, 0.0, 0.0, 0.0].repeat(count);
        },
    });
}

// Triangles of a PLY, and the comments about drawing them.

const LIST_NAMES: [&str; 2] = ["vertex_indices", "vertex_index"];

/// The word of the comment `SplatRenderMode` for triangles.
pub(super) const RENDER_MODE: &str = "SplatRenderMode: triangles";
const EXPONENT: &str = "SplatWindowExponent: ";
const OPACITY_FLOOR: &str = "SplatOpacityFloor: ";

/// Bytes of a triangle in this program's files: the number of corners, and the corners.
pub(super) const FACE_BYTES: usize = 1 + 3 * size_of::<u32>();

/// Triangles per read or write: about a hundred kilobytes.
const FACES_AT_ONCE: usize = 8192;

/// Window of a file's triangles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoredWindow {
    /// Exponent of the window: 1 is a pyramid, values near 0 a solid triangle.
    pub exponent: f64,
    /// Smallest opacity of a vertex. The opacity of a logit w is floor + (1 - floor) sigmoid(w).
    pub opacity_floor: f64,
}

impl StoredWindow {
    /// The window at the end of a run, and of files without the comments.
    pub const SOLID: Self = Self { exponent: 1e-4, opacity_floor: 0.9999 };

    pub(super) fn describe(self, header: &mut NewPlyHeader) {
        let Self { exponent, opacity_floor } = self;
        header.comment(RENDER_MODE);
        header.comment(format_args!("{EXPONENT}{exponent}"));
        header.comment(format_args!("{OPACITY_FLOOR}{opacity_floor}"));
    }

    fn of(path: &Path, header: &VertexHeader) -> Result<Self, PlyFacesError> {
        let number = |key: &'static str, allowed: &'static str, is: fn(f64) -> bool| {
            let found = header.header.comments.iter().find_map(|comment| comment.strip_prefix(key));
            let Some(value) = found else { return Ok(None) };
            value.parse().ok().filter(|&value| is(value)).map(Some).ok_or_else(|| {
                let (path, value) = (path.to_owned(), value.to_owned());
                PlyFacesError::Comment { path, key, value, allowed }
            })
        };
        let exponent = number(EXPONENT, "0 and more", |it| it >= 0.0 && it.is_finite())?;
        let floor = number(OPACITY_FLOOR, "0 and more, below 1", |it| (0.0..1.0).contains(&it))?;
        Ok(Self {
            exponent: exponent.unwrap_or(Self::SOLID.exponent),
            opacity_floor: floor.unwrap_or(Self::SOLID.opacity_floor),
        })
    }
}

/// The triangles of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct PlyTriangles {
    /// Three vertices of each triangle.
    pub faces: Vec<[u32; 3]>,
    /// Window of the triangles.
    pub window: StoredWindow,
}

/// Returns true if a file holds triangles between rows without scales.
pub(super) fn are_in(header: &VertexHeader) -> bool {
    let says_so = header.header.comments.iter().any(|comment| comment == RENDER_MODE);
    let has_faces = header.after().iter().any(|element| element.name == "face");
    says_so || (has_faces && !header.vertices().has("scale_0"))
}

#[derive(Debug)]
pub(super) struct FaceLayout {
    window: StoredWindow,
    faces: usize,
    row_bytes: usize,
    /// Bytes of a row before the list.
    start: usize,
    count: Scalar,
    corner: Scalar,
}

impl FaceLayout {
    /// Finds the triangles behind the vertices, which end at `vertices_end`.
    pub(super) fn of(
        path: &Path,
        header: &VertexHeader,
        vertices_end: u64,
        file_bytes: u64,
    ) -> Result<Self, PlyError> {
        let window = StoredWindow::of(path, header)?;
        // Only the element directly behind the vertices: the length of others is unknown here.
        let element = header.after().first().filter(|element| element.name == "face");
        let element = element.ok_or_else(|| PlyFacesError::Missing { path: path.to_owned() })?;
        let (mut list, mut row_bytes) = (None, 0);
        for property in &element.properties {
            match property.list {
                None => row_bytes += property.scalar.bytes(),
                Some(count)
                    if LIST_NAMES.contains(&property.name.as_str())
                        && list.is_none()
                        && !property.scalar.is_float() =>
                {
                    list = Some((row_bytes, count, property.scalar));
                    row_bytes += count.bytes() + 3 * property.scalar.bytes();
                }
                Some(_) => {
                    let (path, found) = (path.to_owned(), format!("property {property}"));
                    return Err(PlyFacesError::Property { path, found }.into());
                }
            }
        }
        let Some((start, count, corner)) = list else {
            let (path, found) = (path.to_owned(), "no list of vertices".to_owned());
            return Err(PlyFacesError::Property { path, found }.into());
        };
        let &PlyElement { rows, .. } = element;
        let faces = rows_within(path, rows, row_bytes, file_bytes.saturating_sub(vertices_end))?;
        Ok(Self { window, faces, row_bytes, start, count, corner })
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.faces as u64).saturating_mul(self.row_bytes as u64)
    }

    /// Reads the triangles from their start. Corners must be below `vertices`.
    pub(super) fn read(
        &self,
        path: &Path,
        input: &mut impl Read,
        vertices: usize,
    ) -> Result<PlyTriangles, PlyError> {
        let mut faces = Vec::with_capacity(self.faces);
        let mut chunk = vec![0; FACES_AT_ONCE.min(self.faces) * self.row_bytes];
        while faces.len() < self.faces {
            let rows = FACES_AT_ONCE.min(self.faces - faces.len());
            let chunk = &mut chunk[..rows * self.row_bytes];
            input.read_exact(chunk).map_err(|source| PlyFileError::unreadable(path, source))?;
            for row in chunk.chunks_exact(self.row_bytes) {
                faces.push(self.face(path, faces.len(), row, vertices)?);
            }
        }
        Ok(PlyTriangles { faces, window: self.window })
    }

    /// Reads the triangle of this index.
    fn face(
        &self,
        path: &Path,
        index: usize,
        row: &[u8],
        vertices: usize,
    ) -> Result<[u32; 3], PlyFacesError> {
        let value = |scalar: Scalar, at: usize| scalar.value(&row[at..]).unwrap_or(f64::NAN);
        let corners = value(self.count, self.start);
        if corners != 3.0 {
            return Err(PlyFacesError::Corners { path: path.to_owned(), face: index, corners });
        }
        let first = self.start + self.count.bytes();
        let mut face = [0; 3];
        for (i, corner) in face.iter_mut().enumerate() {
            let vertex = value(self.corner, first + i * self.corner.bytes());
            if !(0.0..vertices as f64).contains(&vertex) {
                let path = path.to_owned();
                return Err(PlyFacesError::NoVertex { path, face: index, vertex, vertices });
            }
            *corner = floor_u32(vertex);
        }
        Ok(face)
    }
}

/// Writes triangles. Fails if a corner is not below `vertices`.
pub(super) fn write(out: &mut dyn Write, faces: &[[u32; 3]], vertices: usize) -> io::Result<()> {
    let invalid = |problem| io::Error::new(io::ErrorKind::InvalidInput, problem);
    if i32::try_from(vertices).is_err() {
        let problem = format!("{vertices} vertices, of which faces can name 2,147,483,647");
        return Err(invalid(problem));
    }
    let mut bytes = Vec::with_capacity(FACE_BYTES * FACES_AT_ONCE.min(faces.len()));
    for (part, faces) in faces.chunks(FACES_AT_ONCE).enumerate() {
        bytes.clear();
        for (at, face) in faces.iter().enumerate() {
            if let Some(vertex) = face.iter().find(|&&vertex| vertex as usize >= vertices) {
                let face = part * FACES_AT_ONCE + at;
                return Err(invalid(format!("face {face} names vertex {vertex} of {vertices}")));
            }
            bytes.push(3);
            face.iter().for_each(|vertex| bytes.extend_from_slice(&vertex.to_le_bytes()));
        }
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// An error of reading Gaussians from a PLY.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum PlyError {
    #[error(transparent)]
    File(#[from] PlyFileError),
    #[error(transparent)]
    Faces(#[from] PlyFacesError),
    #[error(
        "{path}: its format is `{format}`; only `binary_little_endian 1.0` is read. Export it \
         as binary PLY"
    )]
    Format { path: PathBuf, format: String },
    #[error(
        "{path}: has no column `{column}`. It is a point cloud, a mesh or a compressed file; \
         give an uncompressed PLY of Gaussians, or of triangles with harmonics"
    )]
    MissingColumn { path: PathBuf, column: String },
    #[error("{path}: lists the column `{column}` twice. Export it again")]
    DoubleColumn { path: PathBuf, column: String },
    #[error(
        "{path}: the column `{column}` is of type {found}; float or double is expected. Export \
         it uncompressed"
    )]
    ColumnType { path: PathBuf, column: String, found: String },
    #[error(
        "{path}: has {count} f_rest columns; 0, 9, 24 or 45 are expected (SH degree 0, 1, 2 or \
         3). Export it again"
    )]
    RestCount { path: PathBuf, count: usize },
    #[error(
        "{path}: row {row}, column `{column}` is {value}. Remove such Gaussians or export the \
         file again"
    )]
    NotFinite { path: PathBuf, row: usize, column: String, value: f64 },
    #[error(
        "{path}: row {row}, column `{column}` is {}, and only {} to {} can be drawn. Remove \
         such Gaussians or export the file again",
        in_words(*value), in_words((*range.start()).into()), in_words((*range.end()).into())
    )]
    OutOfRange { path: PathBuf, row: usize, column: String, value: f64, range: RangeInclusive<f32> },
    #[error(
        "{path}: row {row} has a rotation (rot_0..3) of all zeros. Remove such Gaussians or \
         export the file again"
    )]
    NoRotation { path: PathBuf, row: usize },
}

fn in_words(exact: f64) -> String {
    let value = exact.to_f32();
    if value.abs() < 1e6 { value.to_string() } else { format!("{value:e}") }
}

/// An error of reading triangles.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum PlyFacesError {
    #[error(
        "{path}: says that it holds triangles (`SplatRenderMode: triangles`), but no `element face` follows its vertices. \
         Copy or export it again"
    )]
    Missing { path: PathBuf },
    #[error(
        "{path}: `element face` has `{found}`, not one `property list uchar int vertex_indices`. Export it again"
    )]
    Property { path: PathBuf, found: String },
    #[error(
        "{path}: face {face} has {corners} corners, where 3 are expected. Triangulate the mesh"
    )]
    Corners { path: PathBuf, face: usize, corners: f64 },
    #[error(
        "{path}: face {face} names vertex {vertex}, and there are {vertices}, from 0. Copy or export the file \
         again"
    )]
    NoVertex { path: PathBuf, face: usize, vertex: f64, vertices: usize },
    #[error(
        "{path}: its comment `{key}{value}` has to have a number, {allowed}. Correct it, or remove the line"
    )]
    Comment { path: PathBuf, key: &'static str, value: String, allowed: &'static str },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Primitive;

    #[test]
    fn the_file_has_every_column_once_with_all_values() {
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
