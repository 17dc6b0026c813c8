//! The GPU as this program can use it, and the build of the program's kernels.

use std::path::PathBuf;

use serde::Serialize;

use super::nvidia::{self, KernelBuild};
use crate::memory::Bytes;

/// Returns true if the machine has an NVIDIA GPU with a driver.
pub fn is_present() -> bool {
    nvidia::has_gpu_files() || driver_shows_gpu()
}

/// Asks the driver, for systems without device files: Windows, Jetson.
#[cfg(kernels)]
fn driver_shows_gpu() -> bool {
    super::cuda::driver::shows_gpu()
}

#[cfg(not(kernels))]
fn driver_shows_gpu() -> bool {
    false
}

/// Returns the number of GPUs that the driver shows to this program.
#[cfg(kernels)]
pub fn count() -> u32 {
    super::cuda::driver::shown_gpus()
}

/// Returns 0: a program without kernels can use no GPU.
#[cfg(not(kernels))]
pub fn count() -> u32 {
    0
}

/// NCCL on this machine, which training on several GPUs needs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NcclFinding {
    /// Version of the library.
    pub version: Option<String>,
    /// Path of the library.
    pub path: Option<PathBuf>,
    /// Reason why the library cannot be used.
    pub problem: Option<String>,
}

/// Looks for NCCL.
#[cfg(kernels)]
pub fn nccl() -> NcclFinding {
    match splat_nccl::Library::find() {
        Ok(library) => NcclFinding {
            version: Some(library.version().to_string()),
            path: Some(library.path().to_owned()),
            problem: None,
        },
        Err(error) => NcclFinding { problem: Some(error.to_string()), ..NcclFinding::default() },
    }
}

/// Reports that a program without kernels does not need NCCL.
#[cfg(not(kernels))]
pub fn nccl() -> NcclFinding {
    let problem = Some("of no use to a program without CUDA kernels".to_owned());
    NcclFinding { problem, ..NcclFinding::default() }
}

/// Returns the total memory of the GPU that training uses; `None` if there is no GPU.
#[cfg(kernels)]
pub fn memory() -> Option<Bytes> {
    super::cuda::driver::memory_of_first()
}

/// Returns the total memory of the first GPU that the management library lists.
#[cfg(not(kernels))]
pub fn memory() -> Option<Bytes> {
    Some(nvidia::list().ok()?.first()?.memory)
}

/// Returns the build of the kernels; `None` in a program without kernels.
#[cfg(kernels)]
pub fn kernels() -> Option<KernelBuild> {
    Some(KernelBuild { archs: super::cuda::ARCHS, nvcc: super::cuda::NVCC })
}

/// Returns `None`: this program has no kernels and cannot use a GPU.
#[cfg(not(kernels))]
pub fn kernels() -> Option<KernelBuild> {
    None
}
