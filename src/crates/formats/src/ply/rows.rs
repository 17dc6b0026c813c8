//! Rows of an element in any encoding, as little-endian values without lists.

use std::io::{self, BufRead, Read};

use splat_mesh::file::ply::{PlyElement, PlyEncoding, Scalar};

use super::header::least_bytes;
use crate::fault::FormatFault;

/// Longest line of text that is read.
const MOST_LINE_BYTES: u64 = 1 << 20;

/// True if rows have the layout in the file that they have in memory.
fn is_plain(element: &PlyElement, encoding: PlyEncoding) -> bool {
    encoding == PlyEncoding::Little && element.list().is_none()
}

/// Fills `rows`, a whole number of rows of the element.
pub(super) fn read_rows(
    element: &PlyElement,
    encoding: PlyEncoding,
    input: &mut impl BufRead,
    rows: &mut [u8],
) -> Result<(), FormatFault> {
    if is_plain(element, encoding) {
        return Ok(input.read_exact(rows)?);
    }
    if element.row_bytes == 0 {
        return Ok(());
    }
    rows.chunks_exact_mut(element.row_bytes)
        .try_for_each(|row| read_row(element, encoding, input, row))
}

/// Skips all rows of an element.
pub(super) fn skip_rows(
    element: &PlyElement,
    encoding: PlyEncoding,
    input: &mut impl BufRead,
) -> Result<(), FormatFault> {
    if is_plain(element, encoding) {
        let bytes = least_bytes(element, encoding);
        io::copy(&mut input.by_ref().take(bytes), &mut io::sink())?;
        return Ok(());
    }
    let mut row = vec![0; element.row_bytes];
    for _ in 0..element.rows {
        read_row(element, encoding, input, &mut row)?;
    }
    Ok(())
}

fn read_row(
    element: &PlyElement,
    encoding: PlyEncoding,
    input: &mut impl BufRead,
    row: &mut [u8],
) -> Result<(), FormatFault> {
    if encoding == PlyEncoding::Ascii {
        return read_line(element, input, row);
    }
    for property in &element.properties {
        if let Some(length) = property.list {
            let mut bytes = [0; 8];
            read_value(length, encoding, input, &mut bytes[..length.bytes()])?;
            let bytes_of_items =
                list_length(length, bytes).map(|n| n * property.scalar.bytes() as u64);
            let Some(due) = bytes_of_items else {
                return Err(FormatFault::damaged(format!(
                    "has a list `{}` of a negative length",
                    property.name
                )));
            };
            if io::copy(&mut input.by_ref().take(due), &mut io::sink())? < due {
                return Err(FormatFault::damaged(format!("ends in a list `{}`", property.name)));
            }
            continue;
        }
        let to = &mut row[property.offset..][..property.scalar.bytes()];
        read_value(property.scalar, encoding, input, to)?;
    }
    Ok(())
}

fn read_value(
    kind: Scalar,
    encoding: PlyEncoding,
    input: &mut impl BufRead,
    to: &mut [u8],
) -> Result<(), FormatFault> {
    debug_assert_eq!(kind.bytes(), to.len());
    input.read_exact(to)?;
    if encoding == PlyEncoding::Big {
        to.reverse();
    }
    Ok(())
}

/// The length of a list; none if it is negative.
fn list_length(kind: Scalar, bytes: [u8; 8]) -> Option<u64> {
    let [a, b, c, d, ..] = bytes;
    match kind {
        Scalar::U8 => Some(a.into()),
        Scalar::I8 => u64::try_from(i8::from_le_bytes([a])).ok(),
        Scalar::U16 => Some(u16::from_le_bytes([a, b]).into()),
        Scalar::I16 => u64::try_from(i16::from_le_bytes([a, b])).ok(),
        Scalar::U32 => Some(u32::from_le_bytes([a, b, c, d]).into()),
        Scalar::I32 => u64::try_from(i32::from_le_bytes([a, b, c, d])).ok(),
        Scalar::F32 | Scalar::F64 => None,
    }
}

/// Reads the next line that is not empty.
fn read_line(
    element: &PlyElement,
    input: &mut impl BufRead,
    row: &mut [u8],
) -> Result<(), FormatFault> {
    let mut line = Vec::new();
    while line.iter().all(u8::is_ascii_whitespace) {
        line.clear();
        if input.by_ref().take(MOST_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Err(FormatFault::damaged(format!(
                "is truncated: it has fewer than {} lines of `{}`",
                element.rows, element.name
            )));
        }
    }
    let text = String::from_utf8_lossy(&line);
    let mut words = text.split_ascii_whitespace();
    let wrong = || {
        let start: String = text.trim().chars().take(60).collect();
        FormatFault::damaged(format!("has a line {start:?} that is no row of `{}`", element.name))
    };
    for property in &element.properties {
        if property.list.is_some() {
            let length: usize =
                words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
            if length > 0 {
                words.nth(length - 1).ok_or_else(wrong)?;
            }
            continue;
        }
        let to = &mut row[property.offset..][..property.scalar.bytes()];
        words.next().and_then(|word| parse_value(property.scalar, word, to)).ok_or_else(wrong)?;
    }
    if words.next().is_some() { Err(wrong()) } else { Ok(()) }
}

/// Writes the value of a word; none if the word is not of this type.
fn parse_value(kind: Scalar, word: &str, to: &mut [u8]) -> Option<()> {
    match kind {
        Scalar::U8 => to.copy_from_slice(&word.parse::<u8>().ok()?.to_le_bytes()),
        Scalar::I8 => to.copy_from_slice(&word.parse::<i8>().ok()?.to_le_bytes()),
        Scalar::U16 => to.copy_from_slice(&word.parse::<u16>().ok()?.to_le_bytes()),
        Scalar::I16 => to.copy_from_slice(&word.parse::<i16>().ok()?.to_le_bytes()),
        Scalar::U32 => to.copy_from_slice(&word.parse::<u32>().ok()?.to_le_bytes()),
        Scalar::I32 => to.copy_from_slice(&word.parse::<i32>().ok()?.to_le_bytes()),
        Scalar::F32 => {
            let value = word.parse().ok().or_else(|| is_nan(word).then_some(f32::NAN))?;
            to.copy_from_slice(&value.to_le_bytes());
        }
        Scalar::F64 => {
            let value = word.parse().ok().or_else(|| is_nan(word).then_some(f64::NAN))?;
            to.copy_from_slice(&value.to_le_bytes());
        }
    }
    Some(())
}

/// True for what C libraries write of a number that is none: `-nan(ind)`, `1.#QNAN`.
fn is_nan(word: &str) -> bool {
    word.to_ascii_lowercase().contains("nan")
}
