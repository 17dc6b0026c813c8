//! The text at the head of a PLY.

use std::io::{BufRead, Read};

use crate::fault::FormatFault;

/// Longest header that is read: 50 times that of a file of Gaussians, comments included.
const MAX_HEADER_BYTES: u64 = 1 << 16;

/// Types of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlyType {
    F32,
    F64,
    U8,
    U32,
    /// One that Gaussians have no use for, of so many bytes.
    Other(usize),
}

impl PlyType {
    fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "float" | "float32" => Self::F32,
            "double" | "float64" => Self::F64,
            "uchar" | "uint8" => Self::U8,
            "uint" | "uint32" => Self::U32,
            "char" | "int8" => Self::Other(1),
            "short" | "int16" | "ushort" | "uint16" => Self::Other(2),
            "int" | "int32" => Self::Other(4),
            _ => return None,
        })
    }

    const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F32 | Self::U32 => 4,
            Self::F64 => 8,
            Self::Other(bytes) => bytes,
        }
    }
}

/// A value of each row.
#[derive(Clone, Debug)]
pub(super) struct PlyProperty {
    pub(super) name: String,
    pub(super) kind: PlyType,
    /// The type as the file spells it.
    pub(super) spelled: String,
    /// Bytes from the start of a row.
    pub(super) offset: usize,
}

/// A table of the file.
#[derive(Clone, Debug)]
pub(super) struct PlyElement {
    pub(super) name: String,
    pub(super) rows: u64,
    pub(super) row_bytes: usize,
    pub(super) properties: Vec<PlyProperty>,
}

impl PlyElement {
    /// Bytes of its rows; what is no number of bytes is past every file.
    pub(super) const fn bytes(&self) -> u64 {
        self.rows.saturating_mul(self.row_bytes as u64)
    }

    /// The property of this name, of one of these types.
    pub(super) fn property(
        &self,
        name: &str,
        kinds: &[PlyType],
    ) -> Result<&PlyProperty, FormatFault> {
        let mut named = self.properties.iter().filter(|property| property.name == name);
        let Some(found) = named.next() else {
            return Err(FormatFault::Unsupported(format!(
                "has no column `{name}`, so it is a point cloud or a mesh: give a PLY of Gaussians"
            )));
        };
        if named.next().is_some() {
            return Err(FormatFault::damaged(format!("lists the column `{name}` twice")));
        }
        if !kinds.contains(&found.kind) {
            return Err(FormatFault::damaged(format!(
                "has another layout than that of Gaussians: the column `{name}` is of type {}",
                found.spelled
            )));
        }
        Ok(found)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.properties.iter().any(|property| property.name == name)
    }
}

/// What the header says.
#[derive(Clone, Debug, Default)]
pub(super) struct PlyHead {
    pub(super) elements: Vec<PlyElement>,
    /// Comments, without that word.
    pub(super) comments: Vec<String>,
    /// Bytes up to the first row.
    pub(super) bytes: u64,
}

impl PlyHead {
    /// Reads up to `end_header`.
    pub(super) fn read(input: &mut impl BufRead) -> Result<Self, FormatFault> {
        let mut head = Self::default();
        let mut format = String::new();
        for number in 1_usize.. {
            let mut line = Vec::new();
            let rest = MAX_HEADER_BYTES.saturating_sub(head.bytes);
            head.bytes += input.by_ref().take(rest).read_until(b'\n', &mut line)? as u64;
            let is_whole = line.ends_with(b"\n");
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if number == 1 && line != "ply" {
                return Err(FormatFault::damaged("is not a PLY"));
            }
            if !is_whole {
                return Err(FormatFault::damaged("is truncated: no `end_header` follows"));
            }
            if line == "end_header" {
                break;
            }
            if number > 1 {
                head.take_line(&line, &mut format).map_err(|problem| {
                    let start: String = line.chars().take(60).collect();
                    FormatFault::damaged(format!("line {number}, {start:?}: {problem}"))
                })?;
            }
        }
        if format != "binary_little_endian 1.0" {
            return Err(FormatFault::Unsupported(format!(
                "its format is `{format}`; only `binary_little_endian 1.0` is read: export it as \
                 binary PLY"
            )));
        }
        Ok(head)
    }

    /// Takes a line between the first and the last.
    fn take_line(&mut self, line: &str, format: &mut String) -> Result<(), String> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            [] | ["obj_info", ..] => {}
            ["comment", words @ ..] => self.comments.push(words.join(" ")),
            ["format", words @ ..] => *format = words.join(" "),
            ["element", name, rows] => {
                let rows = rows.parse().map_err(|_no_number| format!("{rows:?} is no count"))?;
                let name = (*name).to_owned();
                self.elements.push(PlyElement { name, rows, row_bytes: 0, properties: Vec::new() });
            }
            ["property", "list", ..] => return Err("lists are not read".to_owned()),
            ["property", spelled, name] => {
                let element = self.elements.last_mut().ok_or("no `element` stands before it")?;
                let kind = PlyType::by_name(spelled).ok_or("not a type of PLY")?;
                element.properties.push(PlyProperty {
                    name: (*name).to_owned(),
                    kind,
                    spelled: (*spelled).to_owned(),
                    offset: element.row_bytes,
                });
                element.row_bytes += kind.bytes();
            }
            _ => return Err("not a line of a PLY header".to_owned()),
        }
        Ok(())
    }

    pub(super) fn element(&self, name: &str) -> Option<&PlyElement> {
        self.elements.iter().find(|element| element.name == name)
    }

    /// The element of this name and the bytes from the start of the file to its first row.
    pub(super) fn find(&self, name: &str) -> Result<(&PlyElement, u64), FormatFault> {
        let mut start = self.bytes;
        for element in &self.elements {
            if element.name == name {
                return Ok((element, start));
            }
            start = start.saturating_add(element.bytes());
        }
        Err(FormatFault::damaged(format!("no `element {name}` stands in its header")))
    }

    /// Whether its Gaussians want the 2D filter of Mip-Splatting, as Brush and others say it or as
    /// Postshot does; the last word counts.
    pub(super) fn is_antialiased(&self) -> bool {
        let mut said = self.comments.iter().filter_map(|comment| {
            let comment = comment.to_ascii_lowercase();
            let (key, value) = comment.split_once(' ')?;
            match key {
                "splatrendermode:" => Some(value == "mip"),
                "antialiased" => Some(value == "1"),
                _ => None,
            }
        });
        said.next_back().unwrap_or(false)
    }
}

/// The comments by which viewers know Gaussians of Mip-Splatting, and surfels.
pub(super) const ANTIALIASED: &str = "SplatRenderMode: mip";
pub(super) const SURFELS: &str = "SplatRenderMode: 2dgs";
