//! What a plan says, as numbers.

use std::path::PathBuf;

use serde::Serialize;

use super::choices::within;
use crate::backend::CHUNK_ROWS;
use crate::config::{Config, Layers, preset_names, resolve};
use crate::memory::plan::{
    Forecast, Host, ModelSize, PlannedPhotographs, PlannedRow, PlannedRun, Storage, ViewGrowth,
    ViewSize, nccl, nccl_blocks,
};
use crate::memory::{Bytes, Limit};

/// Cards that are listed if no limit is named.
const COMMON_CARDS: [u64; 4] = [8, 12, 16, 24];

/// The scene.
#[derive(Debug, Serialize)]
pub(super) struct PlannedScene {
    pub(super) path: PathBuf,
    pub(super) train_views: usize,
    pub(super) test_views: usize,
    pub(super) largest_px: [u32; 2],
}

/// For how many Gaussians is planned.
#[derive(Debug, Serialize)]
pub(super) struct PlannedGaussians {
    pub(super) count: u64,
    pub(super) start: u64,
    /// Who says so.
    pub(super) from: &'static str,
    /// What they are: of triangles vertices.
    pub(super) rows: &'static str,
}

/// GPUs that share a model.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct PlannedGpus {
    pub(super) count: u32,
    /// What NCCL takes of each.
    pub(super) nccl: Bytes,
}

/// What may be taken.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Budget {
    pub(super) limit: Bytes,
    /// Its share.
    pub(super) bytes: Bytes,
}

/// The most Gaussians on a card.
#[derive(Debug, Serialize)]
pub(super) struct Largest {
    /// The card, limit or preset.
    pub(super) name: String,
    pub(super) budget: Bytes,
    /// Nothing where not even one fits.
    pub(super) full: Option<u64>,
    /// With --optimize-memory.
    pub(super) compact: Option<u64>,
    /// With --offload sh, where the run is planned so, if the host has the room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) offloaded: Option<u64>,
    /// What that takes of RAM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) offloaded_ram: Option<Bytes>,
    /// What the preset chooses of both.
    pub(super) chosen: Option<Storage>,
}

/// Numbers of vertices that are listed of a model of triangles.
const VERTEX_BUDGETS: [u64; 4] = [4_000_000, 8_000_000, 12_000_000, 16_000_000];

/// What a run takes at its peak with so many vertices, where no limit makes it do with less.
#[derive(Debug, Serialize)]
pub(super) struct VertexBudget {
    pub(super) vertices: u64,
    pub(super) full: Bytes,
    /// With --optimize-memory.
    pub(super) compact: Bytes,
}

/// A flag, and what it comes to.
#[derive(Debug, Serialize)]
pub(super) struct Remedy {
    pub(super) flag: String,
    pub(super) gaussians: u64,
    pub(super) least: Bytes,
    /// What lies in RAM instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ram: Option<Bytes>,
    pub(super) fits: bool,
}

impl Remedy {
    /// With what of RAM.
    pub(super) fn words(&self) -> String {
        let Self { flag, ram, .. } = self;
        ram.map_or_else(|| flag.clone(), |ram| format!("{flag} and {} of RAM", ram.in_words()))
    }
}

/// What the tables of a model take that lie in RAM, if any do.
fn in_ram(model: &ModelSize) -> Option<Bytes> {
    let bytes = model.host_tables().map(|(_, bytes)| bytes).sum();
    (bytes > 0).then_some(Bytes(bytes))
}

/// The scene at another resolution.
pub(super) struct Smaller {
    pub(super) divisor: i32,
    pub(super) seen: ViewGrowth,
    pub(super) photographs: PlannedPhotographs,
}

/// What `--host-limit` comes to.
#[derive(Debug, Serialize)]
pub(super) struct PlannedHost {
    pub(super) limit: String,
    /// With the program and a photograph; nothing where it does not fit.
    pub(super) needed: Option<Bytes>,
    /// Where it fits, but not all Gaussians that are planned for: those that the model ends with.
    pub(super) ends_with: Option<u64>,
    pub(super) fits: bool,
    /// Whether the processor trains, with all of the model in RAM.
    pub(super) on_processor: bool,
}

/// Everything.
#[derive(Debug, Serialize)]
pub(super) struct PlanReport {
    pub(super) scene: PlannedScene,
    pub(super) gaussians: PlannedGaussians,
    /// GPUs that share them, where several do: what is planned is of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpus: Option<PlannedGpus>,
    pub(super) sh_degree: u32,
    pub(super) storage: Storage,
    /// The most demanding view.
    pub(super) view: ViewSize,
    /// Whether that was counted on a model, not estimated from the scene's points.
    pub(super) counted: bool,
    pub(super) budget: Option<Budget>,
    pub(super) fits: Option<bool>,
    #[serde(flatten)]
    pub(super) forecast: Forecast,
    pub(super) largest: Vec<Largest>,
    /// Of triangles only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) vertex_budgets: Vec<VertexBudget>,
    /// Where it does not fit: the Gaussians that training would make do with, if it may.
    pub(super) training_ends_with: Option<u64>,
    /// Where it does not fit: what would help.
    pub(super) remedies: Vec<Remedy>,
    /// Beside the program and the driver; each at its own most.
    pub(super) host: Vec<PlannedRow>,
    /// Where a limit, or the processor, was asked for.
    pub(super) host_limit: Option<PlannedHost>,
    /// Stages of `splat sugar` after training, where terms of surfaces are named.
    pub(super) sugar: Vec<SurfaceStage>,
    /// What views see of a model.
    #[serde(skip)]
    pub(super) seen: Option<ViewGrowth>,
}

/// A stage after training.
#[derive(Debug, Serialize)]
pub(super) struct SurfaceStage {
    /// The command.
    pub(super) command: &'static str,
    /// With what, in words.
    pub(super) with: String,
    pub(super) fits: Option<bool>,
    #[serde(flatten)]
    pub(super) forecast: Forecast,
    /// Beside the program and the driver; each at its own most.
    pub(super) host: Vec<PlannedRow>,
    /// What helps where it does not fit.
    pub(super) remedy: &'static str,
}

impl PlanReport {
    pub(super) fn new(
        scene: PlannedScene,
        gaussians: PlannedGaussians,
        run: &PlannedRun,
        budget: Option<Budget>,
    ) -> Self {
        let forecast = run.forecast(budget.map(|budget| budget.bytes));
        let ModelSize { gaussians: count, sh_degree, storage, .. } = run.model;
        Self {
            scene,
            gaussians,
            gpus: None,
            sh_degree,
            storage,
            view: run.seen.of(count),
            counted: false,
            budget,
            fits: budget.map(|budget| forecast.least <= budget.bytes),
            forecast,
            largest: Vec::new(),
            vertex_budgets: Vec::new(),
            training_ends_with: None,
            remedies: Vec::new(),
            host: Vec::new(),
            host_limit: None,
            sugar: Vec::new(),
            seen: None,
        }
    }

    /// In words, where it does not fit.
    pub(super) fn shortage(&self) -> Option<String> {
        let budget = self.budget?;
        if self.fits != Some(false) {
            let stage = self.sugar.iter().find(|stage| stage.fits == Some(false))?;
            return Some(format!(
                "the plan does not fit: {} with {} takes {:.2} GiB at least, and {:.2} GiB may be \
                 taken. Raise --vram-limit, or {}",
                stage.command,
                stage.with,
                stage.forecast.least.gib(),
                budget.bytes.gib(),
                stage.remedy
            ));
        }
        let helps = self.remedies.iter().find(|remedy| remedy.fits);
        let advice = match helps {
            Some(remedy) => format!("It would fit with {}", remedy.words()),
            None => "Raise --vram-limit".to_owned(),
        };
        Some(format!(
            "the plan does not fit: {} {} take {:.2} GiB at least, and {:.2} GiB may be \
             taken. {advice}",
            self.gaussians.count,
            self.gaussians.rows,
            self.forecast.least.gib(),
            budget.bytes.gib()
        ))
    }
}

/// How many Gaussians fit: within the limit, or on common cards, and with each preset that names a
/// limit.
pub(super) fn largest(
    run: &PlannedRun,
    gpus: u32,
    budget: Option<Budget>,
    threshold: f64,
) -> anyhow::Result<Vec<Largest>> {
    let with = |storage| PlannedRun { model: ModelSize { storage, ..run.model }, ..run.clone() };
    let [full, compact] = [Storage::Full, Storage::Compact].map(with);
    let offloaded = Some(run).filter(|run| run.model.storage == Storage::Offloaded);
    let on = |name, budget, chosen| {
        let most = offloaded.and_then(|run| run.largest_shared(gpus, budget));
        Largest {
            name,
            budget,
            full: full.largest_shared(gpus, budget),
            compact: compact.largest_shared(gpus, budget),
            offloaded: most,
            offloaded_ram: most.and_then(|most| in_ram(&run.model.with(most))),
            chosen,
        }
    };
    let mut lines = match budget {
        Some(budget) => vec![on(format!("--vram-limit {}", budget.limit), budget.bytes, None)],
        None => COMMON_CARDS
            .iter()
            .map(|gib| Bytes(gib << 30))
            .map(|card| on(format!("a card of {card}"), within(card, threshold), None))
            .collect(),
    };
    for name in preset_names() {
        let preset = resolve(Layers { preset: Some(name), ..Layers::default() })?;
        if let Some(Limit::Bytes(limit)) = preset.memory.vram_limit {
            let budget = within(limit, preset.memory.vram_threshold);
            let storage = match preset.memory.storage_on_gpu() {
                // It says nothing of it.
                Storage::Full => run.model.storage,
                chosen => chosen,
            };
            lines.push(on(format!("--preset {name}"), budget, Some(storage)));
        }
    }
    Ok(lines)
}

/// What usual numbers of vertices take.
pub(super) fn vertex_budgets(run: &PlannedRun) -> Vec<VertexBudget> {
    let peak = |vertices, storage| {
        let model = ModelSize { storage, ..run.model };
        PlannedRun { model, ..run.clone() }.with(vertices).forecast(None).peak
    };
    let budget = |vertices| VertexBudget {
        vertices,
        full: peak(vertices, Storage::Full),
        compact: peak(vertices, Storage::Compact),
    };
    VERTEX_BUDGETS.map(budget).into()
}

/// What would make it fit, the least harm first. That photographs leave the card is reckoned with
/// already.
pub(super) fn remedies(
    run: &PlannedRun,
    gpus: u32,
    budget: Bytes,
    smaller: &[Smaller],
) -> Vec<Remedy> {
    let nccl = nccl(gpus, nccl_blocks(budget));
    let remedy = |flag, run: &PlannedRun| {
        let least = run.of_rank(gpus, nccl).least();
        let (gaussians, ram) = (run.model.gaussians, in_ram(&run.model));
        Remedy { flag, gaussians, least, ram, fits: least <= budget }
    };
    let mut remedies = Vec::new();
    let storages = [
        ("--optimize-memory sh", Storage::HalfColors),
        ("--optimize-memory", Storage::Compact),
        ("--offload sh", Storage::Offloaded),
    ];
    let are_smaller = match run.model.storage {
        Storage::Full => 0,
        Storage::HalfColors => 1,
        Storage::Compact => 2,
        Storage::Offloaded => 3,
    };
    for &(flag, storage) in &storages[are_smaller..] {
        let model = ModelSize { storage, ..run.model };
        remedies.push(remedy(flag.to_owned(), &PlannedRun { model, ..run.clone() }));
    }
    if let Some(most) = run.largest_shared(gpus, budget) {
        remedies.push(remedy(format!("--max-points {most}"), &run.with(most)));
    }
    for Smaller { divisor, seen, photographs } in smaller {
        let run = PlannedRun { seen: *seen, photographs: photographs.clone(), ..run.clone() };
        remedies.push(remedy(format!("-r {divisor}"), &run));
    }
    remedies
}

/// What the host holds, beside the program and the driver.
pub(super) fn host(run: &PlannedRun, config: &Config, full_size: &[u64]) -> Vec<PlannedRow> {
    let memory = &config.memory;
    Host {
        model: run.model,
        start: run.start,
        photographs: &run.photographs,
        full_size,
        colors: run.colors,
        cache: (!memory.high_dram).then_some(memory.image_cache),
        chunk_rows: CHUNK_ROWS as u64,
    }
    .rows()
}
