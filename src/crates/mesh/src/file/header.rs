//! The text at the head of a PLY file, with lists.

use std::io::{BufRead, Read};
use std::path::Path;

use super::error::MeshFileError;
use crate::scalar::Scalar;

/// Longest header that is read.
const MAX_HEADER_BYTES: u64 = 1 << 16;

/// How the rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Numbers as text, a row a line.
    Ascii,
    /// Least byte first.
    Little,
    /// Greatest byte first.
    Big,
}

/// A column of an element.
#[derive(Clone, Debug, PartialEq)]
pub struct Property {
    /// Its name.
    pub name: String,
    /// The type of a value.
    pub scalar: Scalar,
    /// The type of the count before the values, if they are a list.
    pub count: Option<Scalar>,
}

/// A table of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    /// Its name.
    pub name: String,
    /// Rows that are announced.
    pub rows: u64,
    /// Its columns.
    pub properties: Vec<Property>,
}

/// What the header says.
#[derive(Debug, PartialEq)]
pub struct Header {
    /// How rows are written.
    pub encoding: Encoding,
    /// The tables in the order of the file.
    pub elements: Vec<Element>,
    /// Comments of the file.
    pub comments: Vec<String>,
    /// Lines of the header.
    pub lines: usize,
}

impl Header {
    /// Reads up to `end_header`, line by line.
    pub fn read(path: &Path, input: &mut impl BufRead) -> Result<Self, MeshFileError> {
        let mut left = MAX_HEADER_BYTES;
        let mut encoding = None;
        let mut elements = Vec::new();
        let mut comments = Vec::new();
        for lines in 1.. {
            let mut line = Vec::new();
            let read = input.by_ref().take(left).read_until(b'\n', &mut line);
            let read = read.map_err(|source| MeshFileError::unreadable(path, source))?;
            left -= read as u64;
            let whole = line.ends_with(b"\n");
            let text = String::from_utf8_lossy(&line);
            let bad = |found: String| MeshFileError::line(path, lines, found);
            match text.trim_end() {
                "ply" if lines == 1 => {}
                line if lines == 1 => return Err(bad(no_ply(line, read).to_owned())),
                _ if !whole => {
                    return Err(bad("the file ends before a line `end_header`".to_owned()));
                }
                "end_header" => {
                    let encoding =
                        encoding.ok_or_else(|| bad("no line `format` stands above".to_owned()))?;
                    return Ok(Self { encoding, elements, comments, lines });
                }
                line if line.starts_with("comment ") => {
                    comments.push(line.trim_start_matches("comment ").to_owned());
                }
                line => take_line(line, &mut encoding, &mut elements).map_err(|problem| {
                    bad(format!("{:?}: {problem}", line.chars().take(60).collect::<String>()))
                })?,
            }
        }
        Err(MeshFileError::line(path, 0, "the header never ends".to_owned()))
    }
}

/// Says what a file is whose first line has this text and these bytes.
fn no_ply(line: &str, bytes: usize) -> &'static str {
    match line {
        _ if bytes == 0 => "the file is empty",
        _ if line.starts_with("version https://git-lfs.github.com/spec/") => {
            "the file is a Git LFS pointer, not the file itself. Run: git lfs pull"
        }
        _ => "the file is not a PLY",
    }
}

/// Takes a line between the first and the last.
fn take_line(
    line: &str,
    encoding: &mut Option<Encoding>,
    elements: &mut Vec<Element>,
) -> Result<(), String> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words.as_slice() {
        [] | ["comment" | "obj_info", ..] => {}
        ["format", name, "1.0"] => {
            *encoding = Some(match *name {
                "ascii" => Encoding::Ascii,
                "binary_little_endian" => Encoding::Little,
                "binary_big_endian" => Encoding::Big,
                _ => return Err("no format that is read".to_owned()),
            });
        }
        ["element", name, rows] => {
            let rows = rows.parse().map_err(|_no_number| format!("{rows:?} is not a count"))?;
            elements.push(Element { name: (*name).to_owned(), rows, properties: Vec::new() });
        }
        ["property", "list", count, scalar, name] => {
            let count = scalar_of(count)?;
            if count.is_float() {
                return Err("the count of a list is a whole number".to_owned());
            }
            take_property(elements, name, scalar_of(scalar)?, Some(count))?;
        }
        ["property", scalar, name] => take_property(elements, name, scalar_of(scalar)?, None)?,
        _ => return Err("not a line of a PLY header".to_owned()),
    }
    Ok(())
}

fn scalar_of(name: &str) -> Result<Scalar, String> {
    Scalar::by_name(name).ok_or_else(|| format!("{name} is not a type"))
}

fn take_property(
    elements: &mut [Element],
    name: &str,
    scalar: Scalar,
    count: Option<Scalar>,
) -> Result<(), String> {
    let element = elements.last_mut().ok_or("no `element` stands before it")?;
    element.properties.push(Property { name: name.to_owned(), scalar, count });
    Ok(())
}
