//! What `splat doctor` looks for.

use std::path::PathBuf;

use serde::{Serialize, Serializer};

use crate::backend::gpu::NcclFinding;
use crate::backend::nvidia::{Gpu, KernelBuild};
use crate::cli::device::UsableGpu;
use crate::cli::lpips::{Missing, in_words};
use crate::memory::Bytes;
use crate::perceptual::{
    LpipsNet, LpipsWeights, WEIGHTS_VARIABLE, WeightsSearch, named_by_environment,
};

/// A part of the machine or of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Program,
    Processor,
    Ram,
    Disk,
    Kernels,
    Gpu,
    Nvml,
    Wsl,
    Preset,
    Nccl,
    Lpips,
}

impl Part {
    /// A line about the part.
    pub(super) fn line(self, text: &str) -> String {
        let name = match self {
            Self::Program => "splat",
            Self::Processor => "CPU",
            Self::Ram => "RAM",
            Self::Disk => "disk",
            Self::Kernels => "CUDA",
            Self::Gpu => "GPU",
            Self::Nvml => "NVML",
            Self::Wsl => "WSL",
            Self::Preset => "preset",
            Self::Nccl => "NCCL",
            Self::Lpips => "LPIPS",
        };
        format!("{name:<11}{text}")
    }
}

/// A thing to do about a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    pub(super) part: Part,
    pub(super) text: String,
}

impl Advice {
    pub(super) fn new(part: Part, text: impl Into<String>) -> Self {
        Self { part, text: text.into() }
    }
}

/// The text alone: the part is for the terminal.
impl Serialize for Advice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

/// What was found.
#[derive(Serialize)]
pub(super) struct Findings {
    pub(super) version: &'static str,
    /// Whether `splat train` can run here without further flags.
    pub(super) can_train: bool,
    /// Devices that this program can train on.
    pub(super) devices: Vec<&'static str>,
    pub(super) cpu_threads: usize,
    /// RAM that the process may use.
    pub(super) host_memory: Option<Bytes>,
    /// RAM of the machine, of which a control group may leave less.
    pub(super) host_machine: Option<Bytes>,
    /// Free space in the working directory, where models go by default.
    pub(super) disk_free: Option<Bytes>,
    pub(super) wsl: bool,
    /// How the CUDA kernels were compiled, where there are any.
    pub(super) kernels: Option<KernelBuild>,
    pub(super) gpus: Vec<Gpu>,
    /// Why the management library lists no GPU.
    pub(super) nvml: Option<String>,
    /// The GPU that training runs on.
    pub(super) trains_on_gpu: Option<UsableGpu>,
    /// The preset for its memory; none for a card that needs none.
    pub(super) preset: Option<&'static str>,
    /// All of its memory, used or not.
    pub(super) gpu_memory: Option<Bytes>,
    /// Why it cannot, on a machine that has one.
    pub(super) gpu_problem: Option<String>,
    /// Whether that is for its memory, which other programs hold.
    pub(super) gpu_is_full: bool,
    /// By which several GPUs train a model.
    pub(super) nccl: NcclFinding,
    /// Weights with which LPIPS can be measured.
    pub(super) lpips: LpipsFinding,
    /// Things to do, the most important first.
    pub(super) advice: Vec<Advice>,
}

/// Weights of LPIPS on this machine.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct LpipsFinding {
    /// Whose they are.
    pub(super) net: Option<LpipsNet>,
    /// The files that they are in.
    pub(super) files: Vec<PathBuf>,
    /// Why there are none, or why those that there are cannot be used.
    pub(super) problem: Option<String>,
}

impl LpipsFinding {
    /// What `--enable-lpips` would use.
    pub(super) fn gather() -> Self {
        let search = WeightsSearch::run();
        let named = named_by_environment();
        let is_named = named.is_some();
        let Some(path) = named.or_else(|| search.found.clone()) else {
            let problem = Some(Missing::of(&search).to_string());
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

    pub(super) fn line(&self) -> String {
        match (self.net, &self.problem) {
            (Some(net), _) => format!("ok: {}, {}", net.name(), in_words(&self.files)),
            (None, Some(problem)) if self.files.is_empty() => format!("no weights. {problem}"),
            (None, Some(problem)) => format!("weights that cannot be used: {problem}"),
            (None, None) => "not looked for".to_owned(),
        }
    }
}

/// NCCL in a line.
pub(super) fn nccl_line(found: &NcclFinding) -> String {
    match (&found.version, &found.path, &found.problem) {
        (Some(version), Some(path), _) => format!("ok: {version}, {}, for --gpus", path.display()),
        (.., Some(problem)) => problem.clone(),
        _ => "not looked for".to_owned(),
    }
}

/// `7.5, 9.0`
pub(super) fn capabilities(archs: &[u32]) -> String {
    let texts: Vec<String> =
        archs.iter().map(|arch| format!("{}.{}", arch / 10, arch % 10)).collect();
    texts.join(", ")
}
