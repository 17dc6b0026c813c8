//! `splat doctor`: what this machine and this program can do.

use clap::Args;
use serde::Serialize;

use super::device::{REBUILD, try_gpu};
use super::print;
use crate::backend::nvidia::{self, Gpu, KernelBuild};
use crate::memory::{Bytes, host_memory};

/// Arguments of `splat doctor`.
#[derive(Args)]
pub(super) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Serialize)]
struct Findings {
    version: &'static str,
    /// Devices that this program can train on.
    devices: Vec<&'static str>,
    cpu_threads: usize,
    host_memory: Option<Bytes>,
    /// Free space in the working directory, where models go by default.
    disk_free: Option<Bytes>,
    wsl: bool,
    /// How the CUDA kernels were compiled, where there are any.
    kernels: Option<KernelBuild>,
    gpus: Vec<Gpu>,
    /// Why the management library lists no GPU.
    nvml: Option<String>,
    /// The GPU that training runs on, in words.
    trains_on_gpu: Option<String>,
    /// Why it cannot, on a machine that has one.
    gpu_problem: Option<String>,
    /// What to do.
    advice: Vec<String>,
}

/// Prints the findings. That something is missing is a finding, not an error.
pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let findings = Findings::gather();
    print(&if args.json { serde_json::to_string_pretty(&findings)? } else { findings.text() });
    Ok(())
}

impl Findings {
    fn gather() -> Self {
        let (gpus, nvml) = match nvidia::list() {
            Ok(gpus) => (gpus, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        let kernels = nvidia::kernels();
        let (trains_on_gpu, gpu_problem) = match (nvidia::is_present(), try_gpu()) {
            (_, Ok(name)) => (Some(name), None),
            (true, Err(problem)) => (None, Some(problem)),
            (false, Err(_)) => (None, None),
        };
        let mut advice = Vec::new();
        if kernels.is_none() {
            advice.push(format!(
                "This program was built without CUDA kernels and trains on the CPU only. {REBUILD}, \
                 and it trains on an NVIDIA GPU."
            ));
        } else if let Some(problem) = &gpu_problem {
            advice.push(format!("There is an NVIDIA GPU, but it cannot be used: {problem}."));
        }
        let mut devices = vec!["cpu"];
        if trains_on_gpu.is_some() {
            devices.insert(0, "cuda");
        }
        Self {
            version: env!("CARGO_PKG_VERSION"),
            devices,
            cpu_threads: rayon::current_num_threads(),
            host_memory: host_memory().map(|host| host.total),
            disk_free: disk_free(),
            wsl: std::path::Path::new("/usr/lib/wsl/lib").exists(),
            kernels,
            gpus,
            nvml,
            trains_on_gpu,
            gpu_problem,
            advice,
        }
    }

    fn text(&self) -> String {
        let mut lines = vec![
            format!("splat      {}", self.version),
            format!("trains on  {}", self.devices.join(", ")),
            format!("CPU        {} threads", self.cpu_threads),
            match self.host_memory {
                Some(total) => format!("RAM        {:.1} GiB", total.gib()),
                None => "RAM        unknown on this system".to_owned(),
            },
            match self.disk_free {
                Some(free) => format!("disk       {:.1} GiB free here", free.gib()),
                None => "disk       unknown on this system".to_owned(),
            },
            match self.kernels {
                Some(build) => format!(
                    "CUDA       kernels for compute capability {}, compiled by nvcc {}",
                    capabilities(build.archs),
                    build.nvcc
                ),
                None => "CUDA       no kernels in this program".to_owned(),
            },
        ];
        if self.wsl {
            lines.push("WSL        yes".to_owned());
        }
        lines.extend(self.gpus.iter().map(describe));
        if let Some(name) = &self.trains_on_gpu {
            lines.push(format!("GPU        usable: {name}"));
        }
        if self.gpu_problem.is_some() {
            lines.push("GPU        not usable".to_owned());
        }
        // The driver may know of a GPU where its management library is missing.
        let is_unknown = self.trains_on_gpu.is_none() && self.gpu_problem.is_none();
        if let Some(reason) = self.nvml.as_ref().filter(|_| is_unknown) {
            lines.push(format!("GPU        none found ({reason})"));
        }
        lines.extend(self.advice.iter().map(|advice| format!("\n{advice}")));
        lines.join("\n")
    }
}

/// `7.5, 9.0`
fn capabilities(archs: &[u32]) -> String {
    let texts: Vec<String> =
        archs.iter().map(|arch| format!("{}.{}", arch / 10, arch % 10)).collect();
    texts.join(", ")
}

fn describe(gpu: &Gpu) -> String {
    let capability = gpu.arch.map_or("unknown".to_owned(), |arch| capabilities(&[arch]));
    format!(
        "GPU        {}, compute capability {capability}, {:.1} GiB, {:.1} GiB free, driver {} for \
         CUDA {}",
        gpu.name,
        gpu.memory.gib(),
        gpu.free.gib(),
        gpu.driver,
        gpu.driver_cuda.as_deref().unwrap_or("unknown")
    )
}

/// Free space of the file system of the working directory.
#[cfg(unix)]
fn disk_free() -> Option<Bytes> {
    let system = rustix::fs::statvfs(".").ok()?;
    Some(Bytes(system.f_bavail.saturating_mul(system.f_frsize)))
}

#[cfg(not(unix))]
fn disk_free() -> Option<Bytes> {
    None
}
