//! Which device runs.

#[cfg(kernels)]
use anyhow::Context;

#[cfg(kernels)]
use crate::backend::Backend;
#[cfg(not(kernels))]
use crate::backend::DeviceError;
use crate::backend::cpu::Cpu;
#[cfg(kernels)]
use crate::backend::cuda::{Cuda, CudaOptions};
use crate::backend::{Raster, nvidia};
use crate::config::{Config, Device, MemoryOptions};
use crate::memory::Limit;
use crate::model::Gaussians;

/// Work for whichever device is chosen.
pub(super) trait Task {
    /// What it comes to.
    type Output;

    /// Does the work.
    fn run<B: Raster<Gaussians>>(self, device: &mut B) -> anyhow::Result<Self::Output>;
}

/// What was asked of the device.
#[derive(Clone, Copy)]
pub(super) struct DeviceOptions {
    device: Device,
    vram_limit: Option<Limit>,
    vram_threshold: f64,
}

impl DeviceOptions {
    /// The part of the configuration that says where to run.
    pub(super) fn of(config: &Config) -> Self {
        let MemoryOptions { vram_limit, vram_threshold, .. } = config.memory;
        Self { device: config.run.device, vram_limit, vram_threshold }
    }
}

/// Opens the device that was asked for and has it do the work.
///
/// Nobody trains on the processor by accident: on a machine with an NVIDIA GPU it has to be named.
pub(super) fn on<T: Task>(options: DeviceOptions, task: T) -> anyhow::Result<T::Output> {
    match options.device {
        Device::Cpu => on_cpu(options, task),
        Device::Cuda => on_cuda(options, task),
        Device::Auto if nvidia::is_present() => on_cuda(options, task),
        Device::Auto => on_cpu(options, task),
    }
}

fn on_cpu<T: Task>(options: DeviceOptions, task: T) -> anyhow::Result<T::Output> {
    let threshold_is_usual = options.vram_threshold == MemoryOptions::default().vram_threshold;
    if options.vram_limit.is_some() || !threshold_is_usual {
        tracing::info!("--vram-limit and --vram-threshold have no effect on the CPU");
    }
    task.run(&mut Cpu::<f32>::new())
}

#[cfg(kernels)]
fn on_cuda<T: Task>(options: DeviceOptions, task: T) -> anyhow::Result<T::Output> {
    task.run(&mut open_cuda(options)?)
}

/// The GPU, or why it cannot be used.
#[cfg(kernels)]
fn open_cuda(options: DeviceOptions) -> anyhow::Result<Cuda> {
    let DeviceOptions { vram_limit, vram_threshold, .. } = options;
    let opened = Cuda::open(&CudaOptions { vram_limit, vram_threshold });
    opened.context(match options.device {
        Device::Cuda => "--device cuda: the GPU cannot be used (see splat doctor)",
        Device::Auto | Device::Cpu => {
            "this machine's NVIDIA GPU cannot be used (see splat doctor; --device cpu trains on the \
             processor, far slower)"
        }
    })
}

/// The GPU in words, or why this program cannot use it.
#[cfg(kernels)]
pub(super) fn try_gpu() -> Result<String, String> {
    let MemoryOptions { vram_limit, vram_threshold, .. } = MemoryOptions::default();
    let opened = Cuda::open(&CudaOptions { vram_limit, vram_threshold });
    opened.map(|gpu| gpu.name()).map_err(|error| error.to_string())
}

/// Why this program cannot use a GPU.
#[cfg(not(kernels))]
pub(super) fn try_gpu() -> Result<String, String> {
    Err("this program was built without CUDA kernels".to_owned())
}

#[cfg(not(kernels))]
fn on_cuda<T: Task>(options: DeviceOptions, _task: T) -> anyhow::Result<T::Output> {
    let asked = match options.device {
        Device::Cuda => "--device cuda: this",
        Device::Auto | Device::Cpu => "this machine has an NVIDIA GPU, but this",
    };
    Err(DeviceError::Unavailable(format!(
        "{asked} program was built without CUDA kernels. {REBUILD}, or train on the processor, far \
         slower, with --device cpu"
    ))
    .into())
}

/// How a program comes by CUDA kernels.
pub(super) const REBUILD: &str = "Build it again where nvcc of the CUDA toolkit 13.0 or newer is on \
                                  the PATH or named by NVCC or CUDA_HOME";
