//! What NVIDIA hardware the machine has, asked without linking to a driver.

use std::path::Path;

use serde::Serialize;

use crate::memory::Bytes;

/// Files that exist where an NVIDIA driver has found a GPU: Linux, and WSL.
const DRIVER_FILES: [&str; 2] = ["/dev/nvidia0", "/usr/lib/wsl/lib/libcuda.so.1"];

/// Whether the machine has an NVIDIA GPU with a driver.
pub fn is_present() -> bool {
    DRIVER_FILES.iter().any(|file| Path::new(file).exists())
}

/// A GPU as the driver describes it.
#[derive(Clone, Debug, Serialize)]
pub struct Gpu {
    /// Name of the product.
    pub name: String,
    /// All of its memory.
    pub memory: Bytes,
    /// Memory that nobody uses.
    pub free: Bytes,
    /// Version of the driver.
    pub driver: String,
}

/// How this program's kernels were compiled.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KernelBuild {
    /// Compute capabilities with machine code, as 10 major + minor; later ones run what the
    /// driver makes of the last.
    pub archs: &'static [u32],
    /// Version of the compiler.
    pub nvcc: &'static str,
}

/// How the kernels were compiled; `None` in a program without, which cannot use a GPU.
#[cfg(kernels)]
pub fn kernels() -> Option<KernelBuild> {
    Some(KernelBuild { archs: super::cuda::ARCHS, nvcc: super::cuda::NVCC })
}

/// How the kernels were compiled; this program has none and cannot use a GPU.
#[cfg(not(kernels))]
pub fn kernels() -> Option<KernelBuild> {
    None
}

/// The machine's GPUs as NVIDIA's management library lists them, or why it does not.
#[cfg(feature = "cuda")]
pub fn list() -> Result<Vec<Gpu>, String> {
    let describe = |error: nvml_wrapper::error::NvmlError| error.to_string();
    let nvml = nvml_wrapper::Nvml::init().map_err(|error| match error {
        nvml_wrapper::error::NvmlError::LibloadingError(_) => {
            "there is no NVIDIA driver: its management library is not installed".to_owned()
        }
        other => other.to_string(),
    })?;
    let driver = nvml.sys_driver_version().map_err(describe)?;
    (0..nvml.device_count().map_err(describe)?)
        .map(|index| {
            let device = nvml.device_by_index(index).map_err(describe)?;
            let memory = device.memory_info().map_err(describe)?;
            Ok(Gpu {
                name: device.name().map_err(describe)?,
                memory: Bytes(memory.total),
                free: Bytes(memory.free),
                driver: driver.clone(),
            })
        })
        .collect()
}

/// Memory that nobody uses of the GPU with this identifier, where the management library tells.
#[cfg(feature = "cuda")]
pub fn free(uuid: &str) -> Option<Bytes> {
    let nvml = nvml_wrapper::Nvml::init().ok()?;
    let memory = nvml.device_by_uuid(uuid).ok()?.memory_info().ok()?;
    Some(Bytes(memory.free))
}

/// The machine's GPUs; this program was built without the feature that asks for them.
#[cfg(not(feature = "cuda"))]
pub fn list() -> Result<Vec<Gpu>, String> {
    Err("this program was built without the feature `cuda`".to_owned())
}
