//! Figures of a plan and their text.

use std::fmt::Write;
use std::path::PathBuf;

use clap::ArgMatches;
use serde::Serialize;

use crate::backend::CHUNK_ROWS;
use crate::cli::exit::UsageError;
use crate::cli::host_limit::{BOUND_MESH, planned_model};
use crate::cli::mesh::meshing;
use crate::cli::parser::is_typed;
use crate::cli::refine::{BoundOptions, bound_bytes, refining};
use crate::cli::sugar::{SUGAR_METHOD, SUGAR_TEXTURE};
use crate::config::{Config, DeviceChoice, Layers, preset_names, resolve};
use crate::dataset::Dataset;
use crate::memory::plan::{
    BoundSizes, Forecast, Host, ModelSize, PlannedColorTables, PlannedMeshing, PlannedPhotographs,
    PlannedRefinement, PlannedRow, PlannedRun, Storage, ViewGrowth, ViewSize, nccl, nccl_blocks,
};
use crate::memory::{Allowance, Bytes, Limit};
use crate::mesh::{Corner, MeshOptions, MeshedScene, TextureSource, WorldBox, mesh_host_rows};
use crate::train::forecast;

/// Sizes of the cards that are listed without a limit, GiB.
const COMMON_CARDS: [u64; 4] = [8, 12, 16, 24];

#[derive(Debug, Serialize)]
pub(super) struct PlannedScene {
    pub(super) path: PathBuf,
    pub(super) train_views: usize,
    pub(super) test_views: usize,
    pub(super) largest_px: [u32; 2],
}

/// Number of Gaussians that the plan is for.
#[derive(Debug, Serialize)]
pub(super) struct PlannedGaussians {
    pub(super) count: u64,
    pub(super) start: u64,
    /// Source of the number.
    pub(super) from: &'static str,
    /// Name of the counted primitives: triangles count vertices.
    pub(super) rows: &'static str,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct PlannedGpus {
    pub(super) count: u32,
    /// Memory of NCCL on each GPU.
    pub(super) nccl: Bytes,
}

/// Memory budget of a card.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Budget {
    pub(super) limit: Bytes,
    /// Part of the limit that may be used.
    pub(super) bytes: Bytes,
}

/// Largest number of Gaussians on a card.
#[derive(Debug, Serialize)]
pub(super) struct Largest {
    /// Card, limit or preset.
    pub(super) name: String,
    pub(super) budget: Bytes,
    /// Number at full precision. `None` if not even one fits.
    pub(super) full: Option<u64>,
    /// Number with `--optimize-memory`.
    pub(super) compact: Option<u64>,
    /// Number with `--offload sh`, if the run uses it and the host has enough memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) offloaded: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) offloaded_ram: Option<Bytes>,
    /// Storage that the preset chooses.
    pub(super) chosen: Option<Storage>,
}

/// Numbers of vertices that are listed for triangle models.
const VERTEX_BUDGETS: [u64; 4] = [4_000_000, 8_000_000, 12_000_000, 16_000_000];

/// Peak memory of a run with this number of vertices and no limit.
#[derive(Debug, Serialize)]
pub(super) struct VertexBudget {
    pub(super) vertices: u64,
    pub(super) full: Bytes,
    /// Peak with `--optimize-memory`.
    pub(super) compact: Bytes,
}

/// Flag and its effect.
#[derive(Debug, Serialize)]
pub(super) struct Remedy {
    pub(super) flag: String,
    pub(super) gaussians: u64,
    pub(super) least: Bytes,
    /// RAM that holds offloaded tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ram: Option<Bytes>,
    pub(super) fits: bool,
}

impl Remedy {
    /// Formats the flag and its RAM.
    pub(super) fn words(&self) -> String {
        let Self { flag, ram, .. } = self;
        ram.map_or_else(|| flag.clone(), |ram| format!("{flag} and {} of RAM", ram.in_words()))
    }
}

/// Returns the RAM of a model's offloaded tables, if any.
fn in_ram(model: &ModelSize) -> Option<Bytes> {
    Some(model.offloaded_bytes()).filter(|&bytes| bytes > Bytes(0))
}

/// Scene at a lower resolution.
pub(super) struct Smaller {
    pub(super) divisor: i32,
    pub(super) seen: ViewGrowth,
    pub(super) photographs: PlannedPhotographs,
}

/// Result of the `--host-limit` check.
#[derive(Debug, Serialize)]
pub(super) struct PlannedHost {
    pub(super) limit: String,
    /// Memory with the program and a photograph. `None` if it does not fit.
    pub(super) needed: Option<Bytes>,
    /// Final number of Gaussians, if fewer than planned fit.
    pub(super) ends_with: Option<u64>,
    pub(super) fits: bool,
    /// True if the processor trains, with the whole model in RAM.
    pub(super) on_processor: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct PlanReport {
    pub(super) scene: PlannedScene,
    pub(super) gaussians: PlannedGaussians,
    /// GPUs that share the model. All figures are per GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpus: Option<PlannedGpus>,
    pub(super) sh_degree: u32,
    pub(super) storage: Storage,
    /// Most demanding view.
    pub(super) view: ViewSize,
    /// True if the view was counted on a model, false if estimated from the scene's points.
    pub(super) counted: bool,
    pub(super) budget: Option<Budget>,
    pub(super) fits: Option<bool>,
    #[serde(flatten)]
    pub(super) forecast: Forecast,
    pub(super) largest: Vec<Largest>,
    /// Peaks of triangle models.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) vertex_budgets: Vec<VertexBudget>,
    /// Final number of Gaussians after training's fallbacks, if the plan does not fit.
    pub(super) training_ends_with: Option<u64>,
    /// Flags that help if the plan does not fit.
    pub(super) remedies: Vec<Remedy>,
    /// Host memory besides the program and the driver, each row at its own peak.
    pub(super) host: Vec<PlannedRow>,
    /// Check of `--host-limit`, if that or the processor is requested.
    pub(super) host_limit: Option<PlannedHost>,
    /// Stages of `splat sugar` after training, if surface terms are on.
    pub(super) sugar: Vec<SurfaceStage>,
}

/// Stage after training.
#[derive(Debug, Serialize)]
pub(super) struct SurfaceStage {
    pub(super) command: &'static str,
    /// Description of its input.
    pub(super) with: String,
    pub(super) fits: Option<bool>,
    #[serde(flatten)]
    pub(super) forecast: Forecast,
    /// Host memory besides the program and the driver, each row at its own peak.
    pub(super) host: Vec<PlannedRow>,
    /// Advice if the stage does not fit.
    pub(super) remedy: &'static str,
}

impl PlanReport {
    /// Returns an error text if the plan does not fit.
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

/// Returns the largest numbers of Gaussians within the limit or on common cards, and with each preset that names a
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
            .map(|card| on(format!("a card of {card}"), within_threshold(card, threshold), None))
            .collect(),
    };
    for name in preset_names() {
        let preset = resolve(Layers { preset: Some(name), ..Layers::default() })?;
        if let Some(Limit::Bytes(limit)) = preset.memory.vram_limit {
            let budget = within_threshold(limit, preset.memory.vram_threshold);
            let storage = match preset.memory.storage_on_gpu() {
                // The preset names no storage.
                Storage::Full => run.model.storage,
                chosen => chosen,
            };
            lines.push(on(format!("--preset {name}"), budget, Some(storage)));
        }
    }
    Ok(lines)
}

/// Returns the peaks of the usual numbers of vertices.
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

/// Returns flags that might make the plan fit, the least harmful first. The plan already moves photographs off the
/// card.
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

/// Returns the host memory besides the program and the driver.
pub(super) fn host_rows(
    model: ModelSize,
    start: u64,
    photographs: &PlannedPhotographs,
    colors: Option<PlannedColorTables>,
    config: &Config,
    full_size: &[u64],
) -> Vec<PlannedRow> {
    let memory = &config.memory;
    let cache = (!memory.high_dram).then_some(memory.image_cache);
    let chunk_rows = CHUNK_ROWS as u64;
    Host { model, start, photographs, full_size, colors, cache, chunk_rows }.rows()
}

/// Returns the usable part of a card or limit of this size.
pub(super) fn within_threshold(limit: Bytes, threshold: f64) -> Bytes {
    Allowance::new(Some(Limit::Bytes(limit)), threshold, limit).beside(Bytes(0))
}

// Stages of `splat sugar` after training: the mesh and the refinement.

/// Assumed number of triangles without decimation: the usual decimation target.
const UNDECIMATED: u64 = 1_000_000;

/// Approximate number of triangles per vertex of a closed mesh.
const FACES_OF_VERTEX: u64 = 2;

/// Options of the stages after training.
pub(super) struct SurfaceArgs<'a> {
    pub(super) mesh: &'a MeshOptions,
    pub(super) bound: &'a BoundOptions,
    pub(super) skip_refinement: bool,
    pub(super) context: Bytes,
}

/// Returns the stages after the training of `count` Gaussians, none without surface terms.
pub(super) fn surface_stages(
    SurfaceArgs { mesh, bound, skip_refinement, context }: SurfaceArgs<'_>,
    matches: &ArgMatches,
    config: &Config,
    dataset: &Dataset,
    count: u64,
    seen: ViewGrowth,
    budget: Option<Budget>,
) -> Result<Vec<SurfaceStage>, UsageError> {
    if !config.has_coarse_stage() {
        return Ok(Vec::new());
    }
    let mut options = mesh.clone();
    // Defaults of `splat sugar`.
    if !is_typed(matches, "method") {
        options.method = SUGAR_METHOD;
    }
    if !is_typed(matches, "texture") {
        options.texture.texture = SUGAR_TEXTURE;
    }
    // A plan is for a GPU unless `--device cpu` is given, even on a machine without a GPU.
    if config.run.device == DeviceChoice::Cpu {
        options.tsdf.fit_processor();
    }
    if let (Some(Corner(low)), Some(Corner(high))) = (options.bbox_min, options.bbox_max) {
        options = options.fitted_to(&WorldBox { low, high });
    }
    let gaussians = config.densify.target_gaussians.map_or(count, |target| target.min(count));
    let (least_vertices, per_triangle) = bound.bound()?;
    let extracted = match options.decimation_target as u64 {
        0 => UNDECIMATED,
        target => target,
    };
    let refined_texture = options.texture.texture;
    let mut surface_stages = Vec::new();
    if !skip_refinement {
        // The mesh has vertex colours until it is refined.
        options.texture.texture = TextureSource::None;
    }
    let scene = MeshedScene {
        largest: seen.px.map(u64::from).iter().product(),
        pixels: dataset.train_pixels(),
        gaussians,
        triangles: extracted,
    };
    let model = planned_model(config, config.optimize.sh_degree, gaussians);
    let drawing = PlannedMeshing { context, ..meshing(&options, config, model, seen) };
    let bytes = budget.map(|budget| budget.bytes);
    let forecast = drawing.forecast(bytes);
    surface_stages.push(SurfaceStage {
        command: "splat mesh",
        with: format!("--method {}, {} triangles", options.method.name(), scene.triangles),
        fits: fits(budget, &forecast),
        forecast,
        host: mesh_host_rows(&options, &scene),
        remedy: "draw smaller views with -r 2, 4 or 8",
    });
    if skip_refinement {
        return Ok(surface_stages);
    }
    let faces =
        least_vertices.map_or(extracted, |most| extracted.min(FACES_OF_VERTEX * most as u64));
    let bound = BoundSizes::closed(faces, per_triangle.count() as u64);
    let refinement = PlannedRefinement {
        measured: Some((model, seen)),
        textured: refined_texture == TextureSource::Gaussians,
        context,
        ..refining(config, dataset, model.with(bound.gaussians), bound, seen)
    };
    let forecast = refinement.forecast(bytes);
    // As in training, with the mesh.
    let (model, photographs) = (refinement.model, &refinement.photographs);
    let full_size = forecast::full_size(dataset);
    let mut host = host_rows(model, model.gaussians, photographs, None, config, &full_size);
    host.push(PlannedRow { label: BOUND_MESH, bytes: bound_bytes(&bound, false) });
    surface_stages.push(SurfaceStage {
        command: "splat refine",
        with: format!("{} Gaussians on {faces} triangles", bound.gaussians),
        fits: fits(budget, &forecast),
        forecast,
        host,
        remedy: "bind fewer Gaussians: with a smaller --decimation-target or \
                 --gaussians-per-triangle",
    });
    Ok(surface_stages)
}

pub(super) fn fits(budget: Option<Budget>, forecast: &Forecast) -> Option<bool> {
    budget.map(|budget| forecast.least <= budget.bytes)
}

pub(super) fn plan_text(report: &PlanReport) -> String {
    let mut text = String::new();
    push_head(&mut text, report);
    if let Some(PlannedGpus { count: gpus, nccl }) = report.gpus {
        let nccl = nccl.mib();
        write!(
            text,
            "\n\non each of {gpus} GPUs with its share of them; its context counts {nccl:.0} MiB of NCCL and the splats \
             that it sends"
        )
        .ok();
    }
    for stage in &report.forecast.stages {
        write!(text, "\n\n{:<34} {:>9.1} MiB", stage.name, stage.total.mib()).ok();
        for (label, bytes) in stage.largest_rows() {
            push_line(&mut text, &label, bytes);
        }
    }
    push_peak(&mut text, report);
    if !report.remedies.is_empty() {
        text.push_str("\n\nwhat would help");
        if let Some(count) = report.training_ends_with {
            let rows = report.gaussians.rows;
            write!(text, " (without it, training continues with {count} {rows} at most)").ok();
        }
        for remedy in &report.remedies {
            let verdict = if remedy.fits { "fits" } else { "does not fit" };
            let mib = remedy.least.mib();
            write!(text, "\n  {:<32} {mib:>9.1} MiB: {verdict}", remedy.words()).ok();
        }
    }
    push_sugar(&mut text, report);
    push_largest(&mut text, report.gaussians.rows, &report.largest);
    push_vertex_budgets(&mut text, &report.vertex_budgets);
    text.push_str("\n\nhost, beside the program and the driver, each at its own most");
    for row in &report.host {
        push_line(&mut text, row.label, row.bytes);
    }
    if let Some(host) = &report.host_limit {
        let whose = if host.on_processor {
            "RAM of the processor, which trains (--device cpu; the tables above are of a GPU)"
        } else {
            "RAM beside a GPU"
        };
        let verdict = match host.needed {
            Some(needed) => format!("{:.0} MiB at most: fits", needed.mib().ceil()),
            None => "does not fit".to_owned(),
        };
        write!(text, "\n\n{whose}: {verdict} --host-limit {}", host.limit).ok();
        if let Some(count) = host.ends_with {
            let rows = report.gaussians.rows;
            write!(text, "; the model ends with {count} {rows} at most").ok();
        }
    }
    text
}

/// Adds the table of `splat sugar`'s stages.
fn push_sugar(text: &mut String, report: &PlanReport) {
    if report.sugar.is_empty() {
        return;
    }
    let heads = ["at least", "peak", "host"];
    write!(text, "\n\n{:<52} {:>9} {:>9} {:>9}  MiB", "splat sugar", heads[0], heads[1], heads[2])
        .ok();
    let mut row = |words: &str, forecast: &Forecast, host: &[PlannedRow], fits: Option<bool>| {
        let host: Bytes = host.iter().map(|row| row.bytes).sum();
        // Memory is taken in steps, and the least includes one more whole step than the peak.
        let peak = forecast.peak.max(forecast.least);
        let [least, peak, host] = [forecast.least, peak, host].map(Bytes::mib);
        let verdict = if fits == Some(false) { "  does not fit" } else { "" };
        write!(text, "\n  {words:<50} {least:>9.1} {peak:>9.1} {host:>9.1}{verdict}").ok();
    };
    let trained = format!("train, {} {}", report.gaussians.count, report.gaussians.rows);
    row(&trained, &report.forecast, &report.host, report.fits);
    for SurfaceStage { command, with, forecast, host, fits, .. } in &report.sugar {
        let words = format!("{}, {with}", command.trim_start_matches("splat "));
        row(&words, forecast, host, *fits);
    }
}

fn push_head(text: &mut String, report: &PlanReport) {
    let PlannedScene { path, train_views, test_views, largest_px: [width, height] } = &report.scene;
    let PlannedGaussians { count, start, from, rows } = &report.gaussians;
    let storage = match report.storage {
        Storage::Full => "full precision",
        Storage::HalfColors => "--optimize-memory sh",
        Storage::Compact => "--optimize-memory",
        Storage::Offloaded => OFFLOADED,
    };
    let (visible, instances) = (report.view.visible, report.view.instances);
    // Writing to a string cannot fail.
    write!(
        text,
        "{}: {train_views} training views, {test_views} held out, {width}x{height} px\n\
         {count} {rows} ({from}), {start} at the start; SH degree {}, {storage}\n\
         the most demanding view sees {visible} of them, {instances} instances ({} {})",
        path.display(),
        report.sh_degree,
        if report.counted { "counted on" } else { "estimated from" },
        if report.counted { "the model" } else { "the scene's points" },
    )
    .ok();
}

fn push_line(text: &mut String, label: &str, bytes: Bytes) {
    write!(text, "\n  {label:<32} {:>9.1}", bytes.mib()).ok();
}

fn push_peak(text: &mut String, report: &PlanReport) {
    let forecast = &report.forecast;
    write!(text, "\n\n{:<34} {:>9.1} MiB", "peak", forecast.peak.mib()).ok();
    if let Some(Budget { limit, bytes }) = report.budget {
        let verdict = if report.fits == Some(true) { "fits" } else { "does not fit" };
        let mib = bytes.mib();
        write!(text, ": {verdict} the {mib:.1} MiB that may be taken of {limit}").ok();
    }
    let (resident, all) = (forecast.photographs_resident, forecast.photographs);
    if resident < all {
        write!(
            text,
            "\n{resident} of {all} photographs stay on the card; the others are sent again for each \
             iteration"
        )
        .ok();
    }
    if forecast.in_bands {
        text.push_str("\nthe most demanding views are drawn in bands, which takes longer");
    }
    if forecast.training_scale < 1.0 {
        let scale = forecast.training_scale;
        write!(text, "\ntraining views are drawn at {scale:.2} of their size").ok();
    }
    if let Some(neighbours) = forecast.neighbours {
        write!(text, "\nin coarse training each Gaussian has a list of {neighbours} neighbours")
            .ok();
    }
}

/// Storages that the tables always compare.
const STORAGES: [&str; 2] = ["full precision", "--optimize-memory"];

/// Storage that is compared only if the run uses it.
const OFFLOADED: &str = "--offload sh";

fn push_largest(text: &mut String, rows: &str, lines: &[Largest]) {
    let ([full, compact], most) = (STORAGES, format!("most {rows}"));
    write!(text, "\n\n{most:<28} {full:>16} {compact:>18}").ok();
    if lines.iter().any(|line| line.offloaded.is_some()) {
        write!(text, " {OFFLOADED:>16}").ok();
    }
    for line in lines {
        let cell = |count: Option<u64>, storage| {
            let mark = if line.chosen == Some(storage) { "*" } else { "" };
            count.map_or_else(|| "none".to_owned(), |count| format!("{mark}{count}"))
        };
        let (full, compact) =
            (cell(line.full, Storage::Full), cell(line.compact, Storage::Compact));
        write!(text, "\n  {:<26} {full:>16} {compact:>18}", line.name).ok();
        if line.offloaded.is_some() {
            write!(text, " {:>16}", cell(line.offloaded, Storage::Offloaded)).ok();
        }
        if let Some(ram) = line.offloaded_ram {
            write!(text, " and {} of RAM", ram.in_words()).ok();
        }
    }
    if lines.iter().any(|line| line.chosen.is_some()) {
        text.push_str("\n  * as the preset has it");
    }
}

fn push_vertex_budgets(text: &mut String, lines: &[VertexBudget]) {
    if lines.is_empty() {
        return;
    }
    let [full, compact] = STORAGES;
    write!(text, "\n\n{:<28} {full:>16} {compact:>18}", "peak without a limit, MiB").ok();
    for VertexBudget { vertices, full, compact } in lines {
        let [full, compact] = [full, compact].map(|peak| peak.mib());
        write!(text, "\n  {vertices:<26} {full:>16.1} {compact:>18.1}").ok();
    }
}
