//! Which device runs.

use std::collections::BTreeSet;

#[cfg(kernels)]
use anyhow::Context;
use clap::builder::PossibleValue;
use clap::parser::ValueSource;
use clap::{ArgMatches, ValueEnum};
use serde::Serialize;

#[cfg(kernels)]
use super::exit::device_error;
#[cfg(kernels)]
use super::holders;
use super::host_limit;
use super::parser::is_typed;
use crate::backend::cpu::Cpu;
#[cfg(kernels)]
use crate::backend::cuda::{Cuda, CudaOptions};
#[cfg(kernels)]
use crate::backend::nvidia;
#[cfg(kernels)]
use crate::backend::{Device as _, DeviceInfo};
use crate::backend::{DeviceError, Inputs, TrainDevice, gpu};
use crate::config::{Config, ConfigError, DeviceChoice, Layers, MemoryOptions, resolve};
use crate::memory::plan::PlannedCoarse;
use crate::memory::{Bytes, Rung};
use crate::train::forecast;
use crate::train::terms::ViewExtras;

/// Work for whichever device is chosen.
pub(super) trait Task {
    /// What it comes to.
    type Output;

    /// Does the work.
    fn run<B: TrainDevice>(self, device: &mut B) -> anyhow::Result<Self::Output>;
}

/// What was asked of the device.
#[derive(Clone)]
pub(super) struct DeviceOptions {
    device: DeviceChoice,
    /// The number of the GPU among those that the driver shows.
    #[cfg_attr(not(kernels), allow(dead_code, reason = "without kernels none is opened"))]
    ordinal: u32,
    /// Processes of the run on this host.
    #[cfg_attr(not(kernels), allow(dead_code, reason = "the processor page-locks nothing"))]
    ranks_here: u32,
    seed: u64,
    memory: MemoryOptions,
    /// Options that were typed; nothing where all that differ from their defaults are worth a word.
    typed: Option<BTreeSet<String>>,
    #[cfg_attr(not(kernels), allow(dead_code, reason = "the processor plans nothing"))]
    target: Option<u64>,
    #[cfg_attr(not(kernels), allow(dead_code, reason = "the processor plans nothing"))]
    coarse: Option<PlannedCoarse>,
    #[cfg_attr(not(kernels), allow(dead_code, reason = "the processor plans nothing"))]
    inputs: Inputs,
}

/// A rank among the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankPlace {
    /// How many ranks there are.
    pub(super) world: u32,
    /// How many of them are on this host, as far as is known.
    pub(super) ranks_here: u32,
    /// The number of its GPU among those that the driver shows, where it trains on one.
    pub(super) gpu: u32,
}

impl DeviceOptions {
    /// The part of the configuration that says where to run.
    pub(super) fn of(config: &Config) -> Self {
        Self {
            device: config.run.device,
            ordinal: 0,
            ranks_here: 1,
            seed: config.run.seed,
            memory: config.memory.clone(),
            typed: None,
            target: config.densify.target_gaussians,
            coarse: forecast::coarse(config),
            inputs: forecast::inputs(config, ViewExtras::intended(config)),
        }
    }

    /// The same of one of so many ranks, which trains its share on the GPU of this number. What all ranks would have to give up together is
    /// not given up.
    pub(super) fn of_rank(config: &Config, ranks: RankPlace) -> Self {
        let RankPlace { world, ranks_here, gpu: ordinal } = ranks;
        let target = config.densify.target_gaussians.map(|all| all.div_ceil(world.max(1).into()));
        let mut this = Self { ordinal, ranks_here, target, ..Self::of(config) };
        this.memory.give_up.retain(|rung| !matches!(rung, Rung::Resolution | Rung::Neighbours));
        this
    }

    /// Whether it is a GPU.
    pub(super) fn is_gpu(&self) -> bool {
        match self.device {
            DeviceChoice::Cpu => false,
            DeviceChoice::Cuda => true,
            DeviceChoice::Auto => gpu::is_present(),
        }
    }

    /// The same of a command that takes the options of an earlier run: of those, what has no effect was
    /// said when it was trained.
    pub(super) fn of_earlier(config: &Config, matches: &ArgMatches) -> Self {
        let is_typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let typed = matches.ids().map(|id| id.as_str().to_owned()).filter(|id| is_typed(id));
        Self { typed: Some(typed.collect()), ..Self::of(config) }
    }

    /// The same of a command after which the model has as many Gaussians as before: of what may be given up,
    /// births and lists of neighbours are nothing that it has.
    pub(super) fn of_surface(config: &Config, matches: &ArgMatches) -> Self {
        let earlier = Self::of_earlier(config, matches);
        let mut this = Self { target: None, coarse: None, inputs: Inputs::NONE, ..earlier };
        let (idle, kept) = this.memory.give_up.iter().copied().partition(Self::is_of_training);
        this.memory.give_up = kept;
        let idle: Vec<Rung> = idle;
        if is_typed(matches, "give_up") && !idle.is_empty() {
            let names: Vec<_> = idle.iter().filter_map(ValueEnum::to_possible_value).collect();
            let names: Vec<&str> = names.iter().map(PossibleValue::get_name).collect();
            tracing::warn!(
                "--give-up {} has no effect here: it is about what splat train does with the model",
                names.join(",")
            );
        }
        this
    }

    fn is_of_training(rung: &Rung) -> bool {
        matches!(rung, Rung::Births | Rung::Neighbours)
    }
}

/// Opens the device that was asked for and has it do the work.
///
/// Nobody trains on the processor by accident: on a machine with an NVIDIA GPU it has to be named.
pub(super) fn on<T: Task>(options: &DeviceOptions, task: T) -> anyhow::Result<T::Output> {
    if options.is_gpu() { on_cuda(options, task) } else { on_cpu(options, task) }
}

/// Whether the demonstration trains on the processor although the machine has a GPU: it shows what the
/// program does, and this program cannot use any GPU. Scenes of the user's own are refused there.
pub(super) fn demo_lacks_kernels(device: DeviceChoice) -> bool {
    device == DeviceChoice::Auto && gpu::kernels().is_none() && gpu::is_present()
}

/// True if the processor does the work of these options.
pub(super) fn is_on_processor(config: &Config) -> bool {
    let has_gpu = gpu::is_present() && gpu::kernels().is_some();
    host_limit::is_on_processor(config.run.device, has_gpu)
}

/// Resolves options with the defaults of the device that they choose, and returns the layers as they are for
/// it.
pub(super) fn resolve_on_device(layers: Layers<'_>) -> Result<(Config, Layers<'_>), ConfigError> {
    let config = resolve(layers)?;
    if !is_on_processor(&config) {
        return Ok((config, layers));
    }
    let layers = Layers { on_processor: true, ..layers };
    Ok((resolve(layers)?, layers))
}

fn on_cpu<T: Task>(options: &DeviceOptions, task: T) -> anyhow::Result<T::Output> {
    task.run(&mut processor(options)?)
}

/// The processor with these options.
pub(super) fn processor(options: &DeviceOptions) -> anyhow::Result<Cpu<f32>> {
    let is_typed = |key: &str| options.typed.as_ref().is_none_or(|typed| typed.contains(key));
    let idle = options.memory.idle_on_cpu(is_typed)?;
    if !idle.is_empty() {
        tracing::info!("without effect on the CPU: {}", idle.join(", "));
    }
    if is_typed("preset") && options.memory.idle_on_cpu(|_| true)?.len() > idle.len() {
        tracing::info!("the preset's limits of GPU memory are without effect on the CPU");
    }
    Ok(Cpu::with_storage(options.memory.optimize_memory.storage_on_cpu(), options.seed))
}

#[cfg(kernels)]
fn on_cuda<T: Task>(options: &DeviceOptions, task: T) -> anyhow::Result<T::Output> {
    let mut cuda = open_cuda(options)?;
    let uuid = cuda.info().uuid;
    task.run(&mut cuda).map_err(|error| name_holders(error, uuid.as_deref()))
}

/// Says who holds the GPU's memory, where others keep this program from having enough of it.
#[cfg(kernels)]
fn name_holders(error: anyhow::Error, uuid: Option<&str>) -> anyhow::Error {
    if !device_error(&error).is_some_and(DeviceError::is_short_beside_others) {
        return error;
    }
    let gpus = nvidia::list().unwrap_or_default();
    tracing::warn!("{}", holders::short_of_memory(&gpus, uuid));
    error
}

/// The GPU, or why it cannot be used.
#[cfg(kernels)]
pub(super) fn open_cuda(options: &DeviceOptions) -> anyhow::Result<Cuda> {
    let memory = &options.memory;
    let opened = Cuda::open(&CudaOptions {
        ordinal: options.ordinal,
        vram_limit: memory.vram_limit,
        vram_threshold: memory.vram_threshold,
        host_limit: memory.host_limit,
        ranks_here: options.ranks_here,
        give_up: memory.give_up.clone(),
        trim_interval: memory.fragmentation.interval(),
        storage: memory.storage_on_gpu(),
        seed: options.seed,
        target: options.target,
        coarse: options.coarse,
        inputs: options.inputs,
    });
    let opened = match opened {
        Err(error) if error.is_short_beside_others() => {
            let uuid = crate::backend::cuda::driver::uuid_of(options.ordinal);
            return Err(name_holders(error.into(), uuid.as_deref()));
        }
        // The limit is the user's own, and the message names it.
        Err(error) if error.is_out_of_memory() => return Err(error.into()),
        other => other,
    };
    opened.context(match options.device {
        DeviceChoice::Cuda => "--device cuda: the GPU cannot be used (see splat doctor)",
        DeviceChoice::Auto | DeviceChoice::Cpu => {
            "this machine's NVIDIA GPU cannot be used (see splat doctor; --device cpu trains on the \
             processor, far slower)"
        }
    })
}

/// A GPU that this program can use.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(not(kernels), allow(dead_code, reason = "a program without kernels finds none"))]
pub(super) struct UsableGpu {
    /// In words.
    pub(super) name: String,
    /// As NVIDIA's tools write it.
    pub(super) uuid: Option<String>,
    /// Whether what grows can stay where it is.
    pub(super) virtual_memory: bool,
    /// What may be taken of its memory without a `--vram-limit`, as others use it now.
    pub(super) budget: Option<Bytes>,
}

/// Why a GPU cannot be used.
#[derive(Clone, Debug)]
pub(super) struct GpuProblem {
    pub(super) reason: String,
    /// The GPU itself would do; other programs have filled its memory.
    pub(super) is_full: bool,
}

#[cfg(kernels)]
impl From<DeviceError> for GpuProblem {
    fn from(error: DeviceError) -> Self {
        Self { reason: error.to_string(), is_full: error.is_short_beside_others() }
    }
}

/// The GPU, or why this program cannot use it.
#[cfg(kernels)]
pub(super) fn try_gpu() -> Result<UsableGpu, GpuProblem> {
    let gpu = Cuda::open(&CudaOptions::default())?;
    let DeviceInfo { name, uuid } = gpu.info();
    gpu.heap().update_foreign_use()?;
    Ok(UsableGpu {
        name,
        uuid,
        virtual_memory: gpu.heap().is_virtual(),
        budget: Some(gpu.heap().budget()),
    })
}

/// Why this program cannot use a GPU.
#[cfg(not(kernels))]
pub(super) fn try_gpu() -> Result<UsableGpu, GpuProblem> {
    let reason = "this program was built without CUDA kernels".to_owned();
    Err(GpuProblem { reason, is_full: false })
}

#[cfg(not(kernels))]
fn on_cuda<T: Task>(options: &DeviceOptions, _task: T) -> anyhow::Result<T::Output> {
    Err(no_kernels(options).into())
}

/// Why a program without kernels does not train where it was asked to.
#[cfg(any(not(kernels), test))]
pub(super) fn no_kernels(options: &DeviceOptions) -> DeviceError {
    let asked = match options.device {
        DeviceChoice::Cuda => "--device cuda: this",
        DeviceChoice::Auto | DeviceChoice::Cpu => "this machine has an NVIDIA GPU, but this",
    };
    DeviceError::Unavailable(format!(
        "{asked} program was built without CUDA kernels. {REBUILD}, or use --device cpu"
    ))
}

/// How a program comes by CUDA kernels.
pub(super) const REBUILD: &str =
    "Build it again with nvcc of CUDA 13.0 or newer on the PATH or named by NVCC or CUDA_HOME";
