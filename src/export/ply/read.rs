//! Reading Gaussians from a PLY file.

use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::{AFTER_REST, BEFORE_REST, rest_name};
use crate::math::Real;
use crate::model::{Gaussians, fuse, sh_rest_count};
use crate::ply::{self, Header, PlyColumn, PlyFileError};

/// A PLY file that holds no Gaussians.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlyError {
    /// The file or its header cannot be read, or rows are missing.
    #[error(transparent)]
    File(#[from] PlyFileError),
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
         give an uncompressed PLY of Gaussians"
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

/// Standard deviations of a 3D filter, world units.
const FILTER: &str = "filter_3D";

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Reads Gaussians from a binary PLY; columns are found by name, in any order, as float or double,
/// and the SH degree follows from the number of `f_rest` columns. A column `filter_3D`, as
/// Mip-Splatting writes it, is fused with scales and opacities. Other columns are passed over.
///
/// Memory beyond the result stays at about a megabyte; the file's size is checked before the
/// result is allocated.
pub fn read_ply(path: &Path) -> Result<Gaussians, PlyError> {
    let unreadable = |source| PlyFileError::unreadable(path, source);
    let (file, file_bytes) = ply::open(path)?;
    let mut input = BufReader::new(file);
    let header = Header::read(path, &mut input)?;
    if header.format != "binary_little_endian 1.0" {
        return Err(PlyError::Format { path: path.to_owned(), format: header.format });
    }
    let layout = PlyLayout::of(path, &header)?;
    let rows = header.rows_within(path, file_bytes)?;
    input.seek(SeekFrom::Start(header.data_start)).map_err(unreadable)?;
    let is_filter = |column: &PlyColumn| column.name == FILTER && column.scalar.is_float();
    let filter = header.columns.iter().any(is_filter);
    let filter = filter.then(|| find(path, &header.columns, FILTER)).transpose()?;
    let (mut gaussians, mut filters) = (layout.allocate(rows), Vec::new());
    let rows_at_a_time = (CHUNK_BYTES / header.row_bytes).max(1);
    let mut chunk = vec![0; rows_at_a_time * header.row_bytes];
    let mut row = 0;
    while row < rows {
        let chunk = &mut chunk[..rows_at_a_time.min(rows - row) * header.row_bytes];
        input.read_exact(chunk).map_err(unreadable)?;
        for bytes in chunk.chunks_exact(header.row_bytes) {
            layout.take_row(path, row, bytes, &mut gaussians)?;
            filters.extend(filter.as_ref().map(|column| column.value(bytes).to_f32()));
            row += 1;
        }
    }
    fuse(&mut gaussians, &filters);
    Ok(gaussians)
}

/// Where the columns of Gaussians lie in a row, in the order of our own files.
struct PlyLayout {
    sh_degree: u32,
    columns: Vec<PlyColumn>,
}

impl PlyLayout {
    fn of(path: &Path, header: &Header) -> Result<Self, PlyError> {
        let rest = header.columns.iter().filter(|c| c.name.starts_with("f_rest_")).count();
        let sh_degree = (0..=3).find(|&degree| 3 * sh_rest_count(degree) == rest);
        let sh_degree =
            sh_degree.ok_or_else(|| PlyError::RestCount { path: path.to_owned(), count: rest })?;
        let names = BEFORE_REST.map(str::to_owned).into_iter();
        let names = names.chain((0..rest).map(rest_name));
        let names = names.chain(AFTER_REST.map(str::to_owned));
        let columns =
            names.map(|name| find(path, &header.columns, &name)).collect::<Result<_, _>>()?;
        Ok(Self { sh_degree, columns })
    }

    fn allocate(&self, rows: usize) -> Gaussians {
        Gaussians {
            sh_degree: self.sh_degree,
            means: Vec::with_capacity(3 * rows),
            log_scales: Vec::with_capacity(3 * rows),
            quats: Vec::with_capacity(4 * rows),
            opacity_logits: Vec::with_capacity(rows),
            sh_dc: Vec::with_capacity(3 * rows),
            sh_rest: Vec::with_capacity(3 * sh_rest_count(self.sh_degree) * rows),
        }
    }

    /// Appends one row to `gaussians`.
    fn take_row(
        &self,
        path: &Path,
        row: usize,
        bytes: &[u8],
        gaussians: &mut Gaussians,
    ) -> Result<(), PlyError> {
        // Degree 3 has the most columns.
        let mut values = [0.0f32; 59];
        for (value, column) in values.iter_mut().zip(&self.columns) {
            let exact = column.value(bytes);
            *value = exact.to_f32();
            if !value.is_finite() {
                let (path, column) = (path.to_owned(), column.name.clone());
                return Err(PlyError::NotFinite { path, row, column, value: exact });
            }
        }
        let (before, values) = values.split_at(BEFORE_REST.len());
        let coefficients = sh_rest_count(self.sh_degree);
        let (rest, after) = values.split_at(3 * coefficients);
        gaussians.means.extend_from_slice(&before[..3]);
        gaussians.sh_dc.extend_from_slice(&before[3..]);
        for i in 0..coefficients {
            let channels = [rest[i], rest[coefficients + i], rest[2 * coefficients + i]];
            gaussians.sh_rest.extend_from_slice(&channels);
        }
        gaussians.opacity_logits.push(after[0]);
        gaussians.log_scales.extend_from_slice(&after[1..4]);
        let quat = &after[4..8];
        if quat.iter().all(|&part| part == 0.0) {
            return Err(PlyError::NoRotation { path: path.to_owned(), row });
        }
        gaussians.quats.extend_from_slice(quat);
        Ok(())
    }
}

/// The one column called `name`, which must hold floating-point numbers.
fn find(path: &Path, columns: &[PlyColumn], name: &str) -> Result<PlyColumn, PlyError> {
    let path = || path.to_owned();
    let mut named = columns.iter().filter(|column| column.name == name);
    let Some(column) = named.next() else {
        return Err(PlyError::MissingColumn { path: path(), column: name.to_owned() });
    };
    if named.next().is_some() {
        return Err(PlyError::DoubleColumn { path: path(), column: name.to_owned() });
    }
    if !column.scalar.is_float() {
        let (column, found) = (name.to_owned(), column.type_name.clone());
        return Err(PlyError::ColumnType { path: path(), column, found });
    }
    Ok(column.clone())
}
