//! State of a run besides the model.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::backend::{NeighbourLists as _, Pending as _, Terms, TrainDevice};
use crate::config::Config;
use crate::dataset::{Dataset, View};
use crate::memory::{Bytes, peak_resident_memory, resident_memory};
use crate::train::coarse::CoarseSchedule;
use crate::train::event::{Phase, PhasePeak, PhasePeaks};
use crate::train::pace::Turn;
use crate::train::span::ImageSpan;

// Training time: iterations with their reports and memory changes, and density control, but not
// evaluation and saving.

/// Seconds of training, and the part of them that reports have covered.
#[derive(Debug, Default)]
pub(super) struct TrainingClock {
    seconds: f64,
    /// Seconds at the end of the last reported iteration.
    reported_seconds: f64,
}

impl TrainingClock {
    /// Counts the time since `started` as training and as part of the next report.
    pub(super) fn add_since(&mut self, started: Instant) {
        self.seconds += started.elapsed().as_secs_f64();
    }

    /// Counts the time since `started` as training but not as part of an iteration.
    pub(super) fn add_beside_iterations(&mut self, started: Instant) {
        let seconds = started.elapsed().as_secs_f64();
        self.seconds += seconds;
        self.reported_seconds += seconds;
    }

    /// Returns the milliseconds since the last report.
    pub(super) fn take_report_ms(&mut self) -> f64 {
        let ms = (self.seconds - self.reported_seconds) * 1e3;
        self.reported_seconds = self.seconds;
        ms
    }

    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }
}

// Peak memory of each phase on device and host.

#[derive(Debug, Default)]
pub(super) struct PeakRecorder {
    pub(super) peaks: PhasePeaks,
    /// Peak of the process's RAM at the end of the last phase.
    host_most: Option<Bytes>,
    /// RAM of the process at the end of the last phase.
    host_before: Option<Bytes>,
}

impl PeakRecorder {
    /// Ends a phase. `vram`: peak on the device since the last phase.
    pub(super) fn end(&mut self, phase: Phase, vram: Option<Bytes>) {
        let (now, most) = (resident_memory(), peak_resident_memory());
        // The system only reports the peak of the whole process. It belongs to this phase if it has risen.
        let host = if most > self.host_most { most } else { now.max(self.host_before) };
        (self.host_most, self.host_before) = (most, now);
        self.peaks.raise(phase, PhasePeak { vram, host });
    }
}

/// State of a run's coarse stage.
pub(super) struct CoarseState<B: TrainDevice> {
    pub(super) schedule: CoarseSchedule,
    /// True if the stage has begun.
    pub(super) has_begun: bool,
    /// Nearest neighbours of all Gaussians.
    pub(super) near: Option<B::Lists>,
    /// Last value of each surface term.
    pub(super) losses: BTreeMap<u32, (&'static str, f64)>,
}

impl<B: TrainDevice> CoarseState<B> {
    pub(super) fn new(schedule: CoarseSchedule) -> Self {
        Self { schedule, has_begun: false, near: None, losses: BTreeMap::new() }
    }

    /// Drops lists of more than `most` neighbours.
    pub(super) fn drop_longer_lists(&mut self, most: u32) {
        self.near.take_if(|near| near.count() > most);
    }
}

/// Progress towards the target PSNR.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReachedPsnr {
    /// Highest measured PSNR, dB.
    pub(super) best: Option<f64>,
    /// True if the target is reached.
    pub(super) is_enough: bool,
}

// Steps whose losses are not read yet.

/// Step whose losses are not read yet.
pub(super) struct PendingStep<B: TrainDevice> {
    pub(super) turn: Turn,
    pub(super) gaussians: usize,
    pub(super) views: Vec<PendingView<B>>,
}

/// View of a pending step.
pub(super) struct PendingView<B: TrainDevice> {
    pub(super) terms: Terms,
    /// Loss values at pixels and at samples.
    pub(super) losses: [B::Losses; 2],
}

impl<B: TrainDevice> PendingStep<B> {
    /// True if the losses can be read without waiting.
    pub(super) fn is_ready(&self) -> bool {
        self.views.last().is_none_or(|view| view.losses[0].is_ready())
    }
}

// Schedule of the pictures of `--timelapse`.

/// Number of pictures of a run: ten seconds at 30 per second.
const PICTURES: u32 = 300;

/// Largest side of a picture, px.
const LARGEST_PX: u32 = 720;

/// View whose pictures are kept.
#[derive(Debug)]
pub(in crate::train) struct Timelapse {
    /// View at the size of the pictures.
    pub(in crate::train) view: View,
    /// Last image of the run.
    last: u32,
}

impl Timelapse {
    /// Returns the timelapse of a run, if its scene has the view.
    pub(in crate::train) fn of(config: &Config, dataset: &Dataset) -> Option<Self> {
        let name = config.output.timelapse.as_deref()?;
        let view = dataset.views.iter().find(|view| view.name == name)?;
        let [width, height] = even_within(view.camera.width, view.camera.height);
        let camera = view.camera.resized(width, height);
        let view = View { camera, ..view.clone() };
        Some(Self { view, last: config.last_iteration().max(1) })
    }

    /// True if a picture is due after a step.
    pub(in crate::train) fn is_due(&self, span: ImageSpan) -> bool {
        self.number(span.after) > self.number(span.before)
    }

    /// Returns the number of pictures up to an image. Most come early, when a model changes most.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to the number of pictures"
    )]
    fn number(&self, image: u32) -> u32 {
        let share = f64::from(image.min(self.last)) / f64::from(self.last);
        (f64::from(PICTURES) * share.sqrt()) as u32
    }
}

/// Returns the size of a picture. Both sides are even, as video encoders require.
fn even_within(width: u32, height: u32) -> [u32; 2] {
    let longest = width.max(height).max(1);
    let side = |px: u32| {
        let px = if longest > LARGEST_PX {
            u64::from(px) * u64::from(LARGEST_PX) / u64::from(longest)
        } else {
            u64::from(px)
        };
        u32::try_from(px).unwrap_or(LARGEST_PX).div_ceil(2) * 2
    };
    [side(width), side(height)]
}

/// Manner of writing a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WritingMode {
    /// By a thread from a copy of the model, if the host has memory for it.
    OnThread,
    /// Immediately, in chunks.
    AtOnce,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Camera, Pose};

    fn timelapse(last: u32) -> Timelapse {
        let camera = Camera { width: 4, height: 4, focal_px: [4.0; 2], centre_px: [2.0; 2] };
        let pose = Pose { rotation: [[0.0; 3]; 3], translation: [0.0; 3] };
        Timelapse { view: View { name: String::new(), camera, pose }, last }
    }

    #[test]
    fn a_long_run_has_three_hundred_pictures_and_most_come_early() {
        let of = timelapse(30_000);
        let due: Vec<u32> = (1..=30_000).filter(|&image| of.is_due(ImageSpan::of(image))).collect();
        assert_eq!((due.len(), due.last()), (300, Some(&30_000)));
        let of_first = due.iter().filter(|&&image| image <= 7500);
        assert_eq!(of_first.count(), 150, "half of them in a quarter of the run");
        // In a short run every step has a picture.
        let of = timelapse(20);
        assert!((1..=20).all(|image| of.is_due(ImageSpan::of(image))));
    }

    #[test]
    fn pictures_have_even_sides_of_the_views_shape() {
        assert_eq!(even_within(1600, 1200), [720, 540]);
        assert_eq!(even_within(47, 36), [48, 36]);
        assert_eq!(even_within(90, 30_000), [2, 720]);
    }
}
