//! What a run tells: sinks that turn its events into output, and the log.

mod cadence;
mod jsonl;
mod logging;
mod progress;
mod status;
mod tables;
mod tensorboard;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

pub use jsonl::JsonLines;
pub use logging::{init_logging, log_error};
pub use progress::{Progress, ProgressStyle};
pub use tables::{Tables, append_metrics, write_per_view, write_results};
pub use tensorboard::TensorBoard;

use crate::files::{OutputError, create_folder};
use crate::train::event::{Event, Sink};

/// Several sinks as one.
#[derive(Default)]
pub struct Sinks {
    sinks: Vec<Box<dyn Sink>>,
}

impl Sinks {
    /// What a training run writes into its model folder (made where it is missing), and its
    /// progress on stderr.
    ///
    /// A resumed run continues the files of the run before; another starts `run.jsonl` and
    /// `metrics.csv` anew.
    pub fn for_run(
        model_path: &Path,
        style: ProgressStyle,
        resumed: bool,
    ) -> Result<Self, OutputError> {
        create_folder(model_path)?;
        let mut sinks = Self::default();
        sinks.add(Tables::create(model_path, resumed)?);
        sinks.add(JsonLines::create(model_path, resumed)?);
        sinks.add(TensorBoard::create(model_path)?);
        sinks.add(Progress::to_stderr(style));
        Ok(sinks)
    }

    /// One more receiver of every event.
    pub fn add(&mut self, sink: impl Sink + 'static) {
        self.sinks.push(Box::new(sink));
    }
}

impl Sink for Sinks {
    /// Every sink gets the event, also behind one that fails; the first error is returned.
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        let mut result = Ok(());
        for sink in &mut self.sinks {
            let this = sink.on(event);
            result = result.and(this);
        }
        result
    }
}

/// Now, in seconds since the Unix epoch; 0 on a clock set before it.
fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}
