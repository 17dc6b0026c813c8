//! What a run reports. Sinks (terminal, log, TensorBoard, tables) turn events into output.

mod completion;
mod control;
mod evaluation;
mod memory;
mod peaks;
mod phase;
mod step;
mod target;

use std::path::PathBuf;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::files::OutputError;
use crate::memory::{Bytes, RungChange};

pub use self::completion::{Completes, Completion};
pub use self::control::ControlAction;
pub use self::evaluation::{
    Corrected, Evaluation, Metrics, Picture, Pictures, ReferenceMetrics, Split, ViewMetrics,
};
pub use self::memory::{Buffers, GpuReport, LARGE, MemoryReport, Tensors, Vram};
pub use self::peaks::{PhasePeak, PhasePeaks};
pub use self::phase::Phase;
pub use self::step::{Distributions, Step, SurfaceReport, TermValues};
pub use self::target::{TargetPsnr, TargetReport};

/// Receives every event of a run.
pub trait Sink {
    /// Takes one event; an error ends the run.
    fn on(&mut self, event: &Event) -> Result<(), OutputError>;

    /// Where threads write the events: what is over when all of them so far are written.
    fn written(&mut self) -> Vec<Completion> {
        Vec::new()
    }
}

/// Something that happened in a run. `iteration` counts finished iterations.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The scene is read and the model is on the device.
    Started {
        /// Model folder.
        model_path: PathBuf,
        /// Device in words.
        device: String,
        /// Identifier of the GPU that trains, as NVIDIA's tools write it.
        #[serde(skip_serializing_if = "Option::is_none")]
        gpu: Option<String>,
        /// Views trained on.
        train_views: usize,
        /// Views held out.
        test_views: usize,
        /// Gaussians at the start.
        gaussians: usize,
        /// Iterations already done, above 0 in a resumed run.
        iteration: u32,
        /// Iterations that the run ends at.
        iterations: u32,
    },
    /// An iteration is done. Sent for every iteration.
    Step(Step),
    /// All opacities were lowered to at most 0.01.
    OpacityReset {
        /// Finished iterations.
        iteration: u32,
    },
    /// Training views are drawn at another size from the next iteration on; of a run that begins with
    /// smaller ones, or goes on with them, right behind `Started`.
    ViewSize {
        /// Finished iterations.
        iteration: u32,
        /// What the sides of their photographs are divided by.
        divisor: u32,
    },
    /// Something was given up because the device's memory is short, or taken back.
    Rung {
        /// Finished iterations.
        iteration: u32,
        /// What, and how many bytes it brought.
        #[serde(flatten)]
        change: RungChange,
        /// Bytes that the program holds of the device's memory.
        held: Bytes,
        /// Bytes that it may hold.
        budget: Bytes,
    },
    /// SuGaR's coarse stage begins; of a run that goes on inside of it, right behind `Started`.
    CoarseStarted {
        /// Finished iterations.
        iteration: u32,
        /// Iterations that the stage ends at.
        iterations: u32,
        /// Gaussians at its start.
        gaussians: usize,
    },
    /// Transparent Gaussians were removed before the coarse stage's surface terms.
    Pruned {
        /// Finished iterations.
        iteration: u32,
        /// Gaussians removed.
        pruned: usize,
        /// Gaussians afterwards.
        gaussians: usize,
    },
    /// The Gaussians were pruned to `--target-gaussians`.
    PrunedToTarget(TargetReport),
    /// The nearest neighbours of all Gaussians were found anew.
    Neighbours {
        /// Finished iterations.
        iteration: u32,
        /// Neighbours of each, itself among them.
        count: u32,
        /// Gaussians.
        gaussians: usize,
        /// How long it took.
        seconds: f64,
    },
    /// What the surface terms say, every 100 iterations of the coarse stage.
    Surface(SurfaceReport),
    /// Bytes held, every 100 iterations.
    Memory(MemoryReport),
    /// The size of every buffer; only with `--profile-tensors`.
    Buffers(Buffers),
    /// What the GPU is doing, every 50 iterations; told by the sinks themselves.
    Gpu(GpuReport),
    /// Distributions over the Gaussians, on evaluation, every 1,000 iterations and at the end.
    Distributions(Distributions),
    /// Views were compared with their photographs.
    Evaluated(Evaluation),
    /// One evaluated view as pictures; sent before the `Evaluated` that it belongs to.
    Pictures(Pictures),
    /// A picture of the view of `--timelapse`.
    TimelapsePicture {
        /// Finished iterations.
        iteration: u32,
        /// The view as the model shows it.
        #[serde(skip)]
        picture: Picture,
    },
    /// A file of the model begins to be written, by a thread where the host has room for a copy.
    Saving {
        /// Finished iterations.
        iteration: u32,
        /// What kind of file.
        what: Saved,
    },
    /// A file of the model was written.
    Saved {
        /// Finished iterations.
        iteration: u32,
        /// What kind of file.
        what: Saved,
        /// Where.
        path: PathBuf,
    },
    /// The page that shows the run asked for something, and it is done.
    Control {
        /// Finished iterations.
        iteration: u32,
        /// What was asked.
        action: ControlAction,
        /// By which the page knows it again.
        id: String,
    },
    /// A PSNR that was asked for, the clock, or a number of passes over the views ended training; or the PSNR was not
    /// reached.
    Ended {
        /// Finished iterations of the schedule.
        iteration: u32,
        /// Images trained on.
        images: u32,
        /// One sentence.
        message: String,
    },
    /// Something the user should know; training goes on.
    Warning {
        /// One sentence.
        message: String,
    },
    /// The run ended.
    Finished {
        /// Finished iterations.
        iteration: u32,
        /// Gaussians at the end.
        gaussians: usize,
        /// Seconds of training since the start of the program, evaluation and saving excluded.
        training_seconds: f64,
        /// Ended by SIGINT or SIGTERM.
        interrupted: bool,
        /// The most memory since the start of the program, by what the run was doing.
        peaks: PhasePeaks,
        /// Where the other seconds went.
        #[serde(flatten)]
        times: RunTimes,
    },
    /// A round of density control is done; its strategy names the event.
    #[serde(untagged)]
    Round(Round),
}

/// Where the seconds of a run went, beside training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RunTimes {
    /// From the start of the program to the end of the run.
    pub wall_seconds: f64,
    /// Before the first iteration.
    pub start_seconds: f64,
    /// Comparing views with their photographs, and preparing their pictures.
    pub evaluation_seconds: f64,
    /// Copying the model for the files that threads write, or writing it.
    pub saving_seconds: f64,
    /// Waiting for threads that write files.
    pub waiting_seconds: f64,
    /// Waiting until the page that shows the run lets it go on.
    pub paused_seconds: f64,
}

/// What a round of density control did, in the words of its strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundReport {
    /// Name of the event.
    pub event: &'static str,
    /// Keys and numbers of Gaussians.
    pub counts: Vec<(&'static str, usize)>,
}

/// A round of density control.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// Finished iterations.
    pub iteration: u32,
    /// What it did.
    pub report: RoundReport,
    /// Gaussians afterwards.
    pub gaussians: usize,
    /// Time of the round, and of putting the Gaussians in order where that is due.
    pub ms: f64,
}

impl Serialize for Round {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { iteration, report: RoundReport { event, counts }, gaussians, ms } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("event", event)?;
        map.serialize_entry("iteration", iteration)?;
        for (key, count) in counts {
            map.serialize_entry(key, count)?;
        }
        map.serialize_entry("gaussians", gaussians)?;
        map.serialize_entry("ms", ms)?;
        map.end()
    }
}

/// Kinds of files in the model folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Saved {
    /// The Gaussians as PLY.
    PointCloud,
    /// Everything that a resumed run needs.
    Checkpoint,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_an_event_in_the_words_of_its_strategy() {
        let counts = vec![("relocated", 3), ("born", 2), ("refused", 0)];
        let report = RoundReport { event: "relocated", counts };
        let event = Event::Round(Round { iteration: 600, report, gaussians: 42, ms: 1.5 });
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"event":"relocated","iteration":600,"relocated":3,"born":2,"refused":0,"gaussians":42,"ms":1.5}"#
        );
    }
}
