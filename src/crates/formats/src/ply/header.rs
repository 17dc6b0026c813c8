//! The text at the head of a PLY.

use std::io::{BufRead, Read};

use crate::fault::FormatFault;

/// Longest header that is read: 50 times that of a file of Gaussians, comments included.
const MAX_HEADER_BYTES: u64 = 1 << 16;

/// Encoding of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PlyEncoding {
    /// A line of text a row.
    Text,
    #[default]
    LittleEndian,
    BigEndian,
}

/// Types of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlyType {
    F32,
    F64,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
}

impl PlyType {
    fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "float" | "float32" => Self::F32,
            "double" | "float64" => Self::F64,
            "uchar" | "uint8" => Self::U8,
            "uint" | "uint32" => Self::U32,
            "char" | "int8" => Self::I8,
            "short" | "int16" => Self::I16,
            "ushort" | "uint16" => Self::U16,
            "int" | "int32" => Self::I32,
            _ => return None,
        })
    }

    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 => 8,
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
    /// Bytes from the start of a row without lists.
    pub(super) offset: usize,
    /// Type of the length of a list, which is skipped.
    pub(super) list: Option<PlyType>,
}

/// A table of the file.
#[derive(Clone, Debug)]
pub(super) struct PlyElement {
    pub(super) name: String,
    pub(super) rows: u64,
    /// Bytes of a binary row without lists.
    pub(super) row_bytes: usize,
    pub(super) properties: Vec<PlyProperty>,
}

/// Columns that point clouds and meshes do not have.
const OF_GAUSSIANS: [&str; 4] = ["scale_0", "rot_0", "opacity", "f_dc_0"];

impl PlyElement {
    /// Least number of bytes of its rows.
    pub(super) fn least_bytes(&self, encoding: PlyEncoding) -> u64 {
        let row: usize = match encoding {
            // A character and a space each.
            PlyEncoding::Text => 2 * self.properties.len(),
            _ => {
                let lengths = self.properties.iter().filter_map(|it| it.list).map(PlyType::bytes);
                self.row_bytes + lengths.sum::<usize>()
            }
        };
        self.rows.saturating_mul(row as u64)
    }

    /// True if rows have the layout in the file that they have in memory.
    pub(super) fn is_plain(&self, encoding: PlyEncoding) -> bool {
        encoding == PlyEncoding::LittleEndian && self.properties.iter().all(|it| it.list.is_none())
    }

    /// The property of this name, of one of these types.
    pub(super) fn property(
        &self,
        name: &str,
        kinds: &[PlyType],
    ) -> Result<&PlyProperty, FormatFault> {
        let mut named = self.properties.iter().filter(|property| property.name == name);
        let Some(found) = named.next() else {
            let is_of_gaussians = OF_GAUSSIANS.into_iter().any(|name| self.has(name));
            return Err(FormatFault::Unsupported(if is_of_gaussians {
                format!("has no column `{name}`, which Gaussians need: export all columns")
            } else {
                format!(
                    "has no column `{name}`, so it is a point cloud or a mesh: give a PLY of Gaussians"
                )
            }));
        };
        if named.next().is_some() {
            return Err(FormatFault::damaged(format!("lists the column `{name}` twice")));
        }
        if !kinds.contains(&found.kind) || found.list.is_some() {
            let list = if found.list.is_some() { "list of " } else { "" };
            return Err(FormatFault::damaged(format!(
                "has another layout than that of Gaussians: the column `{name}` is of type {list}{}",
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
    pub(super) encoding: PlyEncoding,
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
        head.encoding = match format.as_str() {
            "ascii 1.0" => PlyEncoding::Text,
            "binary_little_endian 1.0" => PlyEncoding::LittleEndian,
            "binary_big_endian 1.0" => PlyEncoding::BigEndian,
            _ => {
                let start: String = format.chars().take(60).collect();
                return Err(FormatFault::damaged(format!(
                    "its format is `{start}`; ascii, binary_little_endian or binary_big_endian 1.0 is \
                     expected"
                )));
            }
        };
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
            ["property", words @ ..] => {
                let element = self.elements.last_mut().ok_or("no `element` stands before it")?;
                let (length, [spelled, name]) = match words {
                    ["list", length, spelled, name] => (Some(*length), [*spelled, *name]),
                    [spelled, name] => (None, [*spelled, *name]),
                    _ => return Err("not a line of a PLY header".to_owned()),
                };
                let kind = PlyType::by_name(spelled).ok_or("not a type of PLY")?;
                let list = match length.map(PlyType::by_name) {
                    Some(None | Some(PlyType::F32 | PlyType::F64)) => {
                        return Err("not a type of the length of a list".to_owned());
                    }
                    other => other.flatten(),
                };
                element.properties.push(PlyProperty {
                    name: name.to_owned(),
                    kind,
                    spelled: spelled.to_owned(),
                    offset: element.row_bytes,
                    list,
                });
                if list.is_none() {
                    element.row_bytes += kind.bytes();
                }
            }
            _ => return Err("not a line of a PLY header".to_owned()),
        }
        Ok(())
    }

    pub(super) fn element(&self, name: &str) -> Option<&PlyElement> {
        self.elements.iter().find(|element| element.name == name)
    }

    /// The element of this name and its index.
    pub(super) fn find(&self, name: &str) -> Result<(usize, &PlyElement), FormatFault> {
        let mut elements = self.elements.iter().enumerate();
        elements.find(|(_, element)| element.name == name).ok_or_else(|| {
            FormatFault::damaged(format!("no `element {name}` stands in its header"))
        })
    }

    /// Checks that a file is long enough for its elements up to this index.
    pub(super) fn check_length(&self, last: usize, file_bytes: u64) -> Result<(), FormatFault> {
        let elements = self.elements.iter().take(last + 1);
        let needed =
            elements.fold(0_u64, |sum, it| sum.saturating_add(it.least_bytes(self.encoding)));
        // The last line of a text may have no end.
        let found = file_bytes.saturating_sub(self.bytes);
        let room = found + u64::from(self.encoding == PlyEncoding::Text);
        if needed > room {
            return Err(FormatFault::truncated("its table of Gaussians", needed, found));
        }
        Ok(())
    }

    /// A note about bytes after the last row of a binary file whose rows all have the same length.
    pub(super) fn rest(&self, file_bytes: u64) -> Option<String> {
        let has_lists =
            self.elements.iter().flat_map(|it| &it.properties).any(|it| it.list.is_some());
        if has_lists || self.encoding == PlyEncoding::Text {
            return None;
        }
        let lengths = self.elements.iter().map(|it| it.least_bytes(self.encoding));
        let end = lengths.fold(self.bytes, u64::saturating_add);
        let rest = file_bytes.checked_sub(end).filter(|&rest| rest > 0)?;
        Some(format!(
            "{rest} bytes after its last row are not read. If something is missing, write the file again"
        ))
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
