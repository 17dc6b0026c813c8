//! Events of a run. Sinks (terminal, log, TensorBoard, tables) turn events into output.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::span::ImageSpan;
use crate::backend::nvidia::GpuSample;
use crate::backend::{MemoryEntry, Terms, Topic};
use crate::files::OutputError;
use crate::memory::{Bytes, FallbackChange};
use crate::perceptual::LpipsNet;

/// Receiver of a run's events.
pub trait Sink {
    /// Processes an event. An error ends the run.
    fn on(&mut self, event: &Event) -> Result<(), OutputError>;

    /// Returns completions of the threads that write the events so far.
    fn written(&mut self) -> Vec<Completion> {
        Vec::new()
    }
}

/// Event of a run. `iteration` counts finished iterations.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The scene is loaded and the model is on the device.
    Started {
        /// Model folder.
        model_path: PathBuf,
        /// Description of the device.
        device: String,
        /// UUID of the training GPU in the format of NVIDIA tools.
        #[serde(skip_serializing_if = "Option::is_none")]
        gpu: Option<String>,
        /// Number of training views.
        train_views: usize,
        /// Number of held-out views.
        test_views: usize,
        /// Number of Gaussians at the start.
        gaussians: usize,
        /// Finished iterations, above 0 in a resumed run.
        iteration: u32,
        /// Last iteration of the run.
        iterations: u32,
    },
    /// An iteration is done. Sent for every iteration.
    Step(Step),
    /// All opacities were lowered to at most 0.01.
    OpacityReset {
        /// Finished iterations.
        iteration: u32,
    },
    /// Training views change their size from the next iteration on. A run that begins or continues with smaller views
    /// sends the event right after `Started`.
    ViewSize {
        /// Finished iterations.
        iteration: u32,
        /// Divisor of the photographs' sides.
        divisor: u32,
    },
    /// A fallback was taken because memory is short, or was undone.
    #[serde(rename = "rung")]
    Fallback {
        /// Finished iterations.
        iteration: u32,
        /// Fallback and the bytes that it freed.
        #[serde(flatten)]
        change: FallbackChange,
        /// Device memory that the program holds.
        held: Bytes,
        /// Device memory that the program may hold.
        budget: Bytes,
    },
    /// SuGaR's coarse stage begins. A run that resumes inside of the stage sends the event right after `Started`.
    CoarseStarted {
        /// Finished iterations.
        iteration: u32,
        /// Last iteration of the stage.
        iterations: u32,
        /// Number of Gaussians at the start of the stage.
        gaussians: usize,
    },
    /// Transparent Gaussians were removed before the coarse stage's surface terms.
    Pruned {
        /// Finished iterations.
        iteration: u32,
        /// Number of removed Gaussians.
        pruned: usize,
        /// Number of Gaussians afterwards.
        gaussians: usize,
    },
    /// The Gaussians were pruned to `--target-gaussians`.
    PrunedToTarget(TargetReport),
    /// The nearest neighbours of all Gaussians were found again.
    Neighbours {
        /// Finished iterations.
        iteration: u32,
        /// Number of neighbours of each Gaussian, itself included.
        count: u32,
        /// Number of Gaussians.
        gaussians: usize,
        /// Duration, seconds.
        seconds: f64,
    },
    /// Values of the surface terms, every 100 iterations of the coarse stage.
    Surface(SurfaceReport),
    /// Memory use, every 100 iterations.
    Memory(MemoryReport),
    /// Sizes of all buffers. Only with `--profile-tensors`.
    Buffers(Buffers),
    /// State of the GPU, every 50 iterations. The sinks report it themselves.
    Gpu(GpuReport),
    /// Distributions over the Gaussians, on evaluation, every 1,000 iterations and at the end.
    Distributions(Distributions),
    /// Views were compared with their photographs.
    Evaluated(Evaluation),
    /// One evaluated view as pictures. Sent before its `Evaluated` event.
    Pictures(Pictures),
    /// A picture of the `--timelapse` view.
    TimelapsePicture {
        /// Finished iterations.
        iteration: u32,
        /// Render of the view.
        #[serde(skip)]
        picture: Picture,
    },
    /// Writing a file of the model begins, in a thread if the host has memory for a copy.
    Saving {
        /// Finished iterations.
        iteration: u32,
        /// Kind of the file.
        what: Saved,
    },
    /// A file of the model was written.
    Saved {
        /// Finished iterations.
        iteration: u32,
        /// Kind of the file.
        what: Saved,
        /// Path of the file.
        path: PathBuf,
    },
    /// A request of the live page was carried out.
    Control {
        /// Finished iterations.
        iteration: u32,
        /// The request.
        action: ControlAction,
        /// Identifier by which the page recognises the request.
        id: String,
    },
    /// Training ended by a target PSNR, the clock or a limit of passes, or missed its target PSNR.
    Ended {
        /// Finished iterations of the schedule.
        iteration: u32,
        /// Images trained on.
        images: u32,
        /// One sentence.
        message: String,
    },
    /// A problem that does not end training.
    Warning {
        /// One sentence.
        message: String,
    },
    /// The run ended.
    Finished {
        /// Finished iterations.
        iteration: u32,
        /// Number of Gaussians at the end.
        gaussians: usize,
        /// Seconds of training since the start of the program, without evaluation and saving.
        training_seconds: f64,
        /// True if SIGINT or SIGTERM ended the run.
        interrupted: bool,
        /// Peak memory since the start of the program, by phase.
        peaks: PhasePeaks,
        /// Seconds of other work.
        #[serde(flatten)]
        times: RunTimes,
    },
    /// A densification step is done. The strategy names the event.
    #[serde(untagged)]
    Densify(DensifyStep),
}

/// Seconds that a run spends on other work than training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RunTimes {
    /// From the start of the program to the end of the run.
    pub wall_seconds: f64,
    /// Before the first iteration, without the ensemble.
    pub start_seconds: f64,
    /// Training and rendering of the ensemble, which are part of the training time.
    pub ensemble_seconds: f64,
    /// Evaluation, including its pictures.
    pub evaluation_seconds: f64,
    /// Writing files, or copying the model for the threads that write them.
    pub saving_seconds: f64,
    /// Waiting for threads that write files.
    pub waiting_seconds: f64,
    /// Pauses by the live page.
    pub paused_seconds: f64,
}

/// Report of a densification step with the strategy's event name and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DensifyReport {
    /// Name of the event.
    pub event: &'static str,
    /// Keys and numbers of Gaussians.
    pub counts: Vec<(&'static str, usize)>,
}

/// Densification step.
#[derive(Clone, Debug, PartialEq)]
pub struct DensifyStep {
    /// Finished iterations.
    pub iteration: u32,
    /// Report of the strategy.
    pub report: DensifyReport,
    /// Number of Gaussians afterwards.
    pub gaussians: usize,
    /// Duration including the reordering of Gaussians, milliseconds.
    pub ms: f64,
}

impl Serialize for DensifyStep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { iteration, report: DensifyReport { event, counts }, gaussians, ms } = self;
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

/// Kind of a file in the model folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Saved {
    /// The Gaussians as PLY.
    PointCloud,
    /// State of the run.
    Checkpoint,
}

// Steps: loss terms and number of Gaussians.

/// Values of terms by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TermValues(pub Vec<(&'static str, f64)>);

impl TermValues {
    /// Selects the pairs that belong to the terms of a topic.
    pub fn of(terms: &Terms, topic: Topic, pairs: &[(&'static str, f64)]) -> Self {
        let of_topic = terms.active().filter(|weighted| weighted.term.topic() == topic);
        let keys: Vec<&str> =
            of_topic.flat_map(|weighted| weighted.term.values()).map(|value| value.name).collect();
        Self(pairs.iter().filter(|(name, _)| keys.contains(name)).copied().collect())
    }
}

impl Serialize for TermValues {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// Finished step.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Step {
    /// Finished iterations before the step.
    #[serde(skip)]
    pub before: u32,
    /// Finished iterations. One per image, unless the run has a time budget or a limit of passes over few views.
    pub iteration: u32,
    /// Number of images of the step. All values are means over them.
    #[serde(skip)]
    pub images: u32,
    /// Last iteration of the run.
    pub iterations: u32,
    /// Values of the terms without weights: `l1` and `ssim`, `depth_l1` and `normals` if the view has such a map, and
    /// `dn` and `distortion` of surfels. Surface terms of SuGaR's coarse stage are in a [`SurfaceReport`].
    #[serde(flatten)]
    pub values: TermValues,
    /// Photometric part of the loss.
    pub total: f64,
    /// Number of Gaussians.
    pub gaussians: usize,
    /// Milliseconds per image between the ends of two steps. Waits for images are included; density control,
    /// evaluation and saving are not.
    pub ms: f64,
}

impl Step {
    /// Returns the iterations of the step.
    pub fn span(&self) -> ImageSpan {
        ImageSpan { before: self.before, after: self.iteration }
    }
}

/// Surface terms of an iteration, and the distance of the Gaussians from the surface that they render. Terms that are
/// off are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SurfaceReport {
    /// Finished iterations.
    pub iteration: u32,
    /// Values of the surface terms without their weights.
    #[serde(flatten)]
    pub values: TermValues,
    /// Share of the Gaussians near the rendered surface, 0 to 1. Every 1,000 iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_near_surface: Option<f64>,
    /// Mean of the Gaussians' smallest scales, world units. Every 1,000 iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_thickness: Option<f64>,
}

/// Distributions over a sample of at most 10,000 Gaussians.
#[derive(Clone, Debug, Serialize)]
pub struct Distributions {
    /// Finished iterations.
    pub iteration: u32,
    /// Number of all Gaussians.
    pub gaussians: usize,
    /// Mean opacity of the sample.
    pub opacity_mean: f64,
    /// Opacities, 0 to 1.
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

// Evaluations.

/// Split of the views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Training views.
    Train,
    /// Held-out views.
    Test,
    /// Training views of `--eval-train`.
    #[value(skip)]
    #[serde(rename = "eval_train")]
    EvalTrain,
}

impl Split {
    /// Returns the name in folders and tags: `train`, `test` or `eval_train`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
            Self::EvalTrain => "eval_train",
        }
    }
}

/// Similarity of a render and its photograph, both clamped to 0..1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Metrics {
    /// Peak signal-to-noise ratio, dB.
    pub psnr: f64,
    /// Structural similarity: 11x11 Gaussian window of sigma 1.5, mean over the valid region.
    pub ssim: f64,
    /// Mean absolute error.
    pub l1: f64,
    /// LPIPS, if network weights are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lpips: Option<f64>,
    /// Metrics after colour correction. Only for models whose training changed colours.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<Corrected>,
    /// Metrics of the reference trainers, if requested.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub reference: Option<ReferenceMetrics>,
}

/// Metrics that the reference's `metrics.py` prints for the PNGs of a render and its photograph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReferenceMetrics {
    /// Structural similarity, mean over all pixels with a black border.
    #[serde(rename = "ref_ssim")]
    pub ssim: f64,
    /// LPIPS of VGG16 with inputs of 0..1.
    #[serde(rename = "ref_lpips", skip_serializing_if = "Option::is_none")]
    pub lpips: Option<f64>,
}

/// Similarity of a photograph and a render whose clamped colours are fitted to it by a least-squares affine map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Corrected {
    /// Peak signal-to-noise ratio, dB.
    #[serde(rename = "cc_psnr")]
    pub psnr: f64,
    /// Structural similarity.
    #[serde(rename = "cc_ssim")]
    pub ssim: f64,
}

/// Metrics of one view.
#[derive(Clone, Debug, Serialize)]
pub struct ViewMetrics {
    /// Position in the split. Views without metrics count too.
    #[serde(skip)]
    pub position: usize,
    /// Name of the image in the scene.
    pub name: String,
    /// Width and height, px.
    #[serde(skip)]
    pub px: [u32; 2],
    /// Metrics of the view.
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// Metrics of a split.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluation {
    /// Finished iterations.
    pub iteration: u32,
    /// Split of the views.
    pub split: Split,
    /// Means over the views.
    pub mean: Metrics,
    /// Network of the LPIPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lpips_net: Option<LpipsNet>,
    /// Number of Gaussians.
    pub gaussians: usize,
    /// Measured views in the order of names.
    pub views: Vec<ViewMetrics>,
}

/// 8-bit picture, [height, width, 3].
#[derive(Clone, Debug)]
pub struct Picture {
    /// Width, px.
    pub width: u32,
    /// Height, px.
    pub height: u32,
    /// Colours.
    pub rgb: Vec<u8>,
}

/// Evaluated view as pictures.
#[derive(Clone, Debug, Serialize)]
pub struct Pictures {
    /// Finished iterations.
    pub iteration: u32,
    /// Split of the view.
    pub split: Split,
    /// Name of the image in the scene.
    pub name: String,
    /// Render of the model.
    #[serde(skip)]
    pub render: Arc<Picture>,
    /// The photograph.
    #[serde(skip)]
    pub ground_truth: Arc<Picture>,
    /// Absolute error as a heat map.
    #[serde(skip)]
    pub error: Arc<Picture>,
    /// Number of blended Gaussians per pixel as a heat map.
    #[serde(skip)]
    pub density: Arc<Picture>,
    /// Depths as a heat map, if rendered.
    #[serde(skip)]
    pub depth: Option<Arc<Picture>>,
    /// Normals as colours, if rendered.
    #[serde(skip)]
    pub normals: Option<Arc<Picture>>,
}

/// Result of the prune to `--target-gaussians`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    /// Finished iterations.
    pub iteration: u32,
    /// Target number of Gaussians.
    pub target: usize,
    /// Number of removed Gaussians. 0 if the model was not larger than the target.
    pub pruned: usize,
    /// Number of Gaussians afterwards.
    pub gaussians: usize,
    /// PSNR before and after. Absent if none was removed or no view could be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psnr: Option<TargetPsnr>,
}

/// PSNR of the same views before and after the prune.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetPsnr {
    /// Measured split: `test` or `eval_train`.
    pub split: String,
    /// Mean over the views before the prune, dB. `None` if it is not finite.
    pub before: Option<f64>,
    /// PSNR after the prune, dB.
    pub after: Option<f64>,
}

// Requests of the live page.

/// Request of the live page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlAction {
    /// Wait after this iteration.
    Pause,
    /// Train on.
    Resume,
    /// Write a checkpoint.
    Checkpoint,
    /// End with a checkpoint, as after Ctrl-C.
    Stop,
}

impl ControlAction {
    /// Returns the log message for the request.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Pause => "Paused from the page",
            Self::Resume => "Resumed from the page",
            Self::Checkpoint => "Checkpoint asked for from the page",
            Self::Stop => "Stopping from the page, with a checkpoint",
        }
    }
}

// Phases of a run, for memory peaks.

/// Phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Iterations outside of the coarse stage.
    Training,
    /// Densification step.
    DensityControl,
    /// Comparison of views with their photographs.
    Evaluation,
    /// Writing of a PLY or a checkpoint.
    Saving,
    /// Iterations of SuGaR's coarse stage.
    Coarse,
}

impl Phase {
    /// All phases in the order of reports.
    pub const ALL: [Self; 5] =
        [Self::Training, Self::DensityControl, Self::Coarse, Self::Evaluation, Self::Saving];

    /// Returns the name in tags and keys.
    pub fn key(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::DensityControl => "density_control",
            Self::Evaluation => "evaluation",
            Self::Saving => "saving",
            Self::Coarse => "coarse",
        }
    }

    /// Returns the name in text.
    pub fn words(self) -> &'static str {
        match self {
            Self::DensityControl => "density control",
            Self::Coarse => "coarse training",
            Self::Training | Self::Evaluation | Self::Saving => self.key(),
        }
    }
}

// Peak memory of each phase.

/// Peak memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhasePeak {
    /// Peak on a device with its own memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram: Option<Bytes>,
    /// Peak resident memory on the host, if the system reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Bytes>,
}

impl PhasePeak {
    /// Returns the peak of the device's own memory, or of the host's if it has none.
    pub fn of_device(self) -> Option<Bytes> {
        self.vram.or(self.host)
    }

    fn raised(self, other: Self) -> Self {
        Self { vram: self.vram.max(other.vram), host: self.host.max(other.host) }
    }
}

/// Peaks by phase. Phases that did not occur are absent, also in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhasePeaks {
    /// Peaks in the order of [`Phase::ALL`].
    of_phases: [Option<PhasePeak>; Phase::ALL.len()],
}

impl PhasePeaks {
    /// Returns the peak of a phase, if the run was in it.
    pub fn of(&self, phase: Phase) -> Option<PhasePeak> {
        self.iter().find(|(found, _)| *found == phase).map(|(_, peak)| peak)
    }

    /// Returns the phases of the run with their peaks.
    pub fn iter(&self) -> impl Iterator<Item = (Phase, PhasePeak)> {
        Phase::ALL.into_iter().zip(self.of_phases).filter_map(|(phase, peak)| Some((phase, peak?)))
    }

    /// Raises the peak of a phase to at least this value.
    pub fn raise(&mut self, phase: Phase, peak: PhasePeak) {
        for (known, found) in Phase::ALL.into_iter().zip(&mut self.of_phases) {
            if known == phase {
                *found = Some(found.unwrap_or_default().raised(peak));
            }
        }
    }

    /// Raises the peaks to at least those of another start of the program.
    pub fn raise_all(&mut self, other: &Self) {
        other.iter().for_each(|(phase, peak)| self.raise(phase, peak));
    }

    /// Returns the peak over all phases.
    pub fn most(&self) -> PhasePeak {
        self.iter().fold(PhasePeak::default(), |most, (_, peak)| most.raised(peak))
    }

    /// Returns the peak of the device's own memory outside of evaluations and saving.
    pub fn vram_of_training(&self) -> Option<Bytes> {
        let phases = [Phase::Training, Phase::DensityControl, Phase::Coarse];
        phases.into_iter().filter_map(|phase| self.of(phase)?.vram).max()
    }
}

impl Serialize for PhasePeaks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(phase, peak)| (phase.key(), peak)))
    }
}

impl<'de> Deserialize<'de> for PhasePeaks {
    /// Ignores phases of later versions.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = BTreeMap::<String, PhasePeak>::deserialize(deserializer)?;
        let of_phases = Phase::ALL.map(|phase| found.get(phase.key()).copied());
        Ok(Self { of_phases })
    }
}

// Memory and GPU state.

/// Memory use of the run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct MemoryReport {
    /// Finished iterations.
    pub iteration: u32,
    /// Device buffers by category.
    pub tensors: Tensors,
    /// Memory of a device that has its own.
    pub vram: Option<Vram>,
    /// Page-locked host memory that holds a part of a GPU's model. Systems count it for no process, or as shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offloaded: Option<Bytes>,
    /// Resident host memory of the process, if the system tells it.
    pub host_resident: Option<Bytes>,
    /// RAM of the machine, if the system tells it.
    pub host_total: Option<Bytes>,
    /// RAM that the program may use.
    pub host_limit: Option<Bytes>,
    /// Unexplained growth of `host_resident` without photographs, on a device without its own
    /// memory. See [`Vram::creep`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_creep: Option<Bytes>,
    /// Peaks so far by phase.
    pub peaks: PhasePeaks,
}

/// Size from which on a buffer counts as large.
pub const LARGE: Bytes = Bytes(100 << 20);

/// Device memory that the program holds, including context and code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Vram {
    /// Bytes in use between two iterations.
    pub allocated: Bytes,
    /// Bytes taken from the device.
    pub reserved: Bytes,
    /// Bytes of the driver and of code.
    pub context: Bytes,
    /// Bytes of photographs.
    pub photographs: Bytes,
    /// Bytes for the buffers of an iteration.
    pub scratch: Bytes,
    /// Unused bytes: those behind the values of regions, and those of the scratch that no recent iteration needed.
    pub slack: Bytes,
    /// Unexplained growth of `allocated` without photographs, since the number of Gaussians has been constant for 100
    /// iterations. `None` before that.
    pub creep: Option<Bytes>,
    /// Number of buffers that hold at least [`LARGE`] between two iterations.
    pub large_count: usize,
    /// Budget of the device's memory.
    pub budget: Option<Bytes>,
}

impl Vram {
    /// Returns the unused share of the reserved memory, per cent.
    pub fn fragmentation_percent(&self) -> f64 {
        if self.reserved.0 == 0 { 0.0 } else { 100.0 * self.slack.gib() / self.reserved.gib() }
    }
}

/// All buffers of the device with their growth since the last report.
#[derive(Clone, Debug, Serialize)]
pub struct Buffers {
    /// Finished iterations.
    pub iteration: u32,
    /// Phase before the report.
    pub after: Phase,
    /// Number of Gaussians.
    pub gaussians: usize,
    /// Buffers, with peaks since the last report.
    pub entries: Vec<MemoryEntry>,
}

/// Device buffers by category, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensors {
    /// Trained parameters.
    pub parameters: Bytes,
    /// Adam's moments and density statistics.
    pub optimizer: Bytes,
    /// Gradients of the last iteration.
    pub gradients: Bytes,
    /// Values that the last forward pass kept for the backward pass.
    pub activations: Bytes,
    /// Cached photographs on host and device.
    pub images: Bytes,
    /// Lists of nearest neighbours. Absent from old logs.
    #[serde(default)]
    pub knn: Bytes,
}

impl Tensors {
    /// Returns the sum of all categories.
    pub fn total(&self) -> Bytes {
        let working = self.gradients + self.activations + self.knn;
        self.parameters + self.optimizer + working + self.images
    }
}

/// Recent state of the GPU.
#[derive(Clone, Debug, Serialize)]
pub struct GpuReport {
    /// Finished iterations.
    pub iteration: u32,
    /// State of the GPU.
    #[serde(flatten)]
    pub sample: GpuSample,
}

// Completion of work in other threads.

/// Completion of some work. Any number of threads may wait for it.
#[derive(Clone, Debug)]
pub struct Completion(Arc<OnceLock<()>>);

/// Guard of the worker. The work is complete when the guard is dropped, even in a panic.
#[derive(Debug)]
pub struct Completes(Arc<OnceLock<()>>);

impl Completion {
    /// Returns the guard and the completion of future work.
    pub fn new() -> (Completes, Self) {
        let over = Arc::<OnceLock<()>>::default();
        (Completes(Arc::clone(&over)), Self(over))
    }

    /// Blocks until the work is complete.
    pub fn wait(&self) {
        self.0.wait();
    }
}

impl Drop for Completes {
    fn drop(&mut self) {
        // Only this guard sets the value, so it cannot be set already.
        self.0.set(()).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_densification_step_uses_the_event_name_of_its_strategy() {
        let counts = vec![("relocated", 3), ("born", 2), ("refused", 0)];
        let report = DensifyReport { event: "relocated", counts };
        let event = Event::Densify(DensifyStep { iteration: 600, report, gaussians: 42, ms: 1.5 });
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"event":"relocated","iteration":600,"relocated":3,"born":2,"refused":0,"gaussians":42,"ms":1.5}"#
        );
    }

    fn peak(vram: u64) -> PhasePeak {
        PhasePeak { vram: Some(Bytes(vram)), host: None }
    }

    #[test]
    fn each_phase_keeps_its_peak() {
        let mut peaks = PhasePeaks::default();
        assert_eq!((peaks.vram_of_training(), peaks.most().of_device()), (None, None));
        for (phase, vram) in [(Phase::Training, 7), (Phase::Evaluation, 9), (Phase::Training, 5)] {
            peaks.raise(phase, peak(vram));
        }
        assert_eq!(peaks.of(Phase::Training), Some(peak(7)));
        assert_eq!((peaks.of(Phase::Coarse), peaks.vram_of_training()), (None, Some(Bytes(7))));
        let mut other = PhasePeaks::default();
        other.raise(Phase::Coarse, PhasePeak { vram: None, host: Some(Bytes(3)) });
        peaks.raise_all(&other);
        let text = serde_json::to_string(&peaks).unwrap();
        let expected = r#"{"training":{"vram":7},"coarse":{"host":3},"evaluation":{"vram":9}}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<PhasePeaks>(&text).unwrap(), peaks);
        assert_eq!(peaks.most(), PhasePeak { vram: Some(Bytes(9)), host: Some(Bytes(3)) });
    }

    #[test]
    fn waiters_continue_after_completion_or_panic() {
        let (done, over) = Completion::new();
        let (panics, given_up) = Completion::new();
        let waits = [over.clone(), over, given_up]
            .map(|completion| std::thread::spawn(move || completion.wait()));
        drop(done);
        std::thread::spawn(move || {
            let _held = panics;
            std::panic::resume_unwind(Box::new(()));
        })
        .join()
        .unwrap_err();
        for wait in waits {
            wait.join().unwrap();
        }
    }
}
