//! Files that hold no model.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::math::Real;
use crate::ply::PlyFileError;

/// A PLY file that holds no Gaussians.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlyError {
    /// The file or its header cannot be read, or rows are missing.
    #[error(transparent)]
    File(#[from] PlyFileError),
    /// Its triangles cannot be read.
    #[error(transparent)]
    Faces(#[from] PlyFacesError),
    /// Text or big-endian numbers.
    #[error(
        "{path}: its format is `{format}`; only `binary_little_endian 1.0` is read. Export it \
         as binary PLY"
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// What the header says.
        format: String,
    },
    /// A column that Gaussians need is not there.
    #[error(
        "{path}: has no column `{column}`. It is a point cloud, a mesh or a compressed file; \
         give an uncompressed PLY of Gaussians, or of triangles with harmonics"
    )]
    MissingColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
    },
    /// A column stands in the header twice.
    #[error("{path}: lists the column `{column}` twice. Export it again")]
    DoubleColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
    },
    /// A column of integers where numbers with a fraction belong.
    #[error(
        "{path}: the column `{column}` is of type {found}; float or double is expected. Export \
         it uncompressed"
    )]
    ColumnType {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// Its type.
        found: String,
    },
    /// The harmonics are of no degree.
    #[error(
        "{path}: has {count} f_rest columns; 0, 9, 24 or 45 are expected (SH degree 0, 1, 2 or \
         3). Export it again"
    )]
    RestCount {
        /// The file.
        path: PathBuf,
        /// Columns found.
        count: usize,
    },
    /// A NaN or an infinite number.
    #[error(
        "{path}: row {row}, column `{column}` is {value}. Remove such Gaussians or export the \
         file again"
    )]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// Row, from 0.
        row: usize,
        /// The column.
        column: String,
        /// What it holds.
        value: f64,
    },
    /// A value that no model holds.
    #[error(
        "{path}: row {row}, column `{column}` is {}, and only {} to {} can be drawn. Remove \
         such Gaussians or export the file again",
        in_words(*value), in_words((*range.start()).into()), in_words((*range.end()).into())
    )]
    OutOfRange {
        /// The file.
        path: PathBuf,
        /// Row, from 0.
        row: usize,
        /// The column.
        column: String,
        /// What it holds.
        value: f64,
        /// What it may hold.
        range: RangeInclusive<f32>,
    },
    /// A rotation that turns nowhere.
    #[error(
        "{path}: row {row} has a rotation (rot_0..3) of all zeros. Remove such Gaussians or \
         export the file again"
    )]
    NoRotation {
        /// The file.
        path: PathBuf,
        /// Row, from 0.
        row: usize,
    },
}

/// A number of a file as people write it: with no more digits than make it out among floats.
fn in_words(exact: f64) -> String {
    let value = exact.to_f32();
    if value.abs() < 1e6 { value.to_string() } else { format!("{value:e}") }
}

/// Triangles that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlyFacesError {
    /// Its comments promise some.
    #[error(
        "{path}: says that it holds triangles (`SplatRenderMode: triangles`), but no `element face` follows its vertices. \
         Copy or export it again"
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Lines of the header that are not those of triangles.
    #[error(
        "{path}: `element face` has `{found}`, not one `property list uchar int vertex_indices`. Export it again"
    )]
    Property {
        /// The file.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// Not a triangle.
    #[error(
        "{path}: face {face} has {corners} corners, where 3 are expected. Triangulate the mesh"
    )]
    Corners {
        /// The file.
        path: PathBuf,
        /// Which face, from 0.
        face: usize,
        /// Its corners.
        corners: f64,
    },
    /// A corner that is no row.
    #[error(
        "{path}: face {face} names vertex {vertex}, and there are {vertices}, from 0. Copy or export the file \
         again"
    )]
    NoVertex {
        /// The file.
        path: PathBuf,
        /// Which face, from 0.
        face: usize,
        /// What it names.
        vertex: f64,
        /// Vertices of the file.
        vertices: usize,
    },
    /// A comment without a number that can be.
    #[error(
        "{path}: its comment `{key}{value}` has to have a number, {allowed}. Correct it, or remove the line"
    )]
    Comment {
        /// The file.
        path: PathBuf,
        /// What the comment begins with.
        key: &'static str,
        /// What follows.
        value: String,
        /// Which numbers can be.
        allowed: &'static str,
    },
}
