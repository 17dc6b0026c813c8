//! The memory use of a run, read from its `run.jsonl`.

mod category;
mod findings;
mod log;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use self::category::words;
use self::log::{Log, LoggedBuffers, LoggedEntry, LoggedGpu, LoggedMemory};
use crate::layout;
use crate::memory::Bytes;
use crate::train::event::{PhasePeaks, Tensors};

pub use self::category::Category;
pub use self::findings::{Finding, FindingKind};
pub use self::log::{LogError, LoggedChange};

/// Points that the growth of a run is listed at.
const POINTS: usize = 10;

/// The memory use of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Profile {
    /// The model folder.
    pub model_path: PathBuf,
    /// Device in words.
    pub device: String,
    /// How often the run was started: once, and once for each time that it was resumed.
    pub starts: u32,
    /// Iterations that are known to be done.
    pub iteration: u32,
    /// Iterations that the run ends at.
    pub iterations: u32,
    /// Whether the run ended or was asked to stop; otherwise it is still running or was killed.
    pub finished: bool,
    /// Gaussians at the end.
    pub gaussians: u64,
    /// Whether the run recorded the size of every buffer (`--profile-tensors`).
    pub profiled: bool,
    /// The most memory by what the run was doing.
    pub peaks: PhasePeaks,
    /// The recorded time at which most memory was taken.
    pub peak: Option<MemoryPeak>,
    /// What the memory was for at that time.
    pub categories: Vec<CategoryShare>,
    /// The buffers by their own peaks, the largest first, if the run recorded them.
    pub buffers: Vec<BufferPeak>,
    /// Share of the memory that served nothing, per cent; of a device that has its own.
    pub slack: Option<Slack>,
    /// How memory grew.
    pub growth: Vec<Point>,
    /// What was given up to save memory, and restored.
    pub changes: Vec<LoggedChange>,
    /// What the GPU was doing.
    pub gpu: Option<GpuSummary>,
    /// What stands out, with the flags that help.
    pub findings: Vec<Finding>,
}

/// The time at which most memory was taken.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MemoryPeak {
    /// Finished iterations.
    pub iteration: u32,
    /// Bytes that were taken of the device's memory; held, of one that shares the host's.
    pub bytes: Bytes,
    /// What could be taken then.
    pub budget: Option<Bytes>,
}

/// A category's part of the peak.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CategoryShare {
    /// What the memory was for.
    pub category: Category,
    /// Bytes.
    pub bytes: Bytes,
    /// Of all, per cent.
    pub percent: f64,
}

/// A buffer at its own most.
#[derive(Clone, Debug, Serialize)]
pub struct BufferPeak {
    /// Its name in the books.
    pub label: String,
    /// `region`, `arena`, `block`, `photographs`, `context` or `pinned`.
    pub kind: String,
    /// What it is for.
    pub purpose: &'static str,
    /// The type of its elements, of a buffer whose elements are all of one.
    pub element: Option<&'static str>,
    /// How many indices it has elements for at most, and how many for each.
    pub shape: Option<[u64; 2]>,
    /// The most that it took or held.
    pub peak: Bytes,
    /// Of the peak of all, per cent. Blocks lie in the arena and pinned memory is the host's: these
    /// do not add up.
    pub percent: f64,
    /// The iteration by which it had grown to that.
    pub iteration: u32,
    /// What the run was doing.
    pub after: String,
}

/// Memory that served nothing, per cent of what was taken.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Slack {
    /// Mean over the run.
    pub mean: f64,
    /// The most.
    pub most: f64,
    /// At the end.
    pub last: f64,
}

/// How much was held after an iteration.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// Finished iterations.
    pub iteration: u32,
    /// Gaussians.
    pub gaussians: u64,
    /// Bytes that held something; of a device that shares the host's memory, all its buffers.
    pub allocated: Bytes,
    /// Bytes that were taken from a device that has its own memory.
    pub reserved: Option<Bytes>,
    /// Growth that nothing explained; of a device without memory of its own, that of the process.
    pub creep: Option<Bytes>,
    /// Resident memory of the process.
    pub host_resident: Option<Bytes>,
}

/// What the GPU was doing over the run; figures that it never reported are absent.
#[derive(Clone, Debug, Serialize)]
pub struct GpuSummary {
    /// Number of samples.
    pub samples: usize,
    /// Mean share of the time in which it was busy, per cent.
    pub utilization_mean: Option<f64>,
    /// Mean share of the time in which its memory was read or written, per cent.
    pub memory_load_mean: Option<f64>,
    /// The most of its memory that everybody together used, per cent.
    pub memory_percent_max: Option<f64>,
    /// Highest temperature.
    pub temperature_max_c: Option<u32>,
    /// Mean power.
    pub power_mean_w: Option<f64>,
    /// The power that it might draw, at the end.
    pub power_limit_w: Option<f64>,
    /// Highest speed of its first fan, per cent.
    pub fan_max_percent: Option<u32>,
    /// Mean clock of the multiprocessors.
    pub clock_sm_mean_mhz: Option<f64>,
    /// Mean clock of the memory.
    pub clock_memory_mean_mhz: Option<f64>,
    /// The slowest performance state; 0 is the fastest.
    pub pstate_slowest: Option<u32>,
    /// What slowed it, and in how many per cent of the samples; absent if it does not report it.
    pub throttled_percent: Option<BTreeMap<String, f64>>,
}

impl Profile {
    /// Reads the log of the run in this model folder.
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
            findings: findings::of(log, slack.map(|slack| slack.mean)),
        }
    }
}

/// `part` of `all`, per cent.
fn percent(part: Bytes, all: Bytes) -> f64 {
    if all.0 == 0 { 0.0 } else { 100.0 * part.gib() / all.gib() }
}

/// When most memory was taken, and for what: within iterations if the run recorded its buffers,
/// otherwise between them.
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

/// What an entry takes from the device at the moment of most, and what for.
fn taken(entry: &LoggedEntry) -> Option<(Category, Bytes)> {
    Some((Category::of(&entry.label, &entry.kind)?, entry.at_peak))
}

/// What is taken between two iterations.
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

/// Each buffer at its own most, the largest first.
fn buffers(recorded: &[LoggedBuffers], all: Bytes) -> Vec<BufferPeak> {
    let mut found: BTreeMap<(&str, &str), (Bytes, &LoggedBuffers)> = BTreeMap::new();
    // What lives longer than an iteration takes whole granules: its shape is that of what it holds.
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

/// Indices and elements for each of a buffer that holds so many bytes.
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

/// At so many points, evenly over the run, the first and the last among them.
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

/// Nothing of no values.
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
