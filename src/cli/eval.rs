//! `splat eval`: metrics of a trained model.

use clap::{ArgMatches, Args};

use super::device::{self, DeviceOptions, Task};
use super::exit::UsageError;
use super::print;
use super::scene::{ModelArgs, Opened, none_decoded};
use crate::backend::Raster;
use crate::model::Gaussians;
use crate::telemetry::{append_metrics, write_per_view, write_results};
use crate::train::eval::{EvalRequest, Shown, evaluate};
use crate::train::event::{Evaluation, Split};
use crate::train::{Views, background, render_filter};

/// Arguments of `splat eval`.
#[derive(Args)]
pub(super) struct EvalArgs {
    #[command(flatten)]
    pub(super) model: ModelArgs,

    /// Which views
    #[arg(long, value_enum, help_heading = "Evaluation", default_value_t = Split::Test)]
    split: Split,

    /// Print JSON, with every view
    #[arg(long, help_heading = "Evaluation")]
    json: bool,
}

/// Evaluates, prints the means, and writes the tables of the model folder.
pub(super) fn run(args: &EvalArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    let opened = args.model.open(matches)?;
    let task = Evaluating { opened: &opened, split: args.split };
    let evaluation = device::on(&DeviceOptions::of(&opened.config), task)?;
    // First of all: a result that was computed is not lost to a full disk.
    print(&if args.json { serde_json::to_string_pretty(&evaluation)? } else { table(&evaluation) });
    let folder = &args.model.model_path;
    if opened.altered {
        tracing::warn!(
            "measured with other scene options than the model was trained with; the tables in {} \
             are left as they are",
            folder.display()
        );
        return Ok(());
    }
    append_metrics(folder, &evaluation)?;
    write_results(folder, &evaluation)?;
    write_per_view(folder, &evaluation)?;
    Ok(())
}

/// Measuring one split of the scene's views.
struct Evaluating<'a> {
    opened: &'a Opened,
    split: Split,
}

impl Task for Evaluating<'_> {
    type Output = Evaluation;

    fn run<B: Raster<Gaussians>>(self, device: &mut B) -> anyhow::Result<Evaluation> {
        let Self { opened, split } = self;
        let mut views = Views::new(&opened.dataset, &opened.images);
        if views.split(split).is_empty() {
            return Err(UsageError(
                "the model was trained without --eval, so no view is held out. Use --split train, \
                 or hold views out with --eval"
                    .to_owned(),
            )
            .into());
        }
        let model = device.upload(&opened.gaussians)?;
        let request = EvalRequest {
            split,
            iteration: opened.iteration,
            sh_degree: opened.gaussians.sh_degree,
            background: background(opened.config.scene.white_background),
            screen_filter: render_filter(&opened.config),
            shown: Shown::Nothing,
        };
        let evaluation = evaluate(device, &model, &mut views, &request, |_| Ok(()))?;
        for warning in views.take_warnings() {
            tracing::warn!("{warning}");
        }
        Ok(evaluation.ok_or_else(|| none_decoded(&views, split))?)
    }
}

fn table(evaluation: &Evaluation) -> String {
    format!(
        "iteration {}, {} {} views, {} Gaussians\n  PSNR {:.4} dB\n  SSIM {:.5}\n  L1   {:.5}",
        evaluation.iteration,
        evaluation.views.len(),
        evaluation.split.name(),
        evaluation.gaussians,
        evaluation.mean.psnr,
        evaluation.mean.ssim,
        evaluation.mean.l1
    )
}
