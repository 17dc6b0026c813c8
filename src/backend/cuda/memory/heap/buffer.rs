//! What one can do with memory of the device, wherever it comes from.

use std::iter;
use std::ops::Range;

use super::pinned::Pinned;
use crate::abi::{In, Out, Plain};
use crate::backend::DeviceError;
use crate::backend::cuda::device::stream::Stream;

/// A part of the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRange {
    /// Where it begins.
    pub address: u64,
    /// Its length.
    pub bytes: usize,
}

/// Values of one type in a row on the device.
///
/// # Safety
/// From [`Self::address`] on there are [`Self::len`] values that nobody else writes, until the
/// device has done what was queued before the buffer went.
pub unsafe trait Buffer {
    /// Type of the values.
    type Item: Plain;

    /// Where the first value lies.
    fn address(&self) -> u64;

    /// How many there are.
    fn len(&self) -> usize;

    /// Its name in the ledger.
    fn label(&self) -> &'static str;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes from this address on one call of the driver takes: of memory of the host, what was taken
    /// at once. Kernels know no such bounds.
    fn bytes_at_once(&self, _address: u64) -> u64 {
        u64::MAX
    }

    /// For a kernel that reads.
    fn read(&self) -> In<'_, Self::Item> {
        In::at(self.address())
    }

    /// For a kernel that writes.
    fn write(&mut self) -> Out<'_, Self::Item> {
        Out::at(self.address())
    }

    /// Copies from the host and waits for it.
    fn upload(
        &mut self,
        stream: &Stream,
        first: usize,
        values: &[Self::Item],
    ) -> Result<(), DeviceError> {
        let DeviceRange { address, bytes } =
            self.place("upload", &(first..first.saturating_add(values.len())))?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range is the buffer's, and `values` outlives the copy awaited below.
        unsafe { stream.queue().upload(address, values.as_ptr().cast(), bytes) }?;
        stream.synchronize()
    }

    /// Copies to the host and waits for it.
    fn download(
        &self,
        stream: &Stream,
        first: usize,
        values: &mut [Self::Item],
    ) -> Result<(), DeviceError> {
        let range = first..first.saturating_add(values.len());
        let DeviceRange { address, bytes } = self.place("download", &range)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range is the buffer's, any bits are a value, and `values` outlives the copy
        // awaited below.
        unsafe {
            stream.queue().download(values.as_mut_ptr().cast(), self.label(), address, bytes)
        }?;
        stream.synchronize()
    }

    /// Copies all of `range` of page-locked values without waiting.
    fn upload_pinned(
        &mut self,
        stream: &Stream,
        first: usize,
        values: &Pinned<Self::Item>,
        range: Range<usize>,
    ) -> Result<(), DeviceError> {
        let DeviceRange { address, bytes } =
            self.place("upload", &(first..first.saturating_add(range.len())))?;
        let source = values.part(&range)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both ranges hold as many bytes, and `values` is not touched until the event
        // that follows.
        unsafe { stream.queue().upload(address, source, bytes) }?;
        values.busy_until_now(stream)
    }

    /// Copies to the beginning of page-locked values without waiting.
    fn download_pinned(
        &self,
        stream: &Stream,
        range: Range<usize>,
        values: &mut Pinned<Self::Item>,
    ) -> Result<(), DeviceError> {
        let DeviceRange { address, bytes } = self.place("download", &range)?;
        let target = values.part(&(0..range.len()))?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both ranges hold as many bytes, any bits are a value, and `values` is not
        // touched until the event that follows.
        unsafe { stream.queue().download(target, self.label(), address, bytes) }?;
        values.busy_until_now(stream)
    }

    /// Copies from another buffer of the device.
    fn copy_from<B: Buffer<Item = Self::Item>>(
        &mut self,
        stream: &Stream,
        first: usize,
        source: &B,
        range: Range<usize>,
    ) -> Result<(), DeviceError> {
        let DeviceRange { address: to, bytes } =
            self.place("copy", &(first..first.saturating_add(range.len())))?;
        let from = source.place("copy", &range)?.address;
        let at_once = |done| self.bytes_at_once(to + done).min(source.bytes_at_once(from + done));
        parts(bytes, at_once).try_for_each(|(done, bytes)| {
            // SAFETY: the ranges belong to two buffers, since one is borrowed mutably.
            unsafe { stream.queue().copy(to + done, from + done, bytes) }
        })
    }

    /// Makes all bits zero.
    fn zero(&mut self, stream: &Stream) -> Result<(), DeviceError> {
        self.fill_bytes(stream, 0..self.len(), 0)
    }

    /// Makes the bits of these values zero.
    fn zero_range(&mut self, stream: &Stream, range: Range<usize>) -> Result<(), DeviceError> {
        self.fill_bytes(stream, range, 0)
    }

    /// Makes all bits one: the largest unsigned number.
    fn fill_ones(&mut self, stream: &Stream) -> Result<(), DeviceError> {
        self.fill_bytes(stream, 0..self.len(), 0xff)
    }

    /// Makes each byte of these values the same.
    fn fill_bytes(
        &mut self,
        stream: &Stream,
        range: Range<usize>,
        byte: u8,
    ) -> Result<(), DeviceError> {
        let DeviceRange { address, bytes } = self.place("fill", &range)?;
        parts(bytes, |done| self.bytes_at_once(address + done)).try_for_each(|(done, bytes)| {
            // SAFETY: the range is the buffer's, and any bits are a value.
            unsafe { stream.queue().fill(address + done, byte, bytes) }
        })
    }

    /// Makes each word of 32 bits the same.
    fn fill_words(&mut self, stream: &Stream, word: u32) -> Result<(), DeviceError> {
        let DeviceRange { address, bytes } = self.place("fill", &(0..self.len()))?;
        parts(bytes, |done| self.bytes_at_once(address + done)).try_for_each(|(done, bytes)| {
            // SAFETY: the range is the buffer's, and any bits are a value.
            unsafe { stream.queue().fill_words(address + done, word, bytes / size_of::<u32>()) }
        })
    }

    /// Where a range lies, which must be within.
    fn place(&self, call: &'static str, range: &Range<usize>) -> Result<DeviceRange, DeviceError> {
        if range.start > range.end || range.end > self.len() {
            return Err(DeviceError::Driver {
                call,
                reason: format!(
                    "`{}` holds {} values, but {range:?} were requested",
                    self.label(),
                    self.len()
                ),
            });
        }
        let size = size_of::<Self::Item>();
        let address = self.address() + (range.start * size) as u64;
        Ok(DeviceRange { address, bytes: range.len() * size })
    }
}

/// A range in the parts that one call of the driver takes: where each begins, and its length.
fn parts(bytes: usize, at_once: impl Fn(u64) -> u64) -> impl Iterator<Item = (u64, usize)> {
    let mut done = 0;
    iter::from_fn(move || {
        let left = bytes - done;
        let first = done as u64;
        let part = usize::try_from(at_once(first)).unwrap_or(usize::MAX).min(left);
        done += part;
        (part > 0).then_some((first, part))
    })
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn a_range_is_taken_in_parts_that_end_where_memory_was_taken_at_once() {
        let blocks_of_ten = |done: u64| 10 - (done + 3) % 10;
        let found: Vec<_> = parts(25, blocks_of_ten).collect();
        assert_eq!(found, [(0, 7), (7, 10), (17, 8)]);
        assert_eq!(parts(25, |_| u64::MAX).collect::<Vec<_>>(), [(0, 25)]);
        assert_eq!(parts(0, |_| u64::MAX).count(), 0);
    }
}
