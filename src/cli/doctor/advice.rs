//! What to do about what was found.

use super::findings::{Advice, Findings, Part, capabilities};
use crate::backend::nvidia::{Fit, Gpu};
use crate::cli::device::REBUILD;
use crate::cli::holders::{LISTED, in_words};
use crate::memory::Bytes;

/// Less than this, and not even a small model can be written.
pub(super) const DISK_NEEDED: Bytes = Bytes(64 << 20);

/// Less than this, and a model of some million Gaussians cannot be written.
const DISK_WANTED: Bytes = Bytes(5 << 30);

/// Less than this, and the default cache of images is too large.
const RAM_WANTED: Bytes = Bytes(6 << 30);

/// Others have so much of a GPU that it is worth a word, per cent.
const FOREIGN_PERCENT: f64 = 10.0;

/// Things to do, the most important first.
pub(super) fn advice(findings: &Findings) -> Vec<Advice> {
    let mut advice = Vec::new();
    gpu(findings, &mut advice);
    advice.extend(findings.gpus.iter().filter_map(foreign));
    memory(findings, &mut advice);
    host(findings, &mut advice);
    advice
}

/// Advice about a GPU that is not used, or starts slowly.
fn gpu(findings: &Findings, advice: &mut Vec<Advice>) {
    if findings.kernels.is_none() {
        let text = format!("no kernels in this program: it trains on the CPU only. {REBUILD}");
        advice.push(Advice::new(Part::Kernels, text));
    } else if let Some(problem) = &findings.gpu_problem {
        let what = if findings.gpu_is_full { "too little free memory" } else { "cannot be used" };
        advice.push(Advice::new(Part::Gpu, format!("{what}: {problem}")));
    }
    if findings.gpu_problem.is_some() {
        let text = "until then, `splat train --device cpu` trains on the processor, far slower";
        advice.push(Advice::new(Part::Gpu, text));
    }
    for gpu in &findings.gpus {
        let Some((build, arch)) = findings.kernels.zip(gpu.arch) else { continue };
        if build.fit(arch) == Fit::CompiledByDriver && findings.trains_on_gpu.is_some() {
            let text = format!(
                "no machine code for compute capability {}: the first start is slow. Build with \
                 SPLAT_CUDA_ARCHS={arch}",
                capabilities(&[arch])
            );
            advice.push(Advice::new(Part::Kernels, text));
        }
    }
    if findings.gpus.len() > 1 {
        let text = format!(
            "{} GPUs: training uses the first. Use all with --gpus all, another one with \
             CUDA_VISIBLE_DEVICES=1",
            findings.gpus.len()
        );
        advice.push(Advice::new(Part::Gpu, text));
    }
    if let (Some(reason), Some(_)) = (&findings.nvml, &findings.trains_on_gpu) {
        let text = format!(
            "no load and heat of the GPU: {reason}. Install the driver's libnvidia-ml.so.1; containers need \
             NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        );
        advice.push(Advice::new(Part::Nvml, text));
    }
}

/// Advice about memory that other programs hold of a GPU.
fn foreign(gpu: &Gpu) -> Option<Advice> {
    let used = Bytes(gpu.memory.0.saturating_sub(gpu.free.0));
    if used.gib() * 100.0 < FOREIGN_PERCENT * gpu.memory.gib() {
        return None;
    }
    let who = match gpu.users.as_deref() {
        Some([]) => " by programs that the driver does not name".to_owned(),
        Some(users) => {
            let mut named: Vec<String> = users.iter().take(LISTED).map(in_words).collect();
            if users.len() > LISTED {
                named.push(format!("{} more", users.len() - LISTED));
            }
            format!(" by {}", named.join("; "))
        }
        None => String::new(),
    };
    let text = format!(
        "{:.1} of {:.1} GiB are in use{who}. End other programs, or set --vram-limit",
        used.gib(),
        gpu.memory.gib()
    );
    Some(Advice::new(Part::Gpu, text))
}

/// Advice about unusual memory of the GPU.
fn memory(findings: &Findings, advice: &mut Vec<Advice>) {
    let Some(gpu) = &findings.trains_on_gpu else { return };
    if findings.wsl {
        let text = "memory beyond the card spills to RAM and is many times slower. Set a --vram-limit below \
                    the card, and keep --vram-threshold at 0.97 or less";
        advice.push(Advice::new(Part::Wsl, text));
    }
    if !gpu.virtual_memory {
        let text = "memory grows by copying, which needs room for old and new. Update the driver, unset \
                    SPLAT_NO_VMM, or set --max-points";
        advice.push(Advice::new(Part::Gpu, text));
    }
}

/// Advice about RAM and disk.
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
        advice.push(Advice::new(Part::Ram, text));
    }
    let Some(free) = findings.disk_free.filter(|&free| free < DISK_WANTED) else { return };
    let (mib, is_too_little) = (free.mib(), free < DISK_NEEDED);
    let what = if is_too_little { ", too little to train" } else { "" };
    let text = format!(
        "{mib:.0} MiB free here{what}; a million Gaussians take 248 MB, a checkpoint 716 MB. Make room, or \
         choose -m on another disk"
    );
    advice.push(Advice::new(Part::Disk, text));
}

#[cfg(test)]
pub(in crate::cli) mod tests {
    use super::*;
    use crate::backend::gpu::NcclFinding;
    use crate::backend::nvidia::{KernelBuild, User};
    use crate::cli::device::UsableGpu;
    use crate::cli::doctor::findings::LpipsFinding;

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

    /// A machine on which nothing is wrong.
    fn well() -> Findings {
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

    /// Machines by what is wrong with them.
    pub(in crate::cli) fn machines() -> Vec<(&'static str, Findings)> {
        let user = |pid, name: Option<&str>| User {
            pid,
            name: name.map(str::to_owned),
            memory: Some(Bytes(3 * GIB)),
        };
        let shared = vec![user(17, Some("/bin/game")), user(23, None), user(29, None)];
        let used = |users| vec![Gpu { users, ..gpu(9) }];
        let mut copying = well();
        if let Some(gpu) = &mut copying.trains_on_gpu {
            gpu.virtual_memory = false;
        }
        let build = |archs| Some(KernelBuild { archs, nvcc: "13.0" });
        let too_old = Some("the driver is too old".to_owned());
        let full = Some("`sort` needs 2.0 MiB more".to_owned());
        let nvml = || Some("the management library is not installed".to_owned());
        vec![
            ("nothing is wrong", well()),
            (
                "the GPU cannot be used",
                Findings { gpu_problem: too_old, trains_on_gpu: None, ..well() },
            ),
            (
                "the GPU is full",
                Findings { gpu_problem: full, gpu_is_full: true, trains_on_gpu: None, ..well() },
            ),
            (
                "no GPU and no kernels",
                Findings {
                    gpus: Vec::new(),
                    nvml: nvml(),
                    kernels: None,
                    trains_on_gpu: None,
                    ..well()
                },
            ),
            ("others use the GPU", Findings { gpus: used(Some(shared)), ..well() }),
            ("unnamed programs use the GPU", Findings { gpus: used(Some(Vec::new())), ..well() }),
            ("who uses the GPU is unknown", Findings { gpus: used(None), ..well() }),
            ("WSL", Findings { wsl: true, ..well() }),
            ("no virtual memory", copying),
            ("kernels of an earlier card", Findings { kernels: build(&[75]), ..well() }),
            ("no NVML", Findings { nvml: nvml(), gpus: Vec::new(), ..well() }),
            ("two GPUs", Findings { gpus: vec![gpu(15), gpu(15)], ..well() }),
            ("little RAM", Findings { host_memory: Some(Bytes(4 * GIB)), ..well() }),
            ("a nearly full disk", Findings { disk_free: Some(Bytes(GIB)), ..well() }),
            ("a full disk", Findings { disk_free: Some(Bytes(1 << 20)), ..well() }),
        ]
        .into_iter()
        .map(|(name, findings)| {
            let advice = advice(&findings);
            (name, Findings { advice, ..findings })
        })
        .collect()
    }

    #[test]
    fn each_problem_is_one_of_its_part_and_only_some_keep_training_from_running() {
        let found: Vec<(Vec<Part>, bool)> = machines()
            .iter()
            .map(|(_, it)| (it.advice.iter().map(|advice| advice.part).collect(), it.can_train()))
            .collect();
        let expected = [
            (vec![], true),
            (vec![Part::Gpu, Part::Gpu], false),
            (vec![Part::Gpu, Part::Gpu], false),
            (vec![Part::Kernels], true),
            (vec![Part::Gpu], true),
            (vec![Part::Gpu], true),
            (vec![Part::Gpu], true),
            (vec![Part::Wsl], true),
            (vec![Part::Gpu], true),
            (vec![Part::Kernels], true),
            (vec![Part::Nvml], true),
            (vec![Part::Gpu], true),
            (vec![Part::Ram], true),
            (vec![Part::Disk], true),
            (vec![Part::Disk], false),
        ];
        assert_eq!(found, expected);
        let of_8_6 = Some(KernelBuild { archs: &[75, 86], nvcc: "13.0" });
        assert!(advice(&Findings { kernels: of_8_6, ..well() }).is_empty(), "8.6 runs on 8.9");
    }

    #[test]
    fn a_part_that_is_ok_says_so_and_no_other() {
        for (name, findings) in machines() {
            let text = findings.text();
            for advice in &findings.advice {
                assert!(text.contains(&advice.part.line(&advice.text)), "{name}:\n{text}");
                assert!(!text.contains(&advice.part.line("ok")), "{name}:\n{text}");
            }
            assert!(text.contains(&Part::Processor.line("ok: 8 threads")), "{name}:\n{text}");
        }
    }

    #[test]
    fn advice_is_text_in_json() {
        let advice = Advice::new(Part::Disk, "make room");
        assert_eq!(serde_json::to_string(&[advice]).unwrap(), r#"["make room"]"#);
    }
}
