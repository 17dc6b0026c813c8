//! What to do about what was found.

use super::findings::{Findings, capabilities};
use crate::backend::nvidia::{Fit, Gpu};
use crate::cli::device::REBUILD;
use crate::memory::Bytes;

/// Less than this, and not even a small model can be written.
pub(super) const DISK_NEEDED: Bytes = Bytes(64 << 20);

/// Less than this, and a model of some million Gaussians cannot be written.
const DISK_WANTED: Bytes = Bytes(5 << 30);

/// Less than this, and the default cache of images is too large.
const RAM_WANTED: Bytes = Bytes(6 << 30);

/// Others have so much of a GPU that it is worth a word, per cent.
const FOREIGN_PERCENT: f64 = 10.0;

/// What to do, the most important first.
pub(super) fn advice(findings: &Findings) -> Vec<String> {
    let mut advice = Vec::new();
    gpu(findings, &mut advice);
    for gpu in &findings.gpus {
        advice.extend(foreign(gpu));
    }
    memory(findings, &mut advice);
    host(findings, &mut advice);
    advice
}

/// What keeps a GPU from being used, or makes its start slow.
fn gpu(findings: &Findings, advice: &mut Vec<String>) {
    if findings.kernels.is_none() {
        advice.push(format!(
            "This program was built without CUDA kernels and trains on the CPU only. {REBUILD}, and \
             it trains on an NVIDIA GPU."
        ));
    } else if let Some(problem) = findings.gpu_problem.as_ref().filter(|_| findings.gpu_is_full) {
        advice.push(format!("The NVIDIA GPU has too little free memory: {problem}."));
    } else if let Some(problem) = &findings.gpu_problem {
        advice.push(format!("There is an NVIDIA GPU, but it cannot be used: {problem}."));
    }
    if findings.gpu_problem.is_some() {
        advice.push(
            "Until then, `splat train --device cpu` trains on the processor, far slower; without \
             that flag training refuses to start on a machine with a GPU."
                .to_owned(),
        );
    }
    for gpu in &findings.gpus {
        let Some((build, arch)) = findings.kernels.zip(gpu.arch) else { continue };
        if build.fit(arch) == Fit::CompiledByDriver && findings.trains_on_gpu.is_some() {
            advice.push(format!(
                "The program has no machine code for compute capability {}: the driver compiles the \
                 kernels at the first start, which takes a while, and they may run slower. Build it \
                 with SPLAT_CUDA_ARCHS={arch}.",
                capabilities(&[arch])
            ));
        }
    }
    if findings.gpus.len() > 1 {
        advice.push(format!(
            "There are {} GPUs; training uses the first that the driver shows. Choose another with \
             CUDA_VISIBLE_DEVICES=1 (and so on).",
            findings.gpus.len()
        ));
    }
    if let (Some(reason), Some(_)) = (&findings.nvml, &findings.trains_on_gpu) {
        advice.push(format!(
            "Runs will not show load and heat of the GPU ({reason}). The library, libnvidia-ml.so.1, \
             comes with the driver; a container needs NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        ));
    }
}

/// What others hold of a GPU that this program could use.
fn foreign(gpu: &Gpu) -> Option<String> {
    let used = Bytes(gpu.memory.0.saturating_sub(gpu.free.0));
    if used.gib() * 100.0 < FOREIGN_PERCENT * gpu.memory.gib() {
        return None;
    }
    let who = match gpu.users.as_deref() {
        Some([]) => " by programs that the driver does not name".to_owned(),
        Some(users) => {
            let pids: Vec<String> = users.iter().map(|user| user.pid.to_string()).collect();
            format!(" by others (process {})", pids.join(", "))
        }
        None => String::new(),
    };
    Some(format!(
        "{}: {:.1} of {:.1} GiB are in use{who}. Training makes do with the rest: end the other \
         programs for more room, or set --vram-limit if they will need more.",
        gpu.name,
        used.gib(),
        gpu.memory.gib()
    ))
}

/// What is unusual about the GPU's memory.
fn memory(findings: &Findings, advice: &mut Vec<String>) {
    let Some(gpu) = &findings.trains_on_gpu else { return };
    if findings.wsl {
        advice.push(
            "Under WSL more memory can be taken than the GPU has: what is beyond moves to the host's \
             RAM, and everything becomes many times slower without a word. This program keeps within \
             --vram-threshold (97 %) of the card, beside what others use; do not raise it, and keep a \
             --vram-limit below the card where Windows programs come and go. Some figures of the GPU \
             are not to be had under WSL."
                .to_owned(),
        );
    }
    if !gpu.virtual_memory {
        advice.push(
            "Memory of the GPU cannot be mapped piece by piece here, so that what grows is copied \
             and needs room for old and new at once. A newer driver may help (and SPLAT_NO_VMM \
             should not be set); else cap the Gaussians with --max-points."
                .to_owned(),
        );
    }
}

/// RAM and disk.
fn host(findings: &Findings, advice: &mut Vec<String>) {
    if let Some(total) = findings.host_memory.filter(|&total| total < RAM_WANTED) {
        advice.push(format!(
            "The process may use {:.1} GiB of RAM. Images give way to --host-limit (60%); where that \
             is still too much, lower --image-cache and train smaller images with -r.",
            total.gib()
        ));
    }
    let Some(free) = findings.disk_free.filter(|&free| free < DISK_WANTED) else { return };
    let what = "A PLY takes 248 MB for a million Gaussians of degree 3, a checkpoint 716 MB";
    let (free, is_too_little) = (free.mib(), free < DISK_NEEDED);
    advice.push(if is_too_little {
        format!("The disk has only {free:.0} MiB free here: nothing can be written. {what}.")
    } else {
        format!("The disk has {free:.0} MiB free here. {what}: make room, or choose -m elsewhere.")
    });
}

#[cfg(test)]
mod tests {
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

    /// The one piece of advice that this machine gets.
    fn only(findings: &Findings) -> String {
        let mut all = advice(findings);
        assert_eq!(all.len(), 1, "{all:#?}");
        all.remove(0)
    }

    #[test]
    fn where_nothing_is_wrong_nothing_is_advised() {
        let findings = well();
        assert_eq!(advice(&findings), Vec::<String>::new());
        assert!(findings.can_train());
        let text = findings.text();
        for part in [
            "8.9 (kernels fit)",
            "15.0 GiB may be taken",
            "grows in place",
            "RAM        32.0",
            "preset     16gb, for a card of 16.0 GiB (--preset auto)",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn a_gpu_that_cannot_be_used_keeps_training_from_running() {
        let problem = Some("the driver is too old".to_owned());
        let findings = Findings { gpu_problem: problem, trains_on_gpu: None, ..well() };
        assert!(!findings.can_train());
        let all = advice(&findings);
        assert!(all[0].contains("the driver is too old"), "{all:#?}");
        assert!(all[1].contains("--device cpu"), "{all:#?}");
        assert!(findings.text().contains("not usable"));
    }

    #[test]
    fn a_gpu_whose_memory_others_hold_is_not_called_unusable() {
        let gpu_problem = Some("`sort` needs 2.0 MiB more".to_owned());
        let findings = Findings { gpu_problem, gpu_is_full: true, trains_on_gpu: None, ..well() };
        let all = advice(&findings);
        assert!(all[0].contains("too little free memory: `sort` needs 2.0 MiB more"), "{all:#?}");
        assert!(findings.text().contains("its memory is taken by other programs"));
        let all = all.join("\n") + &findings.text();
        assert!(!all.contains("cannot be used") && !all.contains("not usable"), "{all}");
    }

    #[test]
    fn a_machine_without_a_gpu_trains_on_the_processor() {
        let gpus = Vec::new();
        let nvml = Some("not installed".to_owned());
        let findings = Findings { gpus, nvml, kernels: None, trains_on_gpu: None, ..well() };
        assert!(findings.can_train());
        assert!(only(&findings).contains(REBUILD));
        assert!(findings.text().contains("none found"));
    }

    #[test]
    fn who_else_uses_the_gpu_is_named() {
        let user = |pid, name: Option<&str>| User {
            pid,
            name: name.map(str::to_owned),
            memory: Some(Bytes(3 * GIB)),
        };
        let users = Some(vec![user(17, Some("/bin/game")), user(23, None)]);
        let findings = Findings { gpus: vec![Gpu { users, ..gpu(9) }], ..well() };
        let advice = only(&findings);
        assert!(advice.contains("7.0 of 16.0 GiB") && advice.contains("17, 23"), "{advice}");
        let text = findings.text();
        assert!(text.contains("used by process 17 (/bin/game), 3.00 GiB"), "{text}");
        assert!(text.contains("used by process 23 (name unknown), 3.00 GiB"), "{text}");
        let silent = Findings { gpus: vec![Gpu { users: None, ..gpu(9) }], ..well() };
        assert!(silent.text().contains("does not report who else"), "{}", silent.text());
        assert!(only(&silent).contains("7.0 of 16.0 GiB are in use. "));
    }

    #[test]
    fn what_slows_memory_down_is_explained() {
        let advice = only(&Findings { wsl: true, ..well() });
        assert!(advice.contains("slower") && advice.contains("--vram-threshold"), "{advice}");
        let mut findings = well();
        findings.trains_on_gpu.as_mut().unwrap().virtual_memory = false;
        assert!(only(&findings).contains("old and new at once"));
        assert!(findings.text().contains("grows by copying"));
    }

    #[test]
    fn kernels_that_the_driver_has_to_compile_and_a_silent_library_are_told() {
        let kernels = Some(KernelBuild { archs: &[75, 86], nvcc: "13.0" });
        let mut findings = Findings { kernels, ..well() };
        assert!(findings.text().contains("kernels fit"));
        assert!(advice(&findings).is_empty(), "8.6 runs on 8.9 as it is");
        findings.kernels = Some(KernelBuild { archs: &[75], nvcc: "13.0" });
        assert!(only(&findings).contains("SPLAT_CUDA_ARCHS=89"));
        let nvml = Some("NVIDIA's management library is not installed".to_owned());
        let advice = only(&Findings { nvml, gpus: Vec::new(), ..well() });
        assert!(advice.contains("libnvidia-ml.so.1"), "{advice}");
        let two = Findings { gpus: vec![gpu(15), gpu(15)], ..well() };
        assert!(only(&two).contains("CUDA_VISIBLE_DEVICES"));
    }

    #[test]
    fn little_ram_and_a_full_disk_are_told() {
        let host_memory = Some(Bytes(4 * GIB));
        let findings = Findings { host_memory, ..well() };
        assert!(only(&findings).contains("--host-limit"));
        assert!(findings.text().contains("4.0 of 32.0 GiB (held to that by a control group)"));
        let tight = Findings { disk_free: Some(Bytes(GIB)), ..well() };
        assert!(only(&tight).contains("1024 MiB") && tight.can_train());
        let full = Findings { disk_free: Some(Bytes(1 << 20)), ..well() };
        assert!(only(&full).contains("nothing can be written") && !full.can_train());
    }
}
