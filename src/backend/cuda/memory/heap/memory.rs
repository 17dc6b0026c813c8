//! Driver calls that allocate and free memory. Only this file makes them.

#![expect(clippy::disallowed_methods, reason = "other files allocate through the heap")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::rc::Rc;

use cudarc::driver::{DriverError, result, sys};

use crate::backend::cuda::device::driver::{CudaDevice, failed};
use crate::backend::{DeviceError, Result};
use crate::layout::{
    Library, MemoryPlace, Placement, SCRATCH, ScratchLog, Spot, block_beside, spare,
};
use crate::memory::{
    Allowance, Bytes, HostAllowance, HostDemand, HostState, Kind, Ledger, host_state,
};

/// Unit of physical memory, if the driver reports no other.
const GRANULE: u64 = 2 << 20;

#[derive(Debug)]
pub(super) enum Fault {
    /// The device or the host has no memory left.
    Exhausted,
    Failed(DeviceError),
}

impl From<DeviceError> for Fault {
    fn from(error: DeviceError) -> Self {
        Self::Failed(error)
    }
}

/// Memory operations of a device. Sizes are multiples of the granule of their place. With virtual memory, blocks are
/// mapped into reserved address space. Without, `allocate` does both.
pub(super) trait MemoryDriver {
    /// Returns the smallest unit of memory.
    fn granule(&self, place: MemoryPlace) -> u64;
    /// True if memory of this place can be mapped into reserved address space.
    fn is_virtual(&self, place: MemoryPlace) -> bool;
    fn capacity(&self) -> Bytes;
    fn free(&self) -> Result<Bytes>;
    /// Returns the state of the host's memory; `None` if the system does not report it.
    fn host(&self) -> Option<HostState>;
    /// Waits until no queued work uses memory.
    fn wait(&self) -> Result;

    fn reserve(&self, bytes: u64) -> Result<u64, Fault>;
    /// Frees address space without mappings.
    fn unreserve(&self, address: u64, bytes: u64) -> Result;
    fn create(&self, place: MemoryPlace, bytes: u64) -> Result<u64, Fault>;
    /// Releases a block. Its memory is freed once the block is unmapped.
    fn release(&self, handle: u64) -> Result;
    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), Fault>;
    fn unmap(&self, address: u64, bytes: u64) -> Result;
    /// Makes mapped memory of this place accessible to kernels, and host memory to the processor.
    fn allow(&self, place: MemoryPlace, address: u64, bytes: u64) -> Result;

    fn allocate(&self, place: MemoryPlace, bytes: u64) -> Result<u64, Fault>;
    fn deallocate(&self, place: MemoryPlace, address: u64) -> Result;
    /// Copies between addresses of kernels, and waits.
    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result;

    /// Allocates page-locked memory of the host, at least one byte, for the contexts of all threads.
    fn allocate_pinned(&self, bytes: usize) -> Result<*mut c_void, Fault>;
    fn free_pinned(&self, address: *mut c_void);
}

/// The memory of a GPU, and the host's memory that is mapped for it.
pub(super) struct GpuMemory {
    device: Rc<CudaDevice>,
    granule: u64,
    is_virtual: bool,
    /// Host memory that can be mapped; `None` inside if none can, unset before the first try.
    host: OnceCell<Option<HostNode>>,
}

#[derive(Clone, Copy)]
struct HostNode {
    /// Its NUMA node.
    number: i32,
    granule: u64,
}

impl GpuMemory {
    pub(super) fn new(device: &Rc<CudaDevice>, is_virtual: bool) -> Result<Self> {
        let mut memory =
            Self { device: Rc::clone(device), granule: GRANULE, is_virtual, host: OnceCell::new() };
        if is_virtual {
            memory.granule = granularity(memory.location())?;
        }
        Ok(memory)
    }

    fn location(&self) -> sys::CUmemLocation {
        sys::CUmemLocation {
            type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: self.device.id(),
        }
    }

    /// Returns the nearest host memory if a granule of it can be mapped. A container may not allow it.
    fn host_node(&self) -> Option<HostNode> {
        *self.host.get_or_init(|| {
            let number = self.device.host_node().filter(|_| self.is_virtual)?;
            let tried = self.try_node(number);
            tried.inspect_err(|fault| tracing::debug!("memory of the host: {fault:?}")).ok()
        })
    }

    fn node_of(&self, place: MemoryPlace) -> Option<HostNode> {
        match place {
            MemoryPlace::Device => None,
            MemoryPlace::Host => self.host_node(),
        }
    }

    fn try_node(&self, number: i32) -> Result<HostNode, Fault> {
        let location = on_node(number);
        // Address space comes in granules of the device.
        let granule = granularity(location)?.max(self.granule);
        let handle = create_block(location, granule)?;
        let mapped = self.reserve(granule).and_then(|address| {
            let mapped = self.map(address, granule, handle).and_then(|()| {
                let allowed = allow(&[self.location(), location], address, granule);
                self.unmap(address, granule)?;
                Ok(allowed?)
            });
            self.unreserve(address, granule)?;
            mapped
        });
        self.release(handle)?;
        mapped.map(|()| HostNode { number, granule })
    }
}

fn on_node(number: i32) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, id: number }
}

fn properties(location: sys::CUmemLocation) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location,
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

fn granularity(location: sys::CUmemLocation) -> Result<u64> {
    let properties = properties(location);
    let minimum = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    let mut granule = 0;
    // SAFETY: the call reads the properties and writes one size.
    unsafe { sys::cuMemGetAllocationGranularity(&raw mut granule, &raw const properties, minimum) }
        .result()
        .map_err(failed("cuMemGetAllocationGranularity"))?;
    Ok((granule as u64).max(1))
}

fn create_block(location: sys::CUmemLocation, bytes: u64) -> Result<u64, Fault> {
    let properties = properties(location);
    let mut handle = 0;
    // SAFETY: the call reads the properties and writes one handle.
    unsafe { sys::cuMemCreate(&raw mut handle, size(bytes), &raw const properties, 0) }
        .result()
        .map_err(fault("cuMemCreate"))?;
    Ok(handle)
}

/// Lets these locations access a mapped range. The processor needs it for small copies.
fn allow(to: &[sys::CUmemLocation], address: u64, bytes: u64) -> Result {
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let access: Vec<_> =
        to.iter().map(|&location| sys::CUmemAccessDesc { location, flags }).collect();
    // SAFETY: the range is mapped, and the call reads as many descriptions as there are.
    unsafe { sys::cuMemSetAccess(address, size(bytes), access.as_ptr(), access.len()) }
        .result()
        .map_err(failed("cuMemSetAccess"))
}

/// Allocates page-locked memory of the host that kernels reach at the host's own address.
fn allocate_mapped(bytes: u64) -> Result<u64, Fault> {
    let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
    // SAFETY: the context is current; the span frees what it gets.
    let host =
        unsafe { result::malloc_host(size(bytes), flags) }.map_err(fault("cuMemHostAlloc"))?;
    let mut address = 0;
    // SAFETY: the allocation above is mapped, and the call writes one address.
    let requested =
        unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut address, host, 0) }.result();
    let is_same = requested.is_ok() && address == host.expose_provenance() as u64;
    if is_same {
        return Ok(address);
    }
    // SAFETY: the allocation above is freed once, and nobody knows of it.
    let freed = unsafe { result::free_host(host) };
    freed.map_err(fault("cuMemFreeHost"))?;
    requested.map_err(fault("cuMemHostGetDevicePointer"))?;
    Err(Fault::Failed(DeviceError::Unavailable(
        "--offload: this GPU has other addresses for the host's memory than the host. Leave --offload out"
            .to_owned(),
    )))
}

fn fault(call: &'static str) -> impl Fn(DriverError) -> Fault {
    move |error| match error.0 {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Fault::Exhausted,
        _ => Fault::Failed(failed(call)(error)),
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl MemoryDriver for GpuMemory {
    fn granule(&self, place: MemoryPlace) -> u64 {
        match place {
            MemoryPlace::Device => self.granule,
            MemoryPlace::Host => self.node_of(place).map_or(GRANULE, |node| node.granule),
        }
    }

    fn is_virtual(&self, place: MemoryPlace) -> bool {
        match place {
            MemoryPlace::Device => self.is_virtual,
            MemoryPlace::Host => self.node_of(place).is_some(),
        }
    }

    fn capacity(&self) -> Bytes {
        self.device.memory()
    }

    fn free(&self) -> Result<Bytes> {
        self.device.free()
    }

    fn host(&self) -> Option<HostState> {
        host_state()
    }

    fn wait(&self) -> Result {
        self.device.synchronize()
    }

    fn reserve(&self, bytes: u64) -> Result<u64, Fault> {
        let mut address = 0;
        // SAFETY: the call writes one address; 0 lets the driver choose alignment and place.
        unsafe { sys::cuMemAddressReserve(&raw mut address, size(bytes), 0, 0, 0) }
            .result()
            .map_err(fault("cuMemAddressReserve"))?;
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result {
        // SAFETY: who reserved it gives it back once, with nothing mapped.
        unsafe { sys::cuMemAddressFree(address, size(bytes)) }
            .result()
            .map_err(failed("cuMemAddressFree"))
    }

    fn create(&self, place: MemoryPlace, bytes: u64) -> Result<u64, Fault> {
        let node = self.node_of(place);
        create_block(node.map_or(self.location(), |node| on_node(node.number)), bytes)
    }

    fn release(&self, handle: u64) -> Result {
        // SAFETY: who created the block releases it once.
        unsafe { sys::cuMemRelease(handle) }.result().map_err(failed("cuMemRelease"))
    }

    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), Fault> {
        // SAFETY: the range lies in the caller's own reservation, behind all that is mapped there.
        unsafe { sys::cuMemMap(address, size(bytes), 0, handle, 0) }
            .result()
            .map_err(fault("cuMemMap"))
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result {
        // SAFETY: the caller waited for the device where it used the range, and no borrow of it is left.
        unsafe { sys::cuMemUnmap(address, size(bytes)) }.result().map_err(failed("cuMemUnmap"))
    }

    fn allow(&self, place: MemoryPlace, address: u64, bytes: u64) -> Result {
        match self.node_of(place) {
            None => allow(&[self.location()], address, bytes),
            Some(node) => allow(&[self.location(), on_node(node.number)], address, bytes),
        }
    }

    fn allocate(&self, place: MemoryPlace, bytes: u64) -> Result<u64, Fault> {
        match place {
            MemoryPlace::Device => {
                // SAFETY: the context is current; the span frees what it gets.
                unsafe { result::malloc_sync(size(bytes)) }.map_err(fault("cuMemAlloc"))
            }
            MemoryPlace::Host => allocate_mapped(bytes),
        }
    }

    fn deallocate(&self, place: MemoryPlace, address: u64) -> Result {
        match place {
            MemoryPlace::Device => {
                // SAFETY: the span frees its allocation once, after waiting for the device.
                unsafe { result::free_sync(address) }.map_err(failed("cuMemFree"))
            }
            MemoryPlace::Host => {
                let host = std::ptr::with_exposed_provenance_mut(size(address));
                // SAFETY: `allocate_mapped` gave the host's own address, which the span frees once, after
                // waiting for the device.
                unsafe { result::free_host(host) }.map_err(failed("cuMemFreeHost"))
            }
        }
    }

    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result {
        // The copy runs on the default stream, which the others do not wait for.
        self.wait()?;
        // SAFETY: both allocations hold as many bytes.
        unsafe { sys::cuMemcpy(to, from, size(bytes)) }.result().map_err(failed("cuMemcpy"))?;
        self.wait()
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<*mut c_void, Fault> {
        // SAFETY: the context is current; `Pinned` frees what it gets.
        unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) }
            .map_err(fault("cuMemHostAlloc"))
    }

    fn free_pinned(&self, address: *mut c_void) {
        // SAFETY: `Pinned` frees its allocation once, after waiting for transfers.
        if let Err(error) = unsafe { result::free_host(address) } {
            tracing::debug!("cuMemFreeHost: {error}");
        }
    }
}

/// Device memory of a dry run: more than any GPU has, but small enough for a hundred reservations.
const CAPACITY: u64 = 1 << 52;

const PAGE: usize = 4096;

/// Memory of a dry run: only addresses, and real page-locked memory.
#[derive(Default)]
pub(super) struct DryMemory {
    /// Number of bytes of addresses given out.
    taken: Cell<u64>,
    /// Layouts of page-locked memory by address.
    pinned: RefCell<BTreeMap<usize, Layout>>,
}

impl DryMemory {
    /// Returns the next addresses, never 0.
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

    fn free(&self) -> Result<Bytes> {
        Ok(Bytes(CAPACITY))
    }

    fn host(&self) -> Option<HostState> {
        None
    }

    fn wait(&self) -> Result {
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> Result<u64, Fault> {
        Ok(self.next(bytes))
    }

    fn unreserve(&self, _address: u64, _bytes: u64) -> Result {
        Ok(())
    }

    fn create(&self, _place: MemoryPlace, _bytes: u64) -> Result<u64, Fault> {
        Ok(0)
    }

    fn release(&self, _handle: u64) -> Result {
        Ok(())
    }

    fn map(&self, _address: u64, _bytes: u64, _handle: u64) -> Result<(), Fault> {
        Ok(())
    }

    fn unmap(&self, _address: u64, _bytes: u64) -> Result {
        Ok(())
    }

    fn allow(&self, _place: MemoryPlace, _address: u64, _bytes: u64) -> Result {
        Ok(())
    }

    fn allocate(&self, _place: MemoryPlace, bytes: u64) -> Result<u64, Fault> {
        Ok(self.next(bytes))
    }

    fn deallocate(&self, _place: MemoryPlace, _address: u64) -> Result {
        Ok(())
    }

    fn copy(&self, _to: u64, _from: u64, _bytes: u64) -> Result {
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

pub(super) struct BlockPlace {
    pub(super) id: u64,
    pub(super) address: u64,
    /// Offset in bytes from the beginning of the span.
    pub(super) start: u64,
}

/// The scratch of an iteration: one span that grows in place, or without virtual memory several spans.
pub(super) struct Arena {
    state: Rc<HeapState>,
    spans: Vec<Span>,
    /// Positions of the live blocks.
    placement: Placement,
    /// Largest extent of blocks since the last trim, and between the two trims before.
    reached: [u64; 2],
}

impl Arena {
    pub(super) fn new(state: &Rc<HeapState>) -> Self {
        Self {
            state: Rc::clone(state),
            spans: Vec::new(),
            placement: Placement::default(),
            reached: [0; 2],
        }
    }

    fn is_virtual(&self) -> bool {
        self.state.memory.is_virtual(MemoryPlace::Device)
    }

    /// Places a block after all live blocks.
    pub(super) fn take(&mut self, bytes: u64) -> Result<BlockPlace> {
        let spot =
            if self.is_virtual() { self.place_in_place(bytes)? } else { self.place_beside(bytes)? };
        let Spot { span, start } = spot;
        let id = self.placement.take(spot, bytes);
        let before: u64 = self.spans[..span].iter().map(Span::mapped).sum();
        self.reached[0] = self.reached[0].max(before + start + bytes);
        Ok(BlockPlace { id, address: self.spans[span].address() + start, start })
    }

    pub(super) fn give_back(&mut self, id: u64) {
        self.placement.give_back(id);
    }

    /// Frees the memory after all live blocks.
    pub(super) fn trim(&mut self) -> Result {
        let top = self.placement.top();
        if self.placement.is_empty() && !self.is_virtual() {
            self.spans.clear();
            return Ok(());
        }
        self.spans.truncate(top.span + 1);
        // Without virtual memory, a range could only be cut by moving its live blocks.
        if self.is_virtual()
            && let Some(span) = self.spans.get_mut(top.span)
        {
            span.trim(top.start)?;
        }
        Ok(())
    }

    /// Frees what was not used since the call before the last; nothing without virtual memory.
    pub(super) fn trim_to_recent(&mut self) -> Result {
        let top = self.placement.top().start;
        let keep = self.recent().max(top);
        self.reached = [top, self.reached[0]];
        let is_virtual = self.is_virtual();
        match self.spans.first_mut() {
            Some(span) if is_virtual => span.trim(keep),
            _ => Ok(()),
        }
    }

    /// Returns the largest extent of blocks since the call of [`Self::trim_to_recent`] before the last.
    pub(super) fn recent(&self) -> u64 {
        self.reached[0].max(self.reached[1])
    }

    pub(super) fn mapped(&self) -> u64 {
        self.spans.iter().map(Span::mapped).sum()
    }

    /// Returns the bytes up to the end of the last live block.
    pub(super) fn live(&self) -> u64 {
        self.mapped() - self.idle()
    }

    /// Returns the bytes after all live blocks.
    pub(super) fn idle(&self) -> u64 {
        let top = self.placement.top();
        let after = self.spans.iter().skip(top.span).map(Span::mapped).sum::<u64>();
        after.saturating_sub(top.start)
    }

    fn place_in_place(&mut self, bytes: u64) -> Result<Spot> {
        let spot = self.placement.top();
        if self.spans.is_empty() {
            self.spans.push(Span::new(&self.state, SCRATCH.label, Kind::Scratch)?);
        }
        let span = &mut self.spans[0];
        let end = spot.start.saturating_add(bytes);
        if end > span.mapped() {
            let spare = spare(span.mapped());
            let is_too_much = self.state.ledger.borrow().exceeds_aim(Bytes(spare));
            if spare == 0 || is_too_much || span.grow(end.max(span.mapped() + spare)).is_err() {
                span.grow(end)?;
            }
        }
        Ok(spot)
    }

    fn place_beside(&mut self, bytes: u64) -> Result<Spot> {
        if let Some(spot) = self.placement.room_in(self.spans.iter().map(Span::mapped), bytes) {
            return Ok(spot);
        }
        let mut wanted = bytes;
        if self.placement.is_empty() {
            // One span for all parts, so that the next blocks fit in one piece.
            let together = self.spans.iter().map(Span::mapped).sum();
            self.spans.clear();
            wanted = wanted.max(together);
        }
        let mut span = Span::new(&self.state, SCRATCH.label, Kind::Scratch)?;
        if wanted == bytes || span.grow(wanted).is_err() {
            span.grow(bytes)?;
        }
        self.spans.push(span);
        Ok(Spot { span: self.spans.len() - 1, start: 0 })
    }
}

pub(super) struct HeapState {
    pub(super) memory: Box<dyn MemoryDriver>,
    pub(super) ledger: RefCell<Ledger>,
    pub(super) allowance: Cell<Allowance>,
    pub(super) host_allowance: Cell<HostAllowance>,
    pub(super) cub_scratch: OnceCell<Library>,
    /// Log of the arena's blocks during [`super::Heap::logged`].
    pub(super) log: RefCell<Option<ScratchLog>>,
}

impl HeapState {
    /// Lowers the budget to what other programs leave. `own` bytes of the use are this program's but not in the ledger.
    pub(super) fn update_foreign_use(&self, own: Bytes) -> Result {
        let used = self.memory.capacity().0.saturating_sub(self.memory.free()?.0);
        let mut ledger = self.ledger.borrow_mut();
        let foreign = used.saturating_sub(ledger.total().0 + own.0);
        let allowance = self.allowance.get();
        ledger.set_budget(allowance.beside(Bytes(foreign)), allowance.sharing(Bytes(foreign)));
        Ok(())
    }

    /// Fails if the present budget does not allow `wanted` bytes more.
    fn check(
        &self,
        place: MemoryPlace,
        label: &'static str,
        wanted: Bytes,
        demand: HostDemand,
    ) -> Result {
        match place {
            MemoryPlace::Device => {
                self.update_foreign_use(Bytes(0))?;
                Ok(self.ledger.borrow().check(label, wanted)?)
            }
            MemoryPlace::Host => {
                let Some(state) = self.memory.host() else { return Ok(()) };
                let held = self.ledger.borrow().on_host();
                Ok(self.host_allowance.get().check(state, held, label, wanted, demand)?)
            }
        }
    }

    /// Returns the bytes of the host that may still be page-locked.
    pub(super) fn left_on_host(&self) -> Bytes {
        let held = self.ledger.borrow().on_host();
        let left = |state| self.host_allowance.get().left(state, held);
        self.memory.host().map_or(Bytes(u64::MAX), left)
    }

    /// Returns the largest possible size of a span in this place.
    fn reach(&self, place: MemoryPlace) -> u64 {
        let all = match place {
            MemoryPlace::Device => self.memory.capacity(),
            // More than hosts have, if the system does not report the size.
            MemoryPlace::Host => self.memory.host().map_or(Bytes(UNKNOWN_HOST_BYTES), |state| {
                self.host_allowance.get().most(state.total)
            }),
        };
        self.whole_granules(place, all.0.max(1))
    }

    pub(super) fn whole_granules(&self, place: MemoryPlace, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.memory.granule(place)).unwrap_or(u64::MAX)
    }
}

/// Address space for the memory of a host whose size is unknown.
const UNKNOWN_HOST_BYTES: u64 = 1 << 40;

/// Reciprocal of the share of a host range that must become free to copy it to a smaller one.
const MIN_FREED_SHARE: u64 = 8;

/// A block of memory, mapped right behind the block before it.
struct Mapped {
    handle: u64,
    bytes: u64,
}

/// A range of addresses with memory at its beginning. Without virtual memory, growing copies to a larger range.
pub(super) struct Span {
    state: Rc<HeapState>,
    label: &'static str,
    kind: Kind,
    address: u64,
    /// Reserved address space; 0 without virtual memory.
    reserved: u64,
    blocks: Vec<Mapped>,
    mapped: u64,
    used: u64,
}

impl Span {
    pub(super) fn new(state: &Rc<HeapState>, label: &'static str, kind: Kind) -> Result<Self> {
        let mut span = Self {
            state: Rc::clone(state),
            label,
            kind,
            address: 0,
            reserved: 0,
            blocks: Vec::new(),
            mapped: 0,
            used: 0,
        };
        if state.memory.is_virtual(kind.place()) {
            let reach = state.reach(kind.place());
            span.address = state.memory.reserve(reach).map_err(|fault| span.error(fault, reach))?;
            span.reserved = reach;
        }
        Ok(span)
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    pub(super) fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Returns the bytes from a mapped address to the end of its block.
    pub(super) fn left_of_block(&self, address: u64) -> u64 {
        let at = address - self.address;
        let ends = self.blocks.iter().scan(0, |end, block| {
            *end += block.bytes;
            Some(*end)
        });
        let end = ends.into_iter().find(|&end| end > at);
        // Without virtual memory there are no blocks.
        end.map_or(u64::MAX, |end| end - at)
    }

    /// Sets how many bytes are in use.
    pub(super) fn set_used(&mut self, used: u64) {
        let mut ledger = self.state.ledger.borrow_mut();
        ledger.set_used(self.label, self.kind, Bytes(self.used), Bytes(used));
        self.used = used;
    }

    /// Maps memory for at least the first `bytes`. Keeps the contents; new memory is uninitialised.
    pub(super) fn grow(&mut self, bytes: u64) -> Result {
        if bytes <= self.mapped {
            return Ok(());
        }
        let target = self.whole_granules(bytes);
        if self.is_virtual() { self.map_more(target) } else { self.replace(target) }
    }

    /// Frees the whole blocks after the first `bytes`.
    pub(super) fn trim(&mut self, bytes: u64) -> Result {
        if !self.is_virtual() {
            return self.trim_plain(bytes);
        }
        if self.blocks.last().is_none_or(|last| self.mapped - last.bytes < bytes) {
            return Ok(());
        }
        self.state.memory.wait()?;
        while let Some(last) = self.blocks.pop_if(|last| self.mapped - last.bytes >= bytes) {
            self.mapped -= last.bytes;
            self.state.memory.unmap(self.address + self.mapped, last.bytes)?;
            self.state.memory.release(last.handle)?;
            self.release_bytes(last.bytes);
        }
        Ok(())
    }

    /// True if the range grows in place.
    fn is_virtual(&self) -> bool {
        self.state.memory.is_virtual(self.kind.place())
    }

    fn whole_granules(&self, bytes: u64) -> u64 {
        self.state.whole_granules(self.kind.place(), bytes)
    }

    fn check(&self, bytes: u64) -> Result {
        self.state.check(self.kind.place(), self.label, Bytes(bytes), self.demand())
    }

    fn demand(&self) -> HostDemand {
        if self.mapped == 0 { HostDemand::Model } else { HostDemand::Growth }
    }

    fn charge(&self, bytes: u64) -> Result {
        let mut ledger = self.state.ledger.borrow_mut();
        Ok(ledger.charge(self.label, self.kind, Bytes(bytes))?)
    }

    fn release_bytes(&self, bytes: u64) {
        self.state.ledger.borrow_mut().release(self.label, self.kind, Bytes(bytes));
    }

    fn error(&self, fault: Fault, wanted: u64) -> DeviceError {
        match fault {
            Fault::Failed(error) => error,
            Fault::Exhausted if self.kind.place() == MemoryPlace::Host => {
                let (label, wanted, demand) = (self.label, Bytes(wanted), Some(self.demand()));
                DeviceError::OutOfHostMemory { label, wanted, demand }
            }
            Fault::Exhausted => {
                let ledger = self.state.ledger.borrow();
                DeviceError::OutOfMemory {
                    label: self.label,
                    wanted: Bytes(wanted),
                    held: ledger.total(),
                    free: self.state.memory.free().unwrap_or_default(),
                    largest: ledger.largest(),
                }
            }
        }
    }

    fn map_more(&mut self, target: u64) -> Result {
        let (before, more) = (self.mapped, target - self.mapped);
        self.check(more)?;
        if target > self.reserved {
            // No budget is larger than the device, so the check should have failed.
            return Err(self.error(Fault::Exhausted, more));
        }
        let done = self.map_blocks(target).and_then(|()| {
            let (memory, place) = (&self.state.memory, self.kind.place());
            Ok(memory.allow(place, self.address + before, target - before)?)
        });
        if let Err(fault) = done {
            self.unmap_behind(before);
            return Err(self.error(fault, more));
        }
        self.charge(more)
    }

    fn map_blocks(&mut self, target: u64) -> Result<(), Fault> {
        let memory = &self.state.memory;
        while self.mapped < target {
            let fair = self.whole_granules(block_beside(self.mapped));
            let bytes = fair.min(target - self.mapped);
            let handle = memory.create(self.kind.place(), bytes)?;
            if let Err(fault) = memory.map(self.address + self.mapped, bytes, handle) {
                memory.release(handle)?;
                return Err(fault);
            }
            self.blocks.push(Mapped { handle, bytes });
            self.mapped += bytes;
        }
        Ok(())
    }

    /// Unmaps blocks without a change of the ledger.
    fn unmap_behind(&mut self, bytes: u64) {
        let memory = &self.state.memory;
        while let Some(last) = self.blocks.pop_if(|_last| self.mapped > bytes) {
            self.mapped -= last.bytes;
            let unmapped = memory.unmap(self.address + self.mapped, last.bytes);
            log(unmapped.and_then(|()| memory.release(last.handle)));
        }
    }

    /// Copies the contents to a range of another size, for a place without virtual memory.
    fn replace(&mut self, target: u64) -> Result {
        self.check(target)?;
        let memory = &self.state.memory;
        let kept = self.mapped.min(target);
        let place = self.kind.place();
        let copied = memory.allocate(place, target).and_then(|address| {
            if kept > 0
                && let Err(error) = memory.copy(address, self.address, kept)
            {
                log(memory.deallocate(place, address));
                return Err(Fault::Failed(error));
            }
            Ok(address)
        });
        let address = copied.map_err(|fault| self.error(fault, target))?;
        // Both count for a moment, as the device holds both.
        self.charge(target)?;
        self.give_back_range();
        self.address = address;
        self.mapped = target;
        Ok(())
    }

    /// Copies to a smaller range if both fit at once. A range of the host stays if little would be freed.
    fn trim_plain(&mut self, bytes: u64) -> Result {
        let target = self.whole_granules(bytes);
        if target >= self.mapped {
            return Ok(());
        }
        if target == 0 {
            self.give_back_range();
            return Ok(());
        }
        let is_little = self.mapped - target < self.mapped / MIN_FREED_SHARE;
        if is_little && self.kind.place() == MemoryPlace::Host {
            return Ok(());
        }
        match self.replace(target) {
            Err(error) if error.is_out_of_memory() => Ok(()),
            other => other,
        }
    }

    fn give_back_range(&mut self) {
        if self.mapped == 0 {
            return;
        }
        log(self.state.memory.wait());
        log(self.state.memory.deallocate(self.kind.place(), self.address));
        self.release_bytes(self.mapped);
        self.address = 0;
        self.mapped = 0;
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.set_used(0);
        if !self.is_virtual() {
            self.give_back_range();
            return;
        }
        let mapped = self.mapped;
        if mapped > 0 {
            log(self.state.memory.wait());
            self.unmap_behind(0);
            self.release_bytes(mapped);
        }
        if self.reserved > 0 {
            log(self.state.memory.unreserve(self.address, self.reserved));
        }
    }
}

/// Logs a failure to free: the end of the context frees all memory.
fn log(result: Result) {
    if let Err(error) = result {
        tracing::debug!("{error}");
    }
}

/// Converts a length. Longer than `usize`: more than any device has.
pub(crate) fn host_len(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

/// Returns the bytes of `len` values; `u64::MAX` if the product overflows.
pub(super) fn bytes_of<T>(len: usize) -> u64 {
    (len as u64).saturating_mul(size_of::<T>() as u64)
}
