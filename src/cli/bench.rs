//! `splat bench`: time of a training step.

use clap::{ArgMatches, Args};

use super::check::check;
use super::device::{self, DeviceOptions, Task};
use super::output::print_report;
use super::scene::{ModelArgs, Opened};
use crate::abi::MAX_VIEWS;
use crate::backend::TrainDevice;
use crate::bench::{BenchReport, BenchSetup, measure};
use crate::config::{Config, PrimitiveName, SugarOptions};
use crate::train::render_footprint;

#[derive(Args)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    pub(super) model: ModelArgs,

    /// Numbers of Gaussians [default: the model's]
    ///
    /// Each is reached by copies of the model's Gaussians.
    #[arg(long, value_name = "N", num_args = 1.., value_delimiter = ',', help_heading = "Measurement")]
    gaussians: Vec<usize>,

    /// Steps that are timed
    #[arg(long, value_name = "N", help_heading = "Measurement", default_value_t = 200)]
    iterations: u32,

    /// Steps before the clock starts
    #[arg(long, value_name = "N", help_heading = "Measurement", default_value_t = 50)]
    warm_up: u32,

    /// Views of a step; times are per image
    #[arg(long, value_name = "N", help_heading = "Measurement", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_VIEWS)))]
    batch_views: u32,

    /// Gather the statistics of density control
    ///
    /// As training does until --densify-until-iter.
    #[arg(long, help_heading = "Measurement")]
    observe: bool,

    #[command(flatten)]
    sugar: SugarOptions,

    /// Print JSON
    #[arg(long, help_heading = "Measurement")]
    json: bool,
}

/// Measures the step and prints the times.
pub(super) fn run(args: &BenchArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    check([(args.iterations == 0, "--iterations: 0 iterations cannot be timed")])?;
    Config { sugar: args.sugar.clone(), ..Config::default() }.validate()?;
    let model = args.model.read(matches)?;
    model.check_primitive([(
        PrimitiveName::Triangles,
        "splat bench makes copies of a model's Gaussians, and the model is of triangles. Name a model of \
         Gaussians",
    )])?;
    let opened = model.open(None)?;
    Config { sugar: args.sugar.clone(), ..opened.config.clone() }.validate()?;
    check([(opened.gaussians.is_empty(), "the model has no Gaussians to make copies of")])?;
    let task = Measuring { args, opened: &opened };
    let report = device::on(&DeviceOptions::of_earlier(&opened.config, matches), task)?;
    print_report(&report, args.json, BenchReport::text)
}

struct Measuring<'a> {
    args: &'a BenchArgs,
    opened: &'a Opened,
}

impl Task for Measuring<'_> {
    type Output = BenchReport;

    fn run<B: TrainDevice>(self, device: &mut B) -> anyhow::Result<BenchReport> {
        let Self { args, opened } = self;
        let config = &Config { sugar: args.sugar.clone(), ..opened.config.clone() };
        let mut counts = args.gaussians.clone();
        if counts.is_empty() {
            counts.push(opened.gaussians.len());
        }
        let setup = BenchSetup {
            dataset: &opened.dataset,
            images: &opened.images,
            config,
            background: config.scene.background_color().0,
            footprint: render_footprint(config),
            observes: args.observe,
            batch_views: args.batch_views,
            warm_up: args.warm_up,
            iterations: args.iterations,
        };
        Ok(measure(device, &setup, &opened.gaussians, counts)?)
    }
}
