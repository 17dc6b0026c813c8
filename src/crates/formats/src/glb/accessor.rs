//! Rows of numbers in the binary part of a GLB.

use super::document::{GltfAccessor, GltfDocument};
use crate::fault::FormatFault;

/// Types of numbers, as OpenGL counts them.
pub(super) const BYTE: u32 = 5120;
pub(super) const UNSIGNED_BYTE: u32 = 5121;
pub(super) const SHORT: u32 = 5122;
pub(super) const UNSIGNED_SHORT: u32 = 5123;
pub(super) const FLOAT: u32 = 5126;

/// A document with its binary part.
pub(super) struct GlbContent<'a> {
    pub(super) document: GltfDocument,
    pub(super) binary: &'a [u8],
}

impl GlbContent<'_> {
    /// All rows of `N` numbers of an accessor, of which there must be `count`.
    pub(super) fn rows<const N: usize>(
        &self,
        number: usize,
        count: usize,
    ) -> Result<Vec<[f32; N]>, FormatFault> {
        let damaged = FormatFault::damaged;
        let accessor = self.accessor(number)?;
        if accessor.count != count {
            return Err(damaged(format!(
                "has attributes without as many rows: {count} and {}",
                accessor.count
            )));
        }
        let expected = ["", "SCALAR", "VEC2", "VEC3", "VEC4"].get(N).copied().unwrap_or_default();
        if accessor.kind != expected || accessor.sparse.is_some() {
            return Err(damaged(format!(
                "has an accessor of type {} where a plain {expected} is expected",
                accessor.kind
            )));
        }
        let width = component_bytes(accessor)?;
        let Some(view) = accessor.buffer_view.and_then(|i| self.document.buffer_views.get(i))
        else {
            return Err(damaged(format!(
                "names bufferView {}, which is not there",
                accessor.buffer_view.map_or("nothing".to_owned(), |number| number.to_string())
            )));
        };
        if view.buffer != 0 {
            return Err(damaged(format!("keeps values in buffer {}, not in its own", view.buffer)));
        }
        let stride = view.byte_stride.unwrap_or(N * width);
        let needed = match count.checked_sub(1) {
            None => Some(0),
            Some(last) => last.checked_mul(stride).and_then(|bytes| bytes.checked_add(N * width)),
        };
        let bytes = self.binary.get(view.byte_offset..).and_then(|rest| {
            rest.get(..view.byte_length)?.get(accessor.byte_offset..)?.get(..needed?)
        });
        let Some(bytes) = bytes.filter(|_| stride >= N * width) else {
            return Err(damaged(format!("is truncated: accessor {number} reaches past its end")));
        };
        let read = |at: usize| component(accessor, &bytes[at..at + width]);
        let row = |row: usize| std::array::from_fn(|i| read(row * stride + i * width));
        Ok((0..count).map(row).collect())
    }

    pub(super) fn accessor(&self, number: usize) -> Result<&GltfAccessor, FormatFault> {
        self.document.accessors.get(number).ok_or_else(|| {
            FormatFault::damaged(format!("names accessor {number}, which is not there"))
        })
    }
}

fn component_bytes(accessor: &GltfAccessor) -> Result<usize, FormatFault> {
    match (accessor.component_type, accessor.normalized) {
        (FLOAT, _) => Ok(4),
        (SHORT | UNSIGNED_SHORT, true) => Ok(2),
        (BYTE | UNSIGNED_BYTE, true) => Ok(1),
        (other, _) => Err(FormatFault::damaged(format!(
            "has values of type {other}; floats ({FLOAT}) or normalised integers are expected"
        ))),
    }
}

/// A number; of an integer the share of the largest (glTF 2.0, 3.6.2.2).
fn component(accessor: &GltfAccessor, bytes: &[u8]) -> f32 {
    match (accessor.component_type, bytes) {
        (FLOAT, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        (SHORT, &[a, b]) => (f32::from(i16::from_le_bytes([a, b])) / 32_767.0).max(-1.0),
        (UNSIGNED_SHORT, &[a, b]) => f32::from(u16::from_le_bytes([a, b])) / 65_535.0,
        (BYTE, &[a]) => (f32::from(i8::from_le_bytes([a])) / 127.0).max(-1.0),
        (UNSIGNED_BYTE, &[a]) => f32::from(a) / 255.0,
        _ => f32::NAN,
    }
}
