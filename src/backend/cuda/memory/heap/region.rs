//! Long-lived memory that grows.

use std::marker::PhantomData;

use super::Heap;
use super::buffer::Buffer;
use super::span::{Span, bytes_of};
use crate::abi::Plain;
use crate::backend::DeviceError;
use crate::backend::cuda::device::stream::Stream;
use crate::layout::{Count, MemoryPlace, Slot};
use crate::memory::{Bytes, Kind};

/// Values that live as long as the model. With virtual memory they never move.
pub struct Region<T> {
    heap: Heap,
    label: &'static str,
    place: MemoryPlace,
    span: Span,
    len: usize,
    values: PhantomData<T>,
}

impl Heap {
    /// An empty region of a slot.
    pub fn region<T: Plain, C: Count>(&self, slot: &Slot<T, C>) -> Result<Region<T>, DeviceError> {
        self.region_in(MemoryPlace::Device, slot)
    }

    /// The same in memory of this place.
    pub fn region_in<T: Plain, C: Count>(
        &self,
        place: MemoryPlace,
        slot: &Slot<T, C>,
    ) -> Result<Region<T>, DeviceError> {
        Region::new(self, slot.label, place)
    }
}

impl<T: Plain> Region<T> {
    fn new(heap: &Heap, label: &'static str, place: MemoryPlace) -> Result<Self, DeviceError> {
        let kind = match place {
            MemoryPlace::Device => Kind::Region,
            MemoryPlace::Host => Kind::Pinned,
        };
        let span = Span::new(&heap.accounts, label, kind)?;
        Ok(Self { heap: heap.clone(), label, place, span, len: 0, values: PhantomData })
    }

    /// A region of this place with the same values. Both are held until one of them goes, which waits for
    /// the copy.
    pub(crate) fn copied_to(
        &self,
        stream: &Stream,
        place: MemoryPlace,
    ) -> Result<Self, DeviceError> {
        let mut copy = Self::new(&self.heap, self.label, place)?;
        copy.grow(self.len)?;
        copy.copy_from(stream, 0, self, 0..self.len)?;
        Ok(copy)
    }

    /// Makes room for at least `len` values and lets them count. What was there stays; what is
    /// new holds anything.
    pub fn grow(&mut self, len: usize) -> Result<(), DeviceError> {
        if len > self.len {
            let (heap, span) = (&self.heap, &mut self.span);
            heap.with_trim_retry(|| span.grow(bytes_of::<T>(len)))?;
            self.set_len(len);
        }
        Ok(())
    }

    /// The same, and what is new is zero.
    pub fn grow_zeroed(&mut self, stream: &Stream, len: usize) -> Result<(), DeviceError> {
        let before = self.len;
        self.grow(len)?;
        if before < len { self.zero_range(stream, before..len) } else { Ok(()) }
    }

    /// Lets only the first `len` values count; the memory stays for the next growth.
    pub fn shrink(&mut self, len: usize) {
        if len < self.len {
            self.set_len(len);
        }
    }

    /// Gives back the whole blocks of memory after the values.
    pub fn trim(&mut self) -> Result<(), DeviceError> {
        self.span.trim(bytes_of::<T>(self.len))
    }

    /// Bytes taken from the device.
    pub fn mapped(&self) -> Bytes {
        self.mapped_in(MemoryPlace::Device)
    }

    /// Bytes taken of this place.
    pub fn mapped_in(&self, place: MemoryPlace) -> Bytes {
        if place == self.place { Bytes(self.span.mapped()) } else { Bytes(0) }
    }

    /// How many values fit without taking more memory.
    pub fn capacity(&self) -> usize {
        usize::try_from(self.span.mapped()).unwrap_or(usize::MAX) / size_of::<T>().max(1)
    }

    fn set_len(&mut self, len: usize) {
        self.len = len;
        self.span.set_used(bytes_of::<T>(len));
    }
}

// SAFETY: the span holds memory for `len` values, and giving it back waits for the device.
unsafe impl<T: Plain> Buffer for Region<T> {
    type Item = T;

    fn address(&self) -> u64 {
        self.span.address()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn label(&self) -> &'static str {
        self.label
    }

    fn bytes_at_once(&self, address: u64) -> u64 {
        match self.place {
            MemoryPlace::Device => u64::MAX,
            MemoryPlace::Host => self.span.left_of_block(address),
        }
    }
}
