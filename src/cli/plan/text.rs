//! What a plan says, as tables.

use std::fmt::Write;

use super::report::{
    Budget, Largest, PlanReport, PlannedGaussians, PlannedGpus, PlannedScene, SurfaceStage,
    VertexBudget,
};
use crate::memory::Bytes;
use crate::memory::plan::{Forecast, PlannedRow, PlannedStage, Storage};

/// Rows of a stage that are listed; the others stand together in one.
const LISTED: usize = 6;

/// The report as people read it.
pub(super) fn of(report: &PlanReport) -> String {
    let mut text = String::new();
    head(&mut text, report);
    if let Some(gpus) = report.gpus {
        shared(&mut text, gpus);
    }
    for stage in &report.forecast.stages {
        table(&mut text, stage);
    }
    peak(&mut text, report);
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
    sugar(&mut text, report);
    largest(&mut text, report.gaussians.rows, &report.largest);
    vertex_budgets(&mut text, &report.vertex_budgets);
    text.push_str("\n\nhost, beside the program and the driver, each at its own most");
    for row in &report.host {
        line(&mut text, row.label, row.bytes);
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

/// A row for each stage of `splat sugar`.
fn sugar(text: &mut String, report: &PlanReport) {
    if report.sugar.is_empty() {
        return;
    }
    let heads = ["at least", "peak", "host"];
    write!(text, "\n\n{:<52} {:>9} {:>9} {:>9}  MiB", "splat sugar", heads[0], heads[1], heads[2])
        .ok();
    let mut row = |words: &str, forecast: &Forecast, host: &[PlannedRow], fits: Option<bool>| {
        let host: Bytes = host.iter().map(|row| row.bytes).sum();
        // Memory is taken in steps, of which the least has a whole one more.
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

fn head(text: &mut String, report: &PlanReport) {
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

/// What the tables are of where several GPUs share the model.
fn shared(text: &mut String, PlannedGpus { count: gpus, nccl }: PlannedGpus) {
    let nccl = nccl.mib();
    write!(
        text,
        "\n\non each of {gpus} GPUs with its share of them; its context counts {nccl:.0} MiB of NCCL and the splats \
         that it sends"
    )
    .ok();
}

fn table(text: &mut String, stage: &PlannedStage) {
    write!(text, "\n\n{:<34} {:>9.1} MiB", stage.name, stage.total.mib()).ok();
    let (listed, others) = stage.rows.split_at(stage.rows.len().min(LISTED));
    for PlannedRow { label, bytes } in listed {
        line(text, label, *bytes);
    }
    if !others.is_empty() {
        let sum = others.iter().map(|row| row.bytes).sum();
        line(text, &format!("{} others", others.len()), sum);
    }
}

fn line(text: &mut String, label: &str, bytes: Bytes) {
    write!(text, "\n  {label:<32} {:>9.1}", bytes.mib()).ok();
}

fn peak(text: &mut String, report: &PlanReport) {
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
            "\n{resident} of {all} photographs stay on the card; the others are sent anew for each \
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

/// The two kinds of storage that tables compare.
const STORAGES: [&str; 2] = ["full precision", "--optimize-memory"];

/// The third, where it is planned for.
const OFFLOADED: &str = "--offload sh";

fn largest(text: &mut String, rows: &str, lines: &[Largest]) {
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

fn vertex_budgets(text: &mut String, lines: &[VertexBudget]) {
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
