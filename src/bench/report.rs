//! Results of a benchmark as text and as JSON.

use std::fmt::Write;

use serde::Serialize;

use super::costs::{Pairs, Traffic};
use super::result::{Bench, Peak};
use crate::config::{Regularize, SugarOptions};
use crate::memory::Bytes;

/// Results of a benchmark.
#[derive(Serialize)]
pub struct BenchReport {
    /// Name of the device.
    pub device: String,
    /// Number of training views.
    pub train_views: usize,
    /// Size of the first training view.
    pub view_px: [u32; 2],
    /// True if density control's statistics were gathered.
    pub observes: bool,
    /// Views of a step.
    pub batch_views: u32,
    /// Options of the surface terms.
    pub sugar: SugarOptions,
    /// Results in ascending order of the number of Gaussians.
    pub runs: Vec<Bench>,
}

impl BenchReport {
    /// Formats tables for people.
    pub fn text(&self) -> String {
        let [width, height] = self.view_px;
        let mut text =
            format!("{}; {} training views, {width}x{height} px", self.device, self.train_views);
        if self.observes {
            text.push_str("; with density control's statistics");
        }
        if self.batch_views > 1 {
            // Writing to a string cannot fail.
            write!(text, "; {} views a step, times are per image", self.batch_views).ok();
        }
        if self.sugar.regularize != Regularize::None {
            // Writing to a string cannot fail.
            write!(
                text,
                "; with surface terms at {} samples of {} neighbours, every {} iterations",
                self.sugar.n_samples_for_sdf, self.sugar.regularity_knn, self.sugar.sdf_every
            )
            .ok();
            if self.sugar.compares_views() {
                text.push_str(", each view compared with another");
            }
        }
        for run in &self.runs {
            // Writing to a string cannot fail.
            write!(
                text,
                "\n\n{} Gaussians, {} steps: {:.3} ms (median), {:.3} ms (mean), {:.1} it/s",
                run.gaussians,
                run.iterations,
                run.ms_median,
                run.ms_mean,
                1e3 / run.ms_mean
            )
            .ok();
            stages(&mut text, run);
            work(&mut text, run);
            let Peak { total, context, photographs, training, pinned } = run.peak;
            let lines = [
                ("peak", total),
                ("  training", training),
                ("  photographs", photographs),
                ("  context and code", context),
                ("page-locked, host", pinned),
            ];
            for (label, bytes) in lines {
                write!(text, "\n  {label:<24} {:>9.1} MiB", bytes.mib()).ok();
            }
            text.push_str("\n  each at its own most:");
            for entry in &run.memory {
                write!(text, "\n    {:<22} {:>9.1} MiB", entry.label, entry.peak.mib()).ok();
            }
        }
        text
    }
}

/// Appends a line for each stage and one for all: the time, the lower bound of the traffic, and its speed beside a
/// copy's.
fn stages(text: &mut String, run: &Bench) {
    if run.stages.is_empty() {
        return;
    }
    let counted = run.stages.iter().any(|cost| cost.traffic.is_some());
    if counted {
        write!(text, "\n  {:<36} {:>11} {:>9} {:>10}", "", "floor, MB", "GB/s", "of a copy").ok();
    }
    let mut line = |label: &str, ms: f64, traffic: Option<Traffic>| {
        write!(text, "\n  {label:<24} {ms:>9.3} ms").ok();
        let Some(Traffic { floor_bytes, gb_per_s, copy_share }) = traffic else { return };
        write!(text, " {:>11.1} {gb_per_s:>9.0}", megabytes(floor_bytes)).ok();
        if let Some(share) = copy_share {
            write!(text, " {:>8.1} %", share * 100.0).ok();
        }
    };
    for cost in &run.stages {
        line(cost.stage.name(), cost.ms, cost.traffic);
    }
    let ms = run.stages.iter().map(|cost| cost.ms).sum();
    let moved = run.stages.iter().filter_map(|cost| Some(cost.traffic?.floor_bytes)).sum();
    line("all stages", ms, if counted { Traffic::new(moved, ms, run.copy) } else { None });
    if let Some(copy) = run.copy {
        let label = format!("copy of {:.0} MiB", copy.bytes.mib());
        // Each byte is read and written.
        let moved = Bytes(2 * copy.bytes.0);
        let ms = megabytes(moved) / copy.gb_per_s;
        line(&label, ms, Traffic::new(moved, ms, run.copy));
    }
}

fn work(text: &mut String, run: &Bench) {
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64 * 100.0;
    text.push_str("\n  a view, mean of some:");
    let mut line = |label: &str, count: u64, note: String| {
        write!(text, "\n    {label:<22} {:>9.3} M{note}", count as f64 * 1e-6).ok();
    };
    if let Some(work) = run.work {
        line(
            "splats",
            work.visible,
            format!(", {:.1} % of the Gaussians", share(work.visible, work.gaussians)),
        );
        let rows = work.rows_seen();
        line("in lane blocks seen", rows, format!(", {:.1} %", share(rows, work.gaussians)));
        let reached = share(work.instances_reached, work.instances);
        line("instances", work.instances, format!(", {reached:.1} % got to"));
        line("chunks", work.chunks, String::new());
    }
    let Pairs { evaluated, contributing } = run.pairs;
    if let Some(evaluated) = evaluated {
        line("pairs evaluated", evaluated, String::new());
    }
    let of_all = evaluated.map(|all| format!(", {:.1} %", share(contributing, all)));
    line("pairs contributing", contributing, of_all.unwrap_or_default());
}

fn megabytes(bytes: Bytes) -> f64 {
    bytes.0 as f64 * 1e-6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{CopySpeed, Stage, Work};
    use crate::bench::costs::StageCost;

    fn measured() -> Bench {
        let copy = Some(CopySpeed { bytes: Bytes::GIB, gb_per_s: 4000.0 });
        let cost = |stage, ms, bytes| {
            let traffic = Traffic::new(Bytes(bytes), ms, copy);
            StageCost { stage, ms, traffic }
        };
        Bench {
            gaussians: 1_000_000,
            iterations: 200,
            ms_median: 2.5,
            ms_mean: 2.5,
            stages: vec![
                cost(Stage::BlendForward, 0.5, 100_000_000),
                cost(Stage::Step, 0.5, 900_000_000),
            ],
            copy,
            work: Some(Work {
                gaussians: 1_000_000,
                visible: 250_000,
                lane_blocks_seen: 15_625,
                instances: 2_000_000,
                instances_reached: 1_500_000,
                ..Work::default()
            }),
            pairs: Pairs { evaluated: Some(400_000_000), contributing: 100_000_000 },
            peak: Peak::default(),
            memory: Vec::new(),
        }
    }

    fn text(run: Bench) -> String {
        let device = "a device".to_owned();
        let sugar = SugarOptions::default();
        let (train_views, view_px) = (7, [48, 32]);
        let (batch_views, runs) = (4, vec![run]);
        BenchReport { device, train_views, view_px, observes: false, batch_views, sugar, runs }
            .text()
    }

    #[test]
    fn a_stage_is_a_line_beside_its_lower_bound() {
        let text = text(measured());
        let words = |start: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(start));
            line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert!(text.starts_with("a device; 7 training views, 48x32 px; 4 views a step, times"));
        assert_eq!(words("floor"), "floor, MB GB/s of a copy");
        assert_eq!(words("blend forward"), "blend forward 0.500 ms 100.0 200 5.0 %");
        assert_eq!(words("step"), "step 0.500 ms 900.0 1800 45.0 %");
        assert_eq!(words("all stages"), "all stages 1.000 ms 1000.0 1000 25.0 %");
        assert_eq!(words("copy"), "copy of 1024 MiB 0.537 ms 2147.5 4000 100.0 %");
        assert_eq!(words("splats"), "splats 0.250 M, 25.0 % of the Gaussians");
        assert_eq!(words("in lane"), "in lane blocks seen 0.500 M, 50.0 %");
        assert_eq!(words("instances"), "instances 2.000 M, 75.0 % got to");
        assert_eq!(words("pairs evaluated"), "pairs evaluated 400.000 M");
        assert_eq!(words("pairs contributing"), "pairs contributing 100.000 M, 25.0 %");
        assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
    }

    #[test]
    fn missing_counts_are_not_printed() {
        let mut run = measured();
        (run.stages, run.copy, run.work) = (Vec::new(), None, None);
        run.pairs.evaluated = None;
        let text = text(run);
        for absent in ["floor", "all stages", "copy", "splats", "evaluated"] {
            assert!(!text.contains(absent), "{absent}:\n{text}");
        }
        assert!(text.contains("pairs contributing       100.000 M\n"), "{text}");
    }
}
