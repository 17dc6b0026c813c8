//! What NVIDIA hardware the machine has, asked without linking to a driver.

use std::path::Path;

use serde::Serialize;

use crate::memory::Bytes;

/// A file that exists where the driver has found a GPU under WSL.
const WSL_DRIVER: &str = "/usr/lib/wsl/lib/libcuda.so.1";

/// Whether the machine has an NVIDIA GPU with a driver.
pub fn is_present() -> bool {
    Path::new(WSL_DRIVER).exists() || has_gpu_file(Path::new("/dev")) || driver_shows_gpu()
}

/// What the driver says, for systems where no file tells: Windows, Jetson.
#[cfg(kernels)]
fn driver_shows_gpu() -> bool {
    super::cuda::driver::shows_gpu()
}

/// A program without kernels does not ask the driver.
#[cfg(not(kernels))]
fn driver_shows_gpu() -> bool {
    false
}

/// Whether the folder has a file `nvidia` with a number; a container may be given any of the GPUs.
fn has_gpu_file(devices: &Path) -> bool {
    let is_gpu = |name: &str| {
        name.strip_prefix("nvidia").is_some_and(|number| number.parse::<u32>().is_ok())
    };
    std::fs::read_dir(devices).is_ok_and(|files| {
        files.flatten().any(|file| file.file_name().to_str().is_some_and(is_gpu))
    })
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
    /// Compute capability, as 10 major + minor, where the driver tells.
    pub arch: Option<u32>,
    /// Version of the driver.
    pub driver: String,
    /// CUDA version that the driver supports, such as `13.0`, where it tells.
    pub driver_cuda: Option<String>,
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
            "NVIDIA's management library is not installed".to_owned()
        }
        other => other.to_string(),
    })?;
    let driver = nvml.sys_driver_version().map_err(describe)?;
    let cuda = nvml.sys_cuda_driver_version().ok();
    let driver_cuda = cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10));
    (0..nvml.device_count().map_err(describe)?)
        .map(|index| {
            let device = nvml.device_by_index(index).map_err(describe)?;
            let memory = device.memory_info().map_err(describe)?;
            let capability = device.cuda_compute_capability().ok();
            Ok(Gpu {
                name: device.name().map_err(describe)?,
                memory: Bytes(memory.total),
                free: Bytes(memory.free),
                arch: capability.map(|found| (found.major * 10 + found.minor).unsigned_abs()),
                driver: driver.clone(),
                driver_cuda: driver_cuda.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_numbered_gpu_counts_and_the_drivers_other_files_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| std::fs::write(folder.path().join(name), "").unwrap();
        for name in ["nvidiactl", "nvidia-uvm", "nvidia", "tty7"] {
            make(name);
        }
        assert!(!has_gpu_file(folder.path()));
        make("nvidia3");
        assert!(has_gpu_file(folder.path()));
        assert!(!has_gpu_file(&folder.path().join("none")));
    }
}
