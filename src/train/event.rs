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
use crate::memory::{Bytes, RungChange};
use crate::perceptual::LpipsNet;

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
        /// Divisor of the photographs' sides.
        divisor: u32,
    },
    /// Something was given up because the device's memory is short, or taken back.
    Rung {
        /// Finished iterations.
        iteration: u32,
        /// The fallback, and the bytes that it freed.
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
        /// Duration, seconds.
        seconds: f64,
    },
    /// Values of the surface terms, every 100 iterations of the coarse stage.
    Surface(SurfaceReport),
    /// Bytes held, every 100 iterations.
    Memory(MemoryReport),
    /// The size of every buffer; only with `--profile-tensors`.
    Buffers(Buffers),
    /// State of the GPU, every 50 iterations; reported by the sinks themselves.
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
    /// The page that shows the run asked for something, and it is done.
    Control {
        /// Finished iterations.
        iteration: u32,
        /// The request.
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
        /// Seconds beside training.
        #[serde(flatten)]
        times: RunTimes,
    },
    /// A round of density control is done; its strategy names the event.
    #[serde(untagged)]
    Round(Round),
}

/// Seconds of a run beside training.
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

/// Report of a densification step, in the words of its strategy.
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
    /// Report of the strategy.
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

// Steps: values of the loss terms, and number of Gaussians.

/// Values of terms by their keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TermValues(pub Vec<(&'static str, f64)>);

impl TermValues {
    /// Returns the pairs that belong to the terms of a topic.
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

/// One finished step.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Finished iterations of the schedule before it.
    #[serde(skip)]
    pub before: u32,
    /// Finished iterations of the schedule: one for each image, unless
    /// the run has a time budget or a limit of passes over few views.
    pub iteration: u32,
    /// Images of the step; values are means over them.
    #[serde(skip)]
    pub images: u32,
    /// Iterations that the run ends at.
    pub iterations: u32,
    /// Values of the terms, without their weights: `l1` and `ssim`, `depth_l1` and `normals` where the
    /// view has a map of its inverse depths or normals, and of surfels `dn` and `distortion`. In SuGaR's
    /// coarse stage those of surface terms are in a [`SurfaceReport`].
    #[serde(flatten)]
    pub values: TermValues,
    /// The part of the loss that compares with the photograph.
    pub total: f64,
    /// Gaussians.
    pub gaussians: usize,
    /// Milliseconds from the end of the step before to the end of this one, for each image, waits for
    /// images included; density control, evaluation and saving excluded.
    pub ms: f64,
}

impl Step {
    /// The iterations that passed with it.
    pub fn span(&self) -> ImageSpan {
        ImageSpan { before: self.before, after: self.iteration }
    }
}

/// The surface terms of an iteration, each without its weight and absent where it is off, and how near
/// the Gaussians lie to the surface that they draw.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SurfaceReport {
    /// Finished iterations.
    pub iteration: u32,
    /// Values of the surface terms without their weights.
    #[serde(flatten)]
    pub values: TermValues,
    /// Share of the Gaussians near the drawn surface, 0..1; every 1,000 iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_near_surface: Option<f64>,
    /// Mean of the Gaussians' smallest scales, world units; every 1,000 iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_thickness: Option<f64>,
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

// Evaluations: views compared with their photographs.

/// Split of the views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Views trained on.
    Train,
    /// Views held out.
    Test,
    /// Some of the views trained on: those that `--eval-train` asks for.
    #[value(skip)]
    #[serde(rename = "eval_train")]
    EvalTrain,
}

impl Split {
    /// `train`, `test` or `eval_train`, as folders and tags spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
            Self::EvalTrain => "eval_train",
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
    /// As the reference trainers measure, where that is wanted.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub reference: Option<ReferenceMetrics>,
}

/// Figures that `metrics.py` of the reference trainers prints for the PNGs of a render and its photograph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReferenceMetrics {
    /// Structural similarity, mean over all pixels; beyond the border is black.
    #[serde(rename = "ref_ssim")]
    pub ssim: f64,
    /// LPIPS of VGG16, fed with 0..1.
    #[serde(rename = "ref_lpips", skip_serializing_if = "Option::is_none")]
    pub lpips: Option<f64>,
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
    /// Position in the split, which views without metrics have, too.
    #[serde(skip)]
    pub position: usize,
    /// Name of the image in the scene.
    pub name: String,
    /// Width and height.
    #[serde(skip)]
    pub px: [u32; 2],
    /// Its metrics.
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
    /// The network of their LPIPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lpips_net: Option<LpipsNet>,
    /// Gaussians.
    pub gaussians: usize,
    /// Each view that could be measured, in the order of names.
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
    /// Split of the view.
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
    /// Depths, as a heat map, where they were drawn.
    #[serde(skip)]
    pub depth: Option<Arc<Picture>>,
    /// Normals as colours, where they were drawn.
    #[serde(skip)]
    pub normals: Option<Arc<Picture>>,
}

// The prune to `--target-gaussians`.

/// The prune to `--target-gaussians`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    /// Finished iterations.
    pub iteration: u32,
    /// Gaussians that were to stay.
    pub target: usize,
    /// Gaussians removed; none where there were no more than were to stay.
    pub pruned: usize,
    /// Gaussians afterwards.
    pub gaussians: usize,
    /// PSNR before and after. Absent if none was removed, or no view could be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psnr: Option<TargetPsnr>,
}

/// PSNR of the same views before and after the prune.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetPsnr {
    /// `test` or `eval_train`: which views were measured.
    pub split: String,
    /// Mean over the views in dB; nothing where it is not finite.
    pub before: Option<f64>,
    /// PSNR after the prune, dB.
    pub after: Option<f64>,
}

// Requests of the page that shows a run.

/// Request of the page.
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
    /// Returns the word for the request in logs.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Pause => "Paused from the page",
            Self::Resume => "Resumed from the page",
            Self::Checkpoint => "Checkpoint asked for from the page",
            Self::Stop => "Stopping from the page, with a checkpoint",
        }
    }
}

// Phases of a run, by which memory is counted.

/// Phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Iterations, but for those of the coarse stage.
    Training,
    /// A round of density control.
    DensityControl,
    /// A comparison of views with their photographs.
    Evaluation,
    /// Writing a PLY or a checkpoint.
    Saving,
    /// Iterations of SuGaR's coarse stage.
    Coarse,
}

impl Phase {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 5] =
        [Self::Training, Self::DensityControl, Self::Coarse, Self::Evaluation, Self::Saving];

    /// As tags and keys spell it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::DensityControl => "density_control",
            Self::Evaluation => "evaluation",
            Self::Saving => "saving",
            Self::Coarse => "coarse",
        }
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::DensityControl => "density control",
            Self::Coarse => "coarse training",
            Self::Training | Self::Evaluation | Self::Saving => self.key(),
        }
    }
}

// The most memory that each phase of a run took.

/// The most memory at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhasePeak {
    /// Taken of a device that has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram: Option<Bytes>,
    /// Resident on the host, where the system reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Bytes>,
}

impl PhasePeak {
    /// Peak of the device's own memory, or of the host's if it has none.
    pub fn of_device(self) -> Option<Bytes> {
        self.vram.or(self.host)
    }

    fn raised(self, other: Self) -> Self {
        Self { vram: self.vram.max(other.vram), host: self.host.max(other.host) }
    }
}

/// The peaks of the phases that a run has been in; in JSON an object of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhasePeaks {
    /// In the order of [`Phase::ALL`].
    of_phases: [Option<PhasePeak>; Phase::ALL.len()],
}

impl PhasePeaks {
    /// The peak of a phase, if the run was in it.
    pub fn of(&self, phase: Phase) -> Option<PhasePeak> {
        self.iter().find(|(found, _)| *found == phase).map(|(_, peak)| peak)
    }

    /// The phases that the run was in, with their peaks.
    pub fn iter(&self) -> impl Iterator<Item = (Phase, PhasePeak)> {
        Phase::ALL.into_iter().zip(self.of_phases).filter_map(|(phase, peak)| Some((phase, peak?)))
    }

    /// Takes in what a phase needed now.
    pub fn raise(&mut self, phase: Phase, peak: PhasePeak) {
        for (known, found) in Phase::ALL.into_iter().zip(&mut self.of_phases) {
            if known == phase {
                *found = Some(found.unwrap_or_default().raised(peak));
            }
        }
    }

    /// Takes in what another start of the program needed.
    pub fn raise_all(&mut self, other: &Self) {
        other.iter().for_each(|(phase, peak)| self.raise(phase, peak));
    }

    /// The most of all phases.
    pub fn most(&self) -> PhasePeak {
        self.iter().fold(PhasePeak::default(), |most, (_, peak)| most.raised(peak))
    }

    /// The most of the device's own memory outside of evaluations and saving.
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
    /// Phases of a later version are passed over.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = BTreeMap::<String, PhasePeak>::deserialize(deserializer)?;
        let of_phases = Phase::ALL.map(|phase| found.get(phase.key()).copied());
        Ok(Self { of_phases })
    }
}

// Memory, and the state of the GPU.

/// Bytes held by the run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MemoryReport {
    /// Finished iterations.
    pub iteration: u32,
    /// Buffers of the device by category.
    pub tensors: Tensors,
    /// Memory of a device that has its own.
    pub vram: Option<Vram>,
    /// Page-locked memory of the host that a part of the model on a GPU lies in. Systems count it in no
    /// process, or as shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offloaded: Option<Bytes>,
    /// Resident host memory of the process, where the system tells it.
    pub host_resident: Option<Bytes>,
    /// RAM of the machine, where the system tells it.
    pub host_total: Option<Bytes>,
    /// RAM that the program may use of it.
    pub host_limit: Option<Bytes>,
    /// On a device without memory of its own, growth of the process that nothing explains: of
    /// `host_resident`, photographs aside, as [`Vram::creep`] is of `allocated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_creep: Option<Bytes>,
    /// The most so far, by what the run was doing.
    pub peaks: PhasePeaks,
}

/// Contents of a buffer that is counted as a large one.
pub const LARGE: Bytes = Bytes(100 << 20);

/// Bytes of a device's own memory that the program holds, context and code included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Vram {
    /// Bytes that hold something between two iterations.
    pub allocated: Bytes,
    /// Bytes taken from the device.
    pub reserved: Bytes,
    /// Bytes of the driver and of code.
    pub context: Bytes,
    /// Bytes of photographs.
    pub photographs: Bytes,
    /// Bytes that hold the buffers of an iteration.
    pub scratch: Bytes,
    /// Of what is taken, bytes that serve nothing: of regions what lies behind their values, of the
    /// scratch of an iteration what none of the recent ones came to use.
    pub slack: Bytes,
    /// Growth that nothing explains: of `allocated`, photographs aside, since the model has had its
    /// present number of Gaussians for 100 iterations. Nothing before that.
    pub creep: Option<Bytes>,
    /// Buffers that hold [`LARGE`] and more between two iterations.
    pub large_count: usize,
    /// Budget of the device's memory.
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

/// Bytes of the device's buffers by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensors {
    /// Trained parameters.
    pub parameters: Bytes,
    /// Adam's moments and density statistics.
    pub optimizer: Bytes,
    /// Gradients of the last iteration.
    pub gradients: Bytes,
    /// Bytes that the last forward pass kept for the backward pass.
    pub activations: Bytes,
    /// Decoded photographs that are kept, on the host and on the device.
    pub images: Bytes,
    /// Lists of the Gaussians' nearest neighbours. Logs of older programs have none.
    #[serde(default)]
    pub knn: Bytes,
}

impl Tensors {
    /// All categories together.
    pub fn total(&self) -> Bytes {
        let working = self.gradients + self.activations + self.knn;
        self.parameters + self.optimizer + working + self.images
    }
}

/// State of the GPU shortly before.
#[derive(Clone, Debug, Serialize)]
pub struct GpuReport {
    /// Finished iterations.
    pub iteration: u32,
    /// State of the GPU.
    #[serde(flatten)]
    pub sample: GpuSample,
}

// Work that another thread does, and those who wait for its end.

/// The end of some work, for which any number of threads may wait.
#[derive(Clone, Debug)]
pub struct Completion(Arc<OnceLock<()>>);

/// Held by who does the work: it is over when this value goes, also in a panic.
#[derive(Debug)]
pub struct Completes(Arc<OnceLock<()>>);

impl Completion {
    /// Returns the completion of work that is still to be done.
    pub fn new() -> (Completes, Self) {
        let over = Arc::<OnceLock<()>>::default();
        (Completes(Arc::clone(&over)), Self(over))
    }

    /// Returns when the work is over.
    pub fn wait(&self) {
        self.0.wait();
    }
}

impl Drop for Completes {
    fn drop(&mut self) {
        // Nobody else sets it.
        self.0.set(()).ok();
    }
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

    fn peak(vram: u64) -> PhasePeak {
        PhasePeak { vram: Some(Bytes(vram)), host: None }
    }

    #[test]
    fn each_phase_keeps_its_most() {
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
    fn those_who_wait_go_on_when_the_work_is_over_or_panics() {
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
