//! What text of other programs may begin with.

/// The byte order mark that editors and spreadsheets on Windows put before text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The text without a byte order mark.
pub(super) fn without_byte_order_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}
