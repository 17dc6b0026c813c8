//! `summary.json`: the figures of a run, which `splat compare` reads.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{fmt, fs, io};

use serde::{Deserialize, Serialize};

use super::tables::named;
use crate::config::{Config, ConfigError};
use crate::files::{JsonFault, OutputError, write_text};
use crate::memory::{Bytes, peak_resident_memory};
use crate::train::event::{
    Evaluation, Event, PhasePeak, PhasePeaks, Saved, Sink, Split, Step, TargetReport, ViewMetrics,
};

const SUMMARY: &str = "summary.json";

/// Figures by name; `None` if a figure is not finite.
pub type Figures = BTreeMap<String, Option<f64>>;

/// Figures of a run. Figures that were not measured are absent or null.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunSummary {
    /// Version of the program.
    pub version: String,
    /// Description of the device.
    pub device: String,
    /// State of the run.
    pub state: RunState,
    /// Finished iterations.
    pub iteration: u32,
    /// Last iteration of the run.
    pub iterations: u32,
    /// Number of iterations before those that seconds and peaks cover. Above 0 if a run was resumed from another
    /// iteration than that of the last summary.
    #[serde(default)]
    pub first_iteration: u32,
    /// Number of Gaussians.
    pub gaussians: u64,
    /// Mean opacity of a sample of the Gaussians.
    pub mean_opacity: Option<f64>,
    /// Iterations per second of training.
    pub iterations_per_second: Option<f64>,
    /// Seconds of training, without evaluation and saving.
    #[serde(default)]
    pub training_seconds: f64,
    /// Wall time of the program, seconds.
    #[serde(default)]
    pub wall_seconds: f64,
    /// Peak memory of the GPU.
    pub peak_vram: Option<Bytes>,
    /// Peak RAM of the program.
    pub peak_host: Option<Bytes>,
    /// Peak memory by phase.
    #[serde(default)]
    pub peaks: PhasePeaks,
    /// Means over the last 100 steps: `total`, and the terms of the photograph.
    #[serde(default)]
    pub losses: Figures,
    /// Prune to `--target-gaussians`, once done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetReport>,
    /// The last evaluation of each split.
    #[serde(default)]
    pub metrics: BTreeMap<String, MeasuredSplit>,
    /// Options that differ from the preset reference, by `section.key`.
    #[serde(default)]
    pub options: BTreeMap<String, serde_json::Value>,
}

/// State of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Training, or killed.
    #[default]
    Training,
    /// Stopped by the user.
    Interrupted,
    /// Finished.
    Complete,
}

/// Metrics of a split.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredSplit {
    /// Finished iterations.
    pub iteration: u32,
    /// Measured views.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub views: Option<MeasuredViews>,
    /// Means: `psnr`, `ssim` and `l1`, and if measured `lpips_vgg` or `lpips_alex`, `cc_psnr` and `cc_ssim`,
    /// `ref_ssim` and `ref_lpips`.
    #[serde(flatten)]
    pub figures: Figures,
}

impl From<&Evaluation> for MeasuredSplit {
    fn from(evaluation: &Evaluation) -> Self {
        let measured = |(name, value): (&str, Option<f64>)| Some((name.to_owned(), finite(value?)));
        let named = named(&evaluation.mean).into_iter();
        let mut figures: Figures = named.filter_map(measured).collect();
        // LPIPS of different networks are different metrics.
        let lpips = figures.remove("lpips");
        if let Some((lpips, net)) = lpips.zip(evaluation.lpips_net) {
            figures.insert(format!("lpips_{}", net.name()), lpips);
        }
        let views = Some(MeasuredViews::of(&evaluation.views));
        Self { iteration: evaluation.iteration, views, figures }
    }
}

/// Error of a summary.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum SummaryError {
    #[error("{path}: there is no such file. Name the folder of a run, or a summary.json of one")]
    Missing { path: PathBuf },
    #[error(
        "{path}: there is no such file, though a run was trained there: by an older version, which \
         wrote none. Train it with this version"
    )]
    Older { path: PathBuf },
    #[error("{path}: cannot be read: {source}. Check its permissions")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path}: is not the summary of a run: {reason}. Name another run, or train it again")]
    Damaged { path: PathBuf, reason: String },
}

impl RunSummary {
    /// Reads the summary in a model folder, or a summary's file.
    pub fn read(run: &Path) -> Result<Self, SummaryError> {
        // Devices, such as /dev/null, are read as files.
        let is_file = run.exists() && !run.is_dir();
        let path = if is_file { run.to_owned() } else { run.join(SUMMARY) };
        let text = fs::read_to_string(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound if run.join("run.jsonl").is_file() => {
                SummaryError::Older { path: path.clone() }
            }
            io::ErrorKind::NotFound => SummaryError::Missing { path: path.clone() },
            // The file is not text, for example a PLY.
            io::ErrorKind::InvalidData => {
                SummaryError::Damaged { path: path.clone(), reason: source.to_string() }
            }
            _ => SummaryError::Unreadable { path: path.clone(), source },
        })?;
        parse(&text).map_err(|reason| SummaryError::Damaged { path, reason })
    }

    pub(super) fn write(&self, model_path: &Path) -> Result<(), OutputError> {
        let path = model_path.join(SUMMARY);
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| OutputError::new(&path, error.into()))?;
        write_text(&path, &(text + "\n"))
    }
}

/// Parses a summary; the error describes the fault.
fn parse(text: &str) -> Result<RunSummary, String> {
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    let fault = |error: &serde_json::Error| JsonFault::new(text.as_bytes(), error).to_string();
    let value: serde_json::Value = serde_json::from_str(text).map_err(|error| fault(&error))?;
    if !value.is_object() {
        return Err("it does not hold a JSON object, { .. }".to_owned());
    }
    // Parsed from the text, because errors name positions in it.
    serde_json::from_str(text).map_err(|error| fault(&error))
}

/// Adds a later evaluation to the summary of a model folder. A summary of another iteration, or an unreadable one,
/// stays unchanged.
pub fn update_summary(model_path: &Path, evaluation: &Evaluation) -> Result<(), OutputError> {
    let Ok(mut summary) = RunSummary::read(model_path) else { return Ok(()) };
    if summary.iteration != evaluation.iteration {
        return Ok(());
    }
    summary.metrics.insert(evaluation.split.name().to_owned(), evaluation.into());
    summary.write(model_path)
}

/// Returns the value if JSON can represent it.
pub(super) fn finite(value: f64) -> Option<f64> {
    Some(value).filter(|value| value.is_finite())
}

/// Number of last steps whose losses are averaged, because the loss of a single photograph varies much.
const AVERAGED_STEPS: usize = 100;

/// The sink that writes the summary at the start of a run, after each evaluation and checkpoint, and at the end.
#[derive(Debug)]
pub struct SummaryFile {
    model_path: PathBuf,
    began: Instant,
    /// Training and wall time of earlier starts of the program, seconds.
    earlier_training: f64,
    /// Part of the training time that the ensemble took.
    ensemble_seconds: f64,
    earlier_wall: f64,
    /// True if earlier metrics of held-out views are dropped, because some of these views may be trained on now.
    drops_test: bool,
    summary: RunSummary,
    steps: VecDeque<Step>,
    /// True if iterations do not follow images, so that their number does not give the speed.
    is_paced: bool,
}

impl SummaryFile {
    /// Builds the summary of a run with this configuration, by a program that started at `began`.
    pub fn new(model_path: &Path, config: &Config, began: Instant) -> Result<Self, ConfigError> {
        // JSON has no infinity; it becomes null.
        let json = |value| serde_json::to_value(value).unwrap_or_default();
        let options = config.changed()?.into_iter().map(|(key, value)| (key, json(value)));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Self {
            model_path: model_path.to_owned(),
            began,
            earlier_training: 0.0,
            ensemble_seconds: 0.0,
            earlier_wall: 0.0,
            drops_test: false,
            summary: RunSummary { version, options: options.collect(), ..RunSummary::default() },
            steps: VecDeque::new(),
            is_paced: false,
        })
    }

    /// Drops earlier metrics of held-out views if the run trains on new views, which may be among them.
    #[must_use]
    pub fn with_new_training_views(self, are_new: bool) -> Self {
        Self { drops_test: are_new, ..self }
    }

    /// Continues the summary of a resumed run, as far as it is known.
    fn start(&mut self, iteration: u32, gaussians: usize) {
        self.summary.iteration = iteration;
        self.summary.first_iteration = iteration;
        if iteration == 0 {
            return;
        }
        let Ok(before) = RunSummary::read(&self.model_path) else { return };
        let summary = &mut self.summary;
        summary.metrics = before.metrics;
        summary.metrics.retain(|_, measured| measured.iteration <= iteration);
        if self.drops_test {
            summary.metrics.remove(Split::Test.name());
        }
        // At the iteration itself the report is repeated, unless it preceded the checkpoint.
        summary.target = before.target.filter(|target| {
            target.iteration < iteration
                || (target.iteration == iteration && target.gaussians == gaussians)
        });
        if before.iteration == iteration {
            self.earlier_training = before.training_seconds;
            self.earlier_wall = before.wall_seconds;
            summary.training_seconds = before.training_seconds;
            summary.first_iteration = before.first_iteration;
            (summary.peak_vram, summary.peak_host) = (before.peak_vram, before.peak_host);
            summary.peaks = before.peaks;
            (summary.losses, summary.mean_opacity) = (before.losses, before.mean_opacity);
        }
    }

    fn take_step(&mut self, step: &Step) {
        if self.steps.len() == AVERAGED_STEPS {
            self.steps.pop_front();
        }
        self.steps.push_back(step.clone());
        let summary = &mut self.summary;
        (summary.iteration, summary.gaussians) = (step.iteration, step.gaussians as u64);
        summary.training_seconds += step.ms * f64::from(step.images) * 1e-3;
        // The opacity is that of the model before the step.
        summary.mean_opacity = None;
    }

    fn take_peaks(&mut self, peaks: &PhasePeaks) {
        let summary = &mut self.summary;
        summary.peaks.raise_all(peaks);
        let PhasePeak { vram, host } = peaks.most();
        summary.peak_vram = summary.peak_vram.max(vram);
        summary.peak_host = summary.peak_host.max(host);
    }

    /// Returns the mean of each value over the steps that have it.
    fn losses(&self) -> Figures {
        let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for step in &self.steps {
            values.entry("total").or_default().push(step.total);
            for &(name, value) in &step.values.0 {
                values.entry(name).or_default().push(value);
            }
        }
        let mean = |values: Vec<f64>| finite(values.iter().sum::<f64>() / values.len() as f64);
        values.into_iter().map(|(name, values)| (name.to_owned(), mean(values))).collect()
    }

    fn write(&mut self) -> Result<(), OutputError> {
        if !self.steps.is_empty() {
            self.summary.losses = self.losses();
        }
        let summary = &mut self.summary;
        summary.wall_seconds = self.earlier_wall + self.began.elapsed().as_secs_f64();
        summary.peak_host = summary.peak_host.max(peak_resident_memory());
        let done = summary.iteration.saturating_sub(summary.first_iteration);
        let speed = f64::from(done) / (summary.training_seconds - self.ensemble_seconds);
        summary.iterations_per_second = finite(speed).filter(|_| done > 0 && !self.is_paced);
        summary.write(&self.model_path)
    }
}

impl Sink for SummaryFile {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        let summary = &mut self.summary;
        match event {
            Event::Started { device, gaussians, iteration, iterations, .. } => {
                self.start(*iteration, *gaussians);
                let summary = &mut self.summary;
                summary.device.clone_from(device);
                (summary.gaussians, summary.iterations) = (*gaussians as u64, *iterations);
            }
            Event::Step(step) => {
                self.take_step(step);
                return Ok(());
            }
            Event::Densify(step) => {
                summary.gaussians = step.gaussians as u64;
                summary.training_seconds += step.ms * 1e-3;
                return Ok(());
            }
            Event::PrunedToTarget(report) => {
                summary.gaussians = report.gaussians as u64;
                // A report without removals does not replace an earlier one with removals.
                let earlier = summary.target.as_ref();
                if report.pruned > 0 || earlier.is_none_or(|earlier| earlier.pruned == 0) {
                    summary.target = Some(report.clone());
                }
            }
            Event::Memory(report) => {
                self.take_peaks(&report.peaks);
                let RunSummary { peak_vram, peak_host, .. } = &mut self.summary;
                *peak_vram = (*peak_vram).max(report.vram.map(|vram| vram.reserved));
                *peak_host = (*peak_host).max(report.host_resident);
                return Ok(());
            }
            Event::Distributions(report) => {
                summary.mean_opacity = finite(report.opacity_mean);
                return Ok(());
            }
            Event::Evaluated(evaluation) => {
                summary.metrics.insert(evaluation.split.name().to_owned(), evaluation.into());
            }
            // Written now, because the summary may have advanced when the checkpoint is saved.
            Event::Saving { what: Saved::Checkpoint, .. } => {}
            Event::Finished {
                iteration,
                gaussians,
                training_seconds,
                interrupted,
                peaks,
                times,
            } => {
                self.take_peaks(peaks);
                self.ensemble_seconds = times.ensemble_seconds;
                let summary = &mut self.summary;
                (summary.iteration, summary.gaussians) = (*iteration, *gaussians as u64);
                summary.training_seconds = self.earlier_training + training_seconds;
                summary.state =
                    if *interrupted { RunState::Interrupted } else { RunState::Complete };
            }
            _ => return Ok(()),
        }
        self.write()
    }
}

// Views of an evaluation; metrics of different views are not comparable.

/// Views of an evaluation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredViews {
    /// Number of views.
    pub count: u64,
    /// Width and height of the largest view, px.
    pub largest_px: [u32; 2],
    /// FNV-1a hash of all names and sizes, in hexadecimal.
    pub digest: String,
}

impl MeasuredViews {
    /// Describes these views.
    pub fn of(views: &[ViewMetrics]) -> Self {
        let pixels = |px: &[u32; 2]| u64::from(px[0]) * u64::from(px[1]);
        let largest_px = views.iter().map(|view| view.px).max_by_key(pixels).unwrap_or_default();
        // Names and numbers contain no line feed.
        let line = |view: &ViewMetrics| format!("{}\n{}\n{}\n", view.name, view.px[0], view.px[1]);
        let text: String = views.iter().map(line).collect();
        let digest = format!("{:016x}", fnv_1a(text.bytes()));
        Self { count: views.len() as u64, largest_px, digest }
    }
}

impl fmt::Display for MeasuredViews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, largest_px: [width, height], .. } = self;
        let views = if *count == 1 { "view" } else { "views" };
        write!(f, "{count} {views} of up to {width}x{height} px")
    }
}

/// Returns the 64-bit FNV-1a hash, which is stable across versions of the program. Safe against accidental collisions
/// only.
pub(crate) fn fnv_1a(bytes: impl Iterator<Item = u8>) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perceptual::LpipsNet;
    use crate::train::event::Metrics;

    fn evaluation(iteration: u32, psnr: f64) -> Evaluation {
        let (split, gaussians, views) = (Split::Test, 5, Vec::new());
        let mean = Metrics { psnr, lpips: Some(0.25), ..Metrics::default() };
        let lpips_net = Some(LpipsNet::Alex);
        Evaluation { iteration, split, mean, lpips_net, gaussians, views }
    }

    #[test]
    fn later_evaluation_is_added_for_the_last_iteration_only() {
        let folder = tempfile::tempdir().unwrap();
        update_summary(folder.path(), &evaluation(30, 20.0)).unwrap();
        assert!(matches!(RunSummary::read(folder.path()), Err(SummaryError::Missing { .. })));
        RunSummary { iteration: 30, ..RunSummary::default() }.write(folder.path()).unwrap();
        update_summary(folder.path(), &evaluation(20, 10.0)).unwrap();
        assert!(RunSummary::read(folder.path()).unwrap().metrics.is_empty());
        update_summary(folder.path(), &evaluation(30, f64::INFINITY)).unwrap();
        let found = &RunSummary::read(folder.path()).unwrap().metrics["test"];
        assert_eq!((found.iteration, found.figures["lpips_alex"]), (30, Some(0.25)));
        assert_eq!(found.figures["psnr"], None, "measured, and not finite");
        assert!(!found.figures.contains_key("cc_psnr"));
    }

    fn views(names: &[&str], px: [u32; 2]) -> MeasuredViews {
        let view = |(position, name): (usize, &&str)| ViewMetrics {
            position,
            name: (*name).to_owned(),
            px,
            metrics: Metrics::default(),
        };
        MeasuredViews::of(&names.iter().enumerate().map(view).collect::<Vec<_>>())
    }

    #[test]
    fn digest_depends_on_names_and_sizes() {
        let found = views(&["a.png", "b.png"], [8, 6]);
        assert_eq!(found, views(&["a.png", "b.png"], [8, 6]));
        assert_ne!(found, views(&["a.png", "c.png"], [8, 6]));
        assert_ne!(found, views(&["a.png", "b.png"], [6, 8]));
        assert_eq!(found.to_string(), "2 views of up to 8x6 px");
        assert_eq!(fnv_1a(b"a".iter().copied()), 0xaf63_dc4c_8601_ec8c, "as published");
    }
}
