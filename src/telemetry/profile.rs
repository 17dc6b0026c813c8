//! Memory use of a run, from its `run.jsonl`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::layout::{self, Purpose};
use crate::memory::{Bytes, Fallback};
use crate::train::event::{Phase, PhasePeaks, Tensors};

/// Number of points of the list of growth.
const POINTS: usize = 10;

/// Memory use of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Profile {
    /// Model folder.
    pub model_path: PathBuf,
    /// Description of the device.
    pub device: String,
    /// Number of starts of the run, resumptions included.
    pub starts: u32,
    /// Number of iterations known to be done.
    pub iteration: u32,
    /// Number of iterations of the whole run.
    pub iterations: u32,
    /// True if the run ended or was interrupted; false if it is running or was killed.
    pub finished: bool,
    /// Number of Gaussians at the end.
    pub gaussians: u64,
    /// True if the run recorded the size of every buffer (`--profile-tensors`).
    pub profiled: bool,
    /// Peak memory by phase.
    pub peaks: PhasePeaks,
    /// Recorded time of the memory peak.
    pub peak: Option<MemoryPeak>,
    /// Categories of memory at that time.
    pub categories: Vec<CategoryShare>,
    /// Buffers by their own peaks, largest first, if the run recorded them.
    pub buffers: Vec<BufferPeak>,
    /// Unused share of the memory, per cent; for a device with its own memory.
    pub slack: Option<Slack>,
    /// Growth of memory.
    pub growth: Vec<Point>,
    /// Fallbacks of the device's memory that were applied or reverted.
    pub changes: Vec<LoggedChange>,
    /// Figures of the GPU.
    pub gpu: Option<GpuSummary>,
    /// Notable facts, with flags that help.
    pub findings: Vec<Finding>,
}

/// Time of the memory peak.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MemoryPeak {
    /// Finished iterations.
    pub iteration: u32,
    /// Reserved bytes of the device's memory, or bytes held in the host's if the device shares it.
    pub bytes: Bytes,
    /// Bytes that could be reserved then.
    pub budget: Option<Bytes>,
}

/// Share of a category in the peak.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CategoryShare {
    /// Category of memory.
    pub category: Category,
    /// Bytes at the peak.
    pub bytes: Bytes,
    /// Share of the peak, per cent.
    pub percent: f64,
}

/// A buffer at its own peak.
#[derive(Clone, Debug, Serialize)]
pub struct BufferPeak {
    /// Name in the ledger.
    pub label: String,
    /// `region`, `arena`, `block`, `photographs`, `context` or `pinned`.
    pub kind: String,
    /// Purpose of the buffer.
    pub purpose: &'static str,
    /// Element type, if all elements have one type.
    pub element: Option<&'static str>,
    /// Largest number of indices, and elements per index.
    pub shape: Option<[u64; 2]>,
    /// Peak bytes.
    pub peak: Bytes,
    /// Share of the total peak, per cent. Shares do not add up, because blocks lie in the arena and pinned memory is
    /// the host's.
    pub percent: f64,
    /// Finished iterations at the report of the peak.
    pub iteration: u32,
    /// Phase before that report.
    pub after: String,
}

/// Unused memory, per cent of the reserved memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Slack {
    /// Mean over the run.
    pub mean: f64,
    /// Maximum over the run.
    pub most: f64,
    /// Value at the end.
    pub last: f64,
}

/// Memory after an iteration.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// Finished iterations.
    pub iteration: u32,
    /// Number of Gaussians.
    pub gaussians: u64,
    /// Allocated bytes; all buffers if the device shares the host's memory.
    pub allocated: Bytes,
    /// Reserved bytes, if the device has its own memory.
    pub reserved: Option<Bytes>,
    /// Unexplained growth: of the device's memory, or of the process if the device has none.
    pub creep: Option<Bytes>,
    /// Resident memory of the process.
    pub host_resident: Option<Bytes>,
}

/// Figures of the GPU over the run; unreported figures are absent.
#[derive(Clone, Debug, Serialize)]
pub struct GpuSummary {
    /// Number of samples.
    pub samples: usize,
    /// Mean share of the time in which the GPU was busy, per cent.
    pub utilization_mean: Option<f64>,
    /// Mean share of the time in which its memory was read or written, per cent.
    pub memory_load_mean: Option<f64>,
    /// Peak use of its memory by all programs, per cent.
    pub memory_percent_max: Option<f64>,
    /// Highest temperature.
    pub temperature_max_c: Option<u32>,
    /// Mean power.
    pub power_mean_w: Option<f64>,
    /// Power limit at the end.
    pub power_limit_w: Option<f64>,
    /// Highest speed of the first fan, per cent.
    pub fan_max_percent: Option<u32>,
    /// Mean clock of the multiprocessors.
    pub clock_sm_mean_mhz: Option<f64>,
    /// Mean clock of the memory.
    pub clock_memory_mean_mhz: Option<f64>,
    /// Slowest performance state; 0 is the fastest.
    pub pstate_slowest: Option<u32>,
    /// Reasons of throttling with their percentage of samples; absent if unreported.
    pub throttled_percent: Option<BTreeMap<String, f64>>,
}

impl Profile {
    /// Reads the log in a model folder.
    pub fn read(model_path: &Path) -> Result<Self, LogError> {
        Ok(Self::of(model_path, &Log::read(model_path)?))
    }

    fn of(model_path: &Path, log: &Log) -> Self {
        let (peak, parts) =
            peak(log).map_or((None, Vec::new()), |(peak, parts)| (Some(peak), parts));
        let all = peak.map_or(Bytes(0), |peak| peak.bytes);
        let slack = slack(&log.memory);
        let shares =
            |(category, bytes)| CategoryShare { category, bytes, percent: percent(bytes, all) };
        Self {
            model_path: model_path.to_owned(),
            device: log.device.clone(),
            starts: log.starts,
            iteration: log.iteration,
            iterations: log.iterations,
            finished: log.is_finished,
            gaussians: log.gaussians_at(log.iteration),
            profiled: !log.buffers.is_empty(),
            peaks: log.peaks,
            peak,
            categories: parts.into_iter().map(shares).collect(),
            buffers: buffers(&log.buffers, all),
            slack,
            growth: growth(log),
            changes: log.changes.clone(),
            gpu: gpu(&log.gpu),
            findings: of(log, slack.map(|slack| slack.mean)),
        }
    }
}

/// Returns `part` of `all`, per cent.
fn percent(part: Bytes, all: Bytes) -> f64 {
    if all.0 == 0 { 0.0 } else { 100.0 * part.gib() / all.gib() }
}

/// Returns the memory peak and its categories: within iterations if the run recorded its buffers, otherwise between
/// them.
fn peak(log: &Log) -> Option<(MemoryPeak, Vec<(Category, Bytes)>)> {
    let total = |recorded: &LoggedBuffers| {
        recorded.entries.iter().filter_map(taken).map(|(_, at)| at).sum()
    };
    let inside: Option<(&LoggedBuffers, Bytes)> = log
        .buffers
        .iter()
        .map(|recorded| (recorded, total(recorded)))
        .max_by_key(|(_, bytes)| *bytes);
    if let Some((recorded, bytes)) = inside {
        let of = |category| {
            let entries = recorded.entries.iter().filter_map(taken);
            entries.filter(|(found, _)| *found == category).map(|(_, bytes)| bytes).sum()
        };
        let parts = Category::ALL.map(|category| (category, of(category)));
        let before = log.memory.iter().rev().find(|memory| memory.iteration <= recorded.iteration);
        let budget = before.or(log.memory.first()).and_then(|memory| memory.vram?.budget);
        return Some((MemoryPeak { iteration: recorded.iteration, bytes, budget }, parts.to_vec()));
    }
    let recorded = log.memory.iter().max_by_key(|recorded| between(recorded))?;
    let budget = recorded.vram.and_then(|vram| vram.budget);
    let peak = MemoryPeak { iteration: recorded.iteration, bytes: between(recorded), budget };
    Some((peak, parts_between(recorded)))
}

/// Returns the category of an entry and its bytes at the peak; `None` if it reserves no memory of the device.
fn taken(entry: &LoggedEntry) -> Option<(Category, Bytes)> {
    Some((Category::of(&entry.label, &entry.kind)?, entry.at_peak))
}

fn between(recorded: &LoggedMemory) -> Bytes {
    recorded.vram.map_or_else(|| recorded.tensors.total(), |vram| vram.reserved)
}

fn parts_between(recorded: &LoggedMemory) -> Vec<(Category, Bytes)> {
    let Tensors { parameters, optimizer, gradients, activations, images, knn } = recorded.tensors;
    let Some(vram) = recorded.vram else {
        return vec![
            (Category::Parameters, parameters),
            (Category::Optimizer, optimizer),
            (Category::Photographs, images),
            (Category::Scratch, gradients + activations),
            (Category::Other, knn),
        ];
    };
    let known = parameters + optimizer + vram.photographs + vram.scratch + vram.context;
    vec![
        (Category::Parameters, parameters),
        (Category::Optimizer, optimizer),
        (Category::Photographs, vram.photographs),
        (Category::Scratch, vram.scratch),
        (Category::Context, vram.context),
        (Category::Other, Bytes(vram.reserved.0.saturating_sub(known.0))),
    ]
}

/// Returns each buffer at its own peak, largest first.
fn buffers(recorded: &[LoggedBuffers], all: Bytes) -> Vec<BufferPeak> {
    let mut found: BTreeMap<(&str, &str), (Bytes, &LoggedBuffers)> = BTreeMap::new();
    // Long-lived buffers take whole granules, so their shape follows from the used bytes.
    let mut held: BTreeMap<(&str, &str), Bytes> = BTreeMap::new();
    for report in recorded {
        for entry in &report.entries {
            let most = found.entry((&entry.label, &entry.kind)).or_insert((Bytes(0), report));
            let used = if entry.kind == "block" { entry.peak } else { entry.bytes };
            let most_held = held.entry((&entry.label, &entry.kind)).or_default();
            *most_held = (*most_held).max(used);
            if entry.peak > most.0 {
                *most = (entry.peak, report);
            }
        }
    }
    let mut buffers: Vec<BufferPeak> = found
        .into_iter()
        .filter(|(_, (peak, _))| peak.0 > 0)
        .map(|((label, kind), (peak, report))| BufferPeak {
            label: label.to_owned(),
            kind: kind.to_owned(),
            purpose: words(label, kind),
            element: layout::only(label).map(|slot| slot.type_name),
            shape: shape(label, held.get(&(label, kind)).copied().unwrap_or_default()),
            peak,
            percent: percent(peak, all),
            iteration: report.iteration,
            after: report.after.clone(),
        })
        .collect();
    buffers.sort_by_key(|buffer| std::cmp::Reverse(buffer.peak));
    buffers
}

/// Returns the number of indices and the elements per index of a buffer with `bytes` bytes.
fn shape(label: &str, bytes: Bytes) -> Option<[u64; 2]> {
    let slot = layout::only(label)?;
    let each = slot.element as u64 * u64::from(slot.width);
    (bytes.0 > 0 && each > 0 && bytes.0.is_multiple_of(each))
        .then(|| [bytes.0 / each, slot.width.into()])
}

fn slack(recorded: &[LoggedMemory]) -> Option<Slack> {
    let shares: Vec<f64> = recorded
        .iter()
        .filter_map(|recorded| Some(percent(recorded.vram?.slack?, recorded.vram?.reserved)))
        .collect();
    Some(Slack {
        mean: mean(&shares)?,
        most: shares.iter().copied().fold(0.0, f64::max),
        last: *shares.last()?,
    })
}

/// Returns [`POINTS`] points, evenly over the run, with the first and the last.
fn growth(log: &Log) -> Vec<Point> {
    let recorded = &log.memory;
    let count = POINTS.min(recorded.len());
    let last = recorded.len().saturating_sub(1);
    let at = |point: usize| &recorded[point * last / count.saturating_sub(1).max(1)];
    (0..count)
        .map(at)
        .map(|memory| Point {
            iteration: memory.iteration,
            gaussians: log.gaussians_at(memory.iteration),
            allocated: memory.vram.map_or_else(|| between(memory), |vram| vram.allocated),
            reserved: memory.vram.map(|vram| vram.reserved),
            creep: memory.vram.map_or(memory.host_creep, |vram| vram.creep),
            host_resident: memory.host_resident,
        })
        .collect()
}

fn gpu(recorded: &[LoggedGpu]) -> Option<GpuSummary> {
    if recorded.is_empty() {
        return None;
    }
    let mean_of = |figure: fn(&LoggedGpu) -> Option<f64>| {
        mean(&recorded.iter().filter_map(figure).collect::<Vec<_>>())
    };
    let memory =
        recorded.iter().filter_map(|gpu| Some(percent(gpu.memory_used?, gpu.memory_total?)));
    let reasons: Vec<&Vec<String>> =
        recorded.iter().filter_map(|gpu| gpu.throttle.as_ref()).collect();
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    for reason in reasons.iter().copied().flatten() {
        *counts.entry(reason.clone()).or_default() += 100.0 / reasons.len() as f64;
    }
    Some(GpuSummary {
        samples: recorded.len(),
        utilization_mean: mean_of(|gpu| gpu.utilization.map(f64::from)),
        memory_load_mean: mean_of(|gpu| gpu.memory_load.map(f64::from)),
        memory_percent_max: memory.reduce(f64::max),
        temperature_max_c: recorded.iter().filter_map(|gpu| gpu.temperature_c).max(),
        power_mean_w: mean_of(|gpu| gpu.power_w),
        power_limit_w: recorded.iter().rev().find_map(|gpu| gpu.power_limit_w),
        fan_max_percent: recorded.iter().filter_map(|gpu| gpu.fan_percent).max(),
        clock_sm_mean_mhz: mean_of(|gpu| gpu.clock_sm_mhz.map(f64::from)),
        clock_memory_mean_mhz: mean_of(|gpu| gpu.clock_memory_mhz.map(f64::from)),
        pstate_slowest: recorded.iter().filter_map(|gpu| gpu.pstate).max(),
        throttled_percent: (!reasons.is_empty()).then_some(counts),
    })
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Category of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Trained parameters.
    Parameters,
    /// Moments of the gradients, and statistics of density control.
    Optimizer,
    /// Photographs.
    Photographs,
    /// Buffers of a single iteration.
    Scratch,
    /// The driver's memory, and code.
    Context,
    /// Everything else, including the rest of each buffer's last granule.
    Other,
}

impl Category {
    const ALL: [Self; 6] = [
        Self::Parameters,
        Self::Optimizer,
        Self::Photographs,
        Self::Scratch,
        Self::Context,
        Self::Other,
    ];

    /// Returns the category of memory that an entry reserves on the device. Blocks lie in the arena, which reserves
    /// the memory.
    fn of(label: &str, kind: &str) -> Option<Self> {
        match kind {
            "context" => Some(Self::Context),
            "photographs" => Some(Self::Photographs),
            "arena" => Some(Self::Scratch),
            "block" | "pinned" => None,
            _ => Some(match layout::named(label).map(|slot| slot.purpose) {
                Some(Purpose::Parameters) => Self::Parameters,
                Some(Purpose::Moments | Purpose::Statistics) => Self::Optimizer,
                _ => Self::Other,
            }),
        }
    }

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Optimizer => "optimizer",
            Self::Photographs => "photographs",
            Self::Scratch => "scratch",
            Self::Context => "context and code",
            Self::Other => "other",
        }
    }
}

fn words(label: &str, kind: &str) -> &'static str {
    layout::named(label).map_or_else(
        || match kind {
            "photographs" => "photographs",
            "region" => "lives as long as the model",
            "pinned" => "page-locked memory of the host",
            _ => "an iteration",
        },
        |slot| slot.words,
    )
}

/// Growth below this is ascribed to the driver.
const LEAK: Bytes = Bytes(16 << 20);

/// Slack above which memory should be returned more often, per cent.
const SLACK_PERCENT: f64 = 10.0;

/// Share of a limit above which a run is near it, per cent.
const NEAR_PERCENT: f64 = 90.0;

/// A notable fact.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Kind of the finding.
    pub kind: FindingKind,
    /// Description, one sentence.
    pub text: String,
    /// Flags of `splat train` that help; `None` if nothing has to be done.
    pub flags: Option<String>,
}

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Memory grew without explanation.
    Leak,
    /// Memory was unused.
    Slack,
    /// Evaluation took more memory than training.
    Evaluation,
    /// Distance to the nearest limit.
    Limit,
}

/// Returns the findings of a run whose mean slack is `slack_percent`.
fn of(log: &Log, slack_percent: Option<f64>) -> Vec<Finding> {
    let slack_finding = slack_percent.and_then(slack_finding);
    [leak(log), slack_finding, evaluation(log), limit(log)].into_iter().flatten().collect()
}

fn leak(log: &Log) -> Option<Finding> {
    let last = log.memory.iter().rev();
    let (creep, what) = match last.clone().find_map(|memory| memory.vram?.creep) {
        Some(creep) => (creep, "GPU memory"),
        None => (last.clone().find_map(|memory| memory.host_creep)?, "RAM"),
    };
    if creep < LEAK {
        return None;
    }
    let (grown, flags) = match grown(&log.buffers) {
        Some((label, bytes)) => (
            format!("; `{label}` grew most, by {:.1} MiB", bytes.mib()),
            "--checkpoint-iterations, and --resume in a new process, which begins without it",
        ),
        None => (String::new(), "--profile-tensors, which shows the buffer"),
    };
    let text = format!(
        "{:.1} MiB of {what} were held at the end that the number of Gaussians does not \
         explain{grown}. Please report it",
        creep.mib()
    );
    Some(Finding { kind: FindingKind::Leak, text, flags: Some(flags.to_owned()) })
}

/// Returns the buffer that grew most at the end of the run while the number of Gaussians was constant.
fn grown(recorded: &[LoggedBuffers]) -> Option<(&str, Bytes)> {
    let last = recorded.last()?;
    let mut same = recorded.iter().rev().take_while(|it| it.gaussians == last.gaussians);
    let first = same.by_ref().last()?;
    let before: BTreeMap<(&str, &str), Bytes> =
        first.entries.iter().map(|it| ((it.label.as_str(), it.kind.as_str()), it.bytes)).collect();
    let growth = last.entries.iter().filter(|it| it.kind != "pinned").map(|entry| {
        let key = (entry.label.as_str(), entry.kind.as_str());
        let before = before.get(&key).copied().unwrap_or_default();
        (entry.label.as_str(), Bytes(entry.bytes.0.saturating_sub(before.0)))
    });
    growth.max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| bytes.0 > 0)
}

fn slack_finding(percent: f64) -> Option<Finding> {
    (percent > SLACK_PERCENT).then(|| Finding {
        kind: FindingKind::Slack,
        text: format!("{percent:.1} % of the memory served nothing on average"),
        flags: Some("--fragmentation aggressive".to_owned()),
    })
}

fn evaluation(log: &Log) -> Option<Finding> {
    let evaluation = log.peaks.of(Phase::Evaluation)?.vram?;
    let training = log.peaks.vram_of_training()?;
    let beyond = Bytes(evaluation.0.checked_sub(training.0).filter(|&bytes| bytes > 0)?);
    let flags = if log.has_lpips {
        "--enable-lpips false, and splat eval after the run"
    } else {
        "-r or --test-every: held-out views show more than those of training"
    };
    let text = format!("evaluation took {:.1} MiB more than training", beyond.mib());
    Some(Finding { kind: FindingKind::Evaluation, text, flags: Some(flags.to_owned()) })
}

/// Returns the known limit that was approached most.
fn limit(log: &Log) -> Option<Finding> {
    let of_gpu = log.memory.iter().filter_map(|it| Some((it.vram?.reserved, it.vram?.budget?)));
    // More memory is taken within iterations than between them.
    let budget = log.memory.iter().rev().find_map(|memory| memory.vram?.budget);
    let of_gpu = of_gpu.chain(log.peaks.most().vram.zip(budget));
    // Without a known limit, the machine's memory is the limit.
    let may_use = |memory: &LoggedMemory| memory.host_limit.or(memory.host_total);
    let of_host = log.memory.iter().filter_map(|it| Some((it.host_resident?, may_use(it)?)));
    let of_host = of_host.chain(log.peaks.most().host.zip(log.memory.last().and_then(may_use)));
    let gpu = (
        "of the GPU memory that may be taken",
        "--max-points N, -r, --offload sh, or --optimize-memory if it is off",
    );
    let ram = ("of the RAM that may be used", "--image-cache or --host-limit");
    let all = of_gpu.map(|it| (gpu, it)).chain(of_host.map(|it| (ram, it)));
    let (percent, (what, flags), (used, limit)) = all
        .filter(|(_, (_, limit))| limit.0 > 0)
        .map(|(names, (used, limit))| (percent(used, limit), names, (used, limit)))
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    let (used, limit) = (used.mib(), limit.mib());
    let text = format!("the nearest limit: {used:.1} of {limit:.1} MiB {what} ({percent:.0} %)");
    let flags = (percent > NEAR_PERCENT).then(|| flags.to_owned());
    Some(Finding { kind: FindingKind::Limit, text, flags })
}

// Reading `run.jsonl`.

/// Error of a log.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum LogError {
    #[error(
        "{path}: there is no such file. Name the folder of a run (`splat train -m` says which)"
    )]
    Missing { path: PathBuf },
    #[error("{path}: cannot be read: {source}. Check its permissions")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "{path}, line {line}: is not an event of a run: {reason}. Remove the line, or train again"
    )]
    Damaged { path: PathBuf, line: usize, reason: String },
    #[error("{path}: no run has begun. Train first, or wait until the run has read its scene")]
    Empty { path: PathBuf },
}

#[derive(Clone, Debug, Default)]
struct Log {
    device: String,
    /// Number of starts of the run, resumptions included.
    starts: u32,
    has_lpips: bool,
    /// Last iteration known to be done.
    iteration: u32,
    /// Last iteration of the run.
    iterations: u32,
    is_finished: bool,
    /// Gaussians by iteration; every tenth is known.
    gaussians: BTreeMap<u32, u64>,
    /// Peak memory by phase, over all starts.
    peaks: PhasePeaks,
    memory: Vec<LoggedMemory>,
    buffers: Vec<LoggedBuffers>,
    gpu: Vec<LoggedGpu>,
    changes: Vec<LoggedChange>,
}

/// A line of the log, with the fields that are read.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Record {
    Started {
        device: String,
        gaussians: u64,
        iteration: u32,
        iterations: u32,
    },
    Step {
        iteration: u32,
        gaussians: u64,
    },
    Evaluated {
        lpips_net: Option<String>,
    },
    Memory(LoggedMemory),
    Buffers(LoggedBuffers),
    Gpu(LoggedGpu),
    #[serde(rename = "rung")]
    Fallback(LoggedChange),
    Finished {
        iteration: u32,
        gaussians: u64,
        #[serde(default)]
        peaks: PhasePeaks,
    },
    #[serde(other)]
    Other,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct LoggedMemory {
    iteration: u32,
    tensors: Tensors,
    vram: Option<LoggedVram>,
    host_resident: Option<Bytes>,
    host_total: Option<Bytes>,
    host_limit: Option<Bytes>,
    /// Unexplained growth of the process; only for a device without its own memory.
    host_creep: Option<Bytes>,
    /// Absent in older logs.
    #[serde(default)]
    peaks: PhasePeaks,
}

/// Bytes of a device's own memory. Fields that are missing in older logs are 0 or absent.
#[derive(Clone, Copy, Debug, Deserialize)]
struct LoggedVram {
    allocated: Bytes,
    reserved: Bytes,
    #[serde(default)]
    context: Bytes,
    #[serde(default)]
    photographs: Bytes,
    #[serde(default)]
    scratch: Bytes,
    slack: Option<Bytes>,
    creep: Option<Bytes>,
    budget: Option<Bytes>,
}

#[derive(Clone, Debug, Deserialize)]
struct LoggedBuffers {
    iteration: u32,
    after: String,
    #[serde(default)]
    gaussians: u64,
    entries: Vec<LoggedEntry>,
}

#[derive(Clone, Debug, Deserialize)]
struct LoggedEntry {
    label: String,
    kind: String,
    /// Bytes in use between two iterations.
    #[serde(default)]
    bytes: Bytes,
    peak: Bytes,
    at_peak: Bytes,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct LoggedGpu {
    iteration: u32,
    utilization: Option<u32>,
    memory_load: Option<u32>,
    memory_used: Option<Bytes>,
    memory_total: Option<Bytes>,
    temperature_c: Option<u32>,
    power_w: Option<f64>,
    power_limit_w: Option<f64>,
    fan_percent: Option<u32>,
    clock_sm_mhz: Option<u32>,
    clock_memory_mhz: Option<u32>,
    pstate: Option<u32>,
    throttle: Option<Vec<String>>,
}

/// A fallback that was applied or reverted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LoggedChange {
    /// Finished iterations.
    pub iteration: u32,
    /// The fallback.
    #[serde(rename = "rung")]
    pub fallback: Fallback,
    /// True if applied, false if reverted.
    pub given_up: bool,
    /// Bytes gained, or the possible cost of reverting.
    pub bytes: Bytes,
    /// Bytes held then.
    pub held: Bytes,
    /// Bytes that could be held then.
    pub budget: Bytes,
}

impl Log {
    fn read(model_path: &Path) -> Result<Self, LogError> {
        let path = model_path.join("run.jsonl");
        let file = File::open(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                LogError::Missing { path: path.clone() }
            }
            _ => LogError::Unreadable { path: path.clone(), source },
        })?;
        Self::of_lines(&path, BufReader::new(file))
    }

    /// Reads lines; errors name `path`. A killed run may leave its last line unfinished. A resumed run drops that
    /// part, but older versions wrote after it.
    fn of_lines(path: &Path, mut lines: impl BufRead) -> Result<Self, LogError> {
        let mut log = Self::default();
        let mut unfinished: Option<LogError> = None;
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = lines.read_until(b'\n', &mut line);
            if read.map_err(|source| LogError::Unreadable { path: path.to_owned(), source })? == 0 {
                break;
            }
            let record = serde_json::from_slice(line.trim_ascii_end());
            let before = unfinished.take();
            if let (Some(error), false) = (before, matches!(record, Ok(Record::Started { .. }))) {
                return Err(error);
            }
            match record {
                Ok(record) => log.take(record),
                Err(error) => {
                    let damage = LogError::Damaged {
                        path: path.to_owned(),
                        line: number,
                        reason: error.to_string(),
                    };
                    if !error.is_eof() && line.ends_with(b"\n") {
                        return Err(damage);
                    }
                    unfinished = Some(damage);
                }
            }
        }
        if log.starts == 0 { Err(LogError::Empty { path: path.to_owned() }) } else { Ok(log) }
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Started { device, gaussians, iteration, iterations } => {
                self.forget_after(iteration);
                (self.device, self.iterations) = (device, iterations);
                self.starts += 1;
                self.reach(iteration, gaussians);
                self.is_finished = false;
            }
            Record::Step { iteration, gaussians } => self.reach(iteration, gaussians),
            Record::Finished { iteration, gaussians, peaks } => {
                self.reach(iteration, gaussians);
                self.peaks.raise_all(&peaks);
                self.is_finished = true;
            }
            Record::Memory(memory) => {
                self.peaks.raise_all(&memory.peaks);
                self.memory.push(memory);
            }
            Record::Evaluated { lpips_net } => self.has_lpips |= lpips_net.is_some(),
            Record::Buffers(buffers) => self.buffers.push(buffers),
            Record::Gpu(gpu) => self.gpu.push(gpu),
            Record::Fallback(change) => self.changes.push(change),
            Record::Other => {}
        }
    }

    fn reach(&mut self, iteration: u32, gaussians: u64) {
        self.gaussians.insert(iteration, gaussians);
        self.iteration = iteration;
    }

    /// Drops later records, because the run resumes after this iteration.
    fn forget_after(&mut self, iteration: u32) {
        self.gaussians.retain(|&at, _| at <= iteration);
        self.memory.retain(|recorded| recorded.iteration <= iteration);
        self.buffers.retain(|recorded| recorded.iteration <= iteration);
        self.gpu.retain(|recorded| recorded.iteration <= iteration);
        self.changes.retain(|recorded| recorded.iteration <= iteration);
    }

    /// Returns the Gaussians after an iteration, or after the last known one before it.
    fn gaussians_at(&self, iteration: u32) -> u64 {
        self.gaussians.range(..=iteration).next_back().map_or(0, |(_, &count)| count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::event::PhasePeak;

    #[test]
    fn reserved_memory_has_a_purpose_and_a_category() {
        assert_eq!(words("sh", "region"), "colours");
        assert_eq!(words("something new", "pinned"), "page-locked memory of the host");
        for (label, kind, category) in [
            ("geometry", "region", Some(Category::Parameters)),
            ("sh, second moments", "region", Some(Category::Optimizer)),
            ("sh, steps taken", "region", Some(Category::Optimizer)),
            ("density statistics, views", "region", Some(Category::Optimizer)),
            ("photographs in turn", "photographs", Some(Category::Photographs)),
            ("scratch", "arena", Some(Category::Scratch)),
            ("splats", "block", None),
            ("staging of the model", "pinned", None),
            ("context and code", "context", Some(Category::Context)),
            ("status", "region", Some(Category::Other)),
        ] {
            assert_eq!(Category::of(label, kind), category, "{label}");
        }
    }

    const STARTED: &str = r#"{"time":1.0,"event":"started","model_path":"m","device":"CPU","train_views":7,"test_views":1,"gaussians":200,"iteration":0,"iterations":300}"#;

    fn step(iteration: u32, gaussians: u64) -> String {
        format!(r#"{{"event":"step","iteration":{iteration},"gaussians":{gaussians},"l1":0.1}}"#)
    }

    fn memory_line(iteration: u32, parameters: u64) -> String {
        format!(
            r#"{{"event":"memory","iteration":{iteration},"tensors":{{"parameters":{parameters},"optimizer":1,"gradients":1,"activations":1,"images":1}},"vram":null,"host_resident":9,"host_total":10}}"#
        )
    }

    fn read(text: &str) -> Result<Log, LogError> {
        Log::of_lines(Path::new("m/run.jsonl"), text.as_bytes())
    }

    #[test]
    fn unknown_events_are_skipped_and_a_log_without_a_run_is_empty() {
        let text = [STARTED, r#"{"event":"from the future","x":{}}"#, &step(10, 210)].join("\n");
        let log = read(&(text + "\n")).unwrap();
        assert_eq!((log.starts, log.iteration, log.gaussians_at(9)), (1, 10, 200));
        assert_eq!(log.gaussians_at(10), 210);
        assert!(!log.is_finished);
        for text in ["", "{\"ti", &step(10, 1)] {
            assert!(matches!(read(text), Err(LogError::Empty { .. })), "{text}");
        }
    }

    #[test]
    fn resumed_run_replaces_later_records() {
        let resumed = STARTED.replace(r#""iteration":0"#, r#""iteration":100"#);
        let text = [
            STARTED,
            &step(100, 300),
            &memory_line(100, 11),
            &step(200, 400),
            &memory_line(200, 22),
            &resumed.replace("200,", "300,"),
            &step(110, 333),
            &memory_line(200, 33),
        ];
        let log = read(&text.join("\n")).unwrap();
        assert_eq!((log.starts, log.iteration), (2, 110));
        assert_eq!(log.gaussians_at(250), 333);
        let parameters: Vec<_> =
            log.memory.iter().map(|it| (it.iteration, it.tensors.parameters.0)).collect();
        assert_eq!(parameters, [(100, 11), (200, 33)]);
    }

    #[test]
    fn unfinished_last_line_is_allowed_and_others_are_errors() {
        let half = &step(20, 2)[..25];
        let resumed = STARTED.replace(r#""iteration":0"#, r#""iteration":10"#);
        for text in [
            format!("{STARTED}\n{half}"),
            // As after a power cut.
            format!("{STARTED}\n\u{0}\u{0}"),
            format!("{STARTED}\n{half}\n"),
            format!("{STARTED}\n{half}\n{resumed}\n{}\n", step(20, 5)),
        ] {
            read(&text).unwrap();
        }
        for (text, line) in [
            (format!("{STARTED}\n{half}\n{}\n", step(30, 3)), 2),
            (format!("{STARTED}\n{half}\n{half}\n"), 2),
            (format!("{STARTED}\n{}\n{{\"event\":7}}\n", step(10, 1)), 3),
            (format!("{STARTED}\n\u{0}\u{0}\n"), 2),
            (format!("{STARTED}\n{{\"event\":\"step\"}}\n"), 2),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(&format!("m/run.jsonl, line {line}: ")), "{error}");
        }
    }
    fn entry(label: &str, kind: &str, peak: u64, at_peak: u64) -> LoggedEntry {
        let [peak, at_peak] = [peak, at_peak].map(Bytes);
        let (label, kind) = (label.to_owned(), kind.to_owned());
        LoggedEntry { label, kind, bytes: at_peak, peak, at_peak }
    }

    fn recorded(iteration: u32, entries: Vec<LoggedEntry>) -> LoggedBuffers {
        LoggedBuffers { iteration, after: "training".to_owned(), gaussians: 7, entries }
    }

    fn memory(iteration: u32, vram: Option<LoggedVram>) -> LoggedMemory {
        let tensors = Tensors {
            parameters: Bytes(10),
            optimizer: Bytes(20),
            gradients: Bytes(1),
            activations: Bytes(2),
            images: Bytes(7),
            knn: Bytes(3),
        };
        LoggedMemory {
            iteration,
            tensors,
            vram,
            host_resident: Some(Bytes(1000)),
            host_total: Some(Bytes(10_000)),
            ..LoggedMemory::default()
        }
    }

    fn log(memory: impl IntoIterator<Item = LoggedMemory>) -> Log {
        Log { memory: memory.into_iter().collect(), ..Log::default() }
    }

    fn vram(reserved: u64, slack: u64) -> LoggedVram {
        LoggedVram {
            allocated: Bytes(80),
            reserved: Bytes(reserved),
            context: Bytes(40),
            photographs: Bytes(5),
            scratch: Bytes(20),
            slack: Some(Bytes(slack)),
            creep: None,
            budget: Some(Bytes(200)),
        }
    }

    fn bytes_of(profile: &Profile) -> Vec<(Category, u64)> {
        profile.categories.iter().map(|share| (share.category, share.bytes.0)).collect()
    }

    #[test]
    fn buffers_have_their_own_peaks_and_categories_the_total_peak() {
        let first = vec![
            entry("geometry", "region", 32, 32),
            entry("scratch", "arena", 64, 64),
            entry("splats", "block", 50, 0),
            entry("staging of the model", "pinned", 500, 500),
        ];
        let second = vec![
            entry("geometry", "region", 48, 48),
            entry("scratch", "arena", 60, 32),
            entry("splats", "block", 20, 0),
        ];
        let mut log = log([memory(100, Some(vram(100, 10)))]);
        log.buffers = vec![recorded(100, first), recorded(200, second)];
        let profile = Profile::of(Path::new("m"), &log);
        let peak = profile.peak.unwrap();
        assert_eq!((peak.iteration, peak.bytes, peak.budget), (100, Bytes(96), Some(Bytes(200))));
        assert_eq!(
            bytes_of(&profile)[..4],
            [
                (Category::Parameters, 32),
                (Category::Optimizer, 0),
                (Category::Photographs, 0),
                (Category::Scratch, 64),
            ]
        );
        let found = profile.buffers.iter().map(|it| (it.label.as_str(), it.peak.0, it.iteration));
        let expected = [
            ("staging of the model", 500, 100),
            ("scratch", 64, 100),
            ("splats", 50, 100),
            ("geometry", 48, 200),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert!((profile.buffers[3].percent - 50.0).abs() < 1e-9);
    }

    #[test]
    fn without_buffers_categories_are_those_between_iterations() {
        let memories = [(100, 90), (200, 120), (300, 110)];
        let log = log(memories.map(|(at, reserved)| memory(at, Some(vram(reserved, 12)))));
        let profile = Profile::of(Path::new("m"), &log);
        assert!(!profile.profiled && profile.buffers.is_empty());
        assert_eq!(profile.peak.unwrap().iteration, 200);
        assert_eq!(bytes_of(&profile).iter().map(|(_, bytes)| bytes).sum::<u64>(), 120);
        assert_eq!(bytes_of(&profile).last().unwrap(), &(Category::Other, 25));
        let slack = profile.slack.unwrap();
        assert!((slack.most - 100.0 * 12.0 / 90.0).abs() < 1e-9, "{slack:?}");
        assert!((slack.last - 100.0 * 12.0 / 110.0).abs() < 1e-9, "{slack:?}");
    }

    #[test]
    fn cpu_run_has_neither_slack_nor_gpu() {
        let log = log([memory(100, None)]);
        let profile = Profile::of(Path::new("m"), &log);
        assert!(profile.slack.is_none() && profile.gpu.is_none());
        assert_eq!(profile.peak.unwrap().bytes, Bytes(43));
        assert_eq!(bytes_of(&profile).iter().map(|(_, bytes)| bytes).sum::<u64>(), 43);
        assert_eq!(bytes_of(&profile).last().unwrap(), &(Category::Other, 3));
    }

    #[test]
    fn growth_has_ten_points_from_first_to_last() {
        for (reports, points) in [(0_u32, 0), (1, 1), (2, 2), (10, 10), (11, 10), (300, 10)] {
            let log = log((1..=reports).map(|i| memory(i, None)));
            let at: Vec<u32> = growth(&log).iter().map(|point| point.iteration).collect();
            assert_eq!(at.len(), points, "{reports}");
            assert!(at.is_sorted_by(|a, b| a < b), "{at:?}");
            assert_eq!(at.first().copied(), (reports > 0).then_some(1));
            assert_eq!(at.last().copied(), (reports > 0).then_some(reports));
        }
    }

    #[test]
    fn gpu_figures_ignore_missing_samples() {
        let sample = |utilization, temperature_c, throttle: Option<&[&str]>| LoggedGpu {
            utilization,
            memory_load: utilization.map(|load| load / 2),
            memory_used: Some(Bytes(3)),
            memory_total: Some(Bytes(4)),
            temperature_c,
            power_limit_w: Some(700.0),
            fan_percent: temperature_c,
            clock_sm_mhz: utilization,
            pstate: temperature_c.map(|degrees| degrees / 30),
            throttle: throttle.map(|all| all.iter().map(|&reason| reason.to_owned()).collect()),
            ..LoggedGpu::default()
        };
        let summary = gpu(&[
            sample(Some(90), None, Some(&["power_limit"])),
            sample(None, Some(70), Some(&[])),
            sample(Some(100), Some(60), None),
        ])
        .unwrap();
        assert_eq!((summary.samples, summary.utilization_mean), (3, Some(95.0)));
        assert_eq!((summary.temperature_max_c, summary.power_mean_w), (Some(70), None));
        assert_eq!(summary.memory_percent_max, Some(75.0));
        assert_eq!((summary.memory_load_mean, summary.power_limit_w), (Some(47.5), Some(700.0)));
        assert_eq!((summary.fan_max_percent, summary.pstate_slowest), (Some(70), Some(2)));
        assert_eq!((summary.clock_sm_mean_mhz, summary.clock_memory_mean_mhz), (Some(95.0), None));
        assert_eq!(summary.throttled_percent.unwrap()["power_limit"], 50.0);
        assert!(gpu(&[]).is_none());
    }

    fn found(log: &Log) -> Vec<Finding> {
        of(log, slack(&log.memory).map(|slack| slack.mean))
    }

    fn kinds(log: &Log) -> Vec<FindingKind> {
        found(log).iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn plain_run_has_only_a_limit_finding() {
        let plain = log([memory(100, Some(vram(100, 9)))]);
        let shown = found(&plain);
        assert_eq!(kinds(&plain), [FindingKind::Limit]);
        assert!(shown[0].text.contains("GPU") && shown[0].text.contains("(50 %)"), "{shown:?}");
        assert_eq!(shown[0].flags, None);
        let near = log([memory(100, Some(vram(190, 9)))]);
        assert!(found(&near)[0].flags.as_ref().unwrap().contains("--optimize-memory"));
        let on_cpu = LoggedMemory { host_creep: Some(Bytes(17 << 20)), ..memory(100, None) };
        let on_cpu = log([on_cpu]);
        assert!(found(&on_cpu)[0].text.starts_with("17.0 MiB of RAM"));
        assert!(found(&on_cpu)[1].text.contains("RAM that may be used (10 %)"));
        assert_eq!(growth(&on_cpu)[0].creep, Some(Bytes(17 << 20)));
    }

    #[test]
    fn limit_of_ram_uses_the_peak() {
        let limited = LoggedMemory { host_limit: Some(Bytes(4000)), ..memory(100, None) };
        let mut log = log([limited]);
        assert!(found(&log)[0].text.contains("(25 %)"), "1000 bytes are held of 4000");
        log.peaks.raise(Phase::Saving, PhasePeak { vram: None, host: Some(Bytes(3900)) });
        let shown = found(&log);
        assert!(shown[0].text.contains("(98 %)"), "{shown:?}");
        assert!(shown[0].flags.as_ref().unwrap().contains("--host-limit"), "{shown:?}");
    }

    #[test]
    fn leaks_slack_and_evaluations_are_found_with_flags() {
        let mib = |count: u64| Bytes(count << 20);
        let creeping = LoggedVram { creep: Some(mib(20)), ..vram(100, 11) };
        let mut log = log([memory(100, Some(creeping))]);
        assert_eq!(kinds(&log), [FindingKind::Leak, FindingKind::Slack, FindingKind::Limit]);
        let flags = |log: &Log, place: usize| found(log)[place].flags.clone().unwrap();
        assert!(flags(&log, 0).contains("--profile-tensors"));
        assert_eq!(flags(&log, 1), "--fragmentation aggressive");
        let at = |sh: u64, staging: u64| {
            vec![
                entry("geometry", "region", 9, 9),
                entry("sh", "region", sh, sh),
                entry("staging of the model", "pinned", staging, staging),
            ]
        };
        let other = LoggedBuffers { gaussians: 6, ..recorded(50, at(1, 1)) };
        log.buffers =
            vec![other, recorded(100, at(3 << 20, 1)), recorded(200, at(8 << 20, 99 << 20))];
        assert!(found(&log)[0].text.contains("`sh` grew most, by 5.0 MiB"));
        for (phase, vram) in [(Phase::Training, 70), (Phase::Evaluation, 100)] {
            log.peaks.raise(phase, PhasePeak { vram: Some(mib(vram)), host: None });
        }
        let shown = found(&log);
        assert_eq!(shown[2].kind, FindingKind::Evaluation);
        assert!(shown[2].text.contains("30.0 MiB more than training"), "{shown:?}");
        assert!(flags(&log, 2).contains("--test-every"));
        log.has_lpips = true;
        assert!(flags(&log, 2).contains("--enable-lpips false"));
    }

    #[test]
    fn buffers_have_the_types_and_shapes_of_their_slots() {
        assert_eq!(shape("sh", Bytes(4 * 7)), Some([7, 1]));
        assert_eq!(shape("sh", Bytes(3)), None);
        assert_eq!(shape("nobody's", Bytes(4)), None);
        assert!(layout::only("keys of instances").is_none(), "two types share the label");
    }
}
