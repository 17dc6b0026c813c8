//! NVIDIA hardware of the machine, found without linking to a driver.

use std::path::Path;

use serde::Serialize;

use crate::memory::Bytes;

const WSL_FOLDER: &str = "/usr/lib/wsl/lib";

/// Exists if the driver has found a GPU under WSL.
const WSL_DRIVER: &str = "/usr/lib/wsl/lib/libcuda.so.1";

/// Returns true if the program runs under the Windows Subsystem for Linux.
pub fn is_wsl() -> bool {
    Path::new(WSL_FOLDER).exists()
}

/// Returns true if files of the system show an NVIDIA GPU with a driver. Windows and Jetson have no such files.
pub fn has_gpu_files() -> bool {
    Path::new(WSL_DRIVER).exists() || has_gpu_file(Path::new("/dev"))
}

/// Returns true if the folder has a file `nvidia` with a number. The number may be any, as in containers.
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
    /// Its identifier: `GPU-xxxxxxxx-...`.
    pub uuid: Option<String>,
    /// All of its memory.
    pub memory: Bytes,
    /// Free memory.
    pub free: Bytes,
    /// Compute capability as 10 major + minor, if the driver reports it.
    pub arch: Option<u32>,
    /// Version of the driver.
    pub driver: String,
    /// CUDA version that the driver supports, such as `13.0`, if the driver reports it.
    pub driver_cuda: Option<String>,
    /// Other programs that use the GPU, the largest first; absent if the driver does not report them.
    pub users: Option<Vec<User>>,
}

/// A program that uses a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct User {
    /// Number of the process. A container may know the process by another number.
    pub pid: u32,
    /// Path of the program, if this user may read it.
    pub name: Option<String>,
    /// GPU memory of the program, if the driver reports it.
    pub memory: Option<Bytes>,
}

/// Build of this program's kernels.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KernelBuild {
    /// Compute capabilities with machine code, as 10 major + minor. Later GPUs run code that the driver compiles.
    pub archs: &'static [u32],
    /// Version of the compiler.
    pub nvcc: &'static str,
}

/// Way in which a program runs on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// The program has machine code for the GPU.
    MachineCode,
    /// The driver compiles the kernels when they are first loaded.
    CompiledByDriver,
    /// The program cannot run.
    Unfit,
}

impl KernelBuild {
    /// Returns the way in which the kernels run on a GPU of this compute capability, as 10 major + minor.
    pub fn fit(&self, arch: u32) -> Fit {
        let runs_as_it_is = |&code: &u32| code / 10 == arch / 10 && code <= arch;
        if self.archs.iter().any(runs_as_it_is) {
            Fit::MachineCode
        } else if self.archs.iter().max().is_some_and(|&newest| newest <= arch) {
            Fit::CompiledByDriver
        } else {
            Fit::Unfit
        }
    }
}

/// Opens NVIDIA's management library. The error is the reason for people.
#[cfg(feature = "cuda")]
fn open() -> Result<nvml_wrapper::Nvml, String> {
    nvml_wrapper::Nvml::init().map_err(|error| match error {
        nvml_wrapper::error::NvmlError::LibloadingError(_) => {
            "NVIDIA's management library is not installed".to_owned()
        }
        other => other.to_string(),
    })
}

#[cfg(not(feature = "cuda"))]
const NO_FEATURE: &str = "this program was built without the feature `cuda`";

/// Lists the machine's GPUs by NVIDIA's management library. The error is the reason for people.
#[cfg(feature = "cuda")]
pub fn list() -> Result<Vec<Gpu>, String> {
    let describe = |error: nvml_wrapper::error::NvmlError| error.to_string();
    let nvml = open()?;
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
                uuid: device.uuid().ok(),
                memory: Bytes(memory.total),
                free: Bytes(memory.free),
                arch: capability.map(|found| (found.major * 10 + found.minor).unsigned_abs()),
                driver: driver.clone(),
                driver_cuda: driver_cuda.clone(),
                users: users(&nvml, &device),
            })
        })
        .collect()
}

/// Lists the other programs with computations or windows on a GPU, if the driver reports them.
#[cfg(feature = "cuda")]
fn users(nvml: &nvml_wrapper::Nvml, device: &nvml_wrapper::Device<'_>) -> Option<Vec<User>> {
    use nvml_wrapper::enums::device::UsedGpuMemory;

    const NAME_BYTES: usize = 512;
    let computing = device.running_compute_processes();
    let drawing = device.running_graphics_processes();
    if computing.is_err() && drawing.is_err() {
        return None;
    }
    let mut users: Vec<User> = Vec::new();
    for process in computing.into_iter().chain(drawing).flatten() {
        let pid = process.pid;
        if pid == std::process::id() || users.iter().any(|user| user.pid == pid) {
            continue;
        }
        let memory = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
            UsedGpuMemory::Unavailable => None,
        };
        users.push(User { pid, name: nvml.sys_process_name(pid, NAME_BYTES).ok(), memory });
    }
    users.sort_by_key(|user| std::cmp::Reverse(user.memory));
    Some(users)
}

/// Returns the free memory of a GPU, if the management library reports it.
#[cfg(feature = "cuda")]
pub fn free(uuid: &str) -> Option<Bytes> {
    let nvml = nvml_wrapper::Nvml::init().ok()?;
    let memory = nvml.device_by_uuid(uuid).ok()?.memory_info().ok()?;
    Some(Bytes(memory.free))
}

/// Returns the memory that this process holds of a GPU. `None` if the management library does not report it, as under
/// WSL, or knows the process by another number, as in a container.
#[cfg(feature = "cuda")]
pub fn held_by_this_process(uuid: &str) -> Option<Bytes> {
    let nvml = nvml_wrapper::Nvml::init().ok()?;
    let processes = nvml.device_by_uuid(uuid).ok()?.running_compute_processes().ok()?;
    let own = processes.into_iter().find(|process| process.pid == std::process::id())?;
    match own.used_gpu_memory {
        nvml_wrapper::enums::device::UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
        nvml_wrapper::enums::device::UsedGpuMemory::Unavailable => None,
    }
}

/// Returns `None` without the management library.
#[cfg(not(feature = "cuda"))]
pub fn free(_uuid: &str) -> Option<Bytes> {
    None
}

/// Returns `None` without the management library.
#[cfg(not(feature = "cuda"))]
pub fn held_by_this_process(_uuid: &str) -> Option<Bytes> {
    None
}

/// Fails: this program was built without the feature that lists GPUs.
#[cfg(not(feature = "cuda"))]
pub fn list() -> Result<Vec<Gpu>, String> {
    Err(NO_FEATURE.to_owned())
}

// Figures of a GPU at work from NVIDIA's management library.

/// Figures of a GPU at one moment. Absent if the library does not report them, as under WSL and on laptops.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuSample {
    /// Share of the last sampling period in which a kernel ran, per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<u32>,
    /// Share of the last sampling period in which memory was read or written, per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_load: Option<u32>,
    /// Memory that all programs use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used: Option<Bytes>,
    /// All of its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total: Option<Bytes>,
    /// Temperature of the chip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// Power that the board draws, W.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Limit of the power, W.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<f64>,
    /// Speed of the first fan, per cent. Servers' GPUs have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fan_percent: Option<u32>,
    /// Clock of the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_memory_mhz: Option<u32>,
    /// Performance state: 0 is the fastest, 15 the slowest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pstate: Option<u32>,
    /// Clock of the multiprocessors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_sm_mhz: Option<u32>,
    /// Reasons why the GPU runs below its clocks; empty if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Vec<Throttle>>,
}

/// Reason why a GPU with work runs slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// It reached its power limit.
    PowerLimit,
    /// It is too hot.
    Temperature,
    /// The power supply asks for less.
    PowerBrake,
    /// Heat, power or supply; the hardware does not report which.
    Hardware,
    /// A GPU in the same group is slowed.
    SyncBoost,
}

impl GpuSample {
    /// Returns the share of the memory in use, per cent.
    pub fn memory_percent(&self) -> Option<f64> {
        let (used, total) = (self.memory_used?, self.memory_total?);
        (total.0 > 0).then(|| 100.0 * used.gib() / total.gib())
    }

    /// Returns true if the library reported nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Opens the management library while `work` runs and passes it a function that samples the GPU with this identifier.
/// The error is the reason for people.
#[cfg(feature = "cuda")]
pub fn watch<R>(uuid: &str, work: impl FnOnce(&dyn Fn() -> GpuSample) -> R) -> Result<R, String> {
    let nvml = open()?;
    let device = nvml.device_by_uuid(uuid).map_err(|error| format!("{uuid}: {error}"))?;
    Ok(work(&|| sample(&device)))
}

/// Fails: this program was built without the management library.
#[cfg(not(feature = "cuda"))]
pub fn watch<R>(_uuid: &str, _work: impl FnOnce(&dyn Fn() -> GpuSample) -> R) -> Result<R, String> {
    Err(NO_FEATURE.to_owned())
}

#[cfg(feature = "cuda")]
fn sample(device: &nvml_wrapper::Device<'_>) -> GpuSample {
    use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
    let memory = device.memory_info().ok();
    let rates = device.utilization_rates().ok();
    // The library counts milliwatts.
    let watts = |milliwatts: u32| f64::from(milliwatts) * 1e-3;
    GpuSample {
        utilization: rates.as_ref().map(|rates| rates.gpu),
        memory_load: rates.as_ref().map(|rates| rates.memory),
        memory_used: memory.as_ref().map(|memory| Bytes(memory.used)),
        memory_total: memory.as_ref().map(|memory| Bytes(memory.total)),
        temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
        power_w: device.power_usage().ok().map(watts),
        power_limit_w: device.enforced_power_limit().ok().map(watts),
        fan_percent: device.fan_speed(0).ok(),
        clock_memory_mhz: device.clock_info(Clock::Memory).ok(),
        pstate: device.performance_state().ok().and_then(state_number),
        clock_sm_mhz: device.clock_info(Clock::SM).ok(),
        throttle: device.current_throttle_reasons().ok().map(reasons),
    }
}

#[cfg(feature = "cuda")]
fn state_number(state: nvml_wrapper::enum_wrappers::device::PerformanceState) -> Option<u32> {
    use nvml_wrapper::enum_wrappers::device::PerformanceState;
    (state != PerformanceState::Unknown).then(|| state.as_c())
}

/// Converts the reasons. Leaves out idle GPUs and clocks set by the user, which are no faults.
#[cfg(feature = "cuda")]
fn reasons(found: nvml_wrapper::bitmasks::device::ThrottleReasons) -> Vec<Throttle> {
    use nvml_wrapper::bitmasks::device::ThrottleReasons as Reasons;
    let heat = Reasons::SW_THERMAL_SLOWDOWN.union(Reasons::HW_THERMAL_SLOWDOWN);
    [
        (Reasons::SW_POWER_CAP, Throttle::PowerLimit),
        (heat, Throttle::Temperature),
        (Reasons::HW_POWER_BRAKE_SLOWDOWN, Throttle::PowerBrake),
        (Reasons::HW_SLOWDOWN, Throttle::Hardware),
        (Reasons::SYNC_BOOST, Throttle::SyncBoost),
    ]
    .into_iter()
    .filter_map(|(reason, word)| found.intersects(reason).then_some(word))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbered_files_show_a_gpu() {
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

    #[test]
    fn the_driver_compiles_kernels_for_later_majors_only() {
        let built = KernelBuild { archs: &[80, 86, 90], nvcc: "13.0" };
        for (arch, fit) in [
            (75, Fit::Unfit),
            (80, Fit::MachineCode),
            (89, Fit::MachineCode),
            (90, Fit::MachineCode),
            (120, Fit::CompiledByDriver),
        ] {
            assert_eq!(built.fit(arch), fit, "{arch}");
        }
        assert_eq!(KernelBuild { archs: &[86], ..built }.fit(80), Fit::Unfit);
        assert_eq!(KernelBuild { archs: &[], ..built }.fit(90), Fit::Unfit);
    }

    #[test]
    fn the_share_of_the_memory_needs_both_figures() {
        let sample = GpuSample { memory_used: Some(Bytes(3 << 30)), ..GpuSample::default() };
        assert_eq!(sample.memory_percent(), None);
        assert!(!sample.is_empty() && GpuSample::default().is_empty());
        let sample = GpuSample { memory_total: Some(Bytes(4 << 30)), ..sample };
        assert_eq!(sample.memory_percent(), Some(75.0));
        let none = GpuSample { memory_total: Some(Bytes(0)), ..sample };
        assert_eq!(none.memory_percent(), None);
    }

    #[test]
    fn absent_figures_are_not_written() {
        let sample = GpuSample {
            temperature_c: Some(61),
            throttle: Some(vec![Throttle::PowerLimit]),
            ..GpuSample::default()
        };
        let json = serde_json::to_string(&sample).unwrap();
        assert_eq!(json, r#"{"temperature_c":61,"throttle":["power_limit"]}"#);
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn an_idle_gpu_is_not_slowed() {
        use nvml_wrapper::bitmasks::device::ThrottleReasons as Reasons;
        assert_eq!(reasons(Reasons::GPU_IDLE | Reasons::APPLICATIONS_CLOCKS_SETTING), []);
        assert_eq!(
            reasons(Reasons::SW_POWER_CAP | Reasons::HW_THERMAL_SLOWDOWN | Reasons::HW_SLOWDOWN),
            [Throttle::PowerLimit, Throttle::Temperature, Throttle::Hardware]
        );
    }
}
