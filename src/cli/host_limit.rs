//! Check of `--host-limit`: memory of a command, and the memory left for photographs.

use super::exit::DoesNotFit;
use crate::backend::DeviceError;
use crate::backend::cpu::{CpuWork, WorkKind};
use crate::config::{Config, MetricSet, Offload};
use crate::dataset::{Dataset, ImageSource, bytes_to_decode};
use crate::layout::GAUSSIANS;
use crate::memory::plan::{
    ModelSize, OptionalColumns, PlannedRow, PlannedStage, ViewGrowth, ViewSize, largest_that_fits,
};
use crate::memory::{Bytes, Fallback, host_memory, keep_little_freed_memory, release_freed_memory};
use crate::perceptual::{LayerSizes, LpipsWeights};
use crate::train::terms::ViewExtras;
use crate::train::{TrainError, forecast};

/// Memory of a thread: its stack and its allocator's cache.
const THREAD: Bytes = Bytes(1 << 19);

/// Number of threads that decode photographs and write logs.
const OTHER_THREADS: u64 = 8;

/// Memory of logs and of code that is not loaded yet.
const CODE_AND_LOGS: Bytes = Bytes(6 << 20);

/// Variation of the program's own memory between runs.
const VARIATION: Bytes = Bytes(2 << 20);

/// Divisor of the planned memory: this part stays in the allocator after it is freed.
const KEPT_DIVISOR: u64 = 16;

/// Divisor of the limit. A larger plan returns freed memory to the system at once, which takes time.
const TIGHT_DIVISOR: u64 = 2;

/// Factor on the counted visible Gaussians, because their number changes during training.
const VISIBLE_MARGIN: f64 = 1.25;

/// Rows whose size follows the number of Gaussians.
const GAUSSIAN_ROWS: [&str; 6] = [
    AT_START,
    "Gaussians as the host made them",
    "their order",
    "Gaussians and their moments",
    "gradients of a step's views",
    "lists of neighbours",
];

/// Row of constant size.
const SAVED_ROWS: &str = "rows on their way to a file";

/// Rows in addition to those of the model's stages.
pub(super) const AT_START: &str = "Gaussians at the start";

const LARGEST_PHOTOGRAPH: &str = "the largest photograph and its copies";

const OFFLOADED: &str = "colours and their moments (--offload)";

/// Rows of a model that is meshed or refined.
pub(super) const SURFACE_MAPS: &str = "maps of a drawn view";

pub(super) const BOUND_MESH: &str = "the mesh, and what is learned of it";

/// Stages in addition to those of the model.
const START: &str = "the start";

const DECODING: &str = "decoding photographs";

/// Memory check of a command on the host, before its photographs are opened.
pub(super) struct HostRun<'a> {
    /// Limit on this machine.
    bytes: Bytes,
    config: &'a Config,
    dataset: &'a Dataset,
    /// Memory that the program holds now.
    program: Bytes,
}

/// Model on the processor at the start of a command.
pub(super) struct OnProcessor<'a> {
    /// Work with the model. The view size is ignored.
    pub(super) work: CpuWork,
    /// Number of Gaussians that the model may grow to.
    pub(super) most: u64,
    /// Counts the Gaussians that views see. Slow.
    pub(super) count_seen: &'a dyn Fn() -> ViewGrowth,
    pub(super) lpips: Option<&'a LpipsWeights>,
    /// Further memory that the command always holds.
    pub(super) beside: Option<PlannedRow>,
}

/// Memory of a command that keeps the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostRoom {
    /// Largest memory, including a photograph.
    pub(super) needed: Bytes,
    /// Largest memory without cached photographs.
    pub(super) taken: Bytes,
    /// Number of Gaussians that fit.
    pub(super) gaussians: Option<u64>,
}

impl<'a> HostRun<'a> {
    /// Prepares the check, or returns `None` if the system does not tell its memory.
    pub(super) fn new(config: &'a Config, dataset: &'a Dataset) -> Option<Self> {
        // Freed memory of the start would count as used.
        release_freed_memory();
        let host = host_memory()?;
        let (bytes, program) = (config.memory.host_limit.on(host.total), host.resident);
        Some(Self { bytes, config, dataset, program })
    }

    /// Checks a command whose model is on a GPU while the host holds this row. The offloaded tables of `now` Gaussians
    /// may grow to those of `most`.
    pub(super) fn on_gpu(
        &self,
        row: PlannedRow,
        now: u64,
        most: u64,
    ) -> Result<HostRoom, DoesNotFit> {
        let sh_degree = self.config.optimize.sh_degree;
        let model = |gaussians| planned_model(self.config, sh_degree, gaussians);
        let [now, most] = [now, most].map(|gaussians| model(gaussians).offloaded_bytes());
        let stage = PlannedStage { name: START, rows: vec![row], total: row.bytes };
        let tables = PlannedRow { label: OFFLOADED, bytes: now };
        let decoding = with_row(self.decoding(&stage), tables);
        let made = if row.label == AT_START { row.bytes.0 } else { 0 };
        self.check(&decoding, Bytes(0), made)?;
        // Images keep at least half of the limit, however large the offloaded tables may grow.
        let tables = now.max(most.min(Bytes(self.bytes.0 / 2)));
        let taken = if tables > Bytes(0) { self.program + tables } else { Bytes(0) };
        Ok(HostRoom { needed: self.total(&decoding, Bytes(0)), taken, gaussians: None })
    }

    /// Checks a command whose model is on the processor. The model may grow as far as memory allows.
    pub(super) fn on_processor(&self, model: &OnProcessor<'_>) -> Result<HostRoom, DoesNotFit> {
        let OnProcessor { work, most, count_seen, lpips, beside: held } = model;
        let threads = Bytes((work.threads + OTHER_THREADS) * THREAD.0);
        let beside = threads + CODE_AND_LOGS;
        let largest = |growth: &ViewGrowth, gaussians: u64| {
            let work = CpuWork { gaussians, view: growth.of(gaussians), ..work.clone() };
            let mut stages = work.stages();
            if let Some(lpips) = lpips {
                stages.extend(stages.first().map(|stage| with_lpips(stage, lpips, growth.px)));
            }
            let decoding = stages.first().map(|stage| self.decoding(stage));
            let drawn = stages.into_iter().map(|stage| self.drawing(stage));
            let all = drawn.chain(decoding);
            let all = all.map(|stage| match held {
                Some(row) => with_row(stage, *row),
                None => stage,
            });
            all.max_by_key(|stage| stage.total).unwrap_or(EMPTY)
        };
        let mut growth = forecast::seen_at_most(self.dataset);
        let at_start = |growth: &ViewGrowth| self.total(&largest(growth, work.gaussians), beside);
        if at_start(&growth) > self.bytes {
            let counted = count_seen();
            growth = ViewGrowth {
                share: (counted.share * VISIBLE_MARGIN).min(1.0),
                surface: counted.surface * VISIBLE_MARGIN,
                ..counted
            };
        }
        let made = match work.kind {
            WorkKind::Trained { start, .. } => start,
            WorkKind::Shown => 0,
        };
        self.check(&largest(&growth, work.gaussians), beside, made)?;
        let fits = |count: u64| self.total(&largest(&growth, count), beside) <= self.bytes;
        let gaussians = largest_that_fits(work.gaussians, u64::from(u32::MAX), fits);
        let planned = gaussians.min((*most).max(work.gaussians));
        let needed = self.total(&largest(&growth, planned), beside);
        if needed.0 > self.bytes.0 / TIGHT_DIVISOR {
            keep_little_freed_memory();
        }
        // The photograph in use is also one of the cached ones.
        let taken = Bytes(needed.0.saturating_sub(self.photograph().0));
        Ok(HostRoom { needed, taken, gaussians: Some(gaussians) })
    }

    /// Returns the size of the largest photograph in use.
    fn photograph(&self) -> Bytes {
        let bytes = |source: &ImageSource| {
            let pixels: u64 = source.size.map(u64::from).iter().product();
            Bytes(pixels * source.pixel_bytes())
        };
        self.dataset.sources.iter().map(bytes).max().unwrap_or_default()
    }

    /// Adds the photograph in use to a stage.
    fn drawing(&self, stage: PlannedStage) -> PlannedStage {
        with_row(stage, PlannedRow { label: "the photograph in use", bytes: self.photograph() })
    }

    /// Returns the stage in which a photograph is decoded beside the model.
    fn decoding(&self, stage: &PlannedStage) -> PlannedStage {
        let rows: Vec<PlannedRow> = stage.rows.first().copied().into_iter().collect();
        let total = rows.iter().map(|row| row.bytes).sum();
        let decoded =
            PlannedRow { label: LARGEST_PHOTOGRAPH, bytes: largest_to_decode(self.dataset) };
        with_row(PlannedStage { name: DECODING, rows, total }, decoded)
    }

    /// Checks that a stage fits. `made`: Gaussians, or bytes of them, that the host creates.
    fn check(&self, stage: &PlannedStage, beside: Bytes, made: u64) -> Result<(), DoesNotFit> {
        if self.total(stage, beside) <= self.bytes {
            return Ok(());
        }
        // `--max-points` reduces only Gaussians that come from points.
        let of_points = made > 0 && self.config.optimize.init.is_none();
        let mut rows = self.rows(stage, beside);
        // The proposed limit must not be rejected by the next run.
        rows.push(PlannedRow { label: "differences from run to run", bytes: VARIATION });
        let total: Bytes = rows.iter().map(|row| row.bytes).sum();
        let line = |row: &PlannedRow| format!("{:>10.0} MiB  {}\n", row.bytes.mib(), row.label);
        let table: String = rows.iter().map(line).collect();
        let remedy = self.remedy(stage, total, of_points);
        let remedy = remedy.map_or(String::new(), |remedy| format!(", or {remedy}"));
        Err(DoesNotFit(format!(
            "--host-limit {} ({:.0} MiB) cannot be kept. {} takes most:\n{table}{:>10.0} MiB  in all\n\
             Give {:.0}MiB or more{remedy}",
            self.config.memory.host_limit,
            self.bytes.mib(),
            capitalised(stage.name),
            total.mib(),
            total.mib(),
        )))
    }

    /// Returns the memory of a stage. Each row is rounded up to whole MiB.
    fn total(&self, stage: &PlannedStage, beside: Bytes) -> Bytes {
        self.rows(stage, beside).iter().map(|row| row.bytes).sum()
    }

    fn rows(&self, stage: &PlannedStage, beside: Bytes) -> Vec<PlannedRow> {
        let program = PlannedRow { label: "the program and the scene", bytes: self.program };
        let beside = PlannedRow { label: "threads, code and logs", bytes: beside };
        // Page-locked memory does not come from the allocator.
        let allocated = stage.rows.iter().filter(|row| row.label != OFFLOADED);
        let allocated: Bytes = allocated.map(|row| row.bytes).sum();
        let kept = Bytes(allocated.0.div_ceil(KEPT_DIVISOR));
        let kept = PlannedRow { label: "freed, but kept by the allocator", bytes: kept };
        let rows = [program].into_iter().chain(stage.rows.iter().copied()).chain([beside, kept]);
        rows.map(|row| PlannedRow { bytes: whole_mib(row.bytes), ..row })
            .filter(|row| row.bytes > Bytes(0))
            .collect()
    }

    /// Returns advice to shrink the largest row that can shrink. `None` if the other rows already exceed the limit.
    fn remedy(&self, stage: &PlannedStage, total: Bytes, of_points: bool) -> Option<String> {
        let helps = |row: &PlannedRow| Some((row.bytes, self.remedy_of(row.label, of_points)?));
        let rows: Vec<(Bytes, String)> = stage.rows.iter().filter_map(helps).collect();
        let can_change: Bytes = rows.iter().map(|(bytes, _)| whole_mib(*bytes)).sum();
        let fixed = total.0.saturating_sub(can_change.0);
        let largest = rows.into_iter().max_by_key(|(bytes, _)| *bytes)?;
        (fixed <= self.bytes.0).then_some(largest.1)
    }

    /// Returns advice to shrink rows of this label. `of_points`: the initial Gaussians come from points.
    fn remedy_of(&self, label: &str, of_points: bool) -> Option<String> {
        match label {
            LARGEST_PHOTOGRAPH => Some("smaller photographs".to_owned()),
            label if GAUSSIAN_ROWS.contains(&label) => {
                of_points.then(|| "fewer Gaussians at the start (--max-points)".to_owned())
            }
            SAVED_ROWS => None,
            OFFLOADED if of_points => {
                Some("fewer Gaussians (--max-points), or --offload none".to_owned())
            }
            OFFLOADED => Some("--offload none".to_owned()),
            BOUND_MESH => Some("a mesh with fewer vertices (--vertices)".to_owned()),
            // The rest depends on the resolution.
            _ => match self.config.scene.resolution {
                1 | -1 => Some("a smaller --resolution (-r 2, 4 or 8)".to_owned()),
                2 => Some("a smaller --resolution (-r 4 or 8)".to_owned()),
                4 => Some("a smaller --resolution (-r 8)".to_owned()),
                8 => None,
                width => Some(format!("a smaller width than --resolution {width}")),
            },
        }
    }
}

const EMPTY: PlannedStage = PlannedStage { name: "nothing", rows: Vec::new(), total: Bytes(0) };

/// Returns the memory of the most demanding photograph while it is decoded.
pub(super) fn largest_to_decode(dataset: &Dataset) -> Bytes {
    dataset.sources.iter().map(bytes_to_decode).max().unwrap_or_default()
}

/// Returns the work of a training on the processor that starts from `gaussians`. The host creates `start` of them.
pub(super) fn training(config: &Config, dataset: &Dataset, gaussians: u64, start: u64) -> CpuWork {
    let coarse = forecast::coarse(config);
    let inputs = forecast::inputs(config, ViewExtras::intended(config));
    let kind = WorkKind::Trained {
        start,
        batch_views: u64::from(config.optimize.batch_views),
        surface: coarse.is_some() || inputs.maps,
        inverse_depths: inputs.inverse_depths,
        distortion: inputs.inverse_squares,
        neighbours: coarse.map_or(0, |coarse| u64::from(coarse.neighbours)),
    };
    let optional = forecast::optional_columns(config, dataset);
    CpuWork { kind, optional, ..showing(config, gaussians) }
}

/// Returns the work of rendering a model on the processor.
pub(super) fn showing(config: &Config, gaussians: u64) -> CpuWork {
    CpuWork {
        sh_degree: config.optimize.sh_degree,
        storage: config.memory.optimize_memory.storage_on_cpu(),
        optional: OptionalColumns::NONE,
        gaussians,
        view: ViewSize { px: [0; 2], visible: 0, instances: 0 },
        kind: WorkKind::Shown,
        with_reference: config.output.metrics == MetricSet::Reference,
        threads: rayon::current_num_threads() as u64,
    }
}

fn with_row(mut stage: PlannedStage, row: PlannedRow) -> PlannedStage {
    stage.total += row.bytes;
    stage.rows.push(row);
    stage
}

/// Adds the memory of LPIPS to an evaluation: the reordered weights and the features of both images.
fn with_lpips(stage: &PlannedStage, weights: &LpipsWeights, px: [u32; 2]) -> PlannedStage {
    let values = weights.convolutions().iter().map(|layer| layer.weights.len() + layer.bias.len());
    let features = LayerSizes::new(weights.net(), px).map_or(Bytes(0), |sizes| sizes.wish());
    let bytes = Bytes(4 * values.sum::<usize>() as u64) + features;
    with_row(stage.clone(), PlannedRow { label: "the network of LPIPS", bytes })
}

fn whole_mib(bytes: Bytes) -> Bytes {
    Bytes(bytes.0.next_multiple_of(1 << 20))
}

fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

// Advice for runs that ended for lack of memory.

/// Returns flags that continue a training with less memory.
pub(super) fn less_memory(stopped: &TrainError, config: &Config) -> String {
    let Config { memory, scene, .. } = config;
    if !matches!(stopped, TrainError::OutOfMemory { .. }) {
        return String::new();
    }
    let may_give_up = |fallback| memory.give_up.contains(&fallback);
    let may_be_compact = memory.storage_on_gpu().is_compact() || may_give_up(Fallback::Compact);
    let may_be_offloaded = memory.offload == Offload::Sh || may_give_up(Fallback::Offload);
    if let Some(less) = less_host_memory(stopped) {
        return less.to_owned();
    }
    match scene.resolution {
        _ if !may_be_compact => "--optimize-memory".to_owned(),
        _ if !may_be_offloaded => "--offload sh".to_owned(),
        divisor @ (1 | 2 | 4) => format!("-r {}", 2 * divisor),
        -1 => "-r 4".to_owned(),
        // All flags are in use.
        _ => "--vram-limit SIZE, more than now, or when other programs have ended".to_owned(),
    }
}

/// Returns flags that reduce host memory, if host memory was short.
pub(super) fn less_host_memory(stopped: &TrainError) -> Option<&'static str> {
    let TrainError::OutOfMemory { source, .. } = stopped else { return None };
    match **source {
        DeviceError::HostRefused(_) => Some("--host-limit SIZE, more than now, or --offload none"),
        DeviceError::OutOfHostMemory { demand: Some(_), .. } => {
            Some("--offload none, or when other programs have ended")
        }
        DeviceError::OutOfHostMemory { demand: None, .. } => Some("when other programs have ended"),
        _ => None,
    }
}

/// Returns the size of a model on a GPU that is only drawn.
pub(super) fn planned_model(config: &Config, sh_degree: u32, gaussians: u64) -> ModelSize {
    let (schema, optional) = (&GAUSSIANS, OptionalColumns::NONE);
    let storage = config.memory.storage_on_gpu();
    ModelSize { gaussians, schema, sh_degree, storage, optional }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::config::Compactness;
    use crate::memory::{Bytes, HostAllowance, HostDemand, HostState, Ledger, Limit};

    fn stopped(error: DeviceError) -> TrainError {
        TrainError::OutOfMemory { source: Box::new(error), checkpoint: PathBuf::from("a") }
    }

    #[test]
    fn remedies_skip_flags_in_use() {
        let refusal = || Ledger::new(Bytes(1)).check("sh", Bytes(2)).unwrap_err();
        let of_gpu = stopped(refusal().into());
        let mut config = Config::default();
        let less = |config: &Config| less_memory(&of_gpu, config);
        assert_eq!(less(&config), "--optimize-memory");
        config.memory.optimize_memory = Compactness::All;
        assert_eq!(less(&config), "--offload sh");
        config.memory.optimize_memory = Compactness::Auto;
        config.scene.resolution = 4;
        assert_eq!(less(&config), "--offload sh");
        config.memory.optimize_memory = Compactness::Off;
        config.memory.offload = Offload::Sh;
        assert_eq!(less(&config), "-r 8");
        config.scene.resolution = 8;
        assert!(less(&config).starts_with("--vram-limit SIZE"));
        let state = HostState { total: Bytes(9), available: Bytes(9), own: Bytes(9) };
        let allowance = HostAllowance::new(Limit::Percent(60.0), 1);
        let of_host =
            allowance.check(state, Bytes(0), "sh", Bytes(1), HostDemand::Model).unwrap_err();
        let less = less_memory(&stopped(of_host.into()), &config);
        assert!(less.contains("--host-limit") && less.contains("--offload none"), "{less}");
        let (label, wanted) = ("sh", Bytes(2));
        let of_driver = |demand| stopped(DeviceError::OutOfHostMemory { label, wanted, demand });
        let less = less_host_memory(&of_driver(Some(HostDemand::Growth))).unwrap();
        assert!(less.starts_with("--offload none"), "{less}");
        assert_eq!(less_host_memory(&of_driver(None)), Some("when other programs have ended"));
        assert_eq!(less_host_memory(&of_gpu), None);
    }
}
