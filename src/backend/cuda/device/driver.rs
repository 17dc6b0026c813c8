//! The GPU and its driver.

use std::ops::RangeInclusive;
use std::rc::Rc;

use cudarc::driver::{DriverError, result, sys};

use crate::backend::nvidia::{self, Fit, KernelBuild};
use crate::backend::{DeviceError, Result};
use crate::memory::Bytes;
use crate::memory::plan::CONTEXT;

#[cfg(kernels)]
pub(in crate::backend) use self::built::{ARCHS, NVCC};

#[cfg(kernels)]
pub(super) use self::built::FATBINS;

/// Lowest driver interface that works, as 1000 major + 10 minor.
const MIN_DRIVER: i32 = 13_000;

/// The GPU. Its context stays until the process ends, because CUB's runtime keeps its code there.
pub struct CudaDevice {
    id: sys::CUdevice,
    name: String,
    uuid: String,
    arch: u32,
    memory: Bytes,
    has_virtual_memory: bool,
    /// Free memory before the context was made; `None` without the management library.
    free_before_context: Option<Bytes>,
    /// Free memory with an empty context.
    free_before_code: Bytes,
    /// Memory of this process at that time; `None` without the management library.
    held_before_context: Option<Bytes>,
    /// True if the process had no context before.
    is_first: bool,
}

/// Plausible sizes of a context with this program's code.
const CONTEXTS: RangeInclusive<Bytes> = Bytes(64 << 20)..=Bytes(1 << 30);

impl CudaDevice {
    /// Opens a GPU that `CUDA_VISIBLE_DEVICES` shows, and makes its context current in this thread.
    pub fn open(ordinal: u32) -> Result<Rc<Self>> {
        check_driver()?;
        if let Err(error) = result::init() {
            return Err(if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE {
                no_gpu()
            } else {
                failed("cuInit")(error)
            });
        }
        let shown =
            result::device::get_count().map_err(failed("cuDeviceGetCount"))?.cast_unsigned();
        if shown == 0 {
            return Err(no_gpu());
        }
        if ordinal >= shown {
            return Err(DeviceError::Unavailable(format!(
                "there is no GPU {ordinal}: the driver shows {shown}, counted from 0 (CUDA_VISIBLE_DEVICES \
                 decides which)"
            )));
        }
        let id = result::device::get(ordinal.cast_signed()).map_err(failed("cuDeviceGet"))?;
        let mut device = Self::describe(id)?;
        if (KernelBuild { archs: ARCHS, nvcc: "" }).fit(device.arch) == Fit::Unfit {
            return Err(DeviceError::NoCode {
                name: device.name.clone(),
                arch: device.arch,
                built: ARCHS.to_vec(),
            });
        }
        device.free_before_context = nvidia::free(&device.uuid);
        device.held_before_context = nvidia::held_by_this_process(&device.uuid);
        device.is_first = !has_context(id)?;
        // SAFETY: `id` comes from cuDeviceGet; the context is never released.
        let context = unsafe { result::primary_ctx::retain(id) }
            .map_err(failed("cuDevicePrimaryCtxRetain"))?;
        // SAFETY: the context was retained above.
        unsafe { result::ctx::set_current(context) }.map_err(failed("cuCtxSetCurrent"))?;
        device.free_before_code = device.free()?;
        Ok(Rc::new(device))
    }

    /// Returns a GPU that does not exist, for a dry run.
    pub(crate) fn dry(memory: Bytes) -> Rc<Self> {
        Rc::new(Self {
            id: 0,
            name: "no GPU".to_owned(),
            uuid: uuid_text([0; 16]),
            arch: 90,
            memory,
            has_virtual_memory: true,
            free_before_context: None,
            free_before_code: memory,
            held_before_context: None,
            is_first: true,
        })
    }

    fn describe(id: sys::CUdevice) -> Result<Self> {
        use sys::CUdevice_attribute as Attribute;
        let attribute = |attribute| {
            // SAFETY: `id` comes from cuDeviceGet.
            unsafe { result::device::get_attribute(id, attribute) }
                .map_err(failed("cuDeviceGetAttribute"))
        };
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let has_virtual_memory =
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED)? != 0;
        // SAFETY: `id` comes from cuDeviceGet.
        let memory =
            unsafe { result::device::total_mem(id) }.map_err(failed("cuDeviceTotalMem"))?;
        let uuid = result::device::get_uuid(id).map_err(failed("cuDeviceGetUuid"))?;
        Ok(Self {
            id,
            name: result::device::get_name(id).map_err(failed("cuDeviceGetName"))?,
            uuid: uuid_text(uuid.bytes.map(i8::cast_unsigned)),
            arch: (major * 10 + minor).unsigned_abs(),
            memory: Bytes(memory as u64),
            has_virtual_memory,
            free_before_context: None,
            held_before_context: None,
            is_first: true,
            free_before_code: Bytes(0),
        })
    }

    /// Returns the name of the product.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the identifier as NVIDIA's tools write it: `GPU-xxxxxxxx-...`.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// Returns the size of the GPU's memory.
    pub fn memory(&self) -> Bytes {
        self.memory
    }

    /// Returns the compute capability, as 10 major + minor.
    pub(crate) fn arch(&self) -> u32 {
        self.arch
    }

    /// True if address ranges and memory can be allocated separately.
    pub fn has_virtual_memory(&self) -> bool {
        self.has_virtual_memory
    }

    pub(crate) fn id(&self) -> sys::CUdevice {
        self.id
    }

    /// Returns the NUMA node of the nearest host memory, if blocks of it can be mapped into reserved addresses.
    pub(crate) fn host_node(&self) -> Option<i32> {
        use sys::CUdevice_attribute as Attribute;
        let query = |attribute| {
            // SAFETY: `id` comes from cuDeviceGet.
            unsafe { result::device::get_attribute(self.id, attribute) }.ok()
        };
        let is_mappable =
            query(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)?;
        // A machine that is one node may have no number for it.
        let node = query(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID).unwrap_or(0).max(0);
        (is_mappable != 0).then_some(node)
    }

    /// Returns the free memory of the GPU.
    pub fn free(&self) -> Result<Bytes> {
        let (free, _) = result::mem_get_info().map_err(failed("cuMemGetInfo"))?;
        Ok(Bytes(free as u64))
    }

    /// Estimates the memory of context and code. Without the management library, memory from before is unknown.
    pub fn taken_since_opened(&self) -> Result<Bytes> {
        if let Some(held) = nvidia::held_by_this_process(&self.uuid) {
            let before = self.held_before_context.unwrap_or_default();
            return Ok(plausible_size(Bytes(held.0.saturating_sub(before.0)), self.is_first));
        }
        let code = self.free_before_code.0.saturating_sub(self.free()?.0);
        let both = match (self.free_before_context, nvidia::free(&self.uuid)) {
            (Some(before), Some(now)) => before.0.saturating_sub(now.0),
            _ => 0,
        };
        Ok(plausible_size(Bytes(code.max(both)), self.is_first))
    }

    /// Waits for the work on all streams.
    pub fn synchronize(&self) -> Result {
        result::ctx::synchronize().map_err(failed("cuCtxSynchronize"))
    }
}

/// True if a driver is installed and shows a GPU.
pub fn shows_gpu() -> bool {
    shown_gpus() > 0
}

/// Returns the number of GPUs that an installed driver shows; 0 without a driver.
pub fn shown_gpus() -> u32 {
    // SAFETY: opening the driver's library runs its initialisers, which any CUDA program does.
    let has_driver = unsafe { sys::is_culib_present() };
    if !has_driver || result::init().is_err() {
        return 0;
    }
    result::device::get_count().map_or(0, i32::unsigned_abs)
}

/// Returns the identifier of the GPU of this ordinal, without opening a context.
pub fn uuid_of(ordinal: u32) -> Option<String> {
    if ordinal >= shown_gpus() {
        return None;
    }
    let id = result::device::get(ordinal.cast_signed()).ok()?;
    let uuid = result::device::get_uuid(id).ok()?;
    Some(uuid_text(uuid.bytes.map(i8::cast_unsigned)))
}

/// Returns the memory of the first visible GPU, without opening a context.
pub fn memory_of_first() -> Option<Bytes> {
    if !shows_gpu() {
        return None;
    }
    let id = result::device::get(0).ok()?;
    // SAFETY: `id` comes from cuDeviceGet.
    let bytes = unsafe { result::device::total_mem(id) }.ok()?;
    Some(Bytes(bytes as u64))
}

fn has_context(id: sys::CUdevice) -> Result<bool> {
    let (mut flags, mut is_active) = (0, 0);
    // SAFETY: `id` comes from cuDeviceGet, and the call writes two numbers.
    unsafe { sys::cuDevicePrimaryCtxGetState(id, &raw mut flags, &raw mut is_active) }
        .result()
        .map_err(failed("cuDevicePrimaryCtxGetState"))?;
    Ok(is_active != 0)
}

/// Returns the size of context and code. If the drop in free memory is implausible, a first context counts as
/// [`CONTEXT`].
fn plausible_size(taken: Bytes, is_first: bool) -> Bytes {
    match is_first {
        true if !CONTEXTS.contains(&taken) => CONTEXT,
        false if taken > *CONTEXTS.end() => Bytes(0),
        _ => taken,
    }
}

fn check_driver() -> Result {
    // SAFETY: opening the driver's library runs its initialisers, which any CUDA program does.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::NoDriver);
    }
    let mut found = 0;
    // SAFETY: the call writes one int and may come before cuInit.
    unsafe { sys::cuDriverGetVersion(&raw mut found) }
        .result()
        .map_err(failed("cuDriverGetVersion"))?;
    if found < MIN_DRIVER {
        return Err(DeviceError::DriverTooOld { found, needed: MIN_DRIVER });
    }
    Ok(())
}

fn no_gpu() -> DeviceError {
    DeviceError::NoGpu { visible: std::env::var("CUDA_VISIBLE_DEVICES").ok() }
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let mut text = "GPU".to_owned();
    for (index, byte) in bytes.iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

/// Turns a driver failure into an error that names the call.
pub(crate) fn failed(call: &'static str) -> impl Fn(DriverError) -> DeviceError {
    move |error| match error.0 {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::DriverOutOfMemory { call },
        _ => DeviceError::Driver { call, reason: describe(error) },
    }
}

fn describe(error: DriverError) -> String {
    let text = |found: Result<&std::ffi::CStr, DriverError>| {
        found.map_or_else(|_none| String::new(), |text| text.to_string_lossy().into_owned())
    };
    format!("{} ({})", text(error.error_string()), text(error.error_name()))
}

pub(crate) fn count_u32(count: usize) -> Result<u32> {
    u32::try_from(count).ok().ok_or(DeviceError::TooManyGaussians { wanted: count })
}

#[cfg(kernels)]
mod built {
    /// Images must begin at a multiple of 8 bytes.
    #[repr(align(16))]
    struct Aligned<T: ?Sized>(T);

    include!(concat!(env!("OUT_DIR"), "/fatbins.rs"));
}

#[cfg(not(kernels))]
pub(super) const ARCHS: &[u32] = &[];

#[cfg(not(kernels))]
pub(super) const FATBINS: &[(&str, &[u8])] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_code_runs_on_later_minors_and_ptx_on_all_later_ones() {
        for (arch, archs, expected) in [
            (86, &[86][..], true),
            (89, &[86], true),
            (80, &[86], false),
            (90, &[86], true),
            (75, &[80, 86], false),
            (87, &[80, 90], true),
            (110, &[100, 120], false),
            (103, &[100, 120], true),
            (121, &[75, 120], true),
            (90, &[], false),
        ] {
            let fit = KernelBuild { archs, nvcc: "" }.fit(arch);
            assert_eq!(fit != Fit::Unfit, expected, "{arch} on {archs:?}");
        }
    }

    #[test]
    fn implausible_context_sizes_are_replaced() {
        let (mib, gib) = (1 << 20, 1 << 30);
        for (taken, is_first, expected) in [
            (529 * mib, true, 529 * mib),
            (0, true, CONTEXT.0),
            (3 * gib + 529 * mib, true, CONTEXT.0),
            (0, false, 0),
            (3 * mib, false, 3 * mib),
            (3 * gib, false, 0),
        ] {
            assert_eq!(
                plausible_size(Bytes(taken), is_first),
                Bytes(expected),
                "{taken} {is_first}"
            );
        }
    }

    #[test]
    fn identifiers_are_written_as_nvidias_tools_do() {
        let bytes = std::array::from_fn(|index| u8::try_from(index * 17).unwrap());
        assert_eq!(uuid_text(bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn a_full_gpu_differs_from_a_failed_call() {
        let error = failed("cuCtxCreate")(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        assert!(matches!(error, DeviceError::DriverOutOfMemory { call: "cuCtxCreate" }), "{error}");
        assert!(error.is_short_beside_others());
    }
}
