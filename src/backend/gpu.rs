//! What this program can do with a GPU: whether there is one, and how its own kernels were compiled.

use std::path::PathBuf;

use serde::Serialize;

use super::nvidia::{self, KernelBuild};
use crate::memory::Bytes;

/// Whether the machine has an NVIDIA GPU with a driver.
pub fn is_present() -> bool {
    nvidia::has_gpu_files() || driver_shows_gpu()
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

/// How many GPUs the driver shows to this program.
#[cfg(kernels)]
pub fn count() -> u32 {
    super::cuda::driver::shown_gpus()
}

/// A program without kernels can use none.
#[cfg(not(kernels))]
pub fn count() -> u32 {
    0
}

/// NCCL on this machine, by which several GPUs train a model.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NcclFinding {
    /// Its version.
    pub version: Option<String>,
    /// Where it is.
    pub path: Option<PathBuf>,
    /// Why it cannot be used.
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

/// A program without kernels has no use for it.
#[cfg(not(kernels))]
pub fn nccl() -> NcclFinding {
    let problem = Some("of no use to a program without CUDA kernels".to_owned());
    NcclFinding { problem, ..NcclFinding::default() }
}

/// Memory of the GPU that training uses, used or not; `None` where there is none.
#[cfg(kernels)]
pub fn memory() -> Option<Bytes> {
    super::cuda::driver::memory_of_first()
}

/// A program without kernels asks the management library.
#[cfg(not(kernels))]
pub fn memory() -> Option<Bytes> {
    Some(nvidia::list().ok()?.first()?.memory)
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
