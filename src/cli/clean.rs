//! `splat clean`: a trained model without floaters, haze and what no view needs.

mod after_training;
mod report;
mod target;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{ArgMatches, Args};

pub(super) use self::after_training::clean_trained;
use self::report::CleanReport;
use self::target::CleanTarget;
use super::crop::{CropOptions, number};
use super::device::{self, DeviceOptions, Task};
use super::exit::{DataError, DoesNotFit};
use super::folder;
use super::host_limit::{HostRoom, OnProcessor, showing};
use super::output::print;
use super::scene::{ModelArgs, Opened, ReadModel, none_to_compare};
use crate::backend::{RenderSettings, TrainDevice};
use crate::clean::{CleanOptions, Cleaning, bytes_beside, clean};
use crate::dataset::Frame;
use crate::memory::plan::PlannedRow;
use crate::train::event::Split;
use crate::train::{Views, forecast, render_footprint, scene_extent};

/// Arguments of `splat clean`.
#[derive(Args)]
#[command(mut_arg("model_path", |arg| arg.visible_alias(None::<&'static str>).short_alias(None::<char>)))]
pub(super) struct CleanArgs {
    #[command(flatten)]
    pub(super) model: ModelArgs,

    #[command(flatten)]
    rules: RuleArgs,

    /// Model folder to write [default: MODEL/clean]
    ///
    /// `splat eval`, `render`, `export` and `mesh` take it with -m. MODEL stays as it is.
    #[arg(short, long, value_name = "FOLDER", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Move what is in that folder aside, to `previous_N` in it
    #[arg(long, help_heading = "Output")]
    overwrite: bool,

    /// Report removals without writing anything
    #[arg(long, help_heading = "Output")]
    dry_run: bool,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// What is removed.
#[derive(Args)]
#[command(next_help_heading = "Cleaning")]
struct RuleArgs {
    /// Largest loss of PSNR of the training views, dB [default: 0.05]
    ///
    /// A step that costs more is undone, or made smaller. If removing floaters raises the PSNR by 0.5 dB or more, the
    /// limit counts from the higher value. --crop and --crop-sphere cut last and are not counted.
    #[arg(long, value_name = "DB", default_value_t = 0.05, value_parser = not_negative)]
    max_loss: f64,

    /// Distance to cameras that is kept free [default: 0.01]
    ///
    /// A share of the training cameras' extent; 0 keeps what is right before a camera.
    #[arg(long, value_name = "SHARE", default_value_t = 0.01, value_parser = not_negative)]
    near: f64,

    #[command(flatten)]
    place: CropOptions,
}

fn not_negative(text: &str) -> Result<f64, String> {
    let value = number(text)?;
    if value >= 0.0 { Ok(value) } else { Err("give 0 or more".to_owned()) }
}

/// Cleans the model, says what that removed, and writes what is left as a model of its own.
pub(super) fn run(args: &CleanArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    clean_model(args, matches, |report| {
        let text =
            if args.json { serde_json::to_string_pretty(report)? } else { report.described() };
        Ok(print(&text)?)
    })
}

fn clean_model(
    args: &CleanArgs,
    matches: &ArgMatches,
    tell: impl FnOnce(&CleanReport) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let model_path = &args.model.model_path;
    let model = args.model.read(matches)?;
    model.refuse_triangles(
        "splat clean removes Gaussians, and training has removed the hidden triangles of this model already. Use it as \
         it is, or cut it with splat export --crop",
    )?;
    let options = args.rules.options(scene_extent(&model.dataset), &model.dataset.frame);
    check_model(&model, &options, model_path)?;
    let target = if args.dry_run {
        None
    } else {
        let to = args.output.clone().unwrap_or_else(|| model_path.join(folder::CLEANED));
        Some(CleanTarget::check(model_path, to, args.overwrite)?)
    };
    let trained = model.trained_on();
    let room = host_room(&model)?;
    let opened = model.open_within(room)?;
    warn_of_colors(&opened);
    let task = ModelCleaning { opened: &opened, options: &options };
    let cleaning = device::on(&DeviceOptions::of_surface(&opened.config, matches), task)?;
    let written = target.as_ref().map(CleanTarget::path);
    let report = CleanReport::new(&cleaning, &opened, &options, started).at(model_path, written);
    // A result that was computed is not lost to a full disk.
    let told = tell(&report);
    if report.gaussians_after == 0 {
        return Err(nothing_left(model_path).into());
    }
    if let Some(target) = &target {
        target.write(&opened, &cleaning, trained, &report)?;
    }
    told
}

/// Fails where there is nothing to clean, or where nothing would be left.
fn check_model(model: &ReadModel, options: &CleanOptions, path: &Path) -> Result<(), DataError> {
    let shown = path.display();
    if model.gaussians.is_empty() {
        return Err(DataError(format!("{shown}: the model holds no Gaussians. Train it first")));
    }
    if !options.keeps_any(&model.gaussians) {
        return Err(nothing_left(path));
    }
    Ok(())
}

/// Says where photographs have other colours than the Gaussians.
fn warn_of_colors(opened: &Opened) {
    let options = &opened.config.optimize;
    if options.exposure || options.bilateral_grid {
        tracing::warn!(
            "trained with --exposure or --bilateral-grid: their colours are not in the Gaussians and count as \
             errors. Compare the cleaned model by eye before you delete the first"
        );
    }
}

fn nothing_left(path: &Path) -> DataError {
    DataError(format!(
        "{}: none of its Gaussians is left. Give a larger --crop or --crop-sphere",
        path.display()
    ))
}

/// How the command keeps `--host-limit`.
fn host_room(model: &ReadModel) -> Result<HostRoom, DoesNotFit> {
    let ReadModel { config, dataset, gaussians, .. } = model;
    let mut work = showing(config, gaussians.len() as u64);
    work.sh_degree = gaussians.sh_degree;
    let most = work.gaussians;
    let footprint = render_footprint(config);
    let count_seen = &|| forecast::seen_of_model(dataset, gaussians, footprint);
    let bytes = bytes_beside(gaussians.len());
    let beside = Some(PlannedRow { label: "what each Gaussian is worth", bytes });
    model.room_for(&OnProcessor { work, most, count_seen, lpips: None, beside })
}

impl RuleArgs {
    fn options(&self, extent: f64, frame: &Frame) -> CleanOptions {
        let CropOptions { crop, crop_sphere } = self.place.converted(frame);
        CleanOptions {
            max_loss: self.max_loss,
            near: self.near * extent,
            boxes: crop,
            sphere: crop_sphere,
        }
    }
}

/// Finding what is to be removed.
struct ModelCleaning<'a> {
    opened: &'a Opened,
    options: &'a CleanOptions,
}

impl Task for ModelCleaning<'_> {
    type Output = Cleaning;

    fn run<B: TrainDevice>(self, device: &mut B) -> anyhow::Result<Cleaning> {
        let Self { opened, options } = self;
        let Opened { config, dataset, images, gaussians, .. } = opened;
        let mut views = Views::new(dataset, images);
        let settings = RenderSettings {
            sh_degree: gaussians.sh_degree,
            background: config.scene.background_color().0,
            near: views.near(),
            footprint: render_footprint(config),
            ..RenderSettings::DEFAULT
        };
        let cleaning = clean(device, gaussians, &mut views, settings, options)?;
        for warning in views.take_warnings() {
            tracing::warn!("{warning}");
        }
        Ok(cleaning.ok_or_else(|| none_to_compare(&views, Split::Train))?)
    }
}
