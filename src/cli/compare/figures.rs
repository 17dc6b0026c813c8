//! The figures of a run that are compared: their names, their units, and which way is better.

use crate::memory::Bytes;
use crate::telemetry::RunSummary;

/// A figure of a run.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    /// Its name in JSON.
    pub(super) key: String,
    /// Its name in tables.
    pub(super) title: String,
    pub(super) unit: Unit,
    pub(super) better: Better,
    pub(super) role: Role,
    /// NaN where it was measured and is not finite.
    pub(super) value: f64,
}

/// How a figure is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Decibels,
    /// A share or a loss.
    Share,
    PerSecond,
    Seconds,
    Bytes,
    Count,
}

/// Which of two values is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    Higher,
    Lower,
    /// Neither is.
    Neither,
}

/// What a figure is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Quality that may not be lost.
    Quality(QualityOf),
    /// It is shown.
    Information,
}

/// Views that quality was measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QualityOf {
    /// Held-out views.
    Test,
    /// Others, such as training views.
    Others,
}

impl Unit {
    /// The value with the digits that say something.
    pub(super) fn text(self, value: f64) -> String {
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
    /// The arrow that the figure's title ends with.
    pub(super) fn arrow(self) -> &'static str {
        match self {
            Self::Higher => " ↑",
            Self::Lower => " ↓",
            Self::Neither => "",
        }
    }
}

/// What a metric or a term of the loss is, by its name in `summary.json`.
struct FigureKind {
    title: String,
    unit: Unit,
    better: Better,
}

impl FigureKind {
    fn named(name: &str) -> Self {
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
        Self { title: title + how, unit, better }
    }

    /// L1 says nothing that PSNR does not, with other tolerances.
    fn is_quality(name: &str) -> bool {
        ["psnr", "ssim", "cc_psnr", "cc_ssim", "ref_ssim", "ref_lpips"].contains(&name)
            || name.starts_with("lpips")
    }
}

/// All figures of a run, in the order of the table.
pub(super) fn of(summary: &RunSummary) -> Vec<Figure> {
    let mut figures = metrics(summary);
    figures.extend(losses(summary));
    figures.extend(resources(summary));
    figures.extend(peaks(summary));
    figures
}

/// The held-out views stand first.
fn metrics(summary: &RunSummary) -> Vec<Figure> {
    let mut splits: Vec<_> = summary.metrics.iter().collect();
    splits.sort_by_key(|(split, _)| split.as_str() != "test");
    let mut figures = Vec::new();
    for (split, measured) in splits {
        let of = if split == "test" { QualityOf::Test } else { QualityOf::Others };
        let mut measured: Vec<_> = measured.figures.iter().collect();
        let order = ["psnr", "ssim", "lpips_alex", "lpips_vgg", "l1"];
        let place = |name: &str| order.iter().position(|it| *it == name).unwrap_or(order.len());
        measured.sort_by_key(|(name, _)| place(name));
        for (name, value) in measured {
            let FigureKind { title, unit, better } = FigureKind::named(name);
            let role =
                if FigureKind::is_quality(name) { Role::Quality(of) } else { Role::Information };
            figures.push(Figure {
                key: format!("{split}.{name}"),
                title: format!("{split} {title}"),
                unit,
                better,
                role,
                value: value.unwrap_or(f64::NAN),
            });
        }
    }
    figures
}

fn losses(summary: &RunSummary) -> impl Iterator<Item = Figure> {
    summary.losses.iter().map(|(name, value)| {
        let FigureKind { title, unit, better } = FigureKind::named(name);
        Figure {
            key: format!("losses.{name}"),
            title: format!("training {title}"),
            unit,
            better,
            role: Role::Information,
            value: value.unwrap_or(f64::NAN),
        }
    })
}

/// The most memory of each phase, of the device where it has its own.
fn peaks(summary: &RunSummary) -> impl Iterator<Item = Figure> {
    summary.peaks.iter().filter_map(|(phase, peak)| {
        Some(Figure {
            key: format!("peaks.{}", phase.key()),
            title: format!("peak, {}", phase.words()),
            unit: Unit::Bytes,
            better: Better::Lower,
            role: Role::Information,
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
        Some(Figure { key, title, unit, better, role: Role::Information, value: value? })
    })
}
