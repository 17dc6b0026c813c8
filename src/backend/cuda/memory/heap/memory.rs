//! The driver's calls that give and take memory. No other file makes them.
#![expect(clippy::disallowed_methods, reason = "this is the door that the others are sent to")]

use std::ffi::c_void;
use std::rc::Rc;

use cudarc::driver::{DriverError, result, sys};

use crate::backend::DeviceError;
use crate::backend::cuda::device::driver::CudaDevice;
use crate::backend::cuda::device::error::failed;
use crate::memory::Bytes;

/// Physical memory comes in multiples of this where the driver names no other size.
const GRANULE: u64 = 2 << 20;

/// Why there is no memory.
#[derive(Debug)]
pub(super) enum Fault {
    /// The device has none left.
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
/// Sizes are multiples of the granule. With virtual memory, address space is reserved first and
/// blocks of memory are mapped into it; without, `allocate` gives both at once.
pub(super) trait MemoryDriver {
    /// Smallest unit of memory.
    fn granule(&self) -> u64;
    /// Whether memory can be mapped into reserved address space.
    fn is_virtual(&self) -> bool;
    /// Memory of the device, used or not.
    fn capacity(&self) -> Bytes;
    /// Free memory of the device.
    fn free(&self) -> Result<Bytes, DeviceError>;
    /// Waits until nothing that was queued uses memory.
    fn wait(&self) -> Result<(), DeviceError>;

    /// Takes address space.
    fn reserve(&self, bytes: u64) -> Result<u64, Fault>;
    /// Gives address space back, nothing mapped there.
    fn unreserve(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;
    /// Takes a block of memory.
    fn create(&self, bytes: u64) -> Result<u64, Fault>;
    /// Gives a block back, which goes when it is not mapped any more.
    fn release(&self, handle: u64) -> Result<(), DeviceError>;
    /// Maps a block at a reserved address.
    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), Fault>;
    /// Takes whole blocks away again.
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;
    /// Makes mapped memory accessible to kernels.
    fn allow(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Takes address space and memory.
    fn allocate(&self, bytes: u64) -> Result<u64, Fault>;
    /// Gives both back.
    fn deallocate(&self, address: u64) -> Result<(), DeviceError>;
    /// Copies within the device and waits for it.
    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Takes page-locked memory of the host, at least a byte, which any thread's context may use.
    fn allocate_pinned(&self, bytes: usize) -> Result<*mut c_void, Fault>;
    /// Gives page-locked memory back.
    fn free_pinned(&self, address: *mut c_void);
}

/// The memory of a GPU.
pub(super) struct GpuMemory {
    device: Rc<CudaDevice>,
    granule: u64,
    is_virtual: bool,
}

impl GpuMemory {
    pub(super) fn new(device: &Rc<CudaDevice>, is_virtual: bool) -> Result<Self, DeviceError> {
        let mut memory = Self { device: Rc::clone(device), granule: GRANULE, is_virtual };
        if is_virtual {
            let properties = memory.properties();
            let minimum = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
            let mut granule = 0;
            // SAFETY: the call reads the properties and writes one size.
            unsafe {
                sys::cuMemGetAllocationGranularity(&raw mut granule, &raw const properties, minimum)
            }
            .result()
            .map_err(failed("cuMemGetAllocationGranularity"))?;
            memory.granule = (granule as u64).max(1);
        }
        Ok(memory)
    }

    fn location(&self) -> sys::CUmemLocation {
        sys::CUmemLocation {
            type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: self.device.id(),
        }
    }

    fn properties(&self) -> sys::CUmemAllocationProp {
        sys::CUmemAllocationProp {
            type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: self.location(),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        }
    }
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
    fn granule(&self) -> u64 {
        self.granule
    }

    fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    fn capacity(&self) -> Bytes {
        self.device.memory()
    }

    fn free(&self) -> Result<Bytes, DeviceError> {
        self.device.free()
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
        // SAFETY: the span that reserved it gives it back once, with nothing mapped.
        unsafe { sys::cuMemAddressFree(address, size(bytes)) }
            .result()
            .map_err(failed("cuMemAddressFree"))
    }

    fn create(&self, bytes: u64) -> Result<u64, Fault> {
        let properties = self.properties();
        let mut handle = 0;
        // SAFETY: the call reads the properties and writes one handle.
        unsafe { sys::cuMemCreate(&raw mut handle, size(bytes), &raw const properties, 0) }
            .result()
            .map_err(fault("cuMemCreate"))?;
        Ok(handle)
    }

    fn release(&self, handle: u64) -> Result<(), DeviceError> {
        // SAFETY: the span that created the block releases it once.
        unsafe { sys::cuMemRelease(handle) }.result().map_err(failed("cuMemRelease"))
    }

    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), Fault> {
        // SAFETY: the range lies after the mapped part of the span's own reservation.
        unsafe { sys::cuMemMap(address, size(bytes), 0, handle, 0) }
            .result()
            .map_err(fault("cuMemMap"))
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: the span waited for the device, and no borrow of the range is left.
        unsafe { sys::cuMemUnmap(address, size(bytes)) }.result().map_err(failed("cuMemUnmap"))
    }

    fn allow(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let access = sys::CUmemAccessDesc {
            location: self.location(),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the range is mapped, and the call reads one description.
        unsafe { sys::cuMemSetAccess(address, size(bytes), &raw const access, 1) }
            .result()
            .map_err(failed("cuMemSetAccess"))
    }

    fn allocate(&self, bytes: u64) -> Result<u64, Fault> {
        // SAFETY: the context is current; the span frees what it gets.
        unsafe { result::malloc_sync(size(bytes)) }.map_err(fault("cuMemAlloc"))
    }

    fn deallocate(&self, address: u64) -> Result<(), DeviceError> {
        // SAFETY: the span frees its allocation once, after waiting for the device.
        unsafe { result::free_sync(address) }.map_err(failed("cuMemFree"))
    }

    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), DeviceError> {
        // The copy is on the default stream, which the others do not wait for.
        self.wait()?;
        // SAFETY: both allocations hold as many bytes.
        unsafe { result::memcpy_dtod_sync(to, from, size(bytes)) }
            .map_err(failed("cuMemcpyDtoD"))?;
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
