//! Little-endian numbers from a slice of bytes.

use crate::fault::FormatFault;

/// The bytes that are still to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteCursor<'a> {
    rest: &'a [u8],
}

impl<'a> ByteCursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes left.
    pub(crate) const fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next bytes, of which `what` needs so many.
    pub(crate) fn take(&mut self, what: &str, count: usize) -> Result<&'a [u8], FormatFault> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(FormatFault::truncated(what, count as u64, self.rest.len() as u64));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], FormatFault> {
        let taken = self.take(what, N)?;
        taken.first_chunk().copied().ok_or_else(|| FormatFault::damaged("is truncated"))
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8, FormatFault> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32, FormatFault> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64, FormatFault> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }
}
