//! All memory of the GPU: regions of the model, scratch of an iteration, and page-locked memory of the host.

#[cfg(test)]
mod fake;
mod memory;
#[cfg(test)]
pub(crate) mod tests;

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::c_void;
use std::iter;
use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;

use memory::{Arena, DryMemory, Fault, GpuMemory, HeapState, MemoryDriver, Span, bytes_of};

use crate::abi::{In, Out, Plain};
use crate::backend::cuda::device::driver::CudaDevice;
use crate::backend::cuda::device::stream::{CudaEvent, Stream};
use crate::backend::{DeviceError, Result};
use crate::layout::{
    CONTEXT, Count, Library, MemoryPlace, Scratch, ScratchLog, Slot, Source, Taken, with_gap,
};
use crate::memory::{Allowance, Bytes, Entry, HostAllowance, Kind, Ledger, Limit};

pub(crate) use memory::host_len;

/// A handle to the memory of one GPU.
#[derive(Clone)]
pub struct Heap {
    state: Rc<HeapState>,
    arena: Rc<RefCell<Arena>>,
}

impl Heap {
    /// Creates a heap within the allowance. `SPLAT_NO_VMM=1` turns virtual memory off, as on GPUs without it.
    pub fn open(device: &Rc<CudaDevice>, allowance: Allowance) -> Result<Self> {
        let is_unwanted = std::env::var_os("SPLAT_NO_VMM").is_some_and(|value| value == "1");
        if is_unwanted || !device.has_virtual_memory() {
            return Self::open_plain(device, allowance);
        }
        Self::over(Box::new(GpuMemory::new(device, true)?), allowance)
    }

    /// Creates a heap without virtual memory, which copies regions that grow.
    pub fn open_plain(device: &Rc<CudaDevice>, allowance: Allowance) -> Result<Self> {
        Self::over(Box::new(GpuMemory::new(device, false)?), allowance)
    }

    /// Creates a heap without memory, for a dry run.
    pub(crate) fn dry() -> Result<Self> {
        let memory = DryMemory::default();
        let all = Allowance::new(None, 1.0, memory.capacity());
        Self::over(Box::new(memory), all)
    }

    fn over(memory: Box<dyn MemoryDriver>, allowance: Allowance) -> Result<Self> {
        let budget = allowance.beside(Bytes(0)).min(memory.capacity());
        let ledger = RefCell::new(Ledger::new(budget));
        let (allowance, cub_scratch) = (Cell::new(allowance), OnceCell::new());
        let state = Rc::new(HeapState {
            memory,
            ledger,
            allowance,
            host_allowance: Cell::default(),
            cub_scratch,
            log: RefCell::default(),
        });
        let arena = Rc::new(RefCell::new(Arena::new(&state)));
        Ok(Self { state, arena })
    }

    /// Charges bytes that context and code have taken.
    pub fn charge_fixed(&self, bytes: Bytes) -> Result {
        self.state.update_foreign_use(bytes)?;
        let mut ledger = self.state.ledger.borrow_mut();
        ledger.charge(CONTEXT.label, Kind::Fixed, bytes)?;
        ledger.set_used(CONTEXT.label, Kind::Fixed, Bytes(0), bytes);
        Ok(())
    }

    /// Frees the memory of the arena that no block uses.
    pub fn trim_scratch(&self) -> Result {
        self.arena.borrow_mut().trim()
    }

    /// Frees the memory of the arena that no iteration since the call before the last needed.
    pub fn trim_slack(&self) -> Result {
        self.arena.borrow_mut().trim_to_recent()
    }

    /// Returns the bytes up to the last live block.
    pub fn live_scratch(&self) -> Bytes {
        Bytes(self.arena.borrow().live())
    }

    /// Returns the bytes that the arena has taken from the device.
    pub fn mapped_scratch(&self) -> Bytes {
        Bytes(self.arena.borrow().mapped())
    }

    /// Returns the largest extent of blocks since the call of [`Self::trim_slack`] before the last.
    pub fn recent_scratch(&self) -> Bytes {
        Bytes(self.arena.borrow().recent())
    }

    /// Returns the bytes that blocks can take within the aim, before a fallback is needed.
    pub fn available_bytes(&self) -> Bytes {
        let left = self.state.ledger.borrow().left();
        Bytes(left.0 + self.arena.borrow().idle())
    }

    /// Returns the bytes that blocks can take within the budget, whatever the aim; a granule is lost to rounding.
    pub fn obtainable_bytes(&self) -> Bytes {
        let left = self.budget().0.saturating_sub(self.total().0);
        Bytes((left + self.arena.borrow().idle()).saturating_sub(self.granule().0))
    }

    /// Sets a soft limit beyond which views are drawn in bands and blocks take no spare room, or removes it.
    pub fn set_aim(&self, aim: Option<Bytes>) -> Result {
        if aim.is_none() {
            self.make_room(Bytes(0))?;
        }
        self.state.ledger.borrow_mut().set_aim(aim);
        Ok(())
    }

    /// Trims the arena if `wanted` more bytes would exceed the aim.
    pub fn make_room(&self, wanted: Bytes) -> Result {
        let is_too_much = self.state.ledger.borrow().exceeds_aim(wanted);
        if is_too_much { self.trim_scratch() } else { Ok(()) }
    }

    /// Lowers the budget to what other programs leave. Allocations call this themselves.
    pub fn update_foreign_use(&self) -> Result {
        self.state.update_foreign_use(Bytes(0))
    }

    /// Returns the bytes held beyond the budget, which shrinks when other programs take memory.
    pub fn excess(&self) -> Bytes {
        Bytes(self.total().0.saturating_sub(self.budget().0))
    }

    /// Returns the ledger's entries.
    pub fn ledger(&self) -> Vec<Entry> {
        self.state.ledger.borrow().entries().to_vec()
    }

    /// Returns the bytes in use of the regions with this label.
    pub fn used_by(&self, label: &'static str) -> Bytes {
        let ledger = self.state.ledger.borrow();
        let of_label = |entry: &&Entry| entry.label == label && entry.kind == Kind::Region;
        ledger.entries().iter().filter(of_label).map(|entry| entry.used).sum()
    }

    /// Returns the bytes taken from the device, including context and code.
    pub fn total(&self) -> Bytes {
        self.state.ledger.borrow().total()
    }

    /// Returns the largest total so far.
    pub fn peak(&self) -> Bytes {
        self.state.ledger.borrow().peak()
    }

    /// Returns the largest total since the last call.
    pub fn take_phase_peak(&self) -> Bytes {
        self.state.ledger.borrow_mut().take_phase_peak()
    }

    /// Resets all peaks to the present total, except the one of [`Self::take_phase_peak`].
    pub fn reset_peak(&self) {
        self.state.ledger.borrow_mut().reset_peak();
    }

    /// Returns the bytes that may be taken.
    pub fn budget(&self) -> Bytes {
        self.state.ledger.borrow().budget()
    }

    /// Sets the budget, whatever other programs use. Held memory stays.
    pub fn set_budget(&self, budget: Bytes) {
        let capacity = self.state.memory.capacity();
        let allowance = Allowance::new(Some(Limit::Bytes(budget)), 1.0, capacity);
        self.state.allowance.set(allowance);
        self.state.ledger.borrow_mut().set_budget(budget.min(capacity), None);
    }

    /// Runs work and returns the log of the arena's blocks.
    pub(crate) fn logged(&self, work: impl FnOnce() -> Result) -> Result<Scratch> {
        *self.state.log.borrow_mut() = Some(ScratchLog::default());
        let done = work();
        let log = self.state.log.borrow_mut().take();
        done.map(|()| log.map_or_else(Scratch::default, ScratchLog::into_scratch))
    }

    /// Returns the scratch sizes of CUB's calls on this GPU.
    pub fn cub_scratch(&self) -> &Library {
        self.state.cub_scratch.get_or_init(Library::default)
    }

    /// Sets the scratch sizes of CUB's calls, once and before they are read.
    pub(crate) fn set_cub_scratch(&self, library: Library) {
        // A second call changes nothing: sizes that were read stay true.
        let _ = self.state.cub_scratch.set(library);
    }

    /// Returns the free memory of the GPU.
    pub fn driver_free(&self) -> Result<Bytes> {
        self.state.memory.free()
    }

    /// Returns the smallest unit of device memory.
    pub fn granule(&self) -> Bytes {
        self.granule_in(MemoryPlace::Device)
    }

    pub(crate) fn granule_in(&self, place: MemoryPlace) -> Bytes {
        Bytes(self.state.memory.granule(place))
    }

    /// True if regions of the device grow in place.
    pub fn is_virtual(&self) -> bool {
        self.is_virtual_in(MemoryPlace::Device)
    }

    pub(crate) fn is_virtual_in(&self, place: MemoryPlace) -> bool {
        self.state.memory.is_virtual(place)
    }

    /// Limits the host memory that may be page-locked.
    pub(crate) fn set_host_allowance(&self, allowance: HostAllowance) {
        let state = self.state.memory.host();
        let shared = state.map_or(allowance, |state| allowance.shared(state));
        self.state.host_allowance.set(shared);
    }

    /// Returns the bytes that regions of the host may still take.
    pub fn left_on_host(&self) -> Bytes {
        self.state.left_on_host()
    }

    /// Returns the page-locked bytes of the host.
    pub fn on_host(&self) -> Bytes {
        self.state.ledger.borrow().on_host()
    }

    /// Runs an allocation. If memory is short, retries after trimming, unless others took this program's share.
    fn with_trim_retry<R>(&self, mut take: impl FnMut() -> Result<R>) -> Result<R> {
        match take() {
            Err(error) if error.is_out_of_memory() && self.excess() == Bytes(0) => {
                self.trim_scratch()?;
                take()
            }
            other => other,
        }
    }

    /// Allocates page-locked memory for a slot, filled with zeros.
    pub fn pinned<T: Plain, C: Count>(
        &self,
        slot: &Slot<T, C>,
        sizes: &C::Sizes,
    ) -> Result<Pinned<T>> {
        Pinned::new(&self.state, slot.label, host_len(slot.len(sizes)))
    }

    /// Creates an empty region for a slot.
    pub fn region<T: Plain, C: Count>(&self, slot: &Slot<T, C>) -> Result<Region<T>> {
        self.region_in(MemoryPlace::Device, slot)
    }

    /// Creates an empty region for a slot in memory of this place.
    pub fn region_in<T: Plain, C: Count>(
        &self,
        place: MemoryPlace,
        slot: &Slot<T, C>,
    ) -> Result<Region<T>> {
        Region::new(self, slot.label, place)
    }

    /// Takes uninitialised scratch for a slot. Later blocks may reuse its memory, so all blocks belong on one stream.
    pub fn take<T: Plain, C: Count>(
        &self,
        slot: &Slot<T, C>,
        sizes: &C::Sizes,
    ) -> Result<Block<T>> {
        Block::new(self, slot.label, host_len(slot.len(sizes)))
    }
}

/// Page-locked memory of the host. Copies run asynchronously; access waits for the last copy.
pub struct Pinned<T> {
    state: Rc<HeapState>,
    label: &'static str,
    address: *mut T,
    len: usize,
    /// Event behind the last copy; `None` before the first.
    copied: RefCell<Option<CudaEvent>>,
    values: PhantomData<T>,
}

impl<T: Plain> Pinned<T> {
    fn new(state: &Rc<HeapState>, label: &'static str, len: usize) -> Result<Self> {
        let bytes = bytes_of::<T>(len);
        // The driver rejects an allocation of no bytes.
        let taken = usize::try_from(bytes.max(1)).unwrap_or(usize::MAX);
        let address = match state.memory.allocate_pinned(taken) {
            Ok(address) => address.cast::<T>(),
            Err(Fault::Failed(error)) => return Err(error),
            Err(Fault::Exhausted) => {
                let wanted = Bytes(taken as u64);
                return Err(DeviceError::OutOfHostMemory { label, wanted, demand: None });
            }
        };
        // SAFETY: the allocation holds `len` values and is aligned to pages.
        unsafe { address.write_bytes(0, len) };
        let mut ledger = state.ledger.borrow_mut();
        ledger.charge(label, Kind::Pinned, Bytes(bytes))?;
        ledger.set_used(label, Kind::Pinned, Bytes(0), Bytes(bytes));
        drop(ledger);
        Ok(Self {
            state: Rc::clone(state),
            label,
            address,
            len,
            copied: RefCell::new(None),
            values: PhantomData,
        })
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the values, after the last copy to or from them.
    pub fn as_slice(&self) -> Result<&[T]> {
        self.wait()?;
        // SAFETY: no copy runs; one that writes needs `&mut self`, which outlives this borrow.
        Ok(unsafe { std::slice::from_raw_parts(self.address, self.len) })
    }

    /// Returns the values for writing, after the last copy to or from them.
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        self.wait()?;
        // SAFETY: no copy runs, and the next one needs a borrow that this one excludes.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.address, self.len) })
    }

    /// True if access to the values would not wait.
    pub fn is_ready(&self) -> Result<bool> {
        self.copied.borrow().as_ref().map_or(Ok(true), CudaEvent::is_reached)
    }

    fn wait(&self) -> Result {
        self.copied.borrow().as_ref().map_or(Ok(()), CudaEvent::synchronize)
    }

    fn part(&self, range: &Range<usize>) -> Result<*mut c_void> {
        check_range("copy", self.label, self.len, range)?;
        // SAFETY: the range lies within the allocation, as checked above.
        Ok(unsafe { self.address.add(range.start) }.cast())
    }

    /// Records a copy on this stream. An earlier copy on another stream must be finished.
    fn busy_until_now(&self, stream: &Stream) -> Result {
        let mut copied = self.copied.borrow_mut();
        if copied.is_none() {
            *copied = Some(stream.event()?);
        }
        copied.as_ref().map_or(Ok(()), |event| event.record(stream))
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.copied.borrow().as_ref().map(CudaEvent::synchronize) {
            tracing::debug!("{error}");
        }
        self.state.memory.free_pinned(self.address.cast());
        let bytes = Bytes(bytes_of::<T>(self.len));
        let mut ledger = self.state.ledger.borrow_mut();
        ledger.set_used(self.label, Kind::Pinned, bytes, Bytes(0));
        ledger.release(self.label, Kind::Pinned, bytes);
    }
}

/// Memory that lives as long as the model and can grow. With virtual memory the values never move.
pub struct Region<T> {
    heap: Heap,
    label: &'static str,
    place: MemoryPlace,
    span: Span,
    len: usize,
    values: PhantomData<T>,
}

impl<T: Plain> Region<T> {
    fn new(heap: &Heap, label: &'static str, place: MemoryPlace) -> Result<Self> {
        let kind = match place {
            MemoryPlace::Device => Kind::Region,
            MemoryPlace::Host => Kind::Pinned,
        };
        let span = Span::new(&heap.state, label, kind)?;
        Ok(Self { heap: heap.clone(), label, place, span, len: 0, values: PhantomData })
    }

    /// Copies the values to a new region of this place. Freeing either region waits for the copy.
    pub(crate) fn copied_to(&self, stream: &Stream, place: MemoryPlace) -> Result<Self> {
        let mut copy = Self::new(&self.heap, self.label, place)?;
        copy.grow(self.len)?;
        copy.copy_from(stream, 0, self, 0..self.len)?;
        Ok(copy)
    }

    /// Grows to at least `len` values. Keeps the old values; new values are undefined.
    pub fn grow(&mut self, len: usize) -> Result {
        if len > self.len {
            let (heap, span) = (&self.heap, &mut self.span);
            heap.with_trim_retry(|| span.grow(bytes_of::<T>(len)))?;
            self.set_len(len);
        }
        Ok(())
    }

    /// Grows to at least `len` values; new values are zero.
    pub fn grow_zeroed(&mut self, stream: &Stream, len: usize) -> Result {
        let before = self.len;
        self.grow(len)?;
        if before < len { self.zero_range(stream, before..len) } else { Ok(()) }
    }

    /// Shrinks to at most `len` values. The memory stays for the next growth.
    pub fn shrink(&mut self, len: usize) {
        if len < self.len {
            self.set_len(len);
        }
    }

    /// Frees the whole blocks of memory after the values.
    pub fn trim(&mut self) -> Result {
        self.span.trim(bytes_of::<T>(self.len))
    }

    /// Returns the bytes taken from the device.
    pub fn mapped(&self) -> Bytes {
        self.mapped_in(MemoryPlace::Device)
    }

    /// Returns the bytes taken from this place.
    pub fn mapped_in(&self, place: MemoryPlace) -> Bytes {
        if place == self.place { Bytes(self.span.mapped()) } else { Bytes(0) }
    }

    /// Returns the number of values that fit the memory taken.
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

/// A range of the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRange {
    /// Start address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: usize,
}

/// A contiguous array of values on the device.
///
/// # Safety
/// [`Self::len`] values start at [`Self::address`], and nobody else writes them until the device has finished the
/// work that was queued before the buffer was dropped.
pub unsafe trait Buffer {
    /// Type of the values.
    type Item: Plain;

    /// Returns the address of the first value.
    fn address(&self) -> u64;

    /// Returns the number of values.
    fn len(&self) -> usize;

    /// Returns the name in the ledger.
    fn label(&self) -> &'static str;

    /// True if there are no values.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many bytes from this address one driver call may copy: host memory ends with its block.
    fn bytes_at_once(&self, _address: u64) -> u64 {
        u64::MAX
    }

    /// Returns a pointer for a kernel that reads.
    fn read(&self) -> In<'_, Self::Item> {
        In::at(self.address())
    }

    /// Returns a pointer for a kernel that writes.
    fn write(&mut self) -> Out<'_, Self::Item> {
        Out::at(self.address())
    }

    /// Copies from the host and waits.
    fn upload(&mut self, stream: &Stream, first: usize, values: &[Self::Item]) -> Result {
        let DeviceRange { address, bytes } =
            self.place("upload", &(first..first.saturating_add(values.len())))?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range is the buffer's, and `values` outlives the copy awaited below.
        unsafe { stream.queue().upload(address, values.as_ptr().cast(), bytes) }?;
        stream.synchronize()
    }

    /// Copies to the host and waits.
    fn download(&self, stream: &Stream, first: usize, values: &mut [Self::Item]) -> Result {
        let range = first..first.saturating_add(values.len());
        let DeviceRange { address, bytes } = self.place("download", &range)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range is the buffer's, any bits are a value, and `values` outlives the copy awaited below.
        unsafe {
            stream.queue().download(values.as_mut_ptr().cast(), self.label(), address, bytes)
        }?;
        stream.synchronize()
    }

    /// Copies a range to a new vector and waits.
    fn download_vec(&self, stream: &Stream, range: Range<usize>) -> Result<Vec<Self::Item>>
    where
        Self::Item: Default,
    {
        let mut host = vec![Self::Item::default(); range.len()];
        self.download(stream, range.start, &mut host)?;
        Ok(host)
    }

    /// Copies `range` of page-locked values without waiting.
    fn upload_pinned(
        &mut self,
        stream: &Stream,
        first: usize,
        values: &Pinned<Self::Item>,
        range: Range<usize>,
    ) -> Result {
        let DeviceRange { address, bytes } =
            self.place("upload", &(first..first.saturating_add(range.len())))?;
        let source = values.part(&range)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both ranges hold `bytes` bytes, and `values` is not touched until the event that follows.
        unsafe { stream.queue().upload(address, source, bytes) }?;
        values.busy_until_now(stream)
    }

    /// Copies `range` to the beginning of page-locked values without waiting.
    fn download_pinned(
        &self,
        stream: &Stream,
        range: Range<usize>,
        values: &mut Pinned<Self::Item>,
    ) -> Result {
        let DeviceRange { address, bytes } = self.place("download", &range)?;
        let target = values.part(&(0..range.len()))?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both ranges hold `bytes` bytes, any bits are a value, and `values` is not touched until the
        // event that follows.
        unsafe { stream.queue().download(target, self.label(), address, bytes) }?;
        values.busy_until_now(stream)
    }

    /// Copies from another buffer.
    fn copy_from<B: Buffer<Item = Self::Item>>(
        &mut self,
        stream: &Stream,
        first: usize,
        source: &B,
        range: Range<usize>,
    ) -> Result {
        let DeviceRange { address: to, bytes } =
            self.place("copy", &(first..first.saturating_add(range.len())))?;
        let from = source.place("copy", &range)?.address;
        let at_once = |done| self.bytes_at_once(to + done).min(source.bytes_at_once(from + done));
        parts(bytes, at_once).try_for_each(|(done, bytes)| {
            // SAFETY: the ranges belong to two buffers, since one is borrowed mutably.
            unsafe { stream.queue().copy(to + done, from + done, bytes) }
        })
    }

    /// Sets all bits to zero.
    fn zero(&mut self, stream: &Stream) -> Result {
        self.fill_bytes(stream, 0..self.len(), 0)
    }

    /// Sets the bits of these values to zero.
    fn zero_range(&mut self, stream: &Stream, range: Range<usize>) -> Result {
        self.fill_bytes(stream, range, 0)
    }

    /// Sets all bits to one.
    fn fill_ones(&mut self, stream: &Stream) -> Result {
        self.fill_bytes(stream, 0..self.len(), 0xff)
    }

    /// Fills the bytes of these values with one byte.
    fn fill_bytes(&mut self, stream: &Stream, range: Range<usize>, byte: u8) -> Result {
        let DeviceRange { address, bytes } = self.place("fill", &range)?;
        parts(bytes, |done| self.bytes_at_once(address + done)).try_for_each(|(done, bytes)| {
            // SAFETY: the range is the buffer's, and any bits are a value.
            unsafe { stream.queue().fill(address + done, byte, bytes) }
        })
    }

    /// Fills the buffer with one 32-bit word.
    fn fill_words(&mut self, stream: &Stream, word: u32) -> Result {
        let DeviceRange { address, bytes } = self.place("fill", &(0..self.len()))?;
        parts(bytes, |done| self.bytes_at_once(address + done)).try_for_each(|(done, bytes)| {
            // SAFETY: the range is the buffer's, and any bits are a value.
            unsafe { stream.queue().fill_words(address + done, word, bytes / size_of::<u32>()) }
        })
    }

    /// Returns the memory of a range, which must lie within the buffer.
    fn place(&self, call: &'static str, range: &Range<usize>) -> Result<DeviceRange> {
        check_range(call, self.label(), self.len(), range)?;
        let size = size_of::<Self::Item>();
        let address = self.address() + (range.start * size) as u64;
        Ok(DeviceRange { address, bytes: range.len() * size })
    }
}

/// Fails if a range does not lie within the `len` values of a buffer.
fn check_range(call: &'static str, label: &str, len: usize, range: &Range<usize>) -> Result {
    if range.start <= range.end && range.end <= len {
        return Ok(());
    }
    let reason = format!("`{label}` holds {len} values, but {range:?} were requested");
    Err(DeviceError::Driver { call, reason })
}

/// Splits a range into parts for single driver calls: offset and length of each.
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

/// Scratch that goes back to the arena when it is dropped.
pub struct Block<T> {
    heap: Heap,
    label: &'static str,
    id: u64,
    address: u64,
    len: usize,
    values: PhantomData<T>,
}

impl Source for Heap {
    type Block<T: Plain> = Block<T>;
    type Error = DeviceError;

    fn cub_scratch(&self) -> &Library {
        Self::cub_scratch(self)
    }

    fn take<T: Plain, C: Count>(&self, slot: &Slot<T, C>, sizes: &C::Sizes) -> Result<Block<T>> {
        Self::take(self, slot, sizes)
    }
}

impl<T: Plain> Taken for Block<T> {
    fn bytes(&self) -> u64 {
        Self::bytes(self).0
    }
}

impl<T: Plain> Block<T> {
    fn new(heap: &Heap, label: &'static str, len: usize) -> Result<Self> {
        let bytes = bytes_of::<T>(len);
        let place = heap.with_trim_retry(|| heap.arena.borrow_mut().take(bytes));
        // The arena knows its own label only, but the refusal concerns this block.
        let place = place.map_err(|error| named(error, label))?;
        let mut ledger = heap.state.ledger.borrow_mut();
        ledger.set_used(label, Kind::Scratch, Bytes(0), Bytes(bytes));
        drop(ledger);
        if let Some(log) = heap.state.log.borrow_mut().as_mut() {
            log.take(place.id, label, place.start, bytes);
        }
        let heap = heap.clone();
        Ok(Self { heap, label, id: place.id, address: place.address, len, values: PhantomData })
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> Bytes {
        Bytes(bytes_of::<T>(self.len))
    }

    /// Splits the block into pieces of other types. Its contents are lost.
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

// SAFETY: live blocks do not overlap, and the arena waits for the device before it frees memory. A later block in
// the same place is used later on the same stream.
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
        let mut ledger = self.heap.state.ledger.borrow_mut();
        ledger.set_used(self.label, Kind::Scratch, bytes, Bytes(0));
        if let Some(log) = self.heap.state.log.borrow_mut().as_mut() {
            log.give_back(self.id);
        }
    }
}

/// The rest of a block that is being split.
pub struct Carve<'a> {
    label: &'static str,
    next: u64,
    end: u64,
    block: PhantomData<&'a mut ()>,
}

impl<'a> Carve<'a> {
    /// Takes the next piece.
    pub fn take<T: Plain>(&mut self, len: usize) -> Result<Piece<'a, T>> {
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

/// A part of a block with values of another type.
pub struct Piece<'a, T> {
    label: &'static str,
    address: u64,
    len: usize,
    values: PhantomData<&'a mut T>,
}

// SAFETY: `Carve` hands out each byte of its block once, and the piece borrows the block.
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
