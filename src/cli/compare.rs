//! `splat compare`: compares runs and fails if one of them lost quality.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::exit::{DataError, QualityLost, UsageError};
use super::output::{print_report, shell_word};
use crate::config::{Config, ConfigError};
use crate::memory::Bytes;
use crate::telemetry::{MeasuredSplit, RunState, RunSummary};
use crate::train::event::Split;

#[derive(Args)]
#[command(after_help = "Exit code 1 where the PSNR, SSIM or LPIPS of a RUN is worse than the \
                        baseline's by more than the tolerance, 3 where there is none to compare, or \
                        it was measured on other views or at another resolution.")]
pub(super) struct CompareArgs {
    /// Model folders, or summary.json files of runs
    #[arg(value_name = "RUN", required = true, num_args = 1..)]
    runs: Vec<PathBuf>,

    /// Baseline of the comparison [default: the first RUN]
    ///
    /// A model folder, or the summary.json of a run that was kept.
    #[arg(long, value_name = "RUN")]
    baseline: Option<PathBuf>,

    /// Loss of quality that is accepted, in per cent
    ///
    /// It is a share of the baseline's PSNR, SSIM and LPIPS. 0 accepts no loss at all, not even one of rounding.
    #[arg(long, value_name = "P%", default_value = "0.5%", allow_hyphen_values = true)]
    tolerance: Tolerance,

    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print tables in Markdown
    #[arg(long)]
    markdown: bool,
}

/// Prints the comparison. Lost quality is an error that is returned after printing.
pub(super) fn run(args: &CompareArgs) -> anyhow::Result<()> {
    let paths = paths(args);
    let named = args.runs.len() + usize::from(args.baseline.is_some());
    if let [only] = paths.as_slice()
        && named > 1
    {
        let message =
            format!("{} is named twice and nothing else is: name another run", only.display());
        return Err(UsageError(message).into());
    }
    let runs = paths.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let comparison = Comparison::new(&runs, args.tolerance)?;
    let style = if args.markdown { Style::Markdown } else { Style::Plain };
    print_report(&comparison, args.json, |comparison| comparison_text(comparison, style))?;
    if let Some(without) = comparison.without_quality() {
        return Err(DataError(without).into());
    }
    match comparison.lost_quality() {
        Some(losses) => Err(QualityLost(losses).into()),
        None => Ok(()),
    }
}

/// Returns the baseline and then the other runs, without duplicates.
fn paths(args: &CompareArgs) -> Vec<&Path> {
    let mut seen = Vec::new();
    let mut paths = Vec::new();
    for path in args.baseline.iter().chain(&args.runs) {
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        if !seen.contains(&real) {
            seen.push(real);
            paths.push(path.as_path());
        }
    }
    paths
}

fn read(path: &Path) -> Result<Run, DataError> {
    let summary = RunSummary::read(path).map_err(|error| DataError(error.to_string()))?;
    Ok(Run { path: path.display().to_string(), summary })
}

// Tolerated loss of quality.

/// Relative difference below which two figures are equal up to rounding, per cent.
const ROUNDING: f64 = 1e-9;

/// Relative tolerance, per cent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(transparent)]
struct Tolerance(f64);

impl Tolerance {
    /// True if a figure that is worse by this percentage is accepted.
    fn accepts(self, worse_percent: f64) -> bool {
        let rounding = if self.0 > 0.0 { ROUNDING } else { 0.0 };
        worse_percent <= self.0 + rounding
    }
}

impl FromStr for Tolerance {
    type Err = String;

    /// Parses a number with `%`. Only 0 needs no sign, because `0.5` may mean a half or half a per cent.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let percent = match text.trim().strip_suffix('%') {
            Some(text) => number(text),
            None => number(text).filter(|&number| number == 0.0),
        };
        // Adding 0 turns -0 into 0.
        let percent = percent.map(|percent| percent + 0.0);
        percent.filter(|percent| (0.0..=100.0).contains(percent)).map(Self).ok_or_else(|| {
            format!("`{text}` is not a tolerance; write a share from 0% to 100%, for instance 0.5%")
        })
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

// Runs of a comparison and the commands that measure them again.

/// Key of the option that names the model folder.
const MODEL_PATH: &str = "output.model_path";

/// Summary of a run and the path that it was read from.
struct Run {
    path: String,
    summary: RunSummary,
}

/// Model folder of a run. Its summary may be a copy in another place.
struct Origin {
    /// Folder, quoted for a shell.
    folder: String,
    /// Sentence about the next step after measuring, beginning with a full stop. Empty if there is none.
    afterwards: String,
}

impl Origin {
    /// Finds the model folder of a run.
    fn of(run: &Run) -> Self {
        let path = Path::new(&run.path);
        let stored = run.summary.options.get(MODEL_PATH).and_then(Value::as_str).map(Path::new);
        if let Some(folder) = run_folder(path).filter(|folder| is_model(folder, stored)) {
            return Self { folder: shell_word(folder), afterwards: String::new() };
        }
        let Some(stored) = stored else {
            let what = "does not name its model folder: put that in place of MODEL, and copy the \
                        summary.json of it again";
            let afterwards = format!(". {} {what}", path.display());
            return Self { folder: "MODEL".to_owned(), afterwards };
        };
        let folder = shell_word(stored);
        let what = if is_model(stored, None) {
            format!("compare {folder} then")
        } else {
            format!(
                "{folder} is not on this machine: measure it where it is, and copy its summary.json again"
            )
        };
        Self { afterwards: format!(". {} is a copy: {what}", path.display()), folder }
    }
}

/// Returns the path itself if it is a folder, or the folder of a `summary.json`.
fn run_folder(path: &Path) -> Option<&Path> {
    if path.is_dir() {
        return Some(path);
    }
    let is_summary = path.file_name().is_some_and(|name| name == "summary.json");
    // The parent of a bare name is empty and means the working directory.
    path.parent()
        .filter(|_| is_summary)
        .map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
}

/// True if the folder holds a model or is the model path that the summary stores.
fn is_model(folder: &Path, stored: Option<&Path>) -> bool {
    let is_stored = || {
        let real = folder.canonicalize().ok();
        real.is_some() && real == stored.and_then(|stored| stored.canonicalize().ok())
    };
    folder.join("point_cloud").is_dir() || is_stored()
}

// Figures that are compared.

#[derive(Clone, Debug)]
struct Figure {
    /// Name in JSON.
    key: String,
    /// Name in tables.
    title: String,
    unit: Unit,
    better: Better,
    /// Views of a quality that is checked against the tolerance. `None` if the figure is only shown.
    quality: Option<QualityOf>,
    /// Value. NaN if the measured value is not finite.
    value: f64,
}

/// Unit that chooses a figure's number format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Decibels,
    /// Ratio or loss.
    Share,
    PerSecond,
    Seconds,
    Bytes,
    Count,
}

/// Direction of improvement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Better {
    Higher,
    Lower,
    Neither,
}

/// Views that a quality figure was measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QualityOf {
    /// Held-out views.
    Test,
    /// Other views, such as training views.
    Others,
}

impl Unit {
    /// Formats the value with its unit.
    fn text(self, value: f64) -> String {
        if !value.is_finite() {
            return "not finite".to_owned();
        }
        match self {
            Self::Decibels => format!("{value:.3} dB"),
            Self::Share => format!("{value:.5}"),
            Self::PerSecond => format!("{value:.2}"),
            Self::Seconds => format!("{value:.1} s"),
            Self::Bytes => format!("{:.3} GiB", value / Bytes::GIB.0 as f64),
            Self::Count => format!("{value:.0}"),
        }
    }
}

impl Better {
    fn arrow(self) -> &'static str {
        match self {
            Self::Higher => " ↑",
            Self::Lower => " ↓",
            Self::Neither => "",
        }
    }
}

impl Figure {
    /// Returns the value of a metric or loss term. `words`: first word of the title.
    fn named(group: &str, words: &str, name: &str, value: Option<f64>) -> Self {
        let (title, how) = match name.split_once('_') {
            Some(("cc", rest)) => (rest, ", colour-corrected"),
            Some(("ref", rest)) => (rest, ", as metrics.py"),
            _ => (name, ""),
        };
        let (title, unit, better) = match title {
            "psnr" => ("PSNR".to_owned(), Unit::Decibels, Better::Higher),
            "ssim" => ("SSIM".to_owned(), Unit::Share, Better::Higher),
            "l1" => ("L1".to_owned(), Unit::Share, Better::Lower),
            "total" => ("loss".to_owned(), Unit::Share, Better::Lower),
            other => {
                let title = match other.strip_prefix("lpips") {
                    Some("") => "LPIPS".to_owned(),
                    Some(net) => format!("LPIPS ({})", net.trim_start_matches('_')),
                    None => other.to_owned(),
                };
                (title, Unit::Share, Better::Lower)
            }
        };
        Self {
            key: format!("{group}.{name}"),
            title: format!("{words} {title}{how}"),
            unit,
            better,
            quality: None,
            value: value.unwrap_or(f64::NAN),
        }
    }

    /// True if a loss of the metric counts as lost quality. L1 is left out because PSNR measures it too.
    fn is_quality(name: &str) -> bool {
        ["psnr", "ssim", "cc_psnr", "cc_ssim", "ref_ssim", "ref_lpips"].contains(&name)
            || name.starts_with("lpips")
    }
}

/// Returns all figures of a run in table order.
fn figures_of(summary: &RunSummary) -> Vec<Figure> {
    let figures = metrics(summary).into_iter().chain(losses(summary));
    figures.chain(resources(summary)).chain(peaks(summary)).collect()
}

/// Returns the metrics of all splits, held-out views first.
fn metrics(summary: &RunSummary) -> Vec<Figure> {
    let mut splits: Vec<_> = summary.metrics.iter().collect();
    splits.sort_by_key(|(split, _)| split.as_str() != "test");
    let mut figures = Vec::new();
    for (split, measured) in splits {
        let figures_of = if split == "test" { QualityOf::Test } else { QualityOf::Others };
        let mut measured: Vec<_> = measured.figures.iter().collect();
        let order = ["psnr", "ssim", "lpips_alex", "lpips_vgg", "l1"];
        let place = |name: &str| order.iter().position(|it| *it == name).unwrap_or(order.len());
        measured.sort_by_key(|(name, _)| place(name));
        for (name, value) in measured {
            let quality = Figure::is_quality(name).then_some(figures_of);
            figures.push(Figure { quality, ..Figure::named(split, split, name, *value) });
        }
    }
    figures
}

fn losses(summary: &RunSummary) -> impl Iterator<Item = Figure> {
    summary.losses.iter().map(|(name, value)| Figure::named("losses", "training", name, *value))
}

/// Returns the peak memory of each phase, of the device if it has its own memory.
fn peaks(summary: &RunSummary) -> impl Iterator<Item = Figure> {
    summary.peaks.iter().filter_map(|(phase, peak)| {
        Some(Figure {
            key: format!("peaks.{}", phase.key()),
            title: format!("peak, {}", phase.words()),
            unit: Unit::Bytes,
            better: Better::Lower,
            quality: None,
            value: peak.of_device()?.0 as f64,
        })
    })
}

fn resources(summary: &RunSummary) -> impl Iterator<Item = Figure> {
    let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0 as f64);
    let RunSummary { iteration, gaussians, training_seconds, wall_seconds, .. } = *summary;
    let rows = [
        (
            "iterations_per_second",
            "iterations a second",
            Unit::PerSecond,
            Better::Higher,
            summary.iterations_per_second,
        ),
        ("training_seconds", "training time", Unit::Seconds, Better::Lower, Some(training_seconds)),
        ("wall_seconds", "wall time", Unit::Seconds, Better::Lower, Some(wall_seconds)),
        ("peak_vram", "peak of GPU memory", Unit::Bytes, Better::Lower, bytes(summary.peak_vram)),
        ("peak_host", "peak of RAM", Unit::Bytes, Better::Lower, bytes(summary.peak_host)),
        ("gaussians", "Gaussians", Unit::Count, Better::Neither, Some(gaussians as f64)),
        ("mean_opacity", "mean opacity", Unit::Share, Better::Neither, summary.mean_opacity),
        ("iteration", "iterations", Unit::Count, Better::Neither, Some(iteration.into())),
    ];
    rows.into_iter().filter_map(|(key, title, unit, better, value)| {
        let (key, title) = (key.to_owned(), title.to_owned());
        Some(Figure { key, title, unit, better, quality: None, value: value? })
    })
}

/// Returns notes about a run beside its baseline, which may be the same run.
fn notes_of(run: &RunSummary, baseline: &RunSummary) -> Vec<String> {
    let mut notes = Vec::new();
    let RunSummary { iteration, iterations, first_iteration, .. } = *run;
    match run.state {
        RunState::Training => notes.push(format!(
            "it is not finished: {iteration} of {iterations} iterations were done when its summary \
             was written last"
        )),
        RunState::Interrupted => notes.push(format!(
            "it is not finished: it was interrupted after {iteration} of {iterations} iterations"
        )),
        RunState::Complete => {}
    }
    if first_iteration > 0 {
        notes.push(format!(
            "its times and peaks are of the iterations after {first_iteration}, from where it was \
             resumed"
        ));
    }
    for (split, measured) in &run.metrics {
        if measured.iteration != iteration {
            notes.push(format!(
                "its {split} views were measured at iteration {} and not since",
                measured.iteration
            ));
        }
        let Some(before) = baseline.metrics.get(split) else { continue };
        if before.iteration != measured.iteration {
            notes.push(format!(
                "its {split} views were measured at iteration {}, those of the baseline at {}",
                measured.iteration, before.iteration
            ));
        }
        if measured.views.is_none() {
            notes.push(format!(
                "which {split} views it was measured on is not known, so they may be others than those \
                 of another run"
            ));
        }
        if let Some(difference) = other_views(measured, before) {
            notes.push(format!(
                "its {split} views are not those of the baseline, so their figures cannot be compared: \
                 {difference}"
            ));
        }
    }
    notes
}

/// Describes how the measured views differ from the baseline's. `None` if they agree or are unknown.
fn other_views(run: &MeasuredSplit, baseline: &MeasuredSplit) -> Option<String> {
    let (now, before) = (run.views.as_ref()?, baseline.views.as_ref()?);
    if now == before {
        return None;
    }
    let same = now.to_string() == before.to_string();
    let how = if same { " by other names or other sizes" } else { "" };
    Some(format!("{now}{how}, and {before} of the baseline"))
}

// Comparison of runs with a baseline.

/// Options that differ between any two runs.
const NAME_OPTIONS: [&str; 2] = [MODEL_PATH, "output.experiment_name"];

/// Compared runs, the baseline first.
#[derive(Serialize)]
struct Comparison<'a> {
    baseline: &'a str,
    /// Accepted loss of quality.
    #[serde(rename = "tolerance_percent")]
    tolerance: Tolerance,
    /// True if no run lost more than the tolerance. `None` if quality cannot be compared.
    within_tolerance: Option<bool>,
    runs: Vec<ComparedRun<'a>>,
    /// Options that differ between the runs, with one value per run.
    differences: BTreeMap<String, Vec<Value>>,
}

/// Run beside the baseline.
#[derive(Serialize)]
struct ComparedRun<'a> {
    path: &'a str,
    notes: Vec<String>,
    #[serde(serialize_with = "by_key")]
    figures: Vec<ComparedFigure>,
    summary: &'a RunSummary,
    #[serde(skip)]
    origin: Origin,
    /// Splits whose views differ from the baseline's, with a description of the difference.
    #[serde(skip)]
    other_views: BTreeMap<&'a str, String>,
}

/// Figure beside the baseline's.
#[derive(Serialize)]
struct ComparedFigure {
    #[serde(skip)]
    figure: Figure,
    value: f64,
    /// Change relative to the baseline's value, per cent. `None` if either run lacks the figure.
    change_percent: Option<f64>,
    verdict: Option<Verdict>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Better,
    Same,
    Worse,
    /// Quality is worse by more than the tolerance.
    OutsideTolerance,
}

fn by_key<S: Serializer>(figures: &[ComparedFigure], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(figures.iter().map(|compared| (&compared.figure.key, compared)))
}

impl<'a> Comparison<'a> {
    /// Compares at least one run. The first run is the baseline.
    fn new(runs: &'a [Run], tolerance: Tolerance) -> Result<Self, ConfigError> {
        let baseline = &runs[0];
        let base = figures_of(&baseline.summary);
        let compared = runs.iter().enumerate().map(|(place, run)| {
            let summary = &run.summary;
            let figures = figures_of(summary);
            let other_views = splits_of_other_views(summary, &baseline.summary);
            let figures = if place == 0 {
                figures.into_iter().map(ComparedFigure::alone).collect()
            } else {
                compare(figures, &base, tolerance, &other_views)
            };
            let notes = notes_of(summary, &baseline.summary);
            let origin = Origin::of(run);
            ComparedRun { path: &run.path, notes, figures, summary, origin, other_views }
        });
        let mut comparison = Self {
            baseline: &baseline.path,
            tolerance,
            within_tolerance: None,
            runs: compared.collect(),
            differences: differences(runs)?,
        };
        if runs.len() > 1 && comparison.without_quality().is_none() {
            comparison.within_tolerance = Some(comparison.lost_quality().is_none());
        }
        Ok(comparison)
    }

    /// Returns an error text if a run has no quality figure that can be compared.
    fn without_quality(&self) -> Option<String> {
        let (baseline, others) = self.runs.split_first()?;
        let lacks = |run: &&ComparedRun<'_>| judged_on(&run.figures, &run.other_views).is_none();
        let run = others.iter().find(lacks)?;
        let others = &run.other_views;
        let test = others.get_key_value(Split::Test.name());
        if let Some((split, difference)) = test.or_else(|| others.first_key_value()) {
            return Some(format!(
                "{} and {}: their {split} views differ: {difference}. Train one again on the same views",
                baseline.path, run.path
            ));
        }
        let has_none = |run: &ComparedRun<'_>| {
            !run.figures.iter().any(|compared| compared.figure.quality.is_some())
        };
        let Some(bare) = [baseline, run].into_iter().find(|run| has_none(run)) else {
            return Some(format!(
                "{} and {}: their quality was measured on different views or by different metrics. \
                 Measure both alike with splat eval -m {} and -m {}{}{}",
                baseline.path,
                run.path,
                baseline.origin.folder,
                run.origin.folder,
                baseline.origin.afterwards,
                run.origin.afterwards
            ));
        };
        Some(format!(
            "{}: has no PSNR, SSIM or LPIPS to compare. Run splat eval -m {} (--split train without held-out \
             views){}",
            bare.path, bare.origin.folder, bare.origin.afterwards
        ))
    }

    /// Names the runs and figures that lost more quality than the tolerance allows.
    fn lost_quality(&self) -> Option<String> {
        let words = self.runs.iter().flat_map(|run| {
            let outside =
                |compared: &&ComparedFigure| compared.verdict == Some(Verdict::OutsideTolerance);
            run.figures.iter().filter(outside).map(|compared| {
                let Figure { title, unit, value, .. } = &compared.figure;
                let change = compared.change_percent.filter(|change| change.is_finite());
                let change =
                    change.map_or(String::new(), |change| format!(" ({})", percent(change)));
                format!("{}: {title} {}{change}", run.path, unit.text(*value))
            })
        });
        let words: Vec<String> = words.collect();
        (!words.is_empty()).then(|| {
            format!(
                "quality is worse than that of {} by more than {}: {}",
                self.baseline,
                self.tolerance,
                words.join("; ")
            )
        })
    }
}

/// Formats a change in per cent, with an exponent if two decimals would show 0.
fn percent(change: f64) -> String {
    if change == 0.0 || change.abs() >= 0.005 {
        format!("{change:+.2}%")
    } else {
        format!("{change:+.1e}%")
    }
}

impl ComparedFigure {
    fn alone(figure: Figure) -> Self {
        Self { value: figure.value, figure, change_percent: None, verdict: None }
    }
}

/// Returns the splits that both runs measured on different views, with a description of the difference.
fn splits_of_other_views<'a>(
    run: &'a RunSummary,
    baseline: &RunSummary,
) -> BTreeMap<&'a str, String> {
    let differing = |(split, measured): (&'a String, &MeasuredSplit)| {
        Some((split.as_str(), other_views(measured, baseline.metrics.get(split)?)?))
    };
    run.metrics.iter().filter_map(differing).collect()
}

/// Returns the views that decide about lost quality: the held-out views if both runs measured them, else others.
/// `None` if the held-out views differ.
fn judged_on(
    figures: &[ComparedFigure],
    other_views: &BTreeMap<&str, String>,
) -> Option<QualityOf> {
    if other_views.contains_key(Split::Test.name()) {
        return None;
    }
    let has = |of: QualityOf| {
        figures.iter().any(|compared| {
            compared.figure.quality == Some(of) && compared.change_percent.is_some()
        })
    };
    [QualityOf::Test, QualityOf::Others].into_iter().find(|&of| has(of))
}

fn compare(
    figures: Vec<Figure>,
    base: &[Figure],
    tolerance: Tolerance,
    other_views: &BTreeMap<&str, String>,
) -> Vec<ComparedFigure> {
    let is_comparable =
        |key: &str| key.split_once('.').is_none_or(|(split, _)| !other_views.contains_key(split));
    let mut compared: Vec<ComparedFigure> = figures
        .into_iter()
        .map(|figure| {
            let before = base.iter().find(|before| before.key == figure.key);
            let before = before.filter(|before| is_comparable(&before.key));
            let before = before.map(|before| before.value);
            let change_percent = before.map(|before| change_percent(before, figure.value));
            let verdict = before.and_then(|before| judge(figure.better, before, figure.value));
            ComparedFigure { change_percent, verdict, ..ComparedFigure::alone(figure) }
        })
        .collect();
    let gate = judged_on(&compared, other_views);
    for found in &mut compared {
        let worse = found.change_percent.map_or(0.0, f64::abs);
        let is_quality = gate.is_some() && found.figure.quality == gate;
        if is_quality && found.verdict == Some(Verdict::Worse) && !tolerance.accepts(worse) {
            found.verdict = Some(Verdict::OutsideTolerance);
        }
    }
    compared
}

/// Returns the relative change in per cent. NaN if either value is not finite.
fn change_percent(before: f64, after: f64) -> f64 {
    if before == after { 0.0 } else { 100.0 * (after - before) / before.abs() }
}

/// Returns the verdict on a change, or `None` for figures without a better direction. A value that is not finite is
/// the worst.
fn judge(better: Better, before: f64, after: f64) -> Option<Verdict> {
    let gain = match better {
        Better::Neither => return None,
        Better::Higher => after - before,
        Better::Lower => before - after,
    };
    Some(match (before.is_finite(), after.is_finite()) {
        (true, false) => Verdict::Worse,
        (false, true) => Verdict::Better,
        (false, false) => Verdict::Same,
        (true, true) if gain > 0.0 => Verdict::Better,
        (true, true) if gain < 0.0 => Verdict::Worse,
        (true, true) => Verdict::Same,
    })
}

/// Returns the options, devices and versions that differ between the runs.
fn differences(runs: &[Run]) -> Result<BTreeMap<String, Vec<Value>>, ConfigError> {
    let defaults = Config::default().by_key()?;
    let default = |key: &str| {
        defaults.get(key).and_then(|value| serde_json::to_value(value).ok()).unwrap_or_default()
    };
    let keys: BTreeSet<&String> = runs.iter().flat_map(|run| run.summary.options.keys()).collect();
    let mut rows: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for key in keys.into_iter().filter(|key| !NAME_OPTIONS.contains(&key.as_str())) {
        let of_run =
            |run: &Run| run.summary.options.get(key).cloned().unwrap_or_else(|| default(key));
        rows.insert(key.clone(), runs.iter().map(of_run).collect());
    }
    let text = |of: fn(&RunSummary) -> &str| {
        runs.iter().map(|run| Value::from(of(&run.summary))).collect::<Vec<_>>()
    };
    rows.insert("device".to_owned(), text(|summary| &summary.device));
    rows.insert("version".to_owned(), text(|summary| &summary.version));
    rows.retain(|_, values| values.windows(2).any(|pair| pair[0] != pair[1]));
    Ok(rows)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// Columns aligned by spaces.
    Plain,
    /// GitHub's Markdown.
    Markdown,
}

/// Cell text of a missing figure.
const ABSENT: &str = "-";

/// Longest cell in characters. Longer ones end with the number of their values or characters.
const MAX_CELL_CHARS: usize = 60;

/// Smallest change that is shown, per cent.
const SHOWN_PERCENT: f64 = 0.005;

fn comparison_text(comparison: &Comparison<'_>, style: Style) -> String {
    let mut text = table_text(&figures(comparison), style);
    text.push_str("\n\n↑ higher is better, ↓ lower is better");
    if comparison.lost_quality().is_some() {
        text.push_str(", ! worse by more than the tolerance");
    }
    if !comparison.differences.is_empty() {
        text.push_str("\n\n");
        text.push_str(&table_text(&differing_options(comparison), style));
    }
    let notes: Vec<String> = comparison
        .runs
        .iter()
        .flat_map(|run| run.notes.iter().map(move |note| format!("{}: {note}", run.path)))
        .collect();
    if !notes.is_empty() {
        let bullet = if style == Style::Markdown { "- " } else { "" };
        text.push('\n');
        notes.iter().for_each(|note| text.push_str(&format!("\n{bullet}{note}")));
    }
    if comparison.within_tolerance == Some(true) {
        text.push_str(&format!(
            "\n\nquality: no run is worse than {} by more than {}",
            comparison.baseline, comparison.tolerance
        ));
    }
    text
}

/// Builds the table of figures: a row per figure, a column per run and one per change.
fn figures(comparison: &Comparison<'_>) -> Vec<Vec<String>> {
    let mut order: Vec<&Figure> = Vec::new();
    for run in &comparison.runs {
        let mut after = 0;
        for ComparedFigure { figure, .. } in &run.figures {
            match order.iter().position(|it| it.key == figure.key) {
                Some(place) => after = place + 1,
                // Insert the figure after its predecessor in this run.
                None => {
                    order.insert(after, figure);
                    after += 1;
                }
            }
        }
    }
    let mut head = vec![String::new()];
    for (place, run) in comparison.runs.iter().enumerate() {
        head.push(run.path.to_owned());
        if place > 0 {
            head.push("change".to_owned());
        }
    }
    let row = |figure: &&Figure| {
        let mut cells = vec![format!("{}{}", figure.title, figure.better.arrow())];
        for (place, run) in comparison.runs.iter().enumerate() {
            let found = run.figures.iter().find(|compared| compared.figure.key == figure.key);
            cells.push(found.map_or(ABSENT.to_owned(), |it| figure.unit.text(it.value)));
            if place > 0 {
                cells.push(found.map_or(ABSENT.to_owned(), change));
            }
        }
        cells
    };
    [head].into_iter().chain(order.iter().map(row)).collect()
}

fn change(compared: &ComparedFigure) -> String {
    let Some(change) = compared.change_percent else { return ABSENT.to_owned() };
    let is_lost = compared.verdict == Some(Verdict::OutsideTolerance);
    let text = match change {
        _ if !change.is_finite() => ABSENT.to_owned(),
        _ if change.abs() < SHOWN_PERCENT && !is_lost => "0.00%".to_owned(),
        _ => percent(change),
    };
    if is_lost { text + " !" } else { text }
}

/// Builds the table of options that differ between the runs.
fn differing_options(comparison: &Comparison<'_>) -> Vec<Vec<String>> {
    let mut head = vec!["differences".to_owned()];
    head.extend(comparison.runs.iter().map(|run| run.path.to_owned()));
    let row = |(key, values): (&String, &Vec<Value>)| {
        let mut cells = vec![key.clone()];
        cells.extend(values.iter().map(cell));
        cells
    };
    [head].into_iter().chain(comparison.differences.iter().map(row)).collect()
}

/// Returns a value as one line of at most [`MAX_CELL_CHARS`] characters.
fn cell(value: &Value) -> String {
    let (text, count) = match value {
        Value::Null => return ABSENT.to_owned(),
        Value::String(text) => (text.clone(), None),
        Value::Array(values) => (value.to_string(), Some(values.len())),
        other => (other.to_string(), None),
    };
    let letters = text.chars().count();
    if letters <= MAX_CELL_CHARS {
        return text;
    }
    let size = match count {
        Some(values) => format!("... ({values} values)"),
        None => format!("... ({letters} characters)"),
    };
    text.chars().take(MAX_CELL_CHARS - size.len()).collect::<String>() + &size
}

/// Lays out a table whose first row is the heading. The first column is left-aligned, the others are right-aligned.
fn table_text(rows: &[Vec<String>], style: Style) -> String {
    let mut lines: Vec<String> = match style {
        Style::Plain => {
            let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
            let widths: Vec<usize> = (0..rows[0].len()).filter_map(width).collect();
            rows.iter().map(|row| plain_row(row, &widths)).collect()
        }
        Style::Markdown => rows.iter().map(|row| markdown_row(row)).collect(),
    };
    if style == Style::Markdown {
        let rule = ["---"].into_iter().chain(rows[0].iter().skip(1).map(|_| "---:"));
        lines.insert(1, format!("| {} |", rule.collect::<Vec<_>>().join(" | ")));
    }
    lines.join("\n")
}

fn plain_row(cells: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    for (place, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        // Format strings limit the width to 65,535, and a path may be longer.
        let space = " ".repeat(width - cell.chars().count());
        if place == 0 {
            text.extend([cell, space.as_str()]);
        } else {
            text.extend(["  ", space.as_str(), cell]);
        }
    }
    text.trim_end().to_owned()
}

fn markdown_row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tolerance_needs_a_percent_sign() {
        let parsed = |text: &str| text.parse::<Tolerance>().ok().map(|it| it.to_string());
        assert_eq!(parsed("0.5%").as_deref(), Some("0.5%"));
        assert_eq!(parsed(" 2 %").as_deref(), Some("2%"));
        for text in ["0%", "0", "0.0", "-0%"] {
            assert_eq!(parsed(text).as_deref(), Some("0%"), "{text}");
        }
        for text in ["0.5", "-1%", "101%", "nan%", "", "%", "half"] {
            assert_eq!(parsed(text), None, "{text}");
        }
        assert!(Tolerance(0.0).accepts(0.0) && !Tolerance(0.0).accepts(0.001));
        assert!(!Tolerance(0.0).accepts(1e-10) && Tolerance(1.0).accepts(1.0 + 1e-10));
        assert!(!Tolerance(100.0).accepts(f64::INFINITY) && !Tolerance(1.0).accepts(f64::NAN));
    }

    #[test]
    fn long_cells_are_shortened() {
        let names: Vec<_> = (0..650).map(|number| format!("images/{number:0100}.png")).collect();
        let shown = cell(&Value::from(names));
        assert!(
            shown.starts_with("[\"images/000") && shown.ends_with("... (650 values)"),
            "{shown}"
        );
        let text = cell(&Value::from("é".repeat(70_000)));
        assert!(text.ends_with("é... (70000 characters)"), "{text}");
        for shown in [shown, text] {
            assert_eq!(shown.chars().count(), MAX_CELL_CHARS);
        }
        assert_eq!(cell(&Value::from("x".repeat(MAX_CELL_CHARS))), "x".repeat(MAX_CELL_CHARS));
    }

    #[test]
    fn a_column_may_be_wider_than_a_format_string_allows() {
        let wide = "x".repeat(70_000);
        let rows = [vec![wide.clone(), wide.clone()], vec!["a".to_owned(), "b".to_owned()]];
        let lines = table_text(&rows, Style::Plain);
        assert!(lines.lines().all(|line| line.len() == 2 * wide.len() + 2));
    }

    #[test]
    fn table_columns_are_aligned() {
        let rows = [["", "runs"], ["PSNR ↑", "25.1"], ["a|b", "7"]];
        let table = |style| table_text(&rows.map(|row| row.map(str::to_owned).to_vec()), style);
        assert_eq!(table(Style::Plain), "        runs\nPSNR ↑  25.1\na|b        7");
        assert_eq!(
            table(Style::Markdown),
            "|  | runs |\n| --- | ---: |\n| PSNR ↑ | 25.1 |\n| a\\|b | 7 |"
        );
    }
}
