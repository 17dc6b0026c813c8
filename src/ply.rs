//! Binary PLY files of vertices: models and meshes.
//!
//! `splat_mesh::file::ply` reads the header; `export` knows the columns.

use std::fs::File;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use splat_mesh::file::ply::{HeaderFault, PlyElement, PlyFault, PlyHeader};

/// A file that cannot be read as PLY, whatever its contents.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum PlyFileError {
    #[error("{path}: cannot be read: {source}. Check the path and its permissions")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "{path}, line {line} of the header: {found}. Name another file, or copy or export this \
         one again as PLY"
    )]
    Header { path: PathBuf, line: usize, found: String },
    #[error(
        "{path}: is truncated: {rows} rows of {row_bytes} bytes are announced, but the file has \
         {found} bytes for them. Copy or export it again"
    )]
    Truncated { path: PathBuf, rows: u64, row_bytes: usize, found: u64 },
}

impl PlyFileError {
    /// Creates the error of the system's refusal of `path`.
    pub fn unreadable(path: &Path, source: io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), source }
    }
}

/// Warns of bytes after the last row of a binary file. The header may announce too few rows.
pub fn warn_about_rest(path: &Path, bytes: u64) {
    if bytes > 0 {
        tracing::warn!(
            "{}: {bytes} bytes after the last row are not read. If something is missing, write the file again",
            path.display()
        );
    }
}

/// Opens a file and returns its length in bytes.
pub fn open(path: &Path) -> Result<(File, u64), PlyFileError> {
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (length, file) = opened.map_err(|source| PlyFileError::unreadable(path, source))?;
    Ok((file, length))
}

/// A header with the position of the vertices.
#[derive(Debug)]
pub struct VertexHeader {
    /// The header.
    pub header: PlyHeader,
    /// Index of the vertices among the elements.
    vertices: usize,
    /// Bytes from the start of a binary file to the first vertex.
    pub data_start: u64,
}

impl VertexHeader {
    /// Reads up to `end_header`. Lists are accepted only after the vertices.
    pub fn read(path: &Path, input: &mut impl BufRead) -> Result<Self, PlyFileError> {
        let bad = |line, found| PlyFileError::Header { path: path.to_owned(), line, found };
        let header = PlyHeader::read(input).map_err(|HeaderFault { line, fault }| match fault {
            PlyFault::Unreadable(source) => PlyFileError::unreadable(path, source),
            PlyFault::Found(found) => bad(line, found),
        })?;
        let vertices = header.elements.iter().position(|element| element.name == "vertex");
        let Some(vertices) = vertices else {
            let found = "no `element vertex` stands before `end_header`".to_owned();
            return Err(bad(header.lines, found));
        };
        let mut data_start = header.bytes;
        for (index, element) in header.elements[..=vertices].iter().enumerate() {
            if let Some(list) = element.list() {
                return Err(bad(list.line, format!("\"property {list}\": lists are not read")));
            }
            if index < vertices {
                // A number too large for any file ends past its end, and is found truncated.
                let bytes = element.rows.saturating_mul(element.row_bytes as u64);
                data_start = data_start.saturating_add(bytes);
            }
        }
        Ok(Self { header, vertices, data_start })
    }

    /// Returns the element of the vertices.
    pub fn vertices(&self) -> &PlyElement {
        &self.header.elements[self.vertices]
    }

    /// Returns the elements after the vertices.
    pub fn after(&self) -> &[PlyElement] {
        &self.header.elements[self.vertices + 1..]
    }

    /// Returns the number of vertices, if a binary file of `file_bytes` has room for them.
    pub fn rows_within(&self, path: &Path, file_bytes: u64) -> Result<usize, PlyFileError> {
        let PlyElement { rows, row_bytes, .. } = *self.vertices();
        rows_within(path, rows, row_bytes, file_bytes.saturating_sub(self.data_start))
    }
}

/// Returns a number of rows, if `found` bytes have room for them.
pub fn rows_within(
    path: &Path,
    rows: u64,
    row_bytes: usize,
    found: u64,
) -> Result<usize, PlyFileError> {
    let fits = rows.checked_mul(row_bytes as u64).is_some_and(|needed| needed <= found);
    usize::try_from(rows).ok().filter(|_| fits).ok_or_else(|| PlyFileError::Truncated {
        path: path.to_owned(),
        rows,
        row_bytes,
        found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_locates_the_vertices() {
        let text =
            b"ply\r\nformat  binary_little_endian 1.0\nelement camera 2\nproperty short id\n\
            element vertex 3\nproperty uchar red\nproperty double x\nelement face 1\n\
            property list uchar int vertex_indices\nend_header\n";
        let path = Path::new("a.ply");
        let header = VertexHeader::read(path, &mut text.as_slice()).unwrap();
        assert_eq!(header.data_start, text.len() as u64 + 2 * 2);
        assert_eq!((header.vertices().rows, header.after()[0].name.as_str()), (3, "face"));
        assert_eq!(header.rows_within(path, header.data_start + 27).unwrap(), 3);
        let error = header.rows_within(path, header.data_start + 26).unwrap_err().to_string();
        assert!(error.contains("a.ply") && error.contains("has 26 bytes"), "{error}");
    }
}
