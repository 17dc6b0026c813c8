//! The text at the head of a PLY file.

use std::io::{self, BufRead, Read};
use std::path::Path;

use super::PlyError;

/// Longest header that is read: 50 times that of a file of Gaussians, comments included.
const MAX_HEADER_BYTES: u64 = 1 << 16;

/// Types of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    /// An integer of so many bytes; Gaussians have none, other columns are passed over.
    Integer(usize),
    /// Single precision.
    Float,
    /// Double precision.
    Double,
}

impl Scalar {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "char" | "uchar" | "int8" | "uint8" => Self::Integer(1),
            "short" | "ushort" | "int16" | "uint16" => Self::Integer(2),
            "int" | "uint" | "int32" | "uint32" => Self::Integer(4),
            "float" | "float32" => Self::Float,
            "double" | "float64" => Self::Double,
            _ => return None,
        })
    }

    fn bytes(self) -> usize {
        match self {
            Self::Integer(bytes) => bytes,
            Self::Float => 4,
            Self::Double => 8,
        }
    }
}

/// A column of the vertices.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// The type as the file spells it.
    pub(super) type_name: String,
    pub(super) scalar: Scalar,
    /// Bytes from the start of a row.
    pub(super) offset: usize,
}

/// What the header says about the vertices.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) rows: u64,
    pub(super) row_bytes: usize,
    pub(super) columns: Vec<Column>,
    /// Bytes from the start of the file to the first row.
    pub(super) data_start: u64,
}

/// One `element` of the header with its columns.
struct Element {
    name: String,
    rows: u64,
    row_bytes: usize,
    columns: Vec<Column>,
}

impl Header {
    /// Reads up to `end_header`. Elements behind the vertices are not looked at.
    pub(super) fn read(path: &Path, input: &mut impl BufRead) -> Result<Self, PlyError> {
        let mut lines = Lines { path, input, number: 0, bytes: 0 };
        if lines.next()?.as_deref() != Some("ply") {
            return Err(PlyError::NotPly { path: path.to_owned() });
        }
        let mut format = None;
        let mut elements: Vec<Element> = Vec::new();
        loop {
            let Some(line) = lines.next()? else {
                return Err(PlyError::NoEnd { path: path.to_owned() });
            };
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("end_header") => break,
                Some("comment" | "obj_info") | None => {}
                Some("format") => format = Some(words.collect::<Vec<_>>().join(" ")),
                Some("element") => match (words.next(), words.next().map(str::parse)) {
                    (Some(name), Some(Ok(rows))) => elements.push(Element {
                        name: name.to_owned(),
                        rows,
                        row_bytes: 0,
                        columns: Vec::new(),
                    }),
                    _ => return Err(lines.bad(&line, "`element NAME COUNT` is expected")),
                },
                // What follows the vertices is never read.
                Some("property") if vertices_are_complete(&elements) => {}
                Some("property") => match elements.last_mut() {
                    Some(element) => add_column(element, &mut words)
                        .map_err(|problem| lines.bad(&line, problem))?,
                    None => return Err(lines.bad(&line, "no `element` stands before it")),
                },
                Some(_) => return Err(lines.bad(&line, "the keyword is not known")),
            }
        }
        match format {
            Some(format) if format == "binary_little_endian 1.0" => {}
            other => {
                let format = other.unwrap_or_default();
                return Err(PlyError::Format { path: path.to_owned(), format });
            }
        }
        Self::of_elements(path, elements, lines.bytes)
    }

    fn of_elements(
        path: &Path,
        elements: Vec<Element>,
        header_bytes: u64,
    ) -> Result<Self, PlyError> {
        let mut data_start = header_bytes;
        for element in elements {
            if element.name == "vertex" {
                let Element { rows, row_bytes, columns, .. } = element;
                return Ok(Self { rows, row_bytes, columns, data_start });
            }
            // A count that is no file's ends past every file, and is found truncated.
            data_start =
                data_start.saturating_add(element.rows.saturating_mul(element.row_bytes as u64));
        }
        Err(PlyError::NoVertices { path: path.to_owned() })
    }
}

/// Another element has begun behind the vertices.
fn vertices_are_complete(elements: &[Element]) -> bool {
    elements.iter().rev().skip(1).any(|element| element.name == "vertex")
}

fn add_column<'a>(
    element: &mut Element,
    words: &mut impl Iterator<Item = &'a str>,
) -> Result<(), &'static str> {
    let type_name = words.next().ok_or("a type is missing")?;
    if type_name == "list" {
        return Err("lists are not read");
    }
    let scalar = Scalar::parse(type_name).ok_or("the type is not known")?;
    let name = words.next().ok_or("a name is missing")?;
    element.columns.push(Column {
        name: name.to_owned(),
        type_name: type_name.to_owned(),
        scalar,
        offset: element.row_bytes,
    });
    element.row_bytes += scalar.bytes();
    Ok(())
}

/// Lines of the header, counted, and never more than a header may have.
struct Lines<'a, R> {
    path: &'a Path,
    input: &'a mut R,
    number: usize,
    bytes: u64,
}

impl<R: BufRead> Lines<'_, R> {
    /// The next line without its end; `None` where the file or the patience ends.
    fn next(&mut self) -> Result<Option<String>, PlyError> {
        let mut line = Vec::new();
        let read = self
            .input
            .by_ref()
            .take(MAX_HEADER_BYTES - self.bytes)
            .read_until(b'\n', &mut line)
            .map_err(|source: io::Error| PlyError::unreadable(self.path, source))?;
        self.bytes += read as u64;
        self.number += 1;
        if line.pop() != Some(b'\n') {
            return Ok(None);
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(String::from_utf8_lossy(&line).into_owned()))
    }

    fn bad(&self, line: &str, problem: &'static str) -> PlyError {
        let text = line.chars().take(60).collect();
        PlyError::Header { path: self.path.to_owned(), line: self.number, text, problem }
    }
}
