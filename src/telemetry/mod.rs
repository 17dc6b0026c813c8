//! Output of a run: sinks for its events, and the log.

mod closing;
mod jsonl;
mod logging;
mod on_thread;
mod profile;
mod progress;
mod sampler;
mod status;
mod summary;
mod tables;
mod tensorboard;

use std::collections::BTreeSet;
use std::path::Path;

pub use closing::closing_row;
#[cfg(test)]
pub(crate) use closing::tests::samples as closing_blocks;
pub use jsonl::JsonLines;
pub(crate) use logging::is_plain_wanted;
pub use logging::{
    LogDetail, Newlines, ProgressStyle, escape_controls, init_logging, log_error, release_notices,
    shows_news,
};
pub use profile::{
    BufferPeak, Category, CategoryShare, Finding, FindingKind, GpuSummary, LogError, LoggedChange,
    MemoryPeak, Point, Profile, Slack,
};
pub use progress::{Progress, WorkProgress};
pub use status::grouped;
pub(crate) use summary::fnv_1a;
pub use summary::{
    Figures, MeasuredSplit, MeasuredViews, RunState, RunSummary, SummaryError, SummaryFile,
    update_summary,
};
pub use tables::{MetricsTable, append_metrics, write_per_view, write_results};
pub use tensorboard::{TIMELAPSE, TensorBoard, TimelapseFolder, pictures as timelapse_pictures};

use self::on_thread::OnThread;
use self::sampler::GpuSampler;
use crate::files::{OutputError, create_folder};
use crate::train::event::{Completion, Event, Sink};

/// Several sinks as one, with periodic samples of the GPU during training.
#[derive(Default)]
pub struct Sinks {
    sinks: Vec<Box<dyn Sink>>,
    sampler: Option<GpuSampler>,
    /// Files that could not be written for lack of space.
    without_space: BTreeSet<String>,
}

impl Sinks {
    /// Returns the sinks of a training run: the files in its model folder, which is created, and progress on stderr.
    ///
    /// A resumed run continues the files of the previous run; another run replaces `run.jsonl` and `metrics.csv`.
    pub fn for_run(
        model_path: &Path,
        style: ProgressStyle,
        resumed: Option<u32>,
    ) -> Result<Self, OutputError> {
        create_folder(model_path)?;
        let mut sinks = Self::default();
        for table in MetricsTable::all(model_path, resumed.is_some())? {
            sinks.add(table);
        }
        sinks.add(JsonLines::create(model_path, resumed)?);
        // Encoding pictures takes long.
        sinks.add(OnThread::start(model_path, TensorBoard::create(model_path)?)?);
        sinks.add(Progress::to_stderr(style));
        Ok(sinks)
    }

    /// Adds a writer of the pictures of `--timelapse`, on a thread.
    pub fn add_timelapse(&mut self, model_path: &Path) -> Result<(), OutputError> {
        self.add(OnThread::start(model_path, TimelapseFolder::new(model_path))?);
        Ok(())
    }

    /// Adds a receiver of all events.
    pub fn add(&mut self, sink: impl Sink + 'static) {
        self.sinks.push(Box::new(sink));
    }

    fn send(&mut self, event: &Event) -> Result<(), OutputError> {
        let mut result = Ok(());
        let mut warnings = Vec::new();
        for sink in &mut self.sinks {
            match sink.on(event) {
                Err(error) if error.is_for_space() => {
                    if self.without_space.insert(error.path().to_owned()) {
                        warnings.push(format!(
                            "{error}. Training continues; what belongs into this file is lost until \
                             it can be written again"
                        ));
                    }
                }
                other => result = result.and(other),
            }
        }
        // Each file is added to the set only once, so the recursion ends.
        for message in warnings {
            result = result.and(self.send(&Event::Warning { message }));
        }
        result
    }
}

impl Sink for Sinks {
    /// Passes the event to every sink, even after one fails, and returns the first error. A full disk is not an
    /// error: the output is lost, with one warning per file.
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        let result = self.send(event);
        match event {
            Event::Started { gpu: Some(uuid), .. } => self.sampler = GpuSampler::of_gpu(uuid),
            Event::Step(step) => {
                if let Some(report) = self.sampler.as_ref().and_then(|it| it.after(step.span())) {
                    return result.and(self.send(&Event::Gpu(report)));
                }
            }
            Event::Finished { .. } => self.sampler = None,
            _ => {}
        }
        result
    }

    fn written(&mut self) -> Vec<Completion> {
        self.sinks.iter_mut().flat_map(|sink| sink.written()).collect()
    }
}
