//! Runs against a baseline: changes of figures, and which of them are too large.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::figures::{self, Better, Figure, QualityOf, Role};
use super::notes::{self, other_views};
use super::run::{MODEL_PATH, Origin, Run};
use super::tolerance::Tolerance;
use crate::config::{Config, ConfigError};
use crate::telemetry::{MeasuredSplit, RunSummary};
use crate::train::event::Split;

/// Options that are another for each run, whatever it does.
const NAMES: [&str; 2] = [MODEL_PATH, "output.experiment_name"];

/// Runs beside each other, the baseline first.
#[derive(Serialize)]
pub(super) struct Comparison<'a> {
    /// Path of the baseline.
    pub(super) baseline: &'a str,
    /// Loss of quality that is accepted.
    #[serde(rename = "tolerance_percent")]
    pub(super) tolerance: Tolerance,
    /// Whether no run lost more; null where there is nothing to compare.
    pub(super) within_tolerance: Option<bool>,
    pub(super) runs: Vec<ComparedRun<'a>>,
    /// What the runs were not alike in, by name, with a value for each run.
    pub(super) differences: BTreeMap<String, Vec<Value>>,
}

/// A run beside the baseline.
#[derive(Serialize)]
pub(super) struct ComparedRun<'a> {
    pub(super) path: &'a str,
    /// Sentences that a reader should know.
    pub(super) notes: Vec<String>,
    #[serde(serialize_with = "by_key")]
    pub(super) figures: Vec<ComparedFigure>,
    /// As it was read.
    pub(super) summary: &'a RunSummary,
    /// Where it can be measured.
    #[serde(skip)]
    origin: Origin,
    /// Splits whose views are not those of the baseline, and how they differ.
    #[serde(skip)]
    other_views: BTreeMap<&'a str, String>,
}

/// A figure beside that of the baseline.
#[derive(Serialize)]
pub(super) struct ComparedFigure {
    #[serde(skip)]
    pub(super) figure: Figure,
    pub(super) value: f64,
    /// Change from the baseline's value in per cent of it; nothing where either lacks the figure.
    pub(super) change_percent: Option<f64>,
    pub(super) verdict: Option<Verdict>,
}

/// What a change means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Better,
    Same,
    Worse,
    /// Quality is worse by more than is accepted.
    OutsideTolerance,
}

fn by_key<S: Serializer>(figures: &[ComparedFigure], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(figures.iter().map(|compared| (&compared.figure.key, compared)))
}

impl<'a> Comparison<'a> {
    /// Of runs, of which the first is the baseline.
    pub(super) fn new(runs: &'a [Run], tolerance: Tolerance) -> Result<Self, ConfigError> {
        let (baseline, others) =
            runs.split_first().map_or((None, runs), |(first, rest)| (Some(first), rest));
        let base = baseline.map(|run| figures::of(&run.summary)).unwrap_or_default();
        let compared = runs.iter().enumerate().map(|(place, run)| {
            let before = baseline.map_or(&run.summary, |baseline| &baseline.summary);
            let figures = figures::of(&run.summary);
            let other_views = splits_of_other_views(&run.summary, before);
            let figures = if place == 0 {
                figures.into_iter().map(ComparedFigure::alone).collect()
            } else {
                compare(figures, &base, tolerance, &other_views)
            };
            let (notes, origin) = (notes::of(&run.summary, before), Origin::of(run));
            ComparedRun {
                path: &run.path,
                notes,
                figures,
                summary: &run.summary,
                origin,
                other_views,
            }
        });
        let mut comparison = Self {
            baseline: baseline.map_or("", |run| &run.path),
            tolerance,
            within_tolerance: None,
            runs: compared.collect(),
            differences: differences(runs)?,
        };
        if !others.is_empty() && comparison.without_quality().is_none() {
            comparison.within_tolerance = Some(comparison.lost_quality().is_none());
        }
        Ok(comparison)
    }

    /// What to say where a run has no quality that can be compared.
    pub(super) fn without_quality(&self) -> Option<String> {
        let (baseline, others) = self.runs.split_first()?;
        let lacks = |run: &&ComparedRun<'_>| gate(&run.figures, &run.other_views).is_none();
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
            let is_quality =
                |compared: &ComparedFigure| matches!(compared.figure.role, Role::Quality(_));
            !run.figures.iter().any(is_quality)
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

    /// Which runs lost more quality than is accepted, and by what.
    pub(super) fn lost_quality(&self) -> Option<String> {
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

/// A change in per cent, with more digits where the usual two would show none.
pub(super) fn percent(change: f64) -> String {
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

/// Splits that both measured on different views, and how these differ.
fn splits_of_other_views<'a>(
    run: &'a RunSummary,
    baseline: &RunSummary,
) -> BTreeMap<&'a str, String> {
    let differing = |(split, measured): (&'a String, &MeasuredSplit)| {
        Some((split.as_str(), other_views(measured, baseline.metrics.get(split)?)?))
    };
    run.metrics.iter().filter_map(differing).collect()
}

/// The views whose quality decides: the held-out ones, where both runs measured them. None do where
/// these differ.
fn gate(figures: &[ComparedFigure], other_views: &BTreeMap<&str, String>) -> Option<QualityOf> {
    if other_views.contains_key(Split::Test.name()) {
        return None;
    }
    let has = |of: QualityOf| {
        figures.iter().any(|compared| {
            compared.figure.role == Role::Quality(of) && compared.change_percent.is_some()
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
    let Some(gate) = gate(&compared, other_views) else { return compared };
    for found in &mut compared {
        let worse = found.change_percent.map_or(0.0, f64::abs);
        let is_quality = found.figure.role == Role::Quality(gate);
        if is_quality && found.verdict == Some(Verdict::Worse) && !tolerance.accepts(worse) {
            found.verdict = Some(Verdict::OutsideTolerance);
        }
    }
    compared
}

/// NaN where either is not finite.
fn change_percent(before: f64, after: f64) -> f64 {
    if before == after { 0.0 } else { 100.0 * (after - before) / before.abs() }
}

/// What a change of a figure means, if one way is better. No value is worse than one that is not
/// finite.
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

/// Options, device and version as far as they differ between the runs.
fn differences(runs: &[Run]) -> Result<BTreeMap<String, Vec<Value>>, ConfigError> {
    let defaults = Config::default().by_key()?;
    let default = |key: &str| {
        defaults.get(key).and_then(|value| serde_json::to_value(value).ok()).unwrap_or_default()
    };
    let keys: BTreeSet<&String> = runs.iter().flat_map(|run| run.summary.options.keys()).collect();
    let mut rows: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for key in keys.into_iter().filter(|key| !NAMES.contains(&key.as_str())) {
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
