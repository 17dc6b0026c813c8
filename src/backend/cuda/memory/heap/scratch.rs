//! Memory for an iteration: blocks of the arena, and typed pieces of a block.

use std::marker::PhantomData;

use super::Heap;
use super::buffer::Buffer;
use super::span::{bytes_of, host_len};
use crate::abi::Plain;
use crate::backend::DeviceError;
use crate::layout::{Count, Library, Slot, Source, Taken, with_gap};
use crate::memory::{Bytes, Kind};

/// Scratch that goes back to the arena when it is dropped.
pub struct Block<T> {
    heap: Heap,
    label: &'static str,
    id: u64,
    address: u64,
    len: usize,
    values: PhantomData<T>,
}

impl Heap {
    /// Scratch of a slot for these sizes, holding anything. Blocks are given back in any order; a
    /// later block may lie where an earlier one lay, so all of them belong on one stream.
    pub fn take<T: Plain, C: Count>(
        &self,
        slot: &Slot<T, C>,
        sizes: &C::Sizes,
    ) -> Result<Block<T>, DeviceError> {
        Block::new(self, slot.label, host_len(slot.len(sizes)))
    }
}

impl Source for Heap {
    type Block<T: Plain> = Block<T>;
    type Error = DeviceError;

    fn cub_scratch(&self) -> &Library {
        Self::cub_scratch(self)
    }

    fn take<T: Plain, C: Count>(
        &self,
        slot: &Slot<T, C>,
        sizes: &C::Sizes,
    ) -> Result<Block<T>, DeviceError> {
        Self::take(self, slot, sizes)
    }
}

impl<T: Plain> Taken for Block<T> {
    fn bytes(&self) -> u64 {
        Self::bytes(self).0
    }
}

impl<T: Plain> Block<T> {
    pub(super) fn new(heap: &Heap, label: &'static str, len: usize) -> Result<Self, DeviceError> {
        let bytes = bytes_of::<T>(len);
        let place = heap.with_trim_retry(|| heap.arena.borrow_mut().take(bytes));
        // The arena knows its own label only, but it is this block that there is no room for.
        let place = place.map_err(|error| named(error, label))?;
        let mut ledger = heap.accounts.ledger.borrow_mut();
        ledger.set_used(label, Kind::Scratch, Bytes(0), Bytes(bytes));
        drop(ledger);
        if let Some(log) = heap.accounts.log.borrow_mut().as_mut() {
            log.take(place.id, label, place.start, bytes);
        }
        let heap = heap.clone();
        Ok(Self { heap, label, id: place.id, address: place.address, len, values: PhantomData })
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> Bytes {
        Bytes(bytes_of::<T>(self.len))
    }

    /// Splits the block into pieces of any type; its contents are lost.
    pub fn carve(&mut self) -> Carve<'_> {
        Carve {
            label: self.label,
            next: self.address,
            end: self.address + bytes_of::<T>(self.len),
            block: PhantomData,
        }
    }
}

fn named(mut error: DeviceError, name: &'static str) -> DeviceError {
    match &mut error {
        DeviceError::Refused(refusal) => refusal.label = name,
        DeviceError::OutOfMemory { label, .. } => *label = name,
        _ => {}
    }
    error
}

// SAFETY: the arena gives each live block bytes of its own, and takes memory from the device only
// after waiting for it. A later block in the same place is used on the same stream, hence later.
unsafe impl<T: Plain> Buffer for Block<T> {
    type Item = T;

    fn address(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        self.len
    }

    fn label(&self) -> &'static str {
        self.label
    }
}

impl<T> Drop for Block<T> {
    fn drop(&mut self) {
        self.heap.arena.borrow_mut().give_back(self.id);
        let bytes = Bytes(bytes_of::<T>(self.len));
        let mut ledger = self.heap.accounts.ledger.borrow_mut();
        ledger.set_used(self.label, Kind::Scratch, bytes, Bytes(0));
        if let Some(log) = self.heap.accounts.log.borrow_mut().as_mut() {
            log.give_back(self.id);
        }
    }
}

/// The rest of a block that is being carved up.
pub struct Carve<'a> {
    label: &'static str,
    next: u64,
    end: u64,
    block: PhantomData<&'a mut ()>,
}

impl<'a> Carve<'a> {
    /// The next piece.
    pub fn take<T: Plain>(&mut self, len: usize) -> Result<Piece<'a, T>, DeviceError> {
        let (address, bytes) = (self.next, bytes_of::<T>(len));
        if bytes > self.end - address {
            return Err(DeviceError::Driver {
                call: "carve",
                reason: format!(
                    "`{}` has {} bytes left, but {bytes} were requested",
                    self.label,
                    self.end - address
                ),
            });
        }
        self.next = with_gap(address + bytes).min(self.end);
        Ok(Piece { label: self.label, address, len, values: PhantomData })
    }
}

/// A part of a block as values of another type.
pub struct Piece<'a, T> {
    label: &'static str,
    address: u64,
    len: usize,
    values: PhantomData<&'a mut T>,
}

// SAFETY: `Carve` deals each byte of its block once, and the piece borrows the block.
unsafe impl<T: Plain> Buffer for Piece<'_, T> {
    type Item = T;

    fn address(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        self.len
    }

    fn label(&self) -> &'static str {
        self.label
    }
}
