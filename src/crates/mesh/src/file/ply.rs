//! The parts that all PLY files share: the header, read and written, the types of values and rows in any encoding
//! (Turk, "The PLY Polygon File Format", 1994).
//!
//! Readers choose columns and their meaning: meshes here, Gaussians in `splat-formats` and `export`, points of a scene in
//! `dataset`.

use std::fmt;
use std::io::{self, BufRead, Read as _, Write};
use std::path::Path;

use super::{MeshFileError, byte_of, checked, open, valid};
use crate::mesh::Mesh;
use crate::narrow::{floor_u32, to_f32};

/// Longest header that is read: 50 times that of a file of Gaussians, including comments.
const MAX_HEADER_BYTES: u64 = 1 << 16;

/// Longest list and longest line of text that is read.
const MAX_LIST: u32 = 1 << 20;

/// First bytes of a Git LFS pointer.
pub const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// Message about a Git LFS pointer.
pub const LFS_MESSAGE: &str = "is a Git LFS pointer, not the file itself. Run: git lfs pull";

/// Types of a value; all values fit a double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table of names says it")]
pub enum Scalar {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    F32,
    F64,
}

impl Scalar {
    /// Each type with its usual and its other name, and the bytes of a value.
    const ALL: [(Self, [&'static str; 2], usize); 8] = [
        (Self::I8, ["char", "int8"], 1),
        (Self::U8, ["uchar", "uint8"], 1),
        (Self::I16, ["short", "int16"], 2),
        (Self::U16, ["ushort", "uint16"], 2),
        (Self::I32, ["int", "int32"], 4),
        (Self::U32, ["uint", "uint32"], 4),
        (Self::F32, ["float", "float32"], 4),
        (Self::F64, ["double", "float64"], 8),
    ];

    /// Returns the type that a header calls `name`.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, names, _)| names.contains(&name)).map(|&(scalar, ..)| scalar)
    }

    /// Returns the usual name of the type.
    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].1[0]
    }

    /// Returns the bytes of one value.
    pub const fn bytes(self) -> usize {
        Self::ALL[self as usize].2
    }

    /// True if values may have a fraction.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// Returns the value at the start of little-endian `bytes`; none if they are too few.
    #[inline]
    pub fn value(self, bytes: &[u8]) -> Option<f64> {
        fn first<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
            bytes.first_chunk().copied()
        }
        Some(match self {
            Self::I8 => i8::from_le_bytes(first(bytes)?).into(),
            Self::U8 => u8::from_le_bytes(first(bytes)?).into(),
            Self::I16 => i16::from_le_bytes(first(bytes)?).into(),
            Self::U16 => u16::from_le_bytes(first(bytes)?).into(),
            Self::I32 => i32::from_le_bytes(first(bytes)?).into(),
            Self::U32 => u32::from_le_bytes(first(bytes)?).into(),
            Self::F32 => f32::from_le_bytes(first(bytes)?).into(),
            Self::F64 => f64::from_le_bytes(first(bytes)?),
        })
    }
}

/// Encoding of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlyEncoding {
    /// Numbers as text, a row a line.
    Ascii,
    /// Least byte first.
    Little,
    /// Greatest byte first.
    Big,
}

/// A column of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlyProperty {
    /// Its name.
    pub name: String,
    /// The type of a value.
    pub scalar: Scalar,
    /// The type of the count before the values, if they are a list.
    pub list: Option<Scalar>,
    /// Bytes from the start of a binary row, lists not counted.
    pub offset: usize,
    /// Line of the header, from 1.
    pub line: usize,
}

impl PlyProperty {
    /// Returns the value in a little-endian row without lists; NaN if the row is too short.
    #[inline]
    pub fn value(&self, row: &[u8]) -> f64 {
        row.get(self.offset..).and_then(|bytes| self.scalar.value(bytes)).unwrap_or(f64::NAN)
    }
}

impl fmt::Display for PlyProperty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(count) = self.list {
            write!(f, "list {} ", count.name())?;
        }
        write!(f, "{} {}", self.scalar.name(), self.name)
    }
}

/// A table of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlyElement {
    /// Its name.
    pub name: String,
    /// Rows that the header announces.
    pub rows: u64,
    /// Bytes of a binary row, lists not counted.
    pub row_bytes: usize,
    /// Its columns.
    pub properties: Vec<PlyProperty>,
}

impl PlyElement {
    /// Returns the first column of this name.
    pub fn find(&self, name: &str) -> Option<&PlyProperty> {
        self.properties.iter().find(|property| property.name == name)
    }

    /// True if there is a column of this name.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Returns the first column that is a list.
    pub fn list(&self) -> Option<&PlyProperty> {
        self.properties.iter().find(|property| property.list.is_some())
    }
}

/// The content of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlyHeader {
    /// Encoding of the rows.
    pub encoding: PlyEncoding,
    /// The tables in the order of the file.
    pub elements: Vec<PlyElement>,
    /// Comments without that word, with one space between words.
    pub comments: Vec<String>,
    /// Lines of the header.
    pub lines: usize,
    /// Bytes up to the first row.
    pub bytes: u64,
}

/// Fault of a part of a file.
#[derive(Debug)]
pub enum PlyFault {
    /// The system refuses it.
    Unreadable(io::Error),
    /// The content is wrong.
    Found(String),
}

impl From<io::Error> for PlyFault {
    fn from(source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            return Self::Found("the file is truncated and ends here".to_owned());
        }
        Self::Unreadable(source)
    }
}

/// A fault in a line of a header.
#[derive(Debug)]
pub struct HeaderFault {
    /// Line, from 1.
    pub line: usize,
    /// The fault.
    pub fault: PlyFault,
}

#[derive(Default)]
struct Lines {
    encoding: Option<PlyEncoding>,
    elements: Vec<PlyElement>,
    comments: Vec<String>,
}

impl PlyHeader {
    /// Reads up to `end_header`, and never more bytes than a header may have.
    pub fn read(input: &mut impl BufRead) -> Result<Self, HeaderFault> {
        let (mut lines, mut bytes, mut number) = (Lines::default(), 0, 0);
        loop {
            number += 1;
            let mut line = Vec::new();
            let mut rest = input.by_ref().take(MAX_HEADER_BYTES - bytes);
            let at_line = |fault| HeaderFault { line: number, fault };
            let read = rest.read_until(b'\n', &mut line);
            bytes += read.map_err(|source| at_line(PlyFault::Unreadable(source)))? as u64;
            let text = String::from_utf8_lossy(&line);
            let taken = match text.trim_end() {
                "ply" if number == 1 => Ok(()),
                _ if number == 1 => Err(no_ply(&line)),
                _ if !line.ends_with(b"\n") => {
                    Err("the file is truncated: it ends before a line `end_header`".to_owned())
                }
                "end_header" => match lines.encoding {
                    Some(encoding) => {
                        let Lines { elements, comments, .. } = lines;
                        return Ok(Self { encoding, elements, comments, lines: number, bytes });
                    }
                    None => Err("no line `format` stands above".to_owned()),
                },
                line => lines.take(number, line).map_err(|problem| {
                    format!("{:?}: {problem}", line.chars().take(60).collect::<String>())
                }),
            };
            taken.map_err(|found| at_line(PlyFault::Found(found)))?;
        }
    }

    /// Returns the first element of this name.
    pub fn element(&self, name: &str) -> Option<&PlyElement> {
        self.elements.iter().find(|element| element.name == name)
    }

    /// Returns the offset that is added to the coordinates to get those of the scene: three numbers after the word
    /// `offset` in a comment, or else 0.
    pub fn offset(&self) -> [f64; 3] {
        let of_comment = |comment: &String| -> Option<[f64; 3]> {
            let numbers = comment.strip_prefix("offset ")?.split(' ');
            let read = |word: &str| word.parse().ok().filter(|x: &f64| x.is_finite());
            numbers.map(read).collect::<Option<Vec<f64>>>()?.try_into().ok()
        };
        self.comments.iter().find_map(of_comment).unwrap_or_default()
    }
}

/// Returns the message for a file that begins with this line.
fn no_ply(line: &[u8]) -> String {
    match line {
        [] => "the file is empty".to_owned(),
        _ if line.starts_with(LFS_POINTER) => format!("the file {LFS_MESSAGE}"),
        _ => "the file is not a PLY".to_owned(),
    }
}

impl Lines {
    /// Takes a line between the first and the last.
    fn take(&mut self, number: usize, line: &str) -> Result<(), String> {
        let scalar_of =
            |name: &str| Scalar::by_name(name).ok_or_else(|| format!("{name} is not a type"));
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            [] | ["obj_info", ..] => {}
            ["comment", words @ ..] => self.comments.push(words.join(" ")),
            ["format", words @ ..] => {
                self.encoding = Some(match words {
                    ["ascii", "1.0"] => PlyEncoding::Ascii,
                    ["binary_little_endian", "1.0"] => PlyEncoding::Little,
                    ["binary_big_endian", "1.0"] => PlyEncoding::Big,
                    _ => {
                        return Err(format!(
                            "the format `{}` is not ascii, binary_little_endian or binary_big_endian 1.0",
                            words.join(" ")
                        ));
                    }
                });
            }
            ["element", name, rows] => {
                let rows = rows.parse().map_err(|_no_number| format!("{rows:?} is not a count"))?;
                let (name, properties) = ((*name).to_owned(), Vec::new());
                self.elements.push(PlyElement { name, rows, row_bytes: 0, properties });
            }
            ["property", "list", count, scalar, name] => {
                let count = scalar_of(count)?;
                if count.is_float() {
                    return Err("the count of a list is a whole number".to_owned());
                }
                self.take_property(number, name, scalar_of(scalar)?, Some(count))?;
            }
            ["property", scalar, name] => {
                self.take_property(number, name, scalar_of(scalar)?, None)?;
            }
            _ => return Err("not a line of a PLY header".to_owned()),
        }
        Ok(())
    }

    fn take_property(
        &mut self,
        line: usize,
        name: &str,
        scalar: Scalar,
        list: Option<Scalar>,
    ) -> Result<(), String> {
        let element = self.elements.last_mut().ok_or("no `element` stands before it")?;
        let (name, offset) = (name.to_owned(), element.row_bytes);
        element.properties.push(PlyProperty { name, scalar, list, offset, line });
        if list.is_none() {
            element.row_bytes += scalar.bytes();
        }
        Ok(())
    }
}

/// The header of a new binary little-endian file.
#[derive(Clone, Debug)]
pub struct NewPlyHeader(String);

impl Default for NewPlyHeader {
    fn default() -> Self {
        Self("ply\nformat binary_little_endian 1.0\n".to_owned())
    }
}

impl NewPlyHeader {
    /// Appends an element; its columns follow.
    pub fn element(&mut self, name: &str, rows: usize) -> &mut Self {
        self.line(format_args!("element {name} {rows}"))
    }

    /// Appends a comment.
    pub fn comment(&mut self, text: impl fmt::Display) -> &mut Self {
        self.line(format_args!("comment {text}"))
    }

    /// Appends columns of one type.
    pub fn properties<N: fmt::Display>(
        &mut self,
        scalar: Scalar,
        names: impl IntoIterator<Item = N>,
    ) -> &mut Self {
        for name in names {
            self.line(format_args!("property {} {name}", scalar.name()));
        }
        self
    }

    /// Appends the element of triangles, whose rows are a byte 3 and three indices of vertices.
    pub fn triangles(&mut self, rows: usize) -> &mut Self {
        self.element("face", rows).line(format_args!("property list uchar int vertex_indices"))
    }

    /// Appends the comment that [`PlyHeader::offset`] reads; none if it is 0.
    pub fn offset(&mut self, offset: [f64; 3]) -> &mut Self {
        let [x, y, z] = offset;
        if offset == [0.0; 3] { self } else { self.comment(format_args!("offset {x} {y} {z}")) }
    }

    /// Returns the text up to the first row.
    pub fn end(&mut self) -> Vec<u8> {
        self.line(format_args!("end_header")).0.clone().into_bytes()
    }

    fn line(&mut self, line: fmt::Arguments<'_>) -> &mut Self {
        self.0.push_str(&line.to_string());
        self.0.push('\n');
        self
    }
}

/// Reads the rows of a file one after another, in any encoding.
#[derive(Debug)]
pub struct RowReader<'a, R> {
    input: &'a mut R,
    encoding: PlyEncoding,
    /// Values that are left of the line of text, the last first.
    words: Vec<f64>,
}

impl<'a, R: BufRead> RowReader<'a, R> {
    /// Returns a reader of the rows after the header.
    pub fn new(input: &'a mut R, encoding: PlyEncoding) -> Self {
        Self { input, encoding, words: Vec::new() }
    }

    /// Reads a row of `element` and passes `take` the index of the property and the value of each number.
    pub fn read(
        &mut self,
        element: &PlyElement,
        mut take: impl FnMut(usize, f64),
    ) -> Result<(), PlyFault> {
        if self.encoding == PlyEncoding::Ascii && !element.properties.is_empty() {
            self.read_line()?;
        }
        for (at, property) in element.properties.iter().enumerate() {
            let values = match property.list {
                None => 1,
                Some(count) => {
                    let count = self.value(count)?;
                    let fault = || PlyFault::Found(format!("a list of {count} values"));
                    whole(count, MAX_LIST).ok_or_else(fault)?
                }
            };
            for _ in 0..values {
                take(at, self.value(property.scalar)?);
            }
        }
        if self.words.is_empty() {
            return Ok(());
        }
        Err(PlyFault::Found(format!("{} values too many in the line", self.words.len())))
    }

    fn read_line(&mut self) -> Result<(), PlyFault> {
        let mut line = String::new();
        while line.trim().is_empty() {
            line.clear();
            // A longer line is no text.
            let mut limited = self.input.by_ref().take(32 * u64::from(MAX_LIST));
            if limited.read_line(&mut line).map_err(not_text)? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        self.words.clear();
        for word in line.split_ascii_whitespace().rev() {
            let value = word.parse().map_err(|_no_number| {
                let shown: String = word.chars().take(40).collect();
                PlyFault::Found(format!("{shown:?} is not a number"))
            })?;
            self.words.push(value);
        }
        Ok(())
    }

    fn value(&mut self, scalar: Scalar) -> Result<f64, PlyFault> {
        if self.encoding == PlyEncoding::Ascii {
            let missing = || PlyFault::Found("the line has too few values".to_owned());
            return self.words.pop().ok_or_else(missing);
        }
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..scalar.bytes()];
        self.input.read_exact(bytes)?;
        if self.encoding == PlyEncoding::Big {
            bytes.reverse();
        }
        Ok(scalar.value(bytes).unwrap_or(f64::NAN))
    }
}

/// Converts an error for bytes that are no text, which is a fault of the file.
fn not_text(source: io::Error) -> PlyFault {
    if source.kind() == io::ErrorKind::InvalidData {
        return PlyFault::Found("the row is not text".to_owned());
    }
    source.into()
}

/// Returns a whole number from 0 to `most`; none for other numbers.
fn whole(number: f64, most: u32) -> Option<u32> {
    let is_whole = number.fract() == 0.0 && (0.0..=f64::from(most)).contains(&number);
    is_whole.then(|| floor_u32(number))
}

// Meshes. Reads files of any program: ascii, both binary orders, polygons, other columns. Writes binary little-endian
// files.

/// Reads a mesh. Polygons become fans. Normals and colours are read if all three columns exist.
pub fn read_ply(path: &Path) -> Result<Mesh, MeshFileError> {
    parse_ply(path, &mut open(path)?)
}

/// Reads a mesh from `input`; `path` is for errors.
pub fn parse_ply(path: &Path, input: &mut impl BufRead) -> Result<Mesh, MeshFileError> {
    let header = PlyHeader::read(input).map_err(|HeaderFault { line, fault }| match fault {
        PlyFault::Unreadable(source) => MeshFileError::unreadable(path, source),
        PlyFault::Found(found) => MeshFileError::line(path, line, found),
    })?;
    let mut rows = RowReader::new(input, header.encoding);
    let mut mesh = Mesh::default();
    let mut polygon = Vec::new();
    for element in &header.elements {
        let vertices = (element.name == "vertex").then(|| VertexColumns::of(element));
        let corners = face_column(element);
        if vertices.as_ref().is_some_and(|columns| columns.place.is_none()) {
            let found = "element vertex has no columns x, y and z".to_owned();
            return Err(MeshFileError::line(path, header.lines, found));
        }
        for row in 0..element.rows {
            let read = match (&vertices, corners) {
                (Some(columns), _) => read_vertex(&mut rows, element, columns, &mut mesh),
                (None, Some(column)) => {
                    read_polygon(&mut rows, element, column, &mut polygon, &mut mesh.faces)
                }
                (None, None) => rows.read(element, |_, _| {}),
            };
            read.map_err(|fault| at_row(path, element, row, fault))?;
            if element.properties.is_empty() {
                break;
            }
        }
    }
    let rest = input.fill_buf().map_err(|source| MeshFileError::unreadable(path, source))?;
    if header.encoding != PlyEncoding::Ascii && !rest.trim_ascii().is_empty() {
        let found = "the rows that it announces end before the file ends".to_owned();
        return Err(MeshFileError::line(path, header.lines, found));
    }
    checked(path, mesh)
}

fn at_row(path: &Path, element: &PlyElement, row: u64, fault: PlyFault) -> MeshFileError {
    match fault {
        PlyFault::Unreadable(source) => MeshFileError::unreadable(path, source),
        PlyFault::Found(found) => {
            let (path, element) = (path.to_owned(), element.name.clone());
            MeshFileError::Row { path, element, row, found }
        }
    }
}

/// Columns of a vertex's values.
struct VertexColumns {
    place: Option<[usize; 3]>,
    normal: Option<[usize; 3]>,
    color: Option<[usize; 3]>,
    /// Value of a colour channel of 1.
    white: f32,
}

impl VertexColumns {
    fn of(element: &PlyElement) -> Self {
        let column =
            |name: &str| element.properties.iter().position(|p| p.name == name && p.list.is_none());
        let all = |[a, b, c]: [&str; 3]| Some([column(a)?, column(b)?, column(c)?]);
        let color = all(["red", "green", "blue"]);
        let white = color.map_or(1.0, |[red, ..]| match element.properties[red].scalar {
            Scalar::U8 => 255.0,
            Scalar::U16 => 65_535.0,
            _ => 1.0,
        });
        Self { place: all(["x", "y", "z"]), normal: all(["nx", "ny", "nz"]), color, white }
    }
}

fn read_vertex<R: BufRead>(
    rows: &mut RowReader<'_, R>,
    element: &PlyElement,
    columns: &VertexColumns,
    mesh: &mut Mesh,
) -> Result<(), PlyFault> {
    let mut read = [[0.0_f32; 3]; 3];
    let wanted = [columns.place, columns.normal, columns.color];
    rows.read(element, |at, value| {
        for (values, columns) in read.iter_mut().zip(&wanted) {
            if let Some(axis) = columns.and_then(|c| c.iter().position(|&column| column == at)) {
                values[axis] = to_f32(value);
            }
        }
    })?;
    let [place, normal, color] = read;
    mesh.vertices.push(place);
    if columns.normal.is_some() {
        mesh.normals.push(normal);
    }
    if columns.color.is_some() {
        mesh.colors.push(color.map(|c| c / columns.white));
    }
    Ok(())
}

/// Returns the column of a face's list of corners.
fn face_column(element: &PlyElement) -> Option<usize> {
    let names = ["vertex_indices", "vertex_index"];
    let is_list = |p: &PlyProperty| p.list.is_some() && names.contains(&p.name.as_str());
    (element.name == "face").then(|| element.properties.iter().position(is_list)).flatten()
}

/// Reads a polygon as a fan of faces; `corners` is memory to reuse.
fn read_polygon<R: BufRead>(
    rows: &mut RowReader<'_, R>,
    element: &PlyElement,
    column: usize,
    corners: &mut Vec<f64>,
    faces: &mut Vec<[u32; 3]>,
) -> Result<(), PlyFault> {
    corners.clear();
    rows.read(element, |at, value| {
        if at == column {
            corners.push(value);
        }
    })?;
    if corners.len() < 3 {
        return Err(PlyFault::Found(format!("a face of {} corners", corners.len())));
    }
    let vertex = |corner: f64| {
        let fault = || PlyFault::Found(format!("{corner} is not a vertex"));
        whole(corner, u32::MAX).ok_or_else(fault)
    };
    let first = vertex(corners[0])?;
    for pair in corners[1..].windows(2) {
        faces.push([first, vertex(pair[0])?, vertex(pair[1])?]);
    }
    Ok(())
}

/// Writes a mesh as binary little-endian PLY: places and normals `float`, colours `uchar`, faces `list uchar int
/// vertex_indices`. `out` should be buffered.
pub fn write_ply(out: &mut dyn Write, mesh: &Mesh) -> io::Result<()> {
    valid(mesh)?;
    let mut header = NewPlyHeader::default();
    header.element("vertex", mesh.vertices.len()).properties(Scalar::F32, ["x", "y", "z"]);
    if !mesh.normals.is_empty() {
        header.properties(Scalar::F32, ["nx", "ny", "nz"]);
    }
    if !mesh.colors.is_empty() {
        header.properties(Scalar::U8, ["red", "green", "blue"]);
    }
    out.write_all(&header.triangles(mesh.faces.len()).end())?;
    for (vertex, place) in mesh.vertices.iter().enumerate() {
        let floats = place.iter().chain(mesh.normals.get(vertex).into_iter().flatten());
        for float in floats {
            out.write_all(&float.to_le_bytes())?;
        }
        if let Some(color) = mesh.colors.get(vertex) {
            out.write_all(&color.map(byte_of))?;
        }
    }
    for face in &mesh.faces {
        let mut row = [3; 13];
        for (bytes, vertex) in row[1..].chunks_exact_mut(4).zip(face) {
            bytes.copy_from_slice(&vertex.to_le_bytes());
        }
        out.write_all(&row)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::known_meshes::{cube, mesh_of};

    #[test]
    fn rows_and_columns_are_where_the_header_says() {
        let text = b"ply\r\nformat  binary_little_endian 1.0\ncomment a  b\nelement camera 2\n\
            property short id\nelement vertex 3\nproperty uchar red\nproperty double x\n\
            element face 1\nproperty list uint8 int vertex_indices\nend_header\n";
        let header = PlyHeader::read(&mut text.as_slice()).unwrap();
        assert_eq!((header.encoding, header.lines), (PlyEncoding::Little, 11));
        assert_eq!(header.bytes, text.len() as u64);
        let vertex = header.element("vertex").unwrap();
        assert_eq!((vertex.rows, vertex.row_bytes, vertex.list()), (3, 9, None));
        let x = vertex.find("x").unwrap();
        assert_eq!(x.value(&[&[7], 1.5f64.to_le_bytes().as_slice()].concat()), 1.5);
        assert!(x.value(&[7]).is_nan() && x.value(&[]).is_nan() && !vertex.has("y"));
        assert_eq!(header.comments, ["a b"]);
        let list = header.elements[2].list().unwrap();
        assert_eq!((list.to_string().as_str(), list.line), ("list uchar int vertex_indices", 10));
    }

    #[test]
    fn what_is_written_is_read() {
        let mut new = NewPlyHeader::default();
        new.element("vertex", 2).offset([1.5, -2.0, 0.1]).properties(Scalar::F32, ["x", "y"]);
        let text = new.triangles(9).end();
        let header = PlyHeader::read(&mut text.as_slice()).unwrap();
        assert_eq!(header.offset(), [1.5, -2.0, 0.1]);
        let rows: Vec<u64> = header.elements.iter().map(|element| element.rows).collect();
        assert_eq!((rows, header.elements[0].row_bytes), (vec![2, 9], 8));
    }

    #[test]
    fn a_header_is_read_no_further_than_its_bound() {
        let long = "comment\n".repeat(1 << 14);
        let bytes = [b"ply\n", long.as_bytes(), b"element vertex 1\nend_header\n"].concat();
        let mut rest = bytes.as_slice();
        let found = format!("{:?}", PlyHeader::read(&mut rest).unwrap_err());
        assert!(found.contains("`end_header`"), "{found}");
        assert_eq!((bytes.len() - rest.len()) as u64, MAX_HEADER_BYTES);
    }

    fn parse(mut bytes: &[u8]) -> Result<Mesh, MeshFileError> {
        parse_ply(Path::new("a.ply"), &mut bytes)
    }

    const ASCII: &str = "ply\nformat ascii 1.0\ncomment a b\nelement camera 1\n\
        property list uchar float matrix\nelement vertex 4\nproperty double x\nproperty float y\n\
        property float z\nproperty uchar red\nproperty uchar green\nproperty uchar blue\n\
        property list uchar int extra\nelement face 2\nproperty uchar material\n\
        property list uchar int vertex_indices\nend_header\n2 7.5 8\n0 0 0 255 0 51 0\n\
        1 0 0 0 0 0 2 5 6\n1 1 0 0 0 0 1 9\n\n0 1 0 0 0 0 0\n3 4 0 1 2 3\n3 3 2 1 0\n";

    #[test]
    fn ascii_polygons_are_fanned_and_other_columns_skipped() {
        let mesh = parse(ASCII.as_bytes()).unwrap();
        assert_eq!(mesh.faces, [[0, 1, 2], [0, 2, 3], [2, 1, 0]]);
        assert_eq!(mesh.vertices[2], [1.0, 1.0, 0.0]);
        assert_eq!(mesh.colors[0], [1.0, 0.0, 0.2]);
        assert!(mesh.normals.is_empty());
    }

    #[test]
    fn both_binary_orders_hold_the_same_mesh() {
        for (name, big) in [("binary_little_endian", false), ("binary_big_endian", true)] {
            let order = |mut bytes: Vec<u8>| {
                if big {
                    bytes.reverse();
                }
                bytes
            };
            let mut file = format!(
                "ply\nformat {name} 1.0\nelement vertex 3\nproperty float x\nproperty double y\n\
                 property short z\nproperty ushort red\nproperty ushort green\nproperty ushort \
                 blue\nelement face 1\nproperty list ushort uint vertex_index\nproperty uchar \
                 flag\nend_header\n"
            )
            .into_bytes();
            for i in 0..3_u8 {
                file.extend(order(f32::from(i).to_le_bytes().to_vec()));
                file.extend(order((f64::from(i * i) + 0.5).to_le_bytes().to_vec()));
                file.extend(order((-i16::from(i)).to_le_bytes().to_vec()));
                for channel in [0, 13_107, u16::MAX] {
                    file.extend(order(u16::to_le_bytes(channel).to_vec()));
                }
            }
            file.extend(order(3_u16.to_le_bytes().to_vec()));
            for corner in [2_u32, 0, 1] {
                file.extend(order(corner.to_le_bytes().to_vec()));
            }
            file.push(9);
            let mesh = parse(&file).unwrap();
            assert_eq!(mesh.vertices, [[0.0, 0.5, 0.0], [1.0, 1.5, -1.0], [2.0, 4.5, -2.0]]);
            assert_eq!((mesh.faces[0], mesh.colors[1]), ([2, 0, 1], [0.0, 0.2, 1.0]));
            let error = parse(&[&file[..], b"more"].concat()).unwrap_err().to_string();
            assert!(error.contains("before the file ends"), "{error}");
            // Cut anywhere behind the header, the row that misses is named.
            let end = file.windows(11).position(|w| w == b"end_header\n").unwrap() + 11;
            for kept in end..file.len() {
                let error = parse(&file[..kept]).unwrap_err().to_string();
                assert!(error.contains("truncated") && error.contains("a.ply"), "{error}");
            }
        }
    }

    #[test]
    fn broken_files_say_what_is_wrong() {
        let cases = [
            ("3 3 2 1 0", "3 3 2 1 4", "face 2 names vertex 4"),
            ("3 3 2 1 0", "3 3 2 1", "too few values"),
            ("3 3 2 1 0", "3 3 2 1 0 5", "1 values too many"),
            ("3 3 2 1 0", "3 3 2 1 -1", "-1 is not a vertex"),
            ("3 3 2 1 0", "3 2 2 1", "a face of 2 corners"),
            ("3 3 2 1 0", "", "truncated"),
            ("1 1 0 0 0 0 1 9", "1 one 0 0 0 0 1 9", "\"one\" is not a number"),
            ("1 1 0 0 0 0 1 9", "1 nan 0 0 0 0 1 9", "vertex 2 lies at"),
            ("element face 2", "element face two", "line 14"),
            ("format ascii 1.0", "format ascii 2.0", "line 2"),
            ("end_header", "end", "line 17"),
            ("property double x", "property double w", "no columns x, y and z"),
            ("list uchar int vertex_indices", "list float int vertex_indices", "whole number"),
            ("element face 2", "element flakes 2", "holds no faces"),
            ("ply\n", "pli\n", "not a PLY"),
        ];
        for (from, to, expected) in cases {
            let error = parse(ASCII.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{to}: {error}");
        }
        let error = read_ply(Path::new("/nowhere/a.ply")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/a.ply: cannot be read"), "{error}");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut mesh = cube();
        mesh.normals = mesh.vertices.iter().map(|v| [v[1], -v[0], 0.25]).collect();
        mesh.colors =
            mesh.vertices.iter().map(|v| v.map(|c| if c > 0.5 { 0.4 } else { 1.0 })).collect();
        for (normals, colors) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut wanted = mesh.clone();
            if !normals {
                wanted.normals.clear();
            }
            if !colors {
                wanted.colors.clear();
            }
            let mut bytes = Vec::new();
            write_ply(&mut bytes, &wanted).unwrap();
            assert_eq!(parse(&bytes).unwrap(), wanted);
        }
        let broken = mesh_of(&[[0.0; 3]], &[[0, 0, 1]]);
        assert!(write_ply(&mut Vec::new(), &broken).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            start in prop::sample::select(vec![
                "", "ply\n", "ply\nformat ", "ply\nelement ", "ply\nelement vertex 9\nproperty ",
                "ply\nformat ascii 1.0\n",
                "ply\nformat binary_big_endian 1.0\nelement face 99999999999\nproperty list int \
                 double vertex_index\nend_header\n",
                "ply\nformat ascii 1.0\nelement vertex 18446744073709551615\nend_header\n",
            ]),
        ) {
            let bytes = [start.as_bytes(), &bytes].concat();
            prop_assert!(parse(&bytes).is_err());
            let has_header = start.contains("end_header");
            prop_assert_eq!(PlyHeader::read(&mut bytes.as_slice()).is_ok(), has_header);
        }
    }
}
