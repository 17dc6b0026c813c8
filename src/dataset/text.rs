//! Text that other programs wrote: byte order marks and UTF-16.

use std::borrow::Cow;

/// Byte order mark that editors and spreadsheets on Windows put before text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Returns the text as UTF-8 without a byte order mark.
///
/// UTF-16 is known by its mark, or by a zero byte beside an ASCII character at the start. Bytes that
/// are not UTF-8 stay as they are.
pub(super) fn utf8(text: &[u8]) -> Cow<'_, [u8]> {
    match text {
        [0xff, 0xfe, rest @ ..] => Cow::Owned(from_utf16(rest, u16::from_le_bytes)),
        [0xfe, 0xff, rest @ ..] => Cow::Owned(from_utf16(rest, u16::from_be_bytes)),
        [1..=127, 0, ..] => Cow::Owned(from_utf16(text, u16::from_le_bytes)),
        [0, 1..=127, ..] => Cow::Owned(from_utf16(text, u16::from_be_bytes)),
        _ => Cow::Borrowed(text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)),
    }
}

/// True if text that begins so is not UTF-8.
pub(super) fn is_utf16(start: &[u8]) -> bool {
    matches!(utf8(start), Cow::Owned(_))
}

/// Returns the problem and its remedy if a file begins like a web page or a Git LFS pointer.
pub(super) fn other_content(start: &[u8]) -> Option<&'static str> {
    let text = utf8(start).trim_ascii_start().to_ascii_lowercase();
    if start.starts_with(splat_mesh::file::ply::LFS_POINTER) {
        Some(splat_mesh::file::ply::LFS_SAID)
    } else if text.starts_with(b"<!doctype") || text.starts_with(b"<html") {
        Some("is a web page. Download the file itself")
    } else {
        None
    }
}

/// Number of first bytes that [`other_content`] needs.
pub(super) const START_BYTES: u64 = 64;

fn from_utf16(text: &[u8], unit: fn([u8; 2]) -> u16) -> Vec<u8> {
    let units = text.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
    let letters = char::decode_utf16(units).map(|it| it.unwrap_or(char::REPLACEMENT_CHARACTER));
    letters.collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_wide_letters_become_utf_8() {
        let wide = |mark: &[u8], order: fn(u16) -> [u8; 2]| {
            [mark, &"{a: 1é}".encode_utf16().flat_map(order).collect::<Vec<_>>()].concat()
        };
        let plain = "{a: 1é}".as_bytes();
        for text in [
            plain.to_vec(),
            [BYTE_ORDER_MARK, plain].concat(),
            wide(&[0xff, 0xfe], u16::to_le_bytes),
            wide(&[0xfe, 0xff], u16::to_be_bytes),
            wide(&[], u16::to_le_bytes),
            wide(&[], u16::to_be_bytes),
        ] {
            assert_eq!(utf8(&text), plain, "{text:?}");
        }
        assert_eq!(utf8(&[0xc3, 0x28]), [0xc3, 0x28].as_slice());
        assert!(utf8(&[]).is_empty());
    }
}
