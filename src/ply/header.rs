//! The text at the head of a PLY file.

use std::io::{self, BufRead, Read};
use std::path::Path;

use super::{PlyFileError, Scalar};

/// Longest header that is read: 50 times that of a file of Gaussians, comments included.
const MAX_HEADER_BYTES: u64 = 1 << 16;

/// A column of the vertices.
#[derive(Clone, Debug)]
pub struct PlyColumn {
    /// Its name.
    pub name: String,
    /// The type as the file spells it.
    pub type_name: String,
    /// The type.
    pub scalar: Scalar,
    /// Bytes from the start of a row.
    pub offset: usize,
}

impl PlyColumn {
    /// The value in a binary `row`; NaN where the row is too short for the column.
    pub fn value(&self, row: &[u8]) -> f64 {
        row.get(self.offset..).and_then(|bytes| self.scalar.value(bytes)).unwrap_or(f64::NAN)
    }
}

/// What the header says about the vertices.
#[derive(Debug)]
pub struct Header {
    /// The words after `format`, with one space between; empty if there are none.
    pub format: String,
    /// Names of the elements before the vertices.
    pub before: Vec<String>,
    /// Vertices that the header declares; see [`Header::rows_within`].
    pub rows: u64,
    /// Bytes of a row of a binary file.
    pub row_bytes: usize,
    /// The columns in the order of the file.
    pub columns: Vec<PlyColumn>,
    /// Bytes from the start of a binary file to the first row.
    pub data_start: u64,
    /// What comments say.
    pub comments: Vec<String>,
    /// The elements after the vertices.
    pub after: Vec<LaterElement>,
}

/// An element after the vertices, whose lines only its readers look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaterElement {
    /// Its name.
    pub name: String,
    /// Rows that the header declares.
    pub rows: u64,
    /// What follows `property` in its lines, with one space between words.
    pub properties: Vec<String>,
}

/// One `element` of the header with its columns.
struct Element {
    name: String,
    rows: u64,
    row_bytes: usize,
    columns: Vec<PlyColumn>,
    /// The lines of one after the vertices.
    properties: Vec<String>,
}

/// What the lines between the first and the last have said so far.
#[derive(Default)]
struct Said {
    format: String,
    comments: Vec<String>,
    elements: Vec<Element>,
}

impl Header {
    /// Reads up to `end_header`. Columns of elements after the vertices are not made out.
    pub fn read(path: &Path, input: &mut impl BufRead) -> Result<Self, PlyFileError> {
        let mut lines = HeaderLines { input, number: 0, bytes: 0 };
        let mut said = Said::default();
        loop {
            let line = lines.next().map_err(|source| PlyFileError::unreadable(path, source))?;
            let parsed = match line.as_deref() {
                Some("ply") if lines.number == 1 => Ok(()),
                Some(line) if line.as_bytes().starts_with(splat_formats::LFS_POINTER) => {
                    Err(format!("the file {}", splat_formats::LFS_SAID))
                }
                None if lines.bytes == 0 => Err("the file is empty".to_owned()),
                _ if lines.number == 1 => Err("the file is not a PLY".to_owned()),
                None => Err("the file is truncated or damaged, no `end_header` follows".to_owned()),
                Some("end_header") => match Self::of_lines(said, lines.bytes) {
                    Ok(header) => return Ok(header),
                    Err(found) => return Err(lines.bad(path, found)),
                },
                Some(line) => take_line(line, &mut said).map_err(|problem| {
                    format!("{:?}: {problem}", line.chars().take(60).collect::<String>())
                }),
            };
            parsed.map_err(|found| lines.bad(path, found))?;
        }
    }

    fn of_lines(said: Said, header_bytes: u64) -> Result<Self, String> {
        let Said { format, comments, elements } = said;
        let mut before = Vec::new();
        let mut data_start = header_bytes;
        let mut elements = elements.into_iter();
        while let Some(Element { name, rows, row_bytes, columns, .. }) = elements.next() {
            if name == "vertex" {
                let later = |Element { name, rows, properties, .. }| LaterElement {
                    name,
                    rows,
                    properties,
                };
                let after = elements.map(later).collect();
                return Ok(Self {
                    format,
                    before,
                    rows,
                    row_bytes,
                    columns,
                    data_start,
                    comments,
                    after,
                });
            }
            before.push(name);
            // A count that is no file's ends past every file, and is found truncated.
            data_start = data_start.saturating_add(rows.saturating_mul(row_bytes as u64));
        }
        Err("no `element vertex` stands before `end_header`".to_owned())
    }

    /// Where among the columns the first of this name is.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// What is added to the vertices to get scene coordinates: three numbers after the word `offset` in a
    /// comment, or else 0.
    pub fn offset(&self) -> [f64; 3] {
        offset_of(&self.comments)
    }

    /// The number of rows, if a binary file of `file_bytes` has room for them.
    pub fn rows_within(&self, path: &Path, file_bytes: u64) -> Result<usize, PlyFileError> {
        let found = file_bytes.saturating_sub(self.data_start);
        let needed = self.rows.checked_mul(self.row_bytes as u64);
        match (needed, usize::try_from(self.rows)) {
            (Some(needed), Ok(rows)) if needed <= found => Ok(rows),
            _ => Err(PlyFileError::Truncated {
                path: path.to_owned(),
                rows: self.rows,
                row_bytes: self.row_bytes,
                found,
            }),
        }
    }
}

/// Takes a line between the first and the last.
fn take_line(line: &str, said: &mut Said) -> Result<(), String> {
    let Said { format, comments, elements } = said;
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words.as_slice() {
        [] | ["obj_info", ..] => {}
        ["comment", words @ ..] => comments.push(words.join(" ")),
        ["format", words @ ..] => *format = words.join(" "),
        ["element", name, rows, ..] => {
            let rows = rows.parse().map_err(|_no_number| format!("{rows:?} is not a count"))?;
            let name = (*name).to_owned();
            elements.push(Element {
                name,
                rows,
                row_bytes: 0,
                columns: Vec::new(),
                properties: Vec::new(),
            });
        }
        // What follows the vertices is made out by those who read it.
        ["property", words @ ..] if vertices_are_complete(elements) => {
            elements.last_mut().into_iter().for_each(|it| it.properties.push(words.join(" ")));
        }
        ["property", "list", ..] => return Err("lists are not read".to_owned()),
        ["property", type_name, name, ..] => {
            let element = elements.last_mut().ok_or("no `element` stands before it")?;
            let scalar =
                Scalar::by_name(type_name).ok_or_else(|| format!("{type_name} is not a type"))?;
            element.columns.push(PlyColumn {
                name: (*name).to_owned(),
                type_name: (*type_name).to_owned(),
                scalar,
                offset: element.row_bytes,
            });
            element.row_bytes += scalar.bytes();
        }
        _ => return Err("not a line of a PLY header".to_owned()),
    }
    Ok(())
}

/// Whether another element has begun after the vertices.
fn vertices_are_complete(elements: &[Element]) -> bool {
    elements.iter().rev().skip(1).any(|element| element.name == "vertex")
}

/// Lines of the header, counted, and never more than a header may have.
struct HeaderLines<'a, R> {
    input: &'a mut R,
    number: usize,
    bytes: u64,
}

impl<R: BufRead> HeaderLines<'_, R> {
    /// The next line without its end; `None` where the file or the patience ends.
    fn next(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        let mut rest = self.input.by_ref().take(MAX_HEADER_BYTES - self.bytes);
        self.bytes += rest.read_until(b'\n', &mut line)? as u64;
        self.number += 1;
        let whole = line.ends_with(b"\n");
        Ok(whole.then(|| String::from_utf8_lossy(&line).trim_end().to_owned()))
    }

    fn bad(&self, path: &Path, found: String) -> PlyFileError {
        PlyFileError::Header { path: path.to_owned(), line: self.number, found }
    }
}

/// Returns the offset of a PLY's coordinates that one of its comments names; zeros if none does.
pub fn offset_of(comments: &[String]) -> [f64; 3] {
    let of_comment = |comment: &String| -> Option<[f64; 3]> {
        let numbers = comment.strip_prefix("offset ")?.split(' ');
        let read = |word: &str| word.parse().ok().filter(|x: &f64| x.is_finite());
        numbers.map(read).collect::<Option<Vec<f64>>>()?.try_into().ok()
    };
    comments.iter().find_map(of_comment).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(mut bytes: &[u8]) -> Result<Header, PlyFileError> {
        Header::read(Path::new("a.ply"), &mut bytes)
    }

    #[test]
    fn rows_and_columns_are_where_the_header_says() {
        let text = b"ply\r\nformat  binary_little_endian 1.0\ncomment a b\nelement camera 2\n\
            property short id\nelement vertex 3\nproperty uchar red\nproperty double x\n\
            element face 1\nproperty list uchar int vertex_indices\nend_header\n";
        let header = parse(text).unwrap();
        assert_eq!(header.format, "binary_little_endian 1.0");
        assert_eq!((header.rows, header.row_bytes, header.before.len()), (3, 9, 1));
        assert_eq!(header.data_start, text.len() as u64 + 2 * 2);
        let x = &header.columns[header.index("x").unwrap()];
        assert_eq!(x.value(&[&[7], 1.5f64.to_le_bytes().as_slice()].concat()), 1.5);
        assert!(x.value(&[7]).is_nan() && x.value(&[]).is_nan());
        assert!(header.index("y").is_none());
        assert_eq!(header.comments, ["a b"]);
        let properties = vec!["list uchar int vertex_indices".to_owned()];
        assert_eq!(header.after, [LaterElement { name: "face".to_owned(), rows: 1, properties }]);

        let path = Path::new("a.ply");
        assert_eq!(header.rows_within(path, header.data_start + 27).unwrap(), 3);
        let error = header.rows_within(path, header.data_start + 26).unwrap_err().to_string();
        assert!(error.contains("a.ply") && error.contains("has 26 bytes"), "{error}");
    }

    #[test]
    fn a_header_is_read_no_further_than_its_bound() {
        let long = "comment\n".repeat(1 << 14);
        let mut bytes = [b"ply\n", long.as_bytes()].concat();
        bytes.extend(b"element vertex 1\nend_header\n");
        let mut rest = bytes.as_slice();
        let error = Header::read(Path::new("a.ply"), &mut rest).unwrap_err().to_string();
        assert!(error.contains("`end_header`"), "{error}");
        assert_eq!((bytes.len() - rest.len()) as u64, MAX_HEADER_BYTES);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            start in prop::sample::select(vec![
                "", "ply\n", "ply\nformat ", "ply\nelement ", "ply\nelement vertex 9\nproperty ",
            ]),
        ) {
            prop_assert!(parse(&[start.as_bytes(), &bytes].concat()).is_err());
        }
    }
}
