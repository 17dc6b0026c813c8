//! Choice of the device, and checks of its memory.

use std::collections::BTreeSet;

use clap::ArgMatches;
use serde::Serialize;

use super::exit::DoesNotFit;
use super::parser::is_typed;
use crate::backend::cpu::Cpu;
use crate::backend::nvidia::User;
use crate::backend::{Device, DeviceError, Inputs, MemoryKind, Peaks, TrainDevice, gpu};
use crate::config::{
    Config, ConfigError, DeviceChoice, Layers, MemoryOptions, resolve, value_name,
};
use crate::memory::plan::{Forecast, PlannedCoarse, ViewGrowth};
use crate::memory::{Bytes, Fallback};
use crate::train::forecast;
use crate::train::terms::ViewExtras;

#[cfg(any(kernels, test))]
use crate::backend::nvidia::Gpu;

#[cfg(kernels)]
use super::exit::device_error;
#[cfg(kernels)]
use crate::backend::cuda::{Cuda, CudaOptions};
#[cfg(kernels)]
use crate::backend::{DeviceInfo, nvidia};
#[cfg(kernels)]
use anyhow::Context;

/// Work that runs on any device.
pub(super) trait Task {
    /// Result of the work.
    type Output;

    fn run<B: TrainDevice>(self, device: &mut B) -> anyhow::Result<Self::Output>;
}

/// Options that choose a device and its limits.
#[derive(Clone)]
#[cfg_attr(not(kernels), allow(dead_code, reason = "the processor needs few of them"))]
pub(super) struct DeviceOptions {
    device: DeviceChoice,
    /// Index of the GPU in the driver's order.
    ordinal: u32,
    /// Processes of the run on this host.
    ranks_here: u32,
    seed: u64,
    memory: MemoryOptions,
    /// Names of the typed options. `None` warns about every idle option that differs from its default.
    typed: Option<BTreeSet<String>>,
    target: Option<u64>,
    coarse: Option<PlannedCoarse>,
    inputs: Inputs,
}

/// Position of a rank on its host.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankPlace {
    pub(super) world: u32,
    /// Known number of ranks on this host.
    pub(super) ranks_here: u32,
    /// Index of its GPU in the driver's order.
    pub(super) gpu: u32,
}

impl DeviceOptions {
    /// Takes the device options of a configuration.
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

    /// Returns the options of one rank, which trains its share on its own GPU. Fallbacks that all ranks would have to
    /// take together are removed.
    pub(super) fn of_rank(config: &Config, ranks: RankPlace) -> Self {
        let RankPlace { world, ranks_here, gpu: ordinal } = ranks;
        let target = config.densify.target_gaussians.map(|all| all.div_ceil(world.max(1).into()));
        let mut this = Self { ordinal, ranks_here, target, ..Self::of(config) };
        this.memory
            .give_up
            .retain(|fallback| !matches!(fallback, Fallback::Resolution | Fallback::Neighbours));
        this
    }

    /// True if the options choose a GPU.
    pub(super) fn is_gpu(&self) -> bool {
        !self.device.is_cpu(gpu::is_present)
    }

    /// Returns the options of a command that reads an earlier run's configuration. Only typed options without effect
    /// are reported.
    pub(super) fn of_earlier(config: &Config, matches: &ArgMatches) -> Self {
        let typed = matches.ids().map(|id| id.as_str().to_owned());
        let typed = typed.filter(|id| is_typed(matches, id));
        Self { typed: Some(typed.collect()), ..Self::of(config) }
    }

    /// Returns the options of a command that keeps the number of Gaussians. Fallbacks of densification and of
    /// neighbour lists do not apply.
    pub(super) fn of_surface(config: &Config, matches: &ArgMatches) -> Self {
        let earlier = Self::of_earlier(config, matches);
        let mut this = Self { target: None, coarse: None, inputs: Inputs::NONE, ..earlier };
        let give_up = &mut this.memory.give_up;
        let idle = give_up
            .extract_if(.., |it| matches!(it, Fallback::NewGaussians | Fallback::Neighbours));
        let idle: Vec<Fallback> = idle.collect();
        if is_typed(matches, "give_up") && !idle.is_empty() {
            let names: Vec<String> = idle.iter().map(value_name).collect();
            tracing::warn!(
                "--give-up {} has no effect here: it is about what splat train does with the model",
                names.join(",")
            );
        }
        this
    }
}

/// Opens the chosen device and runs the task on it.
///
/// On a machine with an NVIDIA GPU the processor has to be named.
pub(super) fn on<T: Task>(options: &DeviceOptions, task: T) -> anyhow::Result<T::Output> {
    if options.is_gpu() { on_cuda(options, task) } else { task.run(&mut processor(options)?) }
}

/// True if the demonstration trains on the processor of a machine whose GPU this program cannot use.
pub(super) fn demo_lacks_kernels(device: DeviceChoice) -> bool {
    device == DeviceChoice::Auto && gpu::kernels().is_none() && gpu::is_present()
}

/// True if these options run on the processor.
pub(super) fn is_on_processor(config: &Config) -> bool {
    config.run.device.is_cpu(|| gpu::is_present() && gpu::kernels().is_some())
}

/// Resolves options with the defaults of the device that they choose. Returns the layers adapted to that device.
pub(super) fn resolve_on_device(layers: Layers<'_>) -> Result<(Config, Layers<'_>), ConfigError> {
    let config = resolve(layers)?;
    if !is_on_processor(&config) {
        return Ok((config, layers));
    }
    let layers = Layers { on_processor: true, ..layers };
    Ok((resolve(layers)?, layers))
}

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

/// Warns about the processes that hold GPU memory if they leave too little.
#[cfg(kernels)]
fn name_holders(error: anyhow::Error, uuid: Option<&str>) -> anyhow::Error {
    if !device_error(&error).is_some_and(DeviceError::is_short_beside_others) {
        return error;
    }
    let gpus = nvidia::list().unwrap_or_default();
    tracing::warn!("{}", short_of_memory(&gpus, uuid));
    error
}

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
        // This error names the user's own limit and needs no advice about the GPU.
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

/// GPU that this program can use.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(not(kernels), allow(dead_code, reason = "a program without kernels finds none"))]
pub(super) struct UsableGpu {
    pub(super) name: String,
    /// UUID in the format of NVIDIA's tools.
    pub(super) uuid: Option<String>,
    /// True if the driver supports virtual memory, so that buffers grow without copies.
    pub(super) virtual_memory: bool,
    /// Memory available without `--vram-limit`, given the present use by other programs.
    pub(super) budget: Option<Bytes>,
}

/// Reason that a GPU cannot be used.
#[derive(Clone, Debug)]
pub(super) struct GpuProblem {
    pub(super) reason: String,
    /// True if only the memory use of other programs prevents the use of the GPU.
    pub(super) is_full: bool,
}

#[cfg(kernels)]
impl From<DeviceError> for GpuProblem {
    fn from(error: DeviceError) -> Self {
        Self { reason: error.to_string(), is_full: error.is_short_beside_others() }
    }
}

/// Opens the GPU and describes it.
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

/// Returns the error of a program without kernels.
#[cfg(not(kernels))]
pub(super) fn try_gpu() -> Result<UsableGpu, GpuProblem> {
    let reason = "this program was built without CUDA kernels".to_owned();
    Err(GpuProblem { reason, is_full: false })
}

#[cfg(not(kernels))]
fn on_cuda<T: Task>(options: &DeviceOptions, _task: T) -> anyhow::Result<T::Output> {
    Err(no_kernels(options).into())
}

/// Returns the error of a program without kernels whose run requests a GPU.
#[cfg(any(not(kernels), test))]
pub(super) fn no_kernels(options: &DeviceOptions) -> DeviceError {
    let subject = match options.device {
        DeviceChoice::Cuda => "--device cuda: this",
        DeviceChoice::Auto | DeviceChoice::Cpu => "this machine has an NVIDIA GPU, but this",
    };
    DeviceError::Unavailable(format!(
        "{subject} program was built without CUDA kernels. {REBUILD}, or use --device cpu"
    ))
}

/// Advice for building a program with CUDA kernels.
pub(super) const REBUILD: &str =
    "Build it again with nvcc of CUDA 13.0 or newer on the PATH or named by NVCC or CUDA_HOME";

// Memory check before rendering.

/// Available memory of a GPU.
pub(super) struct DeviceRoom {
    budget: Bytes,
    /// Memory of context and code.
    pub(super) context: Bytes,
}

/// Render work whose memory is checked.
pub(super) struct DrawingPlan<'a> {
    /// Name of the work, the beginning of a sentence.
    pub(super) what: &'static str,
    /// Advice beside more memory.
    pub(super) remedy: &'static str,
    /// Upper bound on the Gaussians that views see.
    pub(super) seen_at_most: ViewGrowth,
    /// Counts the Gaussians that views see. Slow: called only if the upper bound does not fit.
    pub(super) count_seen: &'a dyn Fn() -> ViewGrowth,
}

impl DeviceRoom {
    /// Returns the memory of a device, or `None` for the processor.
    pub(super) fn of(device: &mut impl Device) -> Option<Self> {
        let memory = device.memory(Peaks::Keep)?;
        let context = memory.entries.iter().filter(|entry| entry.kind == MemoryKind::Context);
        Some(Self { budget: memory.budget, context: context.map(|entry| entry.mapped).sum() })
    }

    /// Returns an error if the work does not fit even after all fallbacks.
    pub(super) fn check(
        &self,
        plan: &DrawingPlan<'_>,
        forecast: impl Fn(ViewGrowth, Bytes) -> Forecast,
    ) -> Result<(), DoesNotFit> {
        if forecast(plan.seen_at_most, self.budget).least <= self.budget {
            return Ok(());
        }
        let counted = forecast((plan.count_seen)(), self.budget);
        if counted.least <= self.budget {
            return Ok(());
        }
        Err(DoesNotFit(format!(
            "{} does not fit the GPU's memory. {}\nRaise --vram-limit, end other programs on the GPU, or {}",
            plan.what,
            shortage(&counted, self.budget),
            plan.remedy
        )))
    }
}

/// Formats the largest stage and the available memory as a table.
fn shortage(forecast: &Forecast, budget: Bytes) -> String {
    let most = forecast.stages.iter().max_by_key(|stage| stage.total);
    let Some(stage) = most else { return String::new() };
    let rows = stage.largest_rows().into_iter();
    let table: String =
        rows.map(|(label, bytes)| format!("{:>12.1} MiB  {label}\n", bytes.mib())).collect();
    format!(
        "Its stage `{}` takes most:\n{table}{:>12.1} MiB  at least\n{:>12.1} MiB  may be taken",
        stage.name,
        forecast.least.mib(),
        budget.mib()
    )
}

// Processes that hold GPU memory.

/// Number of programs that are listed by name.
const LISTED_HOLDERS: usize = 2;

/// Lists holders: `process 17 (/usr/bin/game), 3.00 GiB; 2 more`. `others` follows the number of those that are not
/// listed.
pub(super) fn holders_in_words(users: &[&User], others: &str) -> String {
    let described = |user: &&User| {
        let memory = user.memory.map(|held| format!(", {:.2} GiB", held.gib()));
        let name = user.name.as_deref().unwrap_or("name unknown");
        format!("process {} ({name}){}", user.pid, memory.unwrap_or_default())
    };
    let mut listed: Vec<String> = users.iter().take(LISTED_HOLDERS).map(described).collect();
    if users.len() > LISTED_HOLDERS {
        listed.push(format!("{} {others}", users.len() - LISTED_HOLDERS));
    }
    listed.join("; ")
}

/// Returns a message about the processes that hold a GPU's memory. If `uuid` is unknown, the machine's only GPU is
/// meant.
#[cfg(any(kernels, test))]
pub(super) fn short_of_memory(gpus: &[Gpu], uuid: Option<&str>) -> String {
    let is_meant = |gpu: &&Gpu| match (uuid, gpu.uuid.as_deref()) {
        (Some(uuid), Some(found)) => uuid == found,
        (_, None) | (None, _) => gpus.len() == 1,
    };
    let own = std::process::id();
    let users: Vec<&User> = gpus
        .iter()
        .filter(is_meant)
        .filter_map(|gpu| gpu.users.as_deref())
        .flatten()
        .filter(|user| user.pid != own)
        .collect();
    if users.is_empty() {
        return "the NVIDIA GPU has too little free memory, and the driver does not name the \
                programs that hold it (nvidia-smi on the machine itself may)"
            .to_owned();
    }
    format!(
        "the NVIDIA GPU has too little free memory; other programs use it: {}",
        holders_in_words(&users, "more processes")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::plan::{PlannedRow, PlannedStage};

    fn forecast(seen: ViewGrowth) -> Forecast {
        let bytes = Bytes(seen.of(1 << 20).instances);
        let row = |label, bytes| PlannedRow { label, bytes };
        let rows = vec![row("instances", bytes), row("geometry", Bytes(1))];
        let stage = PlannedStage { name: "depths", rows, total: bytes };
        Forecast {
            stages: vec![stage],
            peak: bytes,
            least: bytes,
            in_bands: false,
            training_scale: 1.0,
            neighbours: None,
            photographs_resident: 0,
            photographs: 0,
        }
    }

    #[test]
    fn views_are_counted_only_if_the_upper_bound_does_not_fit() {
        let seen = |share| ViewGrowth { px: [8, 8], share, surface: 0.0 };
        let check = |mib: u64, count_seen: &dyn Fn() -> ViewGrowth| {
            let room = DeviceRoom { budget: Bytes(mib << 18), context: Bytes(0) };
            let (what, remedy) = ("the mesh", "draw smaller views with -r 2");
            let plan = DrawingPlan { what, remedy, seen_at_most: seen(1.0), count_seen };
            room.check(&plan, |seen, _| forecast(seen)).map_err(|refusal| refusal.to_string())
        };
        assert_eq!(check(4, &|| panic!("it fits without a count")), Ok(()));
        assert_eq!(check(2, &|| seen(0.5)), Ok(()));
        let refusal = check(1, &|| seen(0.5)).unwrap_err();
        for part in ["`depths`", "0.5 MiB  instances", "0.2 MiB  may be taken", "with -r 2"] {
            assert!(refusal.contains(part), "{part}: {refusal}");
        }
    }

    fn gpu(uuid: &str, users: Vec<User>) -> Gpu {
        Gpu {
            name: "a GPU".to_owned(),
            uuid: Some(uuid.to_owned()),
            memory: Bytes(140 << 30),
            free: Bytes(5 << 30),
            arch: Some(90),
            driver: "580.1".to_owned(),
            driver_cuda: None,
            users: Some(users),
        }
    }

    fn user(pid: u32, gib: u64) -> User {
        User { pid, name: Some("python".to_owned()), memory: Some(Bytes(gib << 30)) }
    }

    #[test]
    fn memory_holders_of_the_used_gpu_are_named() {
        let own = user(std::process::id(), 4);
        let gpus =
            [gpu("GPU-0", vec![user(17, 134), own, user(18, 1)]), gpu("GPU-1", vec![user(19, 2)])];
        assert_eq!(
            short_of_memory(&gpus, Some("GPU-0")),
            "the NVIDIA GPU has too little free memory; other programs use it: process 17 (python), \
             134.00 GiB; process 18 (python), 1.00 GiB"
        );
        assert!(short_of_memory(&gpus[1..], None).contains("process 19"));
        assert!(short_of_memory(&gpus, None).contains("does not name"));
        assert!(short_of_memory(&gpus, Some("GPU-2")).contains("does not name"));
        assert!(short_of_memory(&[], None).contains("does not name"));
    }

    #[test]
    fn a_long_list_of_holders_is_cut() {
        let gpus = [gpu("GPU-0", (0..11).map(|pid| user(pid, 1)).collect())];
        let text = short_of_memory(&gpus, None);
        assert!(text.contains("process 1 ") && !text.contains("process 2 "), "{text}");
        assert!(text.ends_with("; 9 more processes"), "{text}");
    }
}
