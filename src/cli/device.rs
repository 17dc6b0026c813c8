//! Which device runs.

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

/// The GPU, or why it cannot be used and how to go on without.
#[cfg(kernels)]
fn open_cuda(options: DeviceOptions) -> anyhow::Result<Cuda> {
    let DeviceOptions { vram_limit, vram_threshold, .. } = options;
    Cuda::open(&CudaOptions { vram_limit, vram_threshold }).map_err(|error| {
        let asked = match options.device {
            Device::Cuda => "--device cuda: the GPU cannot be used",
            Device::Auto | Device::Cpu => "this machine's NVIDIA GPU cannot be used",
        };
        anyhow::Error::new(error).context(format!(
            "{asked}; `splat doctor` says more, and --device cpu trains on the processor, far slower"
        ))
    })
}

#[cfg(not(kernels))]
fn on_cuda<T: Task>(options: DeviceOptions, _task: T) -> anyhow::Result<T::Output> {
    let asked = match options.device {
        Device::Cuda => "--device cuda: this",
        Device::Auto | Device::Cpu => "this machine has an NVIDIA GPU, but this",
    };
    Err(DeviceError::Unavailable(format!(
        "{asked} program was built without CUDA kernels. Build it again where {NVCC}, or train on \
         the processor, far slower, with --device cpu"
    ))
    .into())
}

/// What a build with CUDA kernels needs.
#[cfg(not(kernels))]
pub(super) const NVCC: &str =
    "nvcc of the CUDA toolkit 13.0 or newer is on the PATH, or named by NVCC or CUDA_HOME";
