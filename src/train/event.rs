//! What a run reports. Sinks (terminal, log, TensorBoard, tables) turn events into output.

use std::path::PathBuf;
use std::sync::Arc;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::span::Span;
use crate::backend::nvidia::Sample;
use crate::backend::{MemoryEntry, Terms, Topic};
use crate::files::OutputError;
use crate::memory::{Bytes, Change};
use crate::perceptual::LpipsNet;

/// Receives every event of a run.
pub trait Sink {
    /// Takes one event; an error ends the run.
    fn on(&mut self, event: &Event) -> Result<(), OutputError>;
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
    /// Something was given up because the device's memory is short, or taken back.
    Rung {
        /// Finished iterations.
        iteration: u32,
        /// What, and how many bytes it brought.
        #[serde(flatten)]
        change: Change,
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
    /// Distributions over the Gaussians, on evaluation and every 1,000 iterations.
    Distributions(Distributions),
    /// Views were compared with their photographs.
    Evaluated(Evaluation),
    /// One evaluated view as pictures; sent before the `Evaluated` that it belongs to.
    Pictures(Pictures),
    /// A file of the model was written.
    Saved {
        /// Finished iterations.
        iteration: u32,
        /// What kind of file.
        what: Saved,
        /// Where.
        path: PathBuf,
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
    },
    /// A round of density control is done; its strategy names the event.
    #[serde(untagged)]
    Round(Round),
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

impl Step {
    /// The images of the step.
    pub fn span(&self) -> Span {
        Span { before: self.iteration.saturating_sub(self.images), after: self.iteration }
    }
}

/// Values of terms by their keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(pub Vec<(&'static str, f64)>);

impl Values {
    /// Of these pairs those of the terms of a topic.
    pub fn of(terms: &Terms, topic: Topic, pairs: &[(&'static str, f64)]) -> Self {
        let of_topic = terms.active().filter(|weighted| weighted.term.topic() == topic);
        let keys: Vec<&str> =
            of_topic.flat_map(|weighted| weighted.term.values()).map(|value| value.name).collect();
        Self(pairs.iter().filter(|(name, _)| keys.contains(name)).copied().collect())
    }
}

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// One finished step.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Finished iterations, one for each image.
    pub iteration: u32,
    /// Images of the step; values are means over them.
    #[serde(skip)]
    pub images: u32,
    /// Iterations that the run ends at.
    pub iterations: u32,
    /// Values of the terms that compare with the photograph, without their weights: `l1` and `ssim`,
    /// and `depth_l1` where the view has a map of its inverse depths.
    #[serde(flatten)]
    pub values: Values,
    /// The loss that was minimised.
    pub total: f64,
    /// Gaussians.
    pub gaussians: usize,
    /// Milliseconds from the end of the step before to the end of this one, for each image, waits for
    /// images included; density control, evaluation and saving excluded.
    pub ms: f64,
}

/// The surface terms of an iteration, each without its weight and absent where it is off, and how near
/// the Gaussians lie to the surface that they draw.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SurfaceReport {
    /// Finished iterations.
    pub iteration: u32,
    /// Values of the surface terms without their weights.
    #[serde(flatten)]
    pub values: Values,
    /// Share of the Gaussians near the drawn surface, 0..1; every 1,000 iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_near_surface: Option<f64>,
    /// Mean of the Gaussians' smallest scales, world units; every 1,000 iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_thickness: Option<f64>,
}

/// Bytes held by the run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MemoryReport {
    /// Finished iterations.
    pub iteration: u32,
    /// Buffers of the device by category.
    pub tensors: Tensors,
    /// Memory of a device that has its own.
    pub vram: Option<Vram>,
    /// Resident host memory of the process, where the system tells it.
    pub host_resident: Option<Bytes>,
    /// RAM of the machine, where the system tells it.
    pub host_total: Option<Bytes>,
}

/// What the program holds of a device's own memory, context and code included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Vram {
    /// Bytes that hold something between two iterations.
    pub allocated: Bytes,
    /// Bytes taken from the device.
    pub reserved: Bytes,
    /// Of what is taken, the driver's own and code.
    pub context: Bytes,
    /// Of what is taken, photographs.
    pub photographs: Bytes,
    /// Of what is taken, what the buffers of an iteration lie in.
    pub scratch: Bytes,
    /// Of what is taken, bytes that serve nothing: of regions what lies behind their values, of the
    /// scratch of an iteration what none of the recent ones came to use.
    pub slack: Bytes,
    /// Growth that nothing explains: of `allocated`, photographs aside, since the model has had its
    /// present number of Gaussians for 100 iterations. Nothing before that.
    pub creep: Option<Bytes>,
    /// What may be taken from the device.
    pub budget: Option<Bytes>,
}

impl Vram {
    /// Share of what is taken that serves nothing, per cent.
    pub fn fragmentation_percent(&self) -> f64 {
        if self.reserved.0 == 0 { 0.0 } else { 100.0 * self.slack.gib() / self.reserved.gib() }
    }
}

/// Every buffer of the device, and what it grew to since the report before.
#[derive(Clone, Debug, Serialize)]
pub struct Buffers {
    /// Finished iterations.
    pub iteration: u32,
    /// What came before.
    pub after: Phase,
    /// Gaussians.
    pub gaussians: usize,
    /// The buffers. Peaks are those since the report before.
    pub entries: Vec<MemoryEntry>,
}

/// What a run was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Iterations.
    Training,
    /// A round of density control.
    DensityControl,
    /// A comparison of views with their photographs.
    Evaluation,
    /// Writing a PLY or a checkpoint.
    Saving,
}

/// What the GPU was doing shortly before.
#[derive(Clone, Debug, Serialize)]
pub struct GpuReport {
    /// Finished iterations.
    pub iteration: u32,
    /// What the GPU was doing.
    #[serde(flatten)]
    pub sample: Sample,
}

/// Bytes of the device's buffers by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tensors {
    /// Trained parameters.
    pub parameters: Bytes,
    /// Adam's moments and density statistics.
    pub optimizer: Bytes,
    /// Gradients of the last iteration.
    pub gradients: Bytes,
    /// What the last forward pass kept for the backward pass.
    pub activations: Bytes,
    /// Decoded photographs that are kept, on the host and on the device.
    pub images: Bytes,
    /// Lists of the Gaussians' nearest neighbours.
    pub knn: Bytes,
}

impl Tensors {
    /// All categories together.
    pub fn total(&self) -> Bytes {
        let working = self.gradients + self.activations + self.knn;
        self.parameters + self.optimizer + working + self.images
    }
}

/// Samples of at most 10,000 Gaussians.
#[derive(Clone, Debug, Serialize)]
pub struct Distributions {
    /// Finished iterations.
    pub iteration: u32,
    /// Gaussians in all.
    pub gaussians: usize,
    /// Mean opacity of the sample.
    pub opacity_mean: f64,
    /// Opacities in 0..1.
    #[serde(skip)]
    pub opacity: Vec<f64>,
    /// Scales of all three axes, world units.
    #[serde(skip)]
    pub scale: Vec<f64>,
    /// Distances of the centres from the origin, world units.
    #[serde(skip)]
    pub xyz_magnitude: Vec<f64>,
    /// Lengths of the quaternions before normalisation.
    #[serde(skip)]
    pub rotation_magnitude: Vec<f64>,
}

/// Which views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Views trained on.
    Train,
    /// Views held out.
    Test,
}

impl Split {
    /// `train` or `test`, as folders and tags spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
        }
    }
}

/// Likeness of a render and its photograph, both clamped to 0..1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Metrics {
    /// Peak signal-to-noise ratio in dB.
    pub psnr: f64,
    /// Structural similarity: 11x11 Gaussian window of sigma 1.5, mean over the valid region.
    pub ssim: f64,
    /// Mean absolute error.
    pub l1: f64,
    /// LPIPS, where weights of a network are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lpips: Option<f64>,
    /// The same by colours that fit the photograph's; only of models whose training changed colours.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<Corrected>,
}

/// Likeness of a photograph and of a render whose colours, clamped to 0..1, are brought nearest to it by
/// an affine map of least squares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Corrected {
    /// Peak signal-to-noise ratio in dB.
    #[serde(rename = "cc_psnr")]
    pub psnr: f64,
    /// Structural similarity.
    #[serde(rename = "cc_ssim")]
    pub ssim: f64,
}

/// Metrics of one view.
#[derive(Clone, Debug, Serialize)]
pub struct ViewMetrics {
    /// Name of the image in the scene.
    pub name: String,
    /// Its metrics.
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// Metrics of a split.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluation {
    /// Finished iterations.
    pub iteration: u32,
    /// Which views.
    pub split: Split,
    /// Means over the views.
    pub mean: Metrics,
    /// The network of their LPIPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lpips_net: Option<LpipsNet>,
    /// Gaussians.
    pub gaussians: usize,
    /// Each view, in the order of names.
    pub views: Vec<ViewMetrics>,
}

/// An 8-bit picture, [height, width, 3].
#[derive(Clone, Debug)]
pub struct Picture {
    /// Width in px.
    pub width: u32,
    /// Height in px.
    pub height: u32,
    /// Colours.
    pub rgb: Vec<u8>,
}

/// One evaluated view as pictures.
#[derive(Clone, Debug, Serialize)]
pub struct Pictures {
    /// Finished iterations.
    pub iteration: u32,
    /// Which split the view is in.
    pub split: Split,
    /// Name of the image in the scene.
    pub name: String,
    /// The model's image.
    #[serde(skip)]
    pub render: Arc<Picture>,
    /// The photograph.
    #[serde(skip)]
    pub ground_truth: Arc<Picture>,
    /// Absolute error, as a heat map.
    #[serde(skip)]
    pub error: Arc<Picture>,
    /// Gaussians blended per pixel, as a heat map.
    #[serde(skip)]
    pub density: Arc<Picture>,
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
