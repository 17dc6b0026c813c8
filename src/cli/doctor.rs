//! `splat doctor`: what this machine and this program can do.

mod advice;
mod findings;

use std::path::Path;

use clap::Args;

use self::findings::{Findings, LpipsFinding, capabilities, nccl_line};
use super::device::try_gpu;
use super::holders::{self, in_words};
use super::output::print;
use super::preset;
use crate::backend::gpu;
use crate::backend::nvidia::{self, Fit, Gpu, KernelBuild};
use crate::config::preset_for_card;
use crate::files::free_space;
use crate::memory::{Bytes, host_memory};

/// Arguments of `splat doctor`.
#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 where `splat train` can run; 1 where it would refuse to, or \
                        has no room to write."
)]
pub(super) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints the findings. That something is missing is a finding; that nothing can be trained is an
/// error.
pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let findings = Findings::gather();
    print(&if args.json { serde_json::to_string_pretty(&findings)? } else { findings.text() })?;
    if !findings.can_train {
        anyhow::bail!("`splat train` cannot run here as it is; the findings say what to do");
    }
    Ok(())
}

impl Findings {
    fn gather() -> Self {
        // Before the program itself is one of those that use the GPU.
        let (gpus, nvml) = match nvidia::list() {
            Ok(gpus) => (gpus, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        let (trains_on_gpu, problem) = match (gpu::is_present(), try_gpu()) {
            (_, Ok(gpu)) => (Some(gpu), None),
            (true, Err(problem)) => (None, Some(problem)),
            (false, Err(_)) => (None, None),
        };
        let gpu_is_full = problem.as_ref().is_some_and(|problem| problem.is_full);
        let gpu_problem = problem.map(|problem| problem.reason);
        let host = host_memory();
        let gpu_memory = gpu::kernels().and_then(|_| gpu::memory());
        let mut findings = Self {
            version: env!("CARGO_PKG_VERSION"),
            can_train: false,
            devices: if trains_on_gpu.is_some() { vec!["cuda", "cpu"] } else { vec!["cpu"] },
            cpu_threads: rayon::current_num_threads(),
            host_memory: host.map(|host| host.total),
            host_machine: host.map(|host| host.machine),
            disk_free: free_space(Path::new(".")).map(Bytes),
            wsl: nvidia::is_wsl(),
            kernels: gpu::kernels(),
            gpus,
            nvml,
            trains_on_gpu,
            preset: gpu_memory.and_then(preset_for_card),
            gpu_memory,
            gpu_problem,
            gpu_is_full,
            nccl: gpu::nccl(),
            lpips: LpipsFinding::gather(),
            advice: Vec::new(),
        };
        findings.can_train = findings.can_train();
        findings.advice = advice::advice(&findings);
        findings
    }

    /// On a machine with a GPU, nobody trains on the processor by accident.
    fn can_train(&self) -> bool {
        self.gpu_problem.is_none() && self.disk_free.is_none_or(|free| free >= advice::DISK_NEEDED)
    }

    fn text(&self) -> String {
        let mut lines = vec![
            format!("splat      {}", self.version),
            format!("trains on  {}", self.devices.join(", ")),
            format!("CPU        {} threads", self.cpu_threads),
            self.ram(),
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
            match &self.nvml {
                Some(reason) => format!("NVML       {reason}"),
                None => "NVML       works: runs show load, memory and heat of the GPU".to_owned(),
            },
        ];
        if self.wsl {
            lines.push("WSL        yes".to_owned());
        }
        for gpu in &self.gpus {
            lines.push(describe(gpu, self.kernels));
            lines.extend(users(gpu));
        }
        lines.extend(self.verdict());
        if self.gpu_memory.is_some() {
            let choice = preset::choice(self.gpu_memory, self.preset);
            lines.push(format!("preset     {choice} (--preset auto)"));
        }
        if self.kernels.is_some() {
            lines.push(format!("NCCL       {}", nccl_line(&self.nccl)));
        }
        lines.push(format!("LPIPS      {}", self.lpips.line()));
        lines.extend(self.advice.iter().map(|advice| format!("\n{advice}")));
        lines.join("\n")
    }

    fn ram(&self) -> String {
        match (self.host_memory, self.host_machine) {
            (Some(total), Some(machine)) if total < machine => {
                let (total, machine) = (total.gib(), machine.gib());
                format!(
                    "RAM        {total:.1} of {machine:.1} GiB (held to that by a control group)"
                )
            }
            (Some(total), _) => format!("RAM        {:.1} GiB", total.gib()),
            (None, _) => "RAM        unknown on this system".to_owned(),
        }
    }

    /// What becomes of the GPU, in lines.
    fn verdict(&self) -> Vec<String> {
        if let Some(gpu) = &self.trains_on_gpu {
            let memory = if gpu.virtual_memory {
                "its memory grows in place"
            } else {
                "its memory grows by copying (no virtual memory management)"
            };
            let budget = gpu.budget.map(|bytes| format!("; {:.1} GiB may be taken", bytes.gib()));
            let budget = budget.unwrap_or_default();
            return vec![format!("GPU        usable: {}; {memory}{budget}", gpu.name)];
        }
        if self.gpu_is_full {
            return vec!["GPU        its memory is taken by other programs".to_owned()];
        }
        if self.gpu_problem.is_some() {
            return vec!["GPU        not usable".to_owned()];
        }
        vec!["GPU        none found".to_owned()]
    }
}

fn describe(gpu: &Gpu, kernels: Option<KernelBuild>) -> String {
    let capability = gpu.arch.map_or("unknown".to_owned(), |arch| capabilities(&[arch]));
    let fit = match kernels.zip(gpu.arch).map(|(build, arch)| build.fit(arch)) {
        Some(Fit::MachineCode) => " (kernels fit)",
        Some(Fit::CompiledByDriver) => " (the driver compiles the kernels when first used)",
        Some(Fit::Unfit) => " (kernels do not fit)",
        None => "",
    };
    format!(
        "GPU        {}, compute capability {capability}{fit}, {:.1} GiB, {:.1} GiB free, driver {} \
         for CUDA {}",
        gpu.name,
        gpu.memory.gib(),
        gpu.free.gib(),
        gpu.driver,
        gpu.driver_cuda.as_deref().unwrap_or("unknown")
    )
}

/// Who else uses a GPU, in lines.
fn users(gpu: &Gpu) -> Vec<String> {
    let Some(users) = &gpu.users else {
        return vec!["           the driver does not report who else uses it".to_owned()];
    };
    let mut lines: Vec<String> = users
        .iter()
        .take(holders::LISTED)
        .map(|user| format!("           used by {}", in_words(user)))
        .collect();
    if users.len() > holders::LISTED {
        lines.push(format!("           and {} more processes", users.len() - holders::LISTED));
    }
    lines
}
