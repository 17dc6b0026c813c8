//! `splat doctor`: what this machine and this program can do.

use clap::Args;
use serde::Serialize;

use super::print;
use crate::backend::nvidia::{self, Gpu};
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
    gpus: Vec<Gpu>,
    /// Why no GPU is listed.
    nvml: Option<String>,
    /// What to do.
    advice: Vec<&'static str>,
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
        let mut advice = Vec::new();
        if nvidia::is_present() {
            advice.push(
                "There is an NVIDIA GPU, but this program has no CUDA kernels: train with --device \
                 cpu, on small scenes.",
            );
        }
        Self {
            version: env!("CARGO_PKG_VERSION"),
            devices: vec!["cpu"],
            cpu_threads: rayon::current_num_threads(),
            host_memory: host_memory().map(|host| host.total),
            disk_free: disk_free(),
            wsl: std::path::Path::new("/usr/lib/wsl/lib").exists(),
            gpus,
            nvml,
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
            "CUDA       no kernels in this program".to_owned(),
        ];
        if self.wsl {
            lines.push("WSL        yes".to_owned());
        }
        for gpu in &self.gpus {
            lines.push(format!(
                "GPU        {}, {:.1} GiB, {:.1} GiB free, driver {}",
                gpu.name,
                gpu.memory.gib(),
                gpu.free.gib(),
                gpu.driver
            ));
        }
        if let Some(reason) = &self.nvml {
            lines.push(format!("GPU        none found ({reason})"));
        }
        lines.extend(self.advice.iter().map(|advice| format!("\n{advice}")));
        lines.join("\n")
    }
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
