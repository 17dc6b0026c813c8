//! The driver's calls that give and take memory. No other file makes them.
#![expect(clippy::disallowed_methods, reason = "this is the door that the others are sent to")]

use std::cell::OnceCell;
use std::ffi::c_void;
use std::rc::Rc;

use cudarc::driver::{DriverError, result, sys};

use crate::backend::DeviceError;
use crate::backend::cuda::device::driver::CudaDevice;
use crate::backend::cuda::device::error::failed;
use crate::layout::MemoryPlace;
use crate::memory::{Bytes, HostState, host_state};

/// Physical memory comes in multiples of this where the driver names no other size.
const GRANULE: u64 = 2 << 20;

/// Why there is no memory.
#[derive(Debug)]
pub(super) enum Fault {
    /// The device has none left, or the host.
    Exhausted,
    /// Anything else.
    Failed(DeviceError),
}

impl From<DeviceError> for Fault {
    fn from(error: DeviceError) -> Self {
        Self::Failed(error)
    }
}

/// A device as the heap needs it; tests have one of their own.
///
/// Sizes are multiples of the granule of their place. With virtual memory, address space is reserved first
/// and blocks of memory are mapped into it; without, `allocate` gives both at once.
pub(super) trait MemoryDriver {
    /// Smallest unit of memory.
    fn granule(&self, place: MemoryPlace) -> u64;
    /// Whether memory of this place can be mapped into reserved address space.
    fn is_virtual(&self, place: MemoryPlace) -> bool;
    /// Memory of the device, used or not.
    fn capacity(&self) -> Bytes;
    /// Free memory of the device.
    fn free(&self) -> Result<Bytes, DeviceError>;
    /// How the host's memory stands; nothing where the system does not tell.
    fn host(&self) -> Option<HostState>;
    /// Waits until nothing that was queued uses memory.
    fn wait(&self) -> Result<(), DeviceError>;

    /// Takes address space.
    fn reserve(&self, bytes: u64) -> Result<u64, Fault>;
    /// Gives address space back, nothing mapped there.
    fn unreserve(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;
    /// Takes a block of memory.
    fn create(&self, place: MemoryPlace, bytes: u64) -> Result<u64, Fault>;
    /// Gives a block back, which goes when it is not mapped any more.
    fn release(&self, handle: u64) -> Result<(), DeviceError>;
    /// Maps a block at a reserved address.
    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), Fault>;
    /// Takes whole blocks away again.
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;
    /// Makes mapped memory of this place accessible to kernels, and to the processor where it is the host's.
    fn allow(&self, place: MemoryPlace, address: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Takes address space and memory.
    fn allocate(&self, place: MemoryPlace, bytes: u64) -> Result<u64, Fault>;
    /// Gives both back.
    fn deallocate(&self, place: MemoryPlace, address: u64) -> Result<(), DeviceError>;
    /// Copies between addresses of kernels and waits for it.
    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Takes page-locked memory of the host, at least a byte, which any thread's context may use.
    fn allocate_pinned(&self, bytes: usize) -> Result<*mut c_void, Fault>;
    /// Gives page-locked memory back.
    fn free_pinned(&self, address: *mut c_void);
}

/// The memory of a GPU, and what of the host's it is lent.
pub(super) struct GpuMemory {
    device: Rc<CudaDevice>,
    granule: u64,
    is_virtual: bool,
    /// Where memory of the host is mapped from, as far as it can be; known once it was tried.
    host: OnceCell<Option<HostNode>>,
}

/// A part of the host's memory that can be mapped into reserved addresses.
#[derive(Clone, Copy)]
struct HostNode {
    /// Its NUMA node.
    number: i32,
    granule: u64,
}

impl GpuMemory {
    pub(super) fn new(device: &Rc<CudaDevice>, is_virtual: bool) -> Result<Self, DeviceError> {
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

    /// The host's memory beside the GPU, where blocks of it can be mapped. A driver may promise that and
    /// refuse it, as in a container that may not: it is tried with one granule.
    fn host_node(&self) -> Option<HostNode> {
        *self.host.get_or_init(|| {
            let number = self.device.host_node().filter(|_| self.is_virtual)?;
            let tried = self.try_node(number);
            tried.inspect_err(|fault| tracing::debug!("memory of the host: {fault:?}")).ok()
        })
    }

    /// The same for memory of this place. Of the device's nothing is tried.
    fn node_of(&self, place: MemoryPlace) -> Option<HostNode> {
        match place {
            MemoryPlace::Device => None,
            MemoryPlace::Host => self.host_node(),
        }
    }

    fn try_node(&self, number: i32) -> Result<HostNode, Fault> {
        let location = on_node(number);
        // Address space comes in the device's units.
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

/// Unit of the blocks of a location.
fn granularity(location: sys::CUmemLocation) -> Result<u64, DeviceError> {
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

/// Lets these locations read and write a mapped range. Small copies from and to the host's memory are the
/// processor's, which therefore has to be among them.
fn allow(to: &[sys::CUmemLocation], address: u64, bytes: u64) -> Result<(), DeviceError> {
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let access: Vec<_> =
        to.iter().map(|&location| sys::CUmemAccessDesc { location, flags }).collect();
    // SAFETY: the range is mapped, and the call reads as many descriptions as there are.
    unsafe { sys::cuMemSetAccess(address, size(bytes), access.as_ptr(), access.len()) }
        .result()
        .map_err(failed("cuMemSetAccess"))
}

/// Page-locked memory of the host that kernels reach at the address which the host has for it.
fn allocate_mapped(bytes: u64) -> Result<u64, Fault> {
    let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
    // SAFETY: the context is current; the span frees what it gets.
    let host =
        unsafe { result::malloc_host(size(bytes), flags) }.map_err(fault("cuMemHostAlloc"))?;
    let mut address = 0;
    // SAFETY: the allocation above is mapped, and the call writes one address.
    let asked = unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut address, host, 0) }.result();
    let is_same = asked.is_ok() && address == host.expose_provenance() as u64;
    if is_same {
        return Ok(address);
    }
    // SAFETY: the allocation above is freed once, and nobody knows of it.
    let freed = unsafe { result::free_host(host) };
    freed.map_err(fault("cuMemFreeHost"))?;
    asked.map_err(fault("cuMemHostGetDevicePointer"))?;
    Err(Fault::Failed(DeviceError::Unavailable(
        "--offload: this GPU has other addresses for the host's memory than the host. Leave --offload out"
            .to_owned(),
    )))
}

/// Distinguishes missing memory from other failures.
fn fault(call: &'static str) -> impl Fn(DriverError) -> Fault {
    move |error| match error.0 {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Fault::Exhausted,
        _ => Fault::Failed(failed(call)(error)),
    }
}

/// A size as the driver takes it; this program runs where pointers have 64 bits.
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

    fn free(&self) -> Result<Bytes, DeviceError> {
        self.device.free()
    }

    fn host(&self) -> Option<HostState> {
        host_state()
    }

    fn wait(&self) -> Result<(), DeviceError> {
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

    fn unreserve(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: who reserved it gives it back once, with nothing mapped.
        unsafe { sys::cuMemAddressFree(address, size(bytes)) }
            .result()
            .map_err(failed("cuMemAddressFree"))
    }

    fn create(&self, place: MemoryPlace, bytes: u64) -> Result<u64, Fault> {
        let node = self.node_of(place);
        create_block(node.map_or(self.location(), |node| on_node(node.number)), bytes)
    }

    fn release(&self, handle: u64) -> Result<(), DeviceError> {
        // SAFETY: who created the block releases it once.
        unsafe { sys::cuMemRelease(handle) }.result().map_err(failed("cuMemRelease"))
    }

    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), Fault> {
        // SAFETY: the range lies in the caller's own reservation, behind all that is mapped there.
        unsafe { sys::cuMemMap(address, size(bytes), 0, handle, 0) }
            .result()
            .map_err(fault("cuMemMap"))
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: the caller waited for the device where it used the range, and no borrow of it is left.
        unsafe { sys::cuMemUnmap(address, size(bytes)) }.result().map_err(failed("cuMemUnmap"))
    }

    fn allow(&self, place: MemoryPlace, address: u64, bytes: u64) -> Result<(), DeviceError> {
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

    fn deallocate(&self, place: MemoryPlace, address: u64) -> Result<(), DeviceError> {
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

    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), DeviceError> {
        // The copy is on the default stream, which the others do not wait for.
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
