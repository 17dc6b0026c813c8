//! `splat clean`: removes floaters, haze and Gaussians that no view needs from a trained model.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{ArgMatches, Args};
use serde::Serialize;

use super::check::{check, warn, warn_about_images};
use super::crop::{CropOptions, number};
use super::device::{self, DeviceOptions, Task};
use super::exit::DataError;
use super::folder::{self, TRAINED_VIEWS, TrainedViews};
use super::output::{print_report, shell_word};
use super::parser::parse;
use super::scene::{ModelArgs, Opened, absolute, none_to_compare};
use super::stages::flag;
use crate::backend::{RenderSettings, TrainDevice};
use crate::clean::{CleanOptions, CleanRule, Cleaning, bytes_beside, clean};
use crate::config::PrimitiveName;
use crate::export::{PlyStyle, write_ply_chunks};
use crate::files::{
    FolderLock, OutputError, WorkFolder, check_writable, create_folder, replace_file, write_text,
};
use crate::memory::plan::PlannedRow;
use crate::model::Gaussians;
use crate::train::event::Split;
use crate::train::save::{new_point_cloud, render_mode};
use crate::train::{Views, render_footprint, scene_extent};

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

/// Limits of the cleaning.
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

/// Cleans the model, prints a report and writes the remaining Gaussians to a new model folder.
pub(super) fn run(args: &CleanArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    clean_model(args, matches, |report| print_report(report, args.json, CleanReport::described))
}

fn clean_model(
    args: &CleanArgs,
    matches: &ArgMatches,
    print: impl FnOnce(&CleanReport) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let model_path = &args.model.model_path;
    let model = args.model.read(matches)?;
    model.check_primitive([(
        PrimitiveName::Triangles,
        "splat clean removes Gaussians, and training has removed the hidden triangles of this model already. Use it as \
         it is, or cut it with splat export --crop",
    )])?;
    if model.gaussians.is_empty() {
        let shown = model_path.display();
        anyhow::bail!(DataError(format!("{shown}: the model holds no Gaussians. Train it first")));
    }
    let RuleArgs { max_loss, near, place } = &args.rules;
    let CropOptions { crop, crop_sphere } = place.converted(&model.dataset.frame);
    let options = CleanOptions {
        max_loss: *max_loss,
        near: near * scene_extent(&model.dataset),
        boxes: crop,
        sphere: crop_sphere,
    };
    if !options.keeps_any(&model.gaussians) {
        return Err(nothing_left(model_path).into());
    }
    let target = if args.dry_run {
        None
    } else {
        let to = args.output.clone().unwrap_or_else(|| model_path.join(folder::CLEANED));
        Some(checked_target(model_path, to, args.overwrite)?)
    };
    let trained = model.trained_on();
    let bytes = bytes_beside(model.gaussians.len());
    let beside = PlannedRow { label: "what each Gaussian is worth", bytes };
    let room = model.room(None, Some(beside))?;
    let opened = model.open_within(room)?;
    let learned = &opened.config.optimize;
    warn([(
        learned.exposure || learned.bilateral_grid,
        "trained with --exposure or --bilateral-grid: their colours are not in the Gaussians and count as \
         errors. Compare the cleaned model by eye before you delete the first",
    )]);
    let task = ModelCleaning { opened: &opened, options: &options };
    let cleaning = device::on(&DeviceOptions::of_surface(&opened.config, matches), task)?;
    let report =
        CleanReport::new(&cleaning, &opened, &options, model_path, target.clone(), started);
    // A full disk must not cost the computed report.
    let printed = print(&report);
    if report.gaussians_after == 0 {
        return Err(nothing_left(model_path).into());
    }
    if let Some(to) = &target {
        write(model_path, to, &opened, &cleaning, trained, &report)?;
    }
    printed
}

fn nothing_left(path: &Path) -> DataError {
    DataError(format!(
        "{}: none of its Gaussians is left. Give a larger --crop or --crop-sphere",
        path.display()
    ))
}

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
        warn_about_images(&mut views);
        Ok(cleaning.ok_or_else(|| none_to_compare(&views, Split::Train))?)
    }
}

#[derive(Serialize)]
struct CleanReport {
    from: PathBuf,
    /// Target folder. `None` for a dry run.
    to: Option<PathBuf>,
    iteration: u32,
    gaussians_before: usize,
    gaussians_after: usize,
    /// Removed share of the Gaussians, 0 to 1.
    removed_share: f64,
    removed: Vec<RuleReport>,
    /// Mean PSNR over the training views, dB. `psnr_after` is measured before the final crop.
    psnr_before: f64,
    psnr_after: f64,
    max_loss: f64,
    train_views: usize,
    passes: u32,
    seconds: f64,
}

/// Gaussians that one rule removed.
#[derive(Serialize)]
struct RuleReport {
    rule: CleanRule,
    removed: usize,
    /// Share of all Gaussians, 0 to 1.
    share: f64,
}

impl CleanReport {
    fn new(
        cleaning: &Cleaning,
        opened: &Opened,
        options: &CleanOptions,
        from: &Path,
        to: Option<PathBuf>,
        started: Instant,
    ) -> Self {
        let gaussians = cleaning.gone.len();
        let share = |removed: usize| removed as f64 / gaussians.max(1) as f64;
        let by_rule = cleaning.by_rule().into_iter();
        Self {
            from: from.to_owned(),
            to,
            iteration: opened.iteration,
            gaussians_before: gaussians,
            gaussians_after: gaussians - cleaning.removed(),
            removed_share: share(cleaning.removed()),
            removed: by_rule
                .map(|of| RuleReport {
                    rule: of.rule,
                    removed: of.removed,
                    share: share(of.removed),
                })
                .collect(),
            psnr_before: cleaning.psnr_before,
            psnr_after: cleaning.psnr_after,
            max_loss: options.max_loss,
            train_views: opened.dataset.train.len(),
            passes: cleaning.passes,
            seconds: started.elapsed().as_secs_f64(),
        }
    }

    fn described(&self) -> String {
        let Self { gaussians_before, gaussians_after, psnr_before, psnr_after, .. } = self;
        let mut text = match &self.to {
            Some(to) => {
                format!("{}: {gaussians_after} of {gaussians_before} Gaussians", to.display())
            }
            None => format!(
                "{}: {gaussians_after} of {gaussians_before} Gaussians would be left",
                self.from.display()
            ),
        };
        write!(text, ", {:.1} % removed", 100.0 * self.removed_share).ok();
        for of in self.removed.iter().filter(|of| of.removed > 0) {
            let (name, share) = (of.rule.name(), 100.0 * of.share);
            write!(text, "\n  {name:<16}{:>9}  {share:>5.1} %", of.removed).ok();
        }
        let views = self.train_views;
        write!(text, "\n  PSNR of {views} training views {psnr_before:.3} -> {psnr_after:.3} dB")
            .ok();
        let is_cut = |of: &RuleReport| of.rule == CleanRule::Cropped && of.removed > 0;
        if self.removed.iter().any(is_cut) {
            text.push_str(", before the cut by place");
        }
        text
    }
}

/// Files of a model folder that a cleaned model copies.
const DESCRIPTION: [&str; 5] =
    ["config.toml", "cfg_args", "cameras.json", "exposure.json", "input.ply"];

/// Returns the destination folder of a cleaned model, or an error if that is the model itself, holds a model or cannot
/// be written. Creates only the folder.
fn checked_target(from: &Path, to: PathBuf, overwrite: bool) -> anyhow::Result<PathBuf> {
    let shown = to.display();
    check([(
        absolute(from) == absolute(&to),
        format!("-o {shown}: is the model itself, which stays as it is. Name another folder"),
    )])?;
    folder::check_not_file(&to)?;
    check([(
        folder::holds_run(&to) && !overwrite,
        format!("{shown}: holds a model already. Name another folder with -o, or give --overwrite"),
    )])?;
    create_folder(&to)?;
    check_writable(&to)?;
    Ok(to)
}

/// Writes the remaining Gaussians and the files that describe the model.
fn write(
    from: &Path,
    to: &Path,
    opened: &Opened,
    cleaning: &Cleaning,
    mut trained: TrainedViews,
    report: &CleanReport,
) -> anyhow::Result<()> {
    let _lock = FolderLock::take(to)?;
    if let Some(aside) = folder::set_aside(to)? {
        tracing::info!("--overwrite: the earlier model is moved to {}", aside.display());
    }
    let _work = WorkFolder::open(to);
    let path = new_point_cloud(to, opened.iteration)?;
    let left = cleaning.left(&opened.gaussians);
    let mode = render_mode(&opened.config);
    let style = PlyStyle { mode, frame: opened.dataset.frame };
    write_ply_chunks::<Gaussians, _, _>(
        &path,
        style,
        left.sh_degree,
        left.len(),
        [Ok::<_, OutputError>(&left)],
    )?;
    for name in DESCRIPTION {
        copy_file(&from.join(name), &to.join(name))?;
    }
    // The training views chose the removals, so no later split may hold one of them out.
    if from.join(TRAINED_VIEWS).exists() {
        let views = opened.dataset.train.iter().map(|&view| &opened.dataset.views[view]);
        trained.add(views.map(|view| view.name.as_str()), 0);
        trained.write(to)?;
    }
    write_text(&to.join(folder::CLEANING), &serde_json::to_string_pretty(report)?)?;
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> Result<(), OutputError> {
    let Ok(mut source) = fs::File::open(from) else { return Ok(()) };
    replace_file(to, |file| {
        std::io::copy(&mut source, file).map(drop).map_err(|error| OutputError::new(to, error))
    })
}

// Cleaning as the end of `splat train --clean`.

/// Cleans the last Gaussians of a model folder like `splat clean -m MODEL`, unless they are clean already. Returns
/// the folder of the cleaned model and moves an older one aside.
pub(super) fn clean_trained(model_path: &Path) -> anyhow::Result<PathBuf> {
    let cleaned = model_path.join(folder::CLEANED);
    let (iteration, ply) = folder::point_cloud(model_path, None)?;
    if is_cleaned(&cleaned, iteration, &ply) {
        tracing::info!("{}: iteration {iteration} is cleaned already", cleaned.display());
        return Ok(cleaned);
    }
    tracing::info!("Cleaning the model");
    let line = [flag("model-path", model_path), "--overwrite".into()];
    let (args, matches) = parse::<CleanArgs>("clean", &line)?;
    // The report goes to the log instead of stdout.
    let log = |report: &CleanReport| {
        report.described().lines().for_each(|line| tracing::info!("{line}"));
        Ok(())
    };
    clean_model(&args, &matches, log).inspect_err(|_| {
        tracing::warn!(
            "the model is trained and saved, but not cleaned. To clean it: splat clean -m {}",
            shell_word(model_path)
        );
    })?;
    Ok(cleaned)
}

/// True if this iteration was cleaned after it was saved.
fn is_cleaned(cleaned: &Path, iteration: u32, ply: &Path) -> bool {
    let record = cleaned.join(folder::CLEANING);
    let before = fs::read_to_string(&record).ok();
    let before = before.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
    let written = |path: &Path| fs::metadata(path).and_then(|about| about.modified()).ok();
    before.is_some_and(|before| before["iteration"] == iteration)
        && written(&record) >= written(ply)
}
