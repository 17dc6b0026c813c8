//! `splat eval`: metrics of a trained model.

mod figures;
mod geometry;
mod mesh_images;
mod newest;

use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args};

use self::geometry::GeometryArgs;
use super::device::{self, DeviceOptions, Task};
use super::exit::UsageError;
use super::lpips::{self, LpipsDemand, Sources};
use super::output::print;
use super::scene::{ModelArgs, Opened, none_to_compare};
use super::triangles::TriangleSamples;
use crate::backend::TrainDevice;
use crate::config::MetricSet;
use crate::files::{OutputError, WorkFolder, check_writable};
use crate::perceptual::LpipsWeights;
use crate::telemetry::{append_metrics, update_summary, write_per_view, write_results};
use crate::train::Views;
use crate::train::appearance::compensation;
use crate::train::eval::{EvalRequest, ShownViews, evaluate};
use crate::train::event::{Evaluation, Split};

/// Arguments of `splat eval`.
#[derive(Args)]
pub(super) struct EvalArgs {
    #[command(flatten)]
    pub(super) model: ModelArgs,

    /// Views to measure
    #[arg(long, value_enum, help_heading = "Evaluation", default_value_t = Split::Test)]
    split: Split,

    /// Metrics to measure [default: as in training]
    #[arg(long, value_enum, value_name = "SET", help_heading = "Evaluation")]
    metrics: Option<MetricSet>,

    /// LPIPS weights (.safetensors or .pth)
    ///
    /// The default is the file that the model was trained with, or else the one that
    /// `SPLAT_LPIPS_WEIGHTS` names.
    #[arg(long, value_name = "FILE", help_heading = "Evaluation")]
    lpips_weights: Option<PathBuf>,

    /// Measure LPIPS, or fail
    ///
    /// Weights that are not named are looked for in ~/.cache/splat and ~/.cache/torch. With false, LPIPS is not measured, whatever weights there are.
    #[arg(long, help_heading = "Evaluation")]
    enable_lpips: bool,

    /// Print JSON, with every view
    #[arg(long, help_heading = "Evaluation")]
    json: bool,

    #[command(flatten)]
    samples: TriangleSamples,

    #[command(flatten)]
    geometry: GeometryArgs,
}

/// Evaluates, prints the means, and writes the tables of the model folder.
pub(super) fn run(args: &EvalArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    if let Some(truth) = &args.geometry.geometry {
        return geometry::run(&args.geometry, truth, &args.model, args.json, matches);
    }
    let mesh = args.geometry.mesh.as_deref();
    if args.geometry.mesh_images {
        return mesh_images::run(mesh, args.split, &args.model, args.json, matches);
    }
    if mesh.is_some() {
        return Err(UsageError(
            "--mesh is given without --geometry TRUTH and without --mesh-images, which measure it. \
             Give one of them"
                .to_owned(),
        )
        .into());
    }
    let mut model = args.model.read(matches)?;
    args.samples.apply(model.triangles.as_mut(), matches);
    let folder = &args.model.model_path;
    if args.split == Split::Test {
        model.refuse_seen(folder, "--split train")?;
    }
    model.refuse_empty(args.split)?;
    if !args.json && !model.altered {
        // Before minutes are spent on what cannot be kept.
        check_writable(folder)?;
    }
    let metrics = args.metrics.unwrap_or(model.config.output.metrics);
    let lpips = lpips::weights(&Sources {
        named: args.lpips_weights.as_deref(),
        earlier: model.config.output.lpips_weights.as_deref(),
        demand: LpipsDemand::of(args.enable_lpips, matches),
        metrics,
    })?;
    let opened = model.open(lpips.as_ref())?;
    let task = Evaluating { opened: &opened, split: args.split, metrics, lpips: lpips.as_ref() };
    let evaluation = device::on(&DeviceOptions::of_earlier(&opened.config, matches), task)?;
    // First of all: a result that was computed is not lost to a full disk, nor the tables to stdout.
    let text =
        if args.json { serde_json::to_string_pretty(&evaluation)? } else { table(&evaluation) };
    let printed = print(&text);
    if opened.altered {
        tracing::warn!(
            "measured with other scene options than the model was trained with; the tables in {} \
             are left as they are",
            folder.display()
        );
        return Ok(printed?);
    }
    match write_tables(folder, &evaluation) {
        // Who asks for JSON reads it from stdout.
        Err(error) if args.json => tracing::warn!("the tables are left as they were: {error}"),
        done => done?,
    }
    Ok(printed?)
}

fn write_tables(folder: &Path, evaluation: &Evaluation) -> Result<(), OutputError> {
    let _work = WorkFolder::open(folder);
    append_metrics(folder, evaluation)?;
    write_results(folder, evaluation)?;
    write_per_view(folder, evaluation)?;
    update_summary(folder, evaluation)
}

/// Measuring one split of the scene's views.
struct Evaluating<'a> {
    opened: &'a Opened,
    split: Split,
    metrics: MetricSet,
    lpips: Option<&'a LpipsWeights>,
}

impl Task for Evaluating<'_> {
    type Output = Evaluation;

    fn run<B: TrainDevice>(self, device: &mut B) -> anyhow::Result<Evaluation> {
        let Self { opened, split, metrics, lpips } = self;
        let mut views = Views::new(&opened.dataset, &opened.images);
        let model = opened.upload(device)?;
        let compensation = compensation(&opened.config.optimize);
        let shown = opened.request(split, ShownViews::Nothing);
        let request = EvalRequest { compensation, metrics, lpips, ..shown };
        let evaluation = evaluate(device, &model, &mut views, &request, |_| Ok(()))?;
        for warning in views.take_warnings() {
            tracing::warn!("{warning}");
        }
        Ok(evaluation.ok_or_else(|| none_to_compare(&views, split))?)
    }
}

fn table(evaluation: &Evaluation) -> String {
    let Evaluation { mean, lpips_net, .. } = evaluation;
    let lpips = mean.lpips.zip(*lpips_net);
    let lpips = lpips
        .map_or(String::new(), |(lpips, net)| format!("\n  LPIPS {lpips:.5} ({})", net.name()));
    let corrected = mean.corrected.map_or(String::new(), |corrected| {
        format!(
            "\n  colour-corrected\n  PSNR {:.4} dB\n  SSIM {:.5}",
            corrected.psnr, corrected.ssim
        )
    });
    let reference = mean.reference.map_or(String::new(), |reference| {
        let lpips =
            reference.lpips.map_or(String::new(), |lpips| format!("\n  LPIPS {lpips:.7} (vgg)"));
        format!("\n  as the reference's metrics.py\n  SSIM {:.7}{lpips}", reference.ssim)
    });
    format!(
        "iteration {}, {} {} views, {} Gaussians\n  PSNR {:.4} dB\n  SSIM {:.5}\n  L1   \
         {:.5}{lpips}{corrected}{reference}",
        evaluation.iteration,
        evaluation.views.len(),
        evaluation.split.name(),
        evaluation.gaussians,
        mean.psnr,
        mean.ssim,
        mean.l1
    )
}
