//! `summary.json`: a run in figures, which `splat compare` reads.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::measured_views::MeasuredViews;
use crate::files::{JsonFault, OutputError, write_text};
use crate::memory::Bytes;
use crate::train::event::{Evaluation, Metrics, PhasePeaks, TargetReport};

/// Name of the file in the model folder.
const SUMMARY: &str = "summary.json";

/// Figures by name; nothing where one was measured and is not finite.
pub type Figures = BTreeMap<String, Option<f64>>;

/// A run in figures. What was not measured is absent or null.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunSummary {
    /// Version of the program.
    pub version: String,
    /// Device in words.
    pub device: String,
    /// How far the run has come.
    pub state: RunState,
    /// Finished iterations.
    pub iteration: u32,
    /// Iterations that the run ends at.
    pub iterations: u32,
    /// Iterations that were done before what seconds and peaks are of. Above 0 where a run was
    /// resumed from another iteration than the one at which this file was last written.
    #[serde(default)]
    pub first_iteration: u32,
    /// Gaussians.
    pub gaussians: u64,
    /// Mean opacity of a sample of the Gaussians.
    #[serde(default)]
    pub mean_opacity: Option<f64>,
    /// Iterations in a second of training.
    #[serde(default)]
    pub iterations_per_second: Option<f64>,
    /// Seconds of training, evaluation and saving excluded.
    #[serde(default)]
    pub training_seconds: f64,
    /// Seconds in which the program ran.
    #[serde(default)]
    pub wall_seconds: f64,
    /// The most memory that was taken from the GPU.
    #[serde(default)]
    pub peak_vram: Option<Bytes>,
    /// The most RAM that the program had.
    #[serde(default)]
    pub peak_host: Option<Bytes>,
    /// The most memory by what the run was doing.
    #[serde(default)]
    pub peaks: PhasePeaks,
    /// Means over the last 100 steps: `total`, and the terms that compare with the photograph.
    #[serde(default)]
    pub losses: Figures,
    /// The prune to `--target-gaussians`, once it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetReport>,
    /// The last evaluation of each split.
    #[serde(default)]
    pub metrics: BTreeMap<String, MeasuredSplit>,
    /// Options that differ from those of the preset reference, by `section.key`.
    #[serde(default)]
    pub options: BTreeMap<String, serde_json::Value>,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It is training, or was killed.
    #[default]
    Training,
    /// It was asked to stop before its end.
    Interrupted,
    /// All its iterations are done.
    Complete,
}

/// What an evaluation measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredSplit {
    /// Finished iterations.
    pub iteration: u32,
    /// Which views.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub views: Option<MeasuredViews>,
    /// `psnr`, `ssim` and `l1`; `lpips_vgg` or `lpips_alex`, `cc_psnr` and `cc_ssim`, `ref_ssim` and
    /// `ref_lpips` where they were measured.
    #[serde(flatten)]
    pub figures: Figures,
}

impl From<&Evaluation> for MeasuredSplit {
    fn from(evaluation: &Evaluation) -> Self {
        let Metrics { psnr, ssim, l1, lpips, corrected, reference } = evaluation.mean;
        let mut figures = vec![("psnr", psnr), ("ssim", ssim), ("l1", l1)];
        if let Some(corrected) = corrected {
            figures.extend([("cc_psnr", corrected.psnr), ("cc_ssim", corrected.ssim)]);
        }
        figures.extend(reference.map(|reference| ("ref_ssim", reference.ssim)));
        figures.extend(reference.and_then(|reference| Some(("ref_lpips", reference.lpips?))));
        let mut figures: Figures =
            figures.into_iter().map(|(name, value)| (name.to_owned(), finite(value))).collect();
        // LPIPS of two networks are two metrics.
        if let Some((lpips, net)) = lpips.zip(evaluation.lpips_net) {
            figures.insert(format!("lpips_{}", net.name()), finite(lpips));
        }
        let views = Some(MeasuredViews::of(&evaluation.views));
        Self { iteration: evaluation.iteration, views, figures }
    }
}

/// A summary that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SummaryError {
    /// There is none.
    #[error("{path}: there is no such file. Name the folder of a run, or a summary.json of one")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The run was trained by a program that wrote none.
    #[error(
        "{path}: there is no such file, though a run was trained there: by an older version, which \
         wrote none. Train it with this version"
    )]
    Older {
        /// The file.
        path: PathBuf,
    },
    /// The system refuses it.
    #[error("{path}: cannot be read: {source}. Check its permissions")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not what a run writes.
    #[error("{path}: is not the summary of a run: {reason}. Name another run, or train it anew")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl RunSummary {
    /// The summary in this model folder, or in this file.
    pub fn read(run: &Path) -> Result<Self, SummaryError> {
        // A device, such as /dev/null, is read as a file.
        let is_file = run.exists() && !run.is_dir();
        let path = if is_file { run.to_owned() } else { run.join(SUMMARY) };
        let text = fs::read_to_string(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound if run.join("run.jsonl").is_file() => {
                SummaryError::Older { path: path.clone() }
            }
            io::ErrorKind::NotFound => SummaryError::Missing { path: path.clone() },
            // That of a text that is none: a PLY, for instance.
            io::ErrorKind::InvalidData => {
                SummaryError::Damaged { path: path.clone(), reason: source.to_string() }
            }
            _ => SummaryError::Unreadable { path: path.clone(), source },
        })?;
        parse(&text).map_err(|reason| SummaryError::Damaged { path, reason })
    }

    /// Writes the file into the model folder.
    pub(super) fn write(&self, model_path: &Path) -> Result<(), OutputError> {
        let path = model_path.join(SUMMARY);
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| OutputError::new(&path, error.into()))?;
        write_text(&path, &(text + "\n"))
    }
}

/// A summary; what is wrong with the text, where it is none.
fn parse(text: &str) -> Result<RunSummary, String> {
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    let fault = |error: &serde_json::Error| JsonFault::new(text.as_bytes(), error).to_string();
    let value: serde_json::Value = serde_json::from_str(text).map_err(|error| fault(&error))?;
    if !value.is_object() {
        return Err("it does not hold a JSON object, { .. }".to_owned());
    }
    // From the text: its places are named in errors.
    serde_json::from_str(text).map_err(|error| fault(&error))
}

/// Puts what was measured after a run into the summary of its model folder. One that is of another
/// iteration, or that cannot be read, stays as it is.
pub fn update_summary(model_path: &Path, evaluation: &Evaluation) -> Result<(), OutputError> {
    let Ok(mut summary) = RunSummary::read(model_path) else { return Ok(()) };
    if summary.iteration != evaluation.iteration {
        return Ok(());
    }
    summary.metrics.insert(evaluation.split.name().to_owned(), evaluation.into());
    summary.write(model_path)
}

/// What JSON can hold.
pub(super) fn finite(value: f64) -> Option<f64> {
    Some(value).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perceptual::LpipsNet;
    use crate::train::event::Split;

    fn evaluation(iteration: u32, psnr: f64) -> Evaluation {
        let (split, gaussians, views) = (Split::Test, 5, Vec::new());
        let mean = Metrics { psnr, lpips: Some(0.25), ..Metrics::default() };
        let lpips_net = Some(LpipsNet::Alex);
        Evaluation { iteration, split, mean, lpips_net, gaussians, views }
    }

    #[test]
    fn what_was_measured_later_is_added_for_the_last_iteration_alone() {
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
}
