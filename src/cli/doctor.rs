//! `splat doctor`: what this machine and this program can do.

mod advice;
mod findings;

use std::path::Path;

use clap::Args;

use self::findings::{Advice, Part};
use self::findings::{Findings, LpipsFinding, capabilities, nccl_line};
use super::device::try_gpu;
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
        anyhow::bail!("`splat train` cannot run here yet: follow the lines above without \"ok\"");
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

    /// A line for each part: `ok`, or what to do.
    fn text(&self) -> String {
        let mut lines = Vec::new();
        let mut part = |part: Part, facts: String| {
            let todo: Vec<&Advice> = self.advice.iter().filter(|it| it.part == part).collect();
            if todo.is_empty() {
                lines.extend(facts.lines().map(|facts| part.line(facts)));
            } else if part == Part::Gpu {
                // The facts say what the advice is about.
                let facts = facts.lines().map(|facts| facts.trim_start_matches(OK));
                lines.extend(facts.map(|facts| part.line(facts)));
            }
            lines.extend(todo.iter().map(|advice| part.line(&advice.text)));
        };
        let devices = self.devices.join(", ");
        part(Part::Program, format!("{OK}{}, trains on {devices}", self.version));
        part(Part::Processor, format!("{OK}{} threads", self.cpu_threads));
        part(Part::Ram, self.ram());
        let free = self.disk_free.map(|free| format!("{OK}{:.1} GiB free here", free.gib()));
        part(Part::Disk, free.unwrap_or_else(|| UNKNOWN.to_owned()));
        let kernels = self.kernels.map(|build| {
            let archs = capabilities(build.archs);
            format!("{OK}kernels for compute capability {archs}, nvcc {}", build.nvcc)
        });
        part(Part::Kernels, kernels.unwrap_or_else(|| "no kernels in this program".to_owned()));
        part(Part::Gpu, self.gpu_facts().join("\n"));
        let nvml = self.nvml.clone().unwrap_or_else(|| format!("{OK}load and heat"));
        part(Part::Nvml, nvml);
        if self.wsl {
            part(Part::Wsl, "yes".to_owned());
        }
        if self.gpu_memory.is_some() {
            let choice = preset::choice(self.gpu_memory, self.preset);
            part(Part::Preset, format!("{OK}{choice} (--preset auto)"));
        }
        if self.kernels.is_some() {
            part(Part::Nccl, nccl_line(&self.nccl));
        }
        part(Part::Lpips, self.lpips.line());
        lines.join("\n")
    }

    fn ram(&self) -> String {
        match (self.host_memory, self.host_machine) {
            (Some(total), Some(machine)) if total < machine => {
                let (total, machine) = (total.gib(), machine.gib());
                format!("{OK}{total:.1} of {machine:.1} GiB, by a control group")
            }
            (Some(total), _) => format!("{OK}{:.1} GiB", total.gib()),
            (None, _) => UNKNOWN.to_owned(),
        }
    }

    /// A line for each GPU. The first that the driver shows is the one that trains.
    fn gpu_facts(&self) -> Vec<String> {
        let mut listed: Vec<String> =
            self.gpus.iter().map(|gpu| describe(gpu, self.kernels)).collect();
        let Some(trains) = &self.trains_on_gpu else {
            if listed.is_empty() {
                let none = "none found: training runs on the processor";
                listed
                    .push(if self.gpu_problem.is_some() { "not usable" } else { none }.to_owned());
            }
            return listed;
        };
        if listed.is_empty() {
            listed.push(trains.name.clone());
        }
        if let Some((first, budget)) = listed.first_mut().zip(trains.budget) {
            first.push_str(&format!("; training may take {:.1} GiB", budget.gib()));
        }
        listed.iter().map(|facts| format!("{OK}{facts}")).collect()
    }
}

/// Lines of machines by what is wrong with them; those of the first are left out of the others.
#[cfg(test)]
pub(super) fn samples() -> Vec<(&'static str, Vec<String>)> {
    let mut usual: Vec<String> = Vec::new();
    let machines = advice::tests::machines().into_iter();
    let lines = machines.map(|(name, found)| {
        let text = found.text();
        let new = text.lines().filter(|line| !usual.iter().any(|usual| usual == line));
        let new: Vec<String> = new.map(str::to_owned).collect();
        if usual.is_empty() {
            usual.clone_from(&new);
        }
        (name, new)
    });
    lines.collect()
}

/// Beginning of a line about a part without a problem.
const OK: &str = "ok: ";

const UNKNOWN: &str = "unknown on this system";

fn describe(gpu: &Gpu, kernels: Option<KernelBuild>) -> String {
    let capability = gpu.arch.map_or("unknown".to_owned(), |arch| capabilities(&[arch]));
    let fit = match kernels.zip(gpu.arch).map(|(build, arch)| build.fit(arch)) {
        Some(Fit::MachineCode) => " (kernels fit)",
        Some(Fit::CompiledByDriver) => " (the driver compiles the kernels)",
        Some(Fit::Unfit) => " (kernels do not fit)",
        None => "",
    };
    format!(
        "{}, compute capability {capability}{fit}, {:.1} GiB, {:.1} free, driver {} for CUDA {}",
        gpu.name,
        gpu.memory.gib(),
        gpu.free.gib(),
        gpu.driver,
        gpu.driver_cuda.as_deref().unwrap_or("unknown")
    )
}
