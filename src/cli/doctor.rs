//! `splat doctor`: abilities and problems of this machine and program.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Serialize, Serializer};

use crate::backend::gpu::{self, NcclFinding};
use crate::backend::nvidia::{self, Fit, Gpu, KernelBuild};
use crate::config::preset_for_card;
use crate::files::free_space;
use crate::memory::{Bytes, host_memory};
use crate::perceptual::{
    LpipsNet, LpipsWeights, WEIGHTS_VARIABLE, WeightsSearch, named_by_environment,
};

use super::device::{REBUILD, UsableGpu, holders_in_words, try_gpu};
use super::lpips::{lpips_in_words, weights_advice};
use super::output::print_report;
use super::train_args;

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

/// Prints the findings. Returns an error if nothing can be trained.
pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let findings = Findings::gather();
    print_report(&findings, args.json, Findings::text)?;
    if !findings.can_train {
        anyhow::bail!("`splat train` cannot run here yet: follow the lines above without \"ok\"");
    }
    Ok(())
}

impl Findings {
    fn gather() -> Self {
        // NVML lists the users of the GPU before this program becomes one of them.
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
        findings.advice = advice(&findings);
        findings
    }

    /// True if training can start: the GPU of a machine that has one works, and the disk has space.
    fn can_train(&self) -> bool {
        self.gpu_problem.is_none() && self.disk_free.is_none_or(|free| free >= DISK_NEEDED)
    }

    /// Returns one line per part: `ok`, or advice.
    fn text(&self) -> String {
        let mut lines = Vec::new();
        let mut part = |part: &str, facts: String| {
            let todo: Vec<&Advice> = self.advice.iter().filter(|it| it.part == part).collect();
            if todo.is_empty() {
                lines.extend(facts.lines().map(|facts| line_of(part, facts)));
            } else if part == "GPU" {
                let facts = facts.lines().map(|facts| facts.trim_start_matches(OK));
                lines.extend(facts.map(|facts| line_of(part, facts)));
            }
            lines.extend(todo.iter().map(|advice| line_of(part, &advice.text)));
        };
        let devices = self.devices.join(", ");
        part("splat", format!("{OK}{}, trains on {devices}", self.version));
        part("CPU", format!("{OK}{} threads", self.cpu_threads));
        part("RAM", self.ram());
        let free = self.disk_free.map(|free| format!("{OK}{:.1} GiB free here", free.gib()));
        part("disk", free.unwrap_or_else(|| UNKNOWN.to_owned()));
        let kernels = self.kernels.map(|build| {
            let archs = capabilities(build.archs);
            format!("{OK}kernels for compute capability {archs}, nvcc {}", build.nvcc)
        });
        part("CUDA", kernels.unwrap_or_else(|| "no kernels in this program".to_owned()));
        part("GPU", self.gpu_facts().join("\n"));
        let nvml = self.nvml.clone().unwrap_or_else(|| format!("{OK}load and heat"));
        part("NVML", nvml);
        if self.wsl {
            part("WSL", "yes".to_owned());
        }
        if self.gpu_memory.is_some() {
            let choice = train_args::choice(self.gpu_memory, self.preset);
            part("preset", format!("{OK}{choice} (--preset auto)"));
        }
        if self.kernels.is_some() {
            part("NCCL", nccl_line(&self.nccl));
        }
        part("LPIPS", self.lpips.line());
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

    /// Returns a line for each GPU. Training uses the first.
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

/// Returns the lines of the sample machines by problem, without the lines of the healthy machine.
#[cfg(test)]
pub(super) fn samples() -> Vec<(&'static str, Vec<String>)> {
    let mut usual: Vec<String> = Vec::new();
    let machines = tests::machines().into_iter();
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

/// Prefix of a line without a problem.
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

/// Formats a line about a part of the machine or of the program.
fn line_of(part: &str, text: &str) -> String {
    format!("{part:<11}{text}")
}

/// Advice about a part.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Advice {
    part: &'static str,
    text: String,
}

impl Advice {
    fn new(part: &'static str, text: impl Into<String>) -> Self {
        Self { part, text: text.into() }
    }
}

/// Serializes the text without the part.
impl Serialize for Advice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

/// Findings of `splat doctor`.
#[derive(Serialize)]
struct Findings {
    version: &'static str,
    /// True if `splat train` can run here without further flags.
    can_train: bool,
    /// Devices that this program can train on.
    devices: Vec<&'static str>,
    cpu_threads: usize,
    /// RAM that the process may use.
    host_memory: Option<Bytes>,
    /// Total RAM of the machine. A control group may allow less.
    host_machine: Option<Bytes>,
    /// Free space in the working directory, where models go by default.
    disk_free: Option<Bytes>,
    wsl: bool,
    kernels: Option<KernelBuild>,
    gpus: Vec<Gpu>,
    /// Reason that the management library lists no GPU.
    nvml: Option<String>,
    trains_on_gpu: Option<UsableGpu>,
    /// Recommended preset for the GPU's memory, if it needs one.
    preset: Option<&'static str>,
    gpu_memory: Option<Bytes>,
    /// Reason that the present GPU cannot be used.
    gpu_problem: Option<String>,
    /// True if other programs hold too much of the GPU's memory.
    gpu_is_full: bool,
    /// NCCL, needed to train on several GPUs.
    nccl: NcclFinding,
    lpips: LpipsFinding,
    /// Advice, the most important first.
    advice: Vec<Advice>,
}

/// Weights of LPIPS on this machine.
#[derive(Clone, Debug, Default, Serialize)]
struct LpipsFinding {
    /// Network of the weights.
    net: Option<LpipsNet>,
    files: Vec<PathBuf>,
    /// Reason that there are no usable weights.
    problem: Option<String>,
}

impl LpipsFinding {
    /// Finds the weights that `--enable-lpips` would use.
    fn gather() -> Self {
        let search = WeightsSearch::run();
        let named = named_by_environment();
        let is_named = named.is_some();
        let Some(path) = named.or_else(|| search.found.clone()) else {
            let problem = Some(weights_advice(&search));
            return Self { problem, ..Self::default() };
        };
        match LpipsWeights::read(&path) {
            Ok(weights) => {
                Self { net: Some(weights.net()), files: weights.files().to_vec(), problem: None }
            }
            Err(error) => {
                let named = if is_named { format!("{WEIGHTS_VARIABLE}: ") } else { String::new() };
                Self { files: vec![path], problem: Some(format!("{named}{error}")), net: None }
            }
        }
    }

    fn line(&self) -> String {
        match (self.net, &self.problem) {
            (Some(net), _) => format!("ok: {}, {}", net.name(), lpips_in_words(&self.files)),
            (None, Some(problem)) if self.files.is_empty() => format!("no weights. {problem}"),
            (None, Some(problem)) => format!("weights that cannot be used: {problem}"),
            (None, None) => "not looked for".to_owned(),
        }
    }
}

fn nccl_line(found: &NcclFinding) -> String {
    match (&found.version, &found.path, &found.problem) {
        (Some(version), Some(path), _) => format!("ok: {version}, {}, for --gpus", path.display()),
        (.., Some(problem)) => problem.clone(),
        _ => "not looked for".to_owned(),
    }
}

/// Formats compute capabilities: `7.5, 9.0`.
fn capabilities(archs: &[u32]) -> String {
    let texts: Vec<String> =
        archs.iter().map(|arch| format!("{}.{}", arch / 10, arch % 10)).collect();
    texts.join(", ")
}

/// Free space that even a small model needs.
const DISK_NEEDED: Bytes = Bytes(64 << 20);

/// Free space that a model of some million Gaussians needs.
const DISK_WANTED: Bytes = Bytes(5 << 30);

/// RAM that the default image cache needs.
const RAM_WANTED: Bytes = Bytes(6 << 30);

/// Use of a GPU by other programs that is reported, per cent.
const FOREIGN_PERCENT: f64 = 10.0;

/// Returns advice, the most important first.
fn advice(findings: &Findings) -> Vec<Advice> {
    let mut advice = Vec::new();
    gpu(findings, &mut advice);
    advice.extend(findings.gpus.iter().filter_map(foreign));
    memory(findings, &mut advice);
    host(findings, &mut advice);
    advice
}

/// Adds advice about a GPU that is unused or starts slowly.
fn gpu(findings: &Findings, advice: &mut Vec<Advice>) {
    if findings.kernels.is_none() {
        let text = format!("no kernels in this program: it trains on the CPU only. {REBUILD}");
        advice.push(Advice::new("CUDA", text));
    } else if let Some(problem) = &findings.gpu_problem {
        let what = if findings.gpu_is_full { "too little free memory" } else { "cannot be used" };
        advice.push(Advice::new("GPU", format!("{what}: {problem}")));
    }
    if findings.gpu_problem.is_some() {
        let text = "until then, `splat train --device cpu` trains on the processor, far slower";
        advice.push(Advice::new("GPU", text));
    }
    for gpu in &findings.gpus {
        let Some((build, arch)) = findings.kernels.zip(gpu.arch) else { continue };
        if build.fit(arch) == Fit::CompiledByDriver && findings.trains_on_gpu.is_some() {
            let text = format!(
                "no machine code for compute capability {}: the first start is slow. Build with \
                 SPLAT_CUDA_ARCHS={arch}",
                capabilities(&[arch])
            );
            advice.push(Advice::new("CUDA", text));
        }
    }
    if findings.gpus.len() > 1 {
        let text = format!(
            "{} GPUs: training uses the first. Use all with --gpus all, another one with \
             CUDA_VISIBLE_DEVICES=1",
            findings.gpus.len()
        );
        advice.push(Advice::new("GPU", text));
    }
    if let (Some(reason), Some(_)) = (&findings.nvml, &findings.trains_on_gpu) {
        let text = format!(
            "no load and heat of the GPU: {reason}. Install the driver's libnvidia-ml.so.1; containers need \
             NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        );
        advice.push(Advice::new("NVML", text));
    }
}

/// Returns advice about GPU memory that other programs hold.
fn foreign(gpu: &Gpu) -> Option<Advice> {
    let used = Bytes(gpu.memory.0.saturating_sub(gpu.free.0));
    if used.gib() * 100.0 < FOREIGN_PERCENT * gpu.memory.gib() {
        return None;
    }
    let who = match gpu.users.as_deref() {
        Some([]) => " by programs that the driver does not name".to_owned(),
        Some(users) => {
            format!(" by {}", holders_in_words(&users.iter().collect::<Vec<_>>(), "more"))
        }
        None => String::new(),
    };
    let text = format!(
        "{:.1} of {:.1} GiB are in use{who}. End other programs, or set --vram-limit",
        used.gib(),
        gpu.memory.gib()
    );
    Some(Advice::new("GPU", text))
}

/// Adds advice about the GPU's memory management.
fn memory(findings: &Findings, advice: &mut Vec<Advice>) {
    let Some(gpu) = &findings.trains_on_gpu else { return };
    if findings.wsl {
        let text = "memory beyond the card spills to RAM and is many times slower. Set a --vram-limit below \
                    the card, and keep --vram-threshold at 0.97 or less";
        advice.push(Advice::new("WSL", text));
    }
    if !gpu.virtual_memory {
        let text = "memory grows by copying, which needs room for old and new. Update the driver, unset \
                    SPLAT_NO_VMM, or set --max-points";
        advice.push(Advice::new("GPU", text));
    }
}

/// Adds advice about RAM and disk.
fn host(findings: &Findings, advice: &mut Vec<Advice>) {
    if let Some(total) = findings.host_memory.filter(|&total| total < RAM_WANTED) {
        let of_machine = match findings.host_machine {
            Some(machine) if machine > total => format!(" of {:.1}", machine.gib()),
            _ => String::new(),
        };
        let text = format!(
            "{:.1}{of_machine} GiB for this process. If training stops for RAM, lower --image-cache or train \
             with -r 2",
            total.gib()
        );
        advice.push(Advice::new("RAM", text));
    }
    let Some(free) = findings.disk_free.filter(|&free| free < DISK_WANTED) else { return };
    let (mib, is_too_little) = (free.mib(), free < DISK_NEEDED);
    let what = if is_too_little { ", too little to train" } else { "" };
    let text = format!(
        "{mib:.0} MiB free here{what}; a million Gaussians take 248 MB, a checkpoint 716 MB. Make room, or \
         choose -m on another disk"
    );
    advice.push(Advice::new("disk", text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::gpu::NcclFinding;
    use crate::backend::nvidia::{KernelBuild, User};
    use crate::cli::device::UsableGpu;

    const GIB: u64 = 1 << 30;

    fn gpu(free: u64) -> Gpu {
        Gpu {
            name: "a GPU".to_owned(),
            uuid: Some("GPU-0".to_owned()),
            memory: Bytes(16 * GIB),
            free: Bytes(free * GIB),
            arch: Some(89),
            driver: "580.1".to_owned(),
            driver_cuda: Some("13.0".to_owned()),
            users: Some(Vec::new()),
        }
    }

    /// Returns a machine without problems.
    fn healthy() -> Findings {
        let usable = UsableGpu {
            name: "a GPU, 16.0 GiB".to_owned(),
            uuid: Some("GPU-0".to_owned()),
            virtual_memory: true,
            budget: Some(Bytes(15 * GIB)),
        };
        Findings {
            version: "0",
            can_train: true,
            devices: vec!["cuda", "cpu"],
            cpu_threads: 8,
            host_memory: Some(Bytes(32 * GIB)),
            host_machine: Some(Bytes(32 * GIB)),
            disk_free: Some(Bytes(100 * GIB)),
            wsl: false,
            kernels: Some(KernelBuild { archs: &[89], nvcc: "13.0" }),
            gpus: vec![gpu(15)],
            nvml: None,
            trains_on_gpu: Some(usable),
            preset: Some("16gb"),
            gpu_memory: Some(Bytes(16 * GIB)),
            gpu_problem: None,
            gpu_is_full: false,
            nccl: NcclFinding::default(),
            lpips: LpipsFinding::default(),
            advice: Vec::new(),
        }
    }

    /// Returns sample machines, each named by its problem.
    pub(in crate::cli) fn machines() -> Vec<(&'static str, Findings)> {
        let user = |pid, name: Option<&str>| User {
            pid,
            name: name.map(str::to_owned),
            memory: Some(Bytes(3 * GIB)),
        };
        let shared = vec![user(17, Some("/bin/game")), user(23, None), user(29, None)];
        let used = |users| vec![Gpu { users, ..gpu(9) }];
        let mut copying = healthy();
        if let Some(gpu) = &mut copying.trains_on_gpu {
            gpu.virtual_memory = false;
        }
        let build = |archs| Some(KernelBuild { archs, nvcc: "13.0" });
        let too_old = Some("the driver is too old".to_owned());
        let full = Some("`sort` needs 2.0 MiB more".to_owned());
        let nvml = || Some("the management library is not installed".to_owned());
        vec![
            ("nothing is wrong", healthy()),
            (
                "the GPU cannot be used",
                Findings { gpu_problem: too_old, trains_on_gpu: None, ..healthy() },
            ),
            (
                "the GPU is full",
                Findings { gpu_problem: full, gpu_is_full: true, trains_on_gpu: None, ..healthy() },
            ),
            (
                "no GPU and no kernels",
                Findings {
                    gpus: Vec::new(),
                    nvml: nvml(),
                    kernels: None,
                    trains_on_gpu: None,
                    ..healthy()
                },
            ),
            ("others use the GPU", Findings { gpus: used(Some(shared)), ..healthy() }),
            (
                "unnamed programs use the GPU",
                Findings { gpus: used(Some(Vec::new())), ..healthy() },
            ),
            ("who uses the GPU is unknown", Findings { gpus: used(None), ..healthy() }),
            ("WSL", Findings { wsl: true, ..healthy() }),
            ("no virtual memory", copying),
            ("kernels of an earlier card", Findings { kernels: build(&[75]), ..healthy() }),
            ("no NVML", Findings { nvml: nvml(), gpus: Vec::new(), ..healthy() }),
            ("two GPUs", Findings { gpus: vec![gpu(15), gpu(15)], ..healthy() }),
            ("little RAM", Findings { host_memory: Some(Bytes(4 * GIB)), ..healthy() }),
            ("a nearly full disk", Findings { disk_free: Some(Bytes(GIB)), ..healthy() }),
            ("a full disk", Findings { disk_free: Some(Bytes(1 << 20)), ..healthy() }),
        ]
        .into_iter()
        .map(|(name, findings)| {
            let advice = advice(&findings);
            (name, Findings { advice, ..findings })
        })
        .collect()
    }

    #[test]
    fn each_problem_has_its_part_and_only_some_prevent_training() {
        let found: Vec<(Vec<&str>, bool)> = machines()
            .iter()
            .map(|(_, it)| (it.advice.iter().map(|advice| advice.part).collect(), it.can_train()))
            .collect();
        let expected = [
            (vec![], true),
            (vec!["GPU", "GPU"], false),
            (vec!["GPU", "GPU"], false),
            (vec!["CUDA"], true),
            (vec!["GPU"], true),
            (vec!["GPU"], true),
            (vec!["GPU"], true),
            (vec!["WSL"], true),
            (vec!["GPU"], true),
            (vec!["CUDA"], true),
            (vec!["NVML"], true),
            (vec!["GPU"], true),
            (vec!["RAM"], true),
            (vec!["disk"], true),
            (vec!["disk"], false),
        ];
        assert_eq!(found, expected);
        let of_8_6 = Some(KernelBuild { archs: &[75, 86], nvcc: "13.0" });
        assert!(advice(&Findings { kernels: of_8_6, ..healthy() }).is_empty(), "8.6 runs on 8.9");
    }

    #[test]
    fn only_healthy_parts_are_ok() {
        for (name, findings) in machines() {
            let text = findings.text();
            for advice in &findings.advice {
                assert!(text.contains(&line_of(advice.part, &advice.text)), "{name}:\n{text}");
                assert!(!text.contains(&line_of(advice.part, "ok")), "{name}:\n{text}");
            }
            assert!(text.contains(&line_of("CPU", "ok: 8 threads")), "{name}:\n{text}");
        }
    }

    #[test]
    fn advice_is_text_in_json() {
        let advice = Advice::new("disk", "make room");
        assert_eq!(serde_json::to_string(&[advice]).unwrap(), r#"["make room"]"#);
    }
}
