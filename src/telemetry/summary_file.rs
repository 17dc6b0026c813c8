//! The sink that keeps `summary.json`.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::summary::{Figures, RunState, RunSummary, finite};
use crate::config::{Config, ConfigError};
use crate::files::OutputError;
use crate::memory::peak_resident_memory;
use crate::train::event::{
    Evaluation, Event, MemoryReport, PhasePeak, PhasePeaks, Round, Saved, Sink, Split, Step,
};

/// Last steps whose losses are averaged: a single photograph's loss says little.
const AVERAGED_STEPS: usize = 100;

/// Writes the summary at the start of a run, after each evaluation and checkpoint, and at the end.
#[derive(Debug)]
pub struct SummaryFile {
    model_path: PathBuf,
    /// When the program began.
    began: Instant,
    /// What earlier starts of the program took.
    earlier: Seconds,
    /// Earlier figures of held-out views may be of views that are trained on now.
    drops_test: bool,
    summary: RunSummary,
    steps: VecDeque<Step>,
    /// Whether iterations pass otherwise than with images, so that their number says nothing of the speed.
    is_paced: bool,
}

/// Seconds of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Seconds {
    training: f64,
    wall: f64,
}

impl SummaryFile {
    /// Of a run with this configuration, by a program that began then.
    pub fn new(model_path: &Path, config: &Config, began: Instant) -> Result<Self, ConfigError> {
        // What JSON cannot hold, such as infinity, is null in it.
        let json = |value| serde_json::to_value(value).unwrap_or_default();
        let options = config.changed()?.into_iter().map(|(key, value)| (key, json(value)));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Self {
            model_path: model_path.to_owned(),
            began,
            earlier: Seconds::default(),
            drops_test: false,
            summary: RunSummary { version, options: options.collect(), ..RunSummary::default() },
            steps: VecDeque::new(),
            is_paced: false,
        })
    }

    /// Drops what was measured earlier on held-out views, where the run trains on views that it has
    /// not seen yet: those may be among them.
    #[must_use]
    pub fn with_new_training_views(self, are_new: bool) -> Self {
        Self { drops_test: are_new, ..self }
    }

    /// A resumed run continues the summary as far as that is known.
    fn start(&mut self, iteration: u32, gaussians: usize) {
        self.summary.iteration = iteration;
        self.summary.first_iteration = iteration;
        let Some(before) =
            (iteration > 0).then(|| RunSummary::read(&self.model_path).ok()).flatten()
        else {
            return;
        };
        let is_of_start = before.iteration == iteration;
        let summary = &mut self.summary;
        summary.metrics = before.metrics;
        summary.metrics.retain(|_, measured| measured.iteration <= iteration);
        if self.drops_test {
            summary.metrics.remove(Split::Test.name());
        }
        // From the iteration itself it comes again, unless it came before the checkpoint.
        summary.target = before.target.filter(|target| {
            target.iteration < iteration
                || (target.iteration == iteration && target.gaussians == gaussians)
        });
        if is_of_start {
            self.earlier = Seconds { training: before.training_seconds, wall: before.wall_seconds };
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
        // It is that of the model before the step.
        summary.mean_opacity = None;
    }

    fn take_round(&mut self, round: &Round) {
        self.summary.gaussians = round.gaussians as u64;
        self.summary.training_seconds += round.ms * 1e-3;
    }

    fn take_memory(&mut self, report: &MemoryReport) {
        self.take_peaks(&report.peaks);
        let RunSummary { peak_vram, peak_host, .. } = &mut self.summary;
        *peak_vram = (*peak_vram).max(report.vram.map(|vram| vram.reserved));
        *peak_host = (*peak_host).max(report.host_resident);
    }

    fn take_peaks(&mut self, peaks: &PhasePeaks) {
        let summary = &mut self.summary;
        summary.peaks.raise_all(peaks);
        let PhasePeak { vram, host } = peaks.most();
        summary.peak_vram = summary.peak_vram.max(vram);
        summary.peak_host = summary.peak_host.max(host);
    }

    fn take_evaluation(&mut self, evaluation: &Evaluation) {
        self.summary.metrics.insert(evaluation.split.name().to_owned(), evaluation.into());
    }

    /// Each value is the mean over those steps that have it.
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
        summary.wall_seconds = self.earlier.wall + self.began.elapsed().as_secs_f64();
        summary.peak_host = summary.peak_host.max(peak_resident_memory());
        let done = summary.iteration.saturating_sub(summary.first_iteration);
        let speed = f64::from(done) / summary.training_seconds;
        summary.iterations_per_second = finite(speed).filter(|_| done > 0 && !self.is_paced);
        summary.write(&self.model_path)
    }
}

impl Sink for SummaryFile {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        match event {
            Event::Started { device, gaussians, iteration, iterations, .. } => {
                self.start(*iteration, *gaussians);
                self.summary.device.clone_from(device);
                (self.summary.gaussians, self.summary.iterations) =
                    (*gaussians as u64, *iterations);
                self.write()
            }
            Event::Step(step) => {
                self.take_step(step);
                Ok(())
            }
            Event::Round(round) => {
                self.take_round(round);
                Ok(())
            }
            Event::PrunedToTarget(report) => {
                self.summary.gaussians = report.gaussians as u64;
                // One that removes nothing says less than the one before.
                let earlier = self.summary.target.as_ref();
                if report.pruned > 0 || earlier.is_none_or(|earlier| earlier.pruned == 0) {
                    self.summary.target = Some(report.clone());
                }
                self.write()
            }
            Event::Memory(report) => {
                self.take_memory(report);
                Ok(())
            }
            Event::Distributions(report) => {
                self.summary.mean_opacity = finite(report.opacity_mean);
                Ok(())
            }
            Event::Evaluated(evaluation) => {
                self.take_evaluation(evaluation);
                self.write()
            }
            // When it is saved, this may have got to a later iteration than its own.
            Event::Saving { what: Saved::Checkpoint, .. } => self.write(),
            Event::Finished {
                iteration, gaussians, training_seconds, interrupted, peaks, ..
            } => {
                self.take_peaks(peaks);
                let summary = &mut self.summary;
                (summary.iteration, summary.gaussians) = (*iteration, *gaussians as u64);
                summary.training_seconds = self.earlier.training + training_seconds;
                summary.state =
                    if *interrupted { RunState::Interrupted } else { RunState::Complete };
                self.write()
            }
            Event::OpacityReset { .. }
            | Event::Ended { .. }
            | Event::Rung { .. }
            | Event::ViewSize { .. }
            | Event::CoarseStarted { .. }
            | Event::Pruned { .. }
            | Event::Neighbours { .. }
            | Event::Surface(_)
            | Event::Buffers(_)
            | Event::Gpu(_)
            | Event::Pictures(_)
            | Event::TimelapsePicture { .. }
            | Event::Control { .. }
            | Event::Saving { .. }
            | Event::Saved { .. }
            | Event::Warning { .. } => Ok(()),
        }
    }
}
