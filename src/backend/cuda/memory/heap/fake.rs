//! A device for tests. It rejects what a driver would reject, and records what memory holds.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::rc::Rc;

use super::memory::{Fault, MemoryDriver};
use crate::backend::Result;
use crate::layout::MemoryPlace;
use crate::memory::{Bytes, HostState};

pub(super) const GRANULE: u64 = 2 << 20;

pub(super) const HOST_GRANULE: u64 = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FakeBlock {
    place: MemoryPlace,
    bytes: u64,
}

#[derive(Default)]
pub(super) struct FakeState {
    pub(super) capacity: u64,
    pub(super) foreign: u64,
    pub(super) host: Option<HostState>,
    /// True if the driver rejects requests for the host's memory, whatever the system reports.
    pub(super) host_is_exhausted: bool,
    next: u64,
    reservations: BTreeMap<u64, u64>,
    /// Blocks by handle.
    blocks: BTreeMap<u64, FakeBlock>,
    /// Size in bytes and handle by address.
    mapped: BTreeMap<u64, (u64, u64)>,
    /// Ends of the ranges that kernels may use, by start address.
    allowed: BTreeMap<u64, u64>,
    allocations: BTreeMap<u64, FakeBlock>,
    /// Sizes in bytes of the host's memory, by address.
    pinned: BTreeMap<usize, usize>,
    /// Content of each granule, by address.
    contents: BTreeMap<u64, u64>,
}

const PAGE: usize = 4096;

fn layout_of(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, PAGE).expect("more than an address space has")
}

/// A handle to the state, which the test and the heap share.
#[derive(Clone, Default)]
pub(super) struct FakeDevice {
    pub(super) state: Rc<RefCell<FakeState>>,
    pub(super) is_virtual: bool,
}

impl FakeDevice {
    pub(super) fn new(capacity: u64, is_virtual: bool) -> Self {
        let state = FakeState { capacity, next: 1 << 40, ..FakeState::default() };
        Self { state: Rc::new(RefCell::new(state)), is_virtual }
    }

    /// Returns the bytes of device memory that the heap holds.
    pub(super) fn held(&self) -> u64 {
        self.held_in(MemoryPlace::Device)
    }

    pub(super) fn held_in(&self, place: MemoryPlace) -> u64 {
        let state = self.state.borrow();
        let blocks = state.blocks.values().chain(state.allocations.values());
        blocks.filter(|block| block.place == place).map(|block| block.bytes).sum()
    }

    pub(super) fn has_nothing_left(&self) -> bool {
        let state = self.state.borrow();
        state.blocks.is_empty()
            && state.allocations.is_empty()
            && state.reservations.is_empty()
            && state.mapped.is_empty()
            && state.allowed.is_empty()
    }

    /// True if kernels may use these bytes.
    pub(super) fn is_usable(&self, address: u64, bytes: u64) -> bool {
        let state = self.state.borrow();
        let in_allocation = state
            .allocations
            .range(..=address)
            .next_back()
            .is_some_and(|(start, block)| address + bytes <= start + block.bytes);
        let mut at = address;
        while at < address + bytes {
            match state.allowed.range(..=at).next_back() {
                Some((_, &end)) if end > at => at = end,
                _ => return in_allocation,
            }
        }
        true
    }

    fn give(&self, place: MemoryPlace, bytes: u64) -> Result<(), Fault> {
        let has_room = match place {
            MemoryPlace::Device => self.free()?.0 >= bytes,
            MemoryPlace::Host => !self.state.borrow().host_is_exhausted,
        };
        if has_room { Ok(()) } else { Err(Fault::Exhausted) }
    }

    pub(super) fn mark(&self, address: u64, bytes: u64, mark: u64) {
        for at in granules(address, bytes) {
            self.state.borrow_mut().contents.insert(at, mark + (at - address));
        }
    }

    pub(super) fn is_marked(&self, address: u64, bytes: u64, mark: u64) -> bool {
        let state = self.state.borrow();
        granules(address, bytes).all(|at| state.contents.get(&at) == Some(&(mark + (at - address))))
    }
}

fn granule_of(place: MemoryPlace) -> u64 {
    match place {
        MemoryPlace::Device => GRANULE,
        MemoryPlace::Host => HOST_GRANULE,
    }
}

fn granules(address: u64, bytes: u64) -> impl Iterator<Item = u64> {
    (0..bytes.div_ceil(GRANULE)).map(move |number| address + number * GRANULE)
}

impl FakeState {
    fn place(&mut self, bytes: u64) -> u64 {
        let address = self.next;
        self.next += bytes.next_multiple_of(GRANULE) + GRANULE;
        address
    }

    fn forget(&mut self, address: u64, bytes: u64) {
        self.contents.retain(|&at, _| at < address || at >= address + bytes);
    }
}

impl MemoryDriver for FakeDevice {
    fn granule(&self, place: MemoryPlace) -> u64 {
        granule_of(place)
    }

    fn is_virtual(&self, _place: MemoryPlace) -> bool {
        self.is_virtual
    }

    fn capacity(&self) -> Bytes {
        Bytes(self.state.borrow().capacity)
    }

    fn free(&self) -> Result<Bytes> {
        let (capacity, foreign) = (self.state.borrow().capacity, self.state.borrow().foreign);
        Ok(Bytes(capacity.saturating_sub(foreign + self.held())))
    }

    fn host(&self) -> Option<HostState> {
        self.state.borrow().host
    }

    fn wait(&self) -> Result {
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> Result<u64, Fault> {
        assert!(self.is_virtual && bytes > 0 && bytes.is_multiple_of(GRANULE));
        let mut state = self.state.borrow_mut();
        let address = state.place(bytes);
        state.reservations.insert(address, bytes);
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result {
        let mut state = self.state.borrow_mut();
        assert_eq!(state.reservations.remove(&address), Some(bytes));
        assert!(state.mapped.range(address..address + bytes).next().is_none(), "still mapped");
        Ok(())
    }

    fn create(&self, place: MemoryPlace, bytes: u64) -> Result<u64, Fault> {
        assert!(bytes > 0 && bytes.is_multiple_of(granule_of(place)));
        self.give(place, bytes)?;
        let mut state = self.state.borrow_mut();
        let handle = state.place(GRANULE);
        state.blocks.insert(handle, FakeBlock { place, bytes });
        Ok(handle)
    }

    fn release(&self, handle: u64) -> Result {
        let mut state = self.state.borrow_mut();
        assert!(state.blocks.remove(&handle).is_some(), "released twice");
        assert!(
            state.mapped.values().all(|&(_, mapped)| mapped != handle),
            "released while mapped"
        );
        Ok(())
    }

    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), Fault> {
        let mut state = self.state.borrow_mut();
        let (start, size) = state.reservations.range(..=address).next_back().unwrap();
        assert!(address + bytes <= start + size, "mapped outside of the reservation");
        assert_eq!(state.blocks.get(&handle).map(|block| block.bytes), Some(bytes));
        if let Some((before, (size, _))) = state.mapped.range(..address + bytes).next_back() {
            assert!(before + size <= address, "mapped twice");
        }
        state.mapped.insert(address, (bytes, handle));
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result {
        let mut state = self.state.borrow_mut();
        let (size, _) = state.mapped.remove(&address).expect("not the beginning of a block");
        assert_eq!(size, bytes, "a part of a block");
        // The accessible range ends here. Spans only remove blocks from their end.
        if let Some((&start, &end)) = state.allowed.range(..=address).next_back()
            && end > address
        {
            assert_eq!(end, address + bytes, "taken away from the middle");
            state.allowed.remove(&start);
            if start < address {
                state.allowed.insert(start, address);
            }
        }
        state.forget(address, bytes);
        Ok(())
    }

    fn allow(&self, place: MemoryPlace, address: u64, bytes: u64) -> Result {
        let mut state = self.state.borrow_mut();
        let mapped = state.mapped.range(address..address + bytes);
        let places = mapped.map(|(_, (_, handle))| state.blocks[handle].place);
        assert!(places.into_iter().all(|of_block| of_block == place), "allowed as what it is not");
        state.allowed.insert(address, address + bytes);
        Ok(())
    }

    fn allocate(&self, place: MemoryPlace, bytes: u64) -> Result<u64, Fault> {
        assert!(!self.is_virtual && bytes > 0 && bytes.is_multiple_of(granule_of(place)));
        self.give(place, bytes)?;
        let mut state = self.state.borrow_mut();
        let address = state.place(bytes);
        state.allocations.insert(address, FakeBlock { place, bytes });
        Ok(address)
    }

    fn deallocate(&self, place: MemoryPlace, address: u64) -> Result {
        let mut state = self.state.borrow_mut();
        let block = state.allocations.remove(&address).expect("freed twice");
        assert_eq!(block.place, place, "freed as what it is not");
        state.forget(address, block.bytes);
        Ok(())
    }

    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result {
        assert!(self.is_usable(from, bytes) && self.is_usable(to, bytes));
        let mut state = self.state.borrow_mut();
        let copied: Vec<(u64, u64)> =
            state.contents.range(from..from + bytes).map(|(at, mark)| (at - from, *mark)).collect();
        state.contents.extend(copied.into_iter().map(|(at, mark)| (to + at, mark)));
        Ok(())
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<*mut c_void, Fault> {
        assert!(bytes > 0);
        // SAFETY: the size is not zero.
        let address = unsafe { alloc_zeroed(layout_of(bytes)) };
        assert!(!address.is_null(), "the host has no {bytes} bytes");
        self.state.borrow_mut().pinned.insert(address.addr(), bytes);
        Ok(address.cast())
    }

    fn free_pinned(&self, address: *mut c_void) {
        let bytes = self.state.borrow_mut().pinned.remove(&address.addr()).expect("freed twice");
        // SAFETY: `allocate_pinned` took it with this layout, and it is freed once.
        unsafe { dealloc(address.cast(), layout_of(bytes)) }
    }
}
