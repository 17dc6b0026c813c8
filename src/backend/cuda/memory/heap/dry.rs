//! Memory that is not there: addresses are given out, and nothing lies at them.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::c_void;

use super::memory::{Fault, MemoryDriver};
use crate::backend::DeviceError;
use crate::layout::MemoryPlace;
use crate::memory::{Bytes, HostState};

/// Unit of memory, as NVIDIA's GPUs have it.
const GRANULE: u64 = 2 << 20;

/// Memory of the device: more than any has, and little enough for a hundred reservations of all of it.
const CAPACITY: u64 = 1 << 52;

/// Alignment of page-locked memory.
const PAGE: usize = 4096;

/// Memory of a dry run.
#[derive(Default)]
pub(super) struct DryMemory {
    /// Addresses that were given out.
    taken: Cell<u64>,
    /// Page-locked memory of the host, which is there, by address.
    pinned: RefCell<BTreeMap<usize, Layout>>,
}

impl DryMemory {
    /// The next addresses, of which none is 0.
    fn next(&self, bytes: u64) -> u64 {
        let address = self.taken.get() + GRANULE;
        self.taken.set(address + bytes);
        address
    }
}

impl MemoryDriver for DryMemory {
    fn granule(&self, _place: MemoryPlace) -> u64 {
        GRANULE
    }

    fn is_virtual(&self, _place: MemoryPlace) -> bool {
        true
    }

    fn capacity(&self) -> Bytes {
        Bytes(CAPACITY)
    }

    fn free(&self) -> Result<Bytes, DeviceError> {
        Ok(Bytes(CAPACITY))
    }

    fn host(&self) -> Option<HostState> {
        None
    }

    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> Result<u64, Fault> {
        Ok(self.next(bytes))
    }

    fn unreserve(&self, _address: u64, _bytes: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn create(&self, _place: MemoryPlace, _bytes: u64) -> Result<u64, Fault> {
        Ok(0)
    }

    fn release(&self, _handle: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn map(&self, _address: u64, _bytes: u64, _handle: u64) -> Result<(), Fault> {
        Ok(())
    }

    fn unmap(&self, _address: u64, _bytes: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn allow(&self, _place: MemoryPlace, _address: u64, _bytes: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn allocate(&self, _place: MemoryPlace, bytes: u64) -> Result<u64, Fault> {
        Ok(self.next(bytes))
    }

    fn deallocate(&self, _place: MemoryPlace, _address: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn copy(&self, _to: u64, _from: u64, _bytes: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<*mut c_void, Fault> {
        let layout =
            Layout::from_size_align(bytes.max(1), PAGE).map_err(|_error| Fault::Exhausted)?;
        // SAFETY: the size is not zero.
        let address = unsafe { alloc_zeroed(layout) };
        if address.is_null() {
            return Err(Fault::Exhausted);
        }
        self.pinned.borrow_mut().insert(address.addr(), layout);
        Ok(address.cast())
    }

    fn free_pinned(&self, address: *mut c_void) {
        if let Some(layout) = self.pinned.borrow_mut().remove(&address.addr()) {
            // SAFETY: `allocate_pinned` took it with this layout, and it is removed from the map once.
            unsafe { dealloc(address.cast(), layout) }
        }
    }
}
