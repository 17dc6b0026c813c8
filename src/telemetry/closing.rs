//! The block at the end of a run: result, time, memory, files. At most 80 columns, unless a path is longer.

use std::path::PathBuf;

use super::logging::{Newlines, escape_controls};
use super::status::{clock, grouped};
use crate::memory::Bytes;
use crate::train::event::{Evaluation, Event, Metrics, PhasePeaks, RunTimes, Saved, Split};

/// Formats a row of a closing block.
pub fn closing_row(name: &str, text: &str) -> String {
    format!("  {name:<10}{text}")
}

#[derive(Debug, Default)]
pub(super) struct Closing {
    model_path: PathBuf,
    held_out: usize,
    evaluations: Vec<Evaluation>,
    /// Iteration of the last PLY.
    saved: Option<u32>,
    has_checkpoint: bool,
}

impl Closing {
    pub(super) fn take(&mut self, event: &Event) {
        match event {
            Event::Started { model_path, test_views, .. } => {
                *self = Self::default();
                self.model_path.clone_from(model_path);
                self.held_out = *test_views;
            }
            Event::Evaluated(evaluation) => {
                self.evaluations.retain(|earlier| earlier.split != evaluation.split);
                // Pictures and figures of each view are not listed here.
                self.evaluations.push(Evaluation { views: Vec::new(), ..evaluation.clone() });
            }
            Event::Saved { iteration, what: Saved::PointCloud, .. } => {
                self.saved = Some(*iteration)
            }
            Event::Saved { what: Saved::Checkpoint, .. } => self.has_checkpoint = true,
            _ => {}
        }
    }

    /// Returns the lines of a run that ends with this event; empty if it does not end a run.
    pub(super) fn lines(&self, event: &Event) -> Vec<String> {
        let Event::Finished { iteration, gaussians, training_seconds, interrupted, peaks, times } =
            event
        else {
            return Vec::new();
        };
        let what = if *interrupted { "interrupted" } else { "complete" };
        let mut lines = vec![format!(
            "Training {what}: {} iterations, {} Gaussians",
            grouped(*iteration as usize),
            grouped(*gaussians)
        )];
        lines.extend(self.quality(*interrupted));
        lines.push(closing_row("time", &spent(*training_seconds, times)));
        lines.extend(memory(peaks).map(|text| closing_row("memory", &text)));
        let folder = self.model_path.display().to_string();
        lines.push(closing_row("model", &escape_controls(&folder, Newlines::Escaped)));
        lines.push(closing_row("files", &self.files()));
        lines
    }

    /// Returns the row of the held-out views, or of the training views without any. An interrupted run is resumed
    /// with its own views, so it gets no hint.
    fn quality(&self, is_interrupted: bool) -> Option<String> {
        let of = |split| self.evaluations.iter().find(|found| found.split == split);
        let found = [Split::Test, Split::EvalTrain, Split::Train].into_iter().find_map(of);
        let Some(measured) = found else {
            let is_expected = self.held_out > 0;
            let hint = || closing_row("quality", "not measured; --eval holds out every 8th view");
            return (!is_expected && !is_interrupted).then(hint);
        };
        let Metrics { psnr, ssim, lpips, .. } = measured.mean;
        let lpips = lpips.map_or(String::new(), |lpips| format!(", LPIPS {lpips:.4}"));
        let views = match measured.split {
            Split::Test => format!("{} held-out views", self.held_out),
            Split::Train | Split::EvalTrain if is_interrupted => "training views".to_owned(),
            Split::Train | Split::EvalTrain => "training views, --eval holds out others".to_owned(),
        };
        let text = format!("PSNR {psnr:.2}, SSIM {ssim:.4}{lpips} ({views})");
        Some(closing_row("quality", &text))
    }

    fn files(&self) -> String {
        let ply = self.saved.map(|it| format!("point_cloud/iteration_{it}"));
        let results = self.evaluations.iter().any(|found| found.split == Split::Test);
        let others = [(self.has_checkpoint, "checkpoints"), (results, "results.json")];
        let others = others.into_iter().filter(|(is_there, _)| *is_there);
        let named: Vec<String> = ply
            .into_iter()
            .chain(others.map(|(_, name)| name.to_owned()))
            .chain(["run.jsonl".to_owned()])
            .collect();
        named.join(", ")
    }
}

fn spent(training_seconds: f64, times: &RunTimes) -> String {
    let RunTimes { wall_seconds, evaluation_seconds, paused_seconds, .. } = times;
    let files = times.saving_seconds + times.waiting_seconds;
    let named = training_seconds + evaluation_seconds + files + paused_seconds;
    let other = (wall_seconds - named).max(0.0);
    let paused = match paused_seconds {
        0.0 => String::new(),
        seconds => format!(", paused {}", duration(*seconds)),
    };
    format!(
        "{}: training {}, evaluation {}, files {}, other {}{paused}",
        duration(*wall_seconds),
        duration(training_seconds),
        duration(*evaluation_seconds),
        duration(files),
        duration(other)
    )
}

/// Formats `12.3 s`, `12:34` or `1:23:45`.
fn duration(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    let clock = clock(seconds);
    let short = clock.strip_prefix("0:").unwrap_or(&clock);
    short.strip_prefix('0').unwrap_or(short).to_owned()
}

/// Formats the peak memory of the GPU and of the host.
fn memory(peaks: &PhasePeaks) -> Option<String> {
    let most = peaks.most();
    let part = |name: &str, bytes: Option<Bytes>| {
        bytes.map(|bytes| format!("{name} {:.2} GiB", bytes.gib()))
    };
    let parts = [part("GPU", most.vram), part("RAM", most.host)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("{} at most", parts.join(", ")))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::train::event::{Phase, PhasePeak};

    /// Returns closing blocks by kind of run.
    pub(crate) fn samples() -> Vec<(&'static str, Vec<String>)> {
        let started = Event::Started {
            model_path: "out/fox".into(),
            device: "NVIDIA H200".to_owned(),
            gpu: None,
            train_views: 43,
            test_views: 7,
            gaussians: 12_449,
            iteration: 0,
            iterations: 6000,
        };
        let saved = |what| Event::Saved { iteration: 6000, what, path: "out".into() };
        let measured = |split, lpips| {
            let mean = Metrics { psnr: 30.851, ssim: 0.8894, lpips, ..Metrics::default() };
            let views = Vec::new();
            let (iteration, gaussians, lpips_net) = (6000, 246_768, None);
            Event::Evaluated(Evaluation { iteration, split, mean, lpips_net, gaussians, views })
        };
        let finished = |seconds: f64, interrupted| {
            let mut peaks = PhasePeaks::default();
            let [vram, host] = [(9 << 30) / 4, 5 << 30].map(|bytes| Some(Bytes(bytes)));
            peaks.raise(Phase::Training, PhasePeak { vram, host });
            let times = RunTimes {
                wall_seconds: 1.3 * seconds,
                start_seconds: 0.05 * seconds,
                ensemble_seconds: 0.0,
                evaluation_seconds: 0.1 * seconds,
                saving_seconds: 0.02 * seconds,
                waiting_seconds: 0.03 * seconds,
                paused_seconds: 0.0,
            };
            Event::Finished {
                iteration: 6000,
                gaussians: 246_768,
                training_seconds: seconds,
                interrupted,
                peaks,
                times,
            }
        };
        let block = |events: &[Event], last: &Event| {
            let mut closing = Closing::default();
            closing.take(&started);
            events.iter().for_each(|event| closing.take(event));
            closing.lines(last)
        };
        let files = [saved(Saved::PointCloud), saved(Saved::Checkpoint)];
        let with = |event: Event| [&files[..], &[event]].concat();
        vec![
            ("a run", block(&with(measured(Split::Test, Some(0.1234))), &finished(24.1, false))),
            (
                "a long run without held-out views",
                block(&with(measured(Split::Train, None)), &finished(9000.0, false)),
            ),
            ("an interrupted run", block(&files[1..], &finished(600.0, true))),
        ]
    }
}
