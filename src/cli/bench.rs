//! `splat bench`: what an iteration costs.

use std::fmt::Write;

use clap::{ArgMatches, Args};
use serde::Serialize;

use super::device::{self, DeviceOptions, Task};
use super::exit::UsageError;
use super::print;
use super::scene::{ModelArgs, Opened};
use crate::backend::{LossTerms, Raster};
use crate::model::{Gaussians, denser};
use crate::train::background;
use crate::train::bench::{Bench, BenchSetup, Peak, bench};

/// Arguments of `splat bench`.
#[derive(Args)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    pub(super) model: ModelArgs,

    /// Numbers of Gaussians to measure with, each by copies of the model's [default: the model's]
    #[arg(long, value_name = "N", num_args = 1.., help_heading = "Measurement")]
    gaussians: Vec<usize>,

    /// Iterations that are timed
    #[arg(long, value_name = "N", help_heading = "Measurement", default_value_t = 200)]
    iterations: u32,

    /// Iterations before the clock starts
    #[arg(long, value_name = "N", help_heading = "Measurement", default_value_t = 50)]
    warm_up: u32,

    /// Gather density control's statistics, as training does until --densify-until-iter
    #[arg(long, help_heading = "Measurement")]
    observe: bool,

    /// Print JSON
    #[arg(long, help_heading = "Measurement")]
    json: bool,
}

/// Measures and prints.
pub(super) fn run(args: &BenchArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    if args.iterations == 0 {
        return Err(UsageError("--iterations: 0 iterations cannot be timed".to_owned()).into());
    }
    let opened = args.model.open(matches)?;
    if opened.gaussians.is_empty() {
        return Err(UsageError("the model has no Gaussians to make copies of".to_owned()).into());
    }
    let task = Measuring { args, opened: &opened };
    let report = device::on(DeviceOptions::of(&opened.config), task)?;
    print(&if args.json { serde_json::to_string_pretty(&report)? } else { report.text() });
    Ok(())
}

/// What was measured.
#[derive(Serialize)]
struct Report {
    device: String,
    train_views: usize,
    /// Size of the first of them.
    view_px: [u32; 2],
    /// Whether density control's statistics were gathered.
    observes: bool,
    /// Ascending.
    runs: Vec<Bench>,
}

struct Measuring<'a> {
    args: &'a BenchArgs,
    opened: &'a Opened,
}

impl Task for Measuring<'_> {
    type Output = Report;

    fn run<B: Raster<Gaussians>>(self, device: &mut B) -> anyhow::Result<Report> {
        let Self { args, opened } = self;
        let (dataset, config) = (&opened.dataset, &opened.config);
        let mut counts = args.gaussians.clone();
        if counts.is_empty() {
            counts.push(opened.gaussians.len());
        }
        counts.sort_unstable();
        let setup = BenchSetup {
            dataset,
            images: &opened.images,
            seed: config.run.seed,
            terms: LossTerms { lambda_dssim: config.optimize.lambda_dssim },
            background: background(config.scene.white_background),
            observes: args.observe,
            warm_up: args.warm_up,
            iterations: args.iterations,
        };
        let mut runs = Vec::with_capacity(counts.len());
        for count in counts {
            tracing::info!("{count} Gaussians");
            let gaussians = denser(&opened.gaussians, count, config.run.seed);
            runs.push(bench(device, &setup, &gaussians)?);
        }
        let first = dataset.train.first().map(|&view| &dataset.views[view].camera);
        let view_px = first.map_or([0; 2], |camera| [camera.width, camera.height]);
        Ok(Report {
            device: device.name(),
            train_views: dataset.train.len(),
            view_px,
            observes: args.observe,
            runs,
        })
    }
}

impl Report {
    fn text(&self) -> String {
        let [width, height] = self.view_px;
        let mut text =
            format!("{}; {} training views, {width}x{height} px", self.device, self.train_views);
        if self.observes {
            text.push_str("; with density control's statistics");
        }
        for run in &self.runs {
            // Writing to a string cannot fail.
            write!(
                text,
                "\n\n{} Gaussians, {} iterations: {:.3} ms (median), {:.3} ms (mean), {:.1} it/s",
                run.gaussians,
                run.iterations,
                run.ms_median,
                run.ms_mean,
                1e3 / run.ms_mean
            )
            .ok();
            for time in &run.stages {
                write!(text, "\n  {:<24} {:>9.3} ms", time.stage, time.ms).ok();
            }
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
