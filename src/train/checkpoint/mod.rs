//! Snapshots of a run in safetensors, from which it goes on as if it had never stopped.
//!
//! Randomness is drawn from (seed, iteration, purpose) and the order of views from (seed, epoch),
//! so that the iteration and the configuration are all the state there is besides the model.
//!
//! Values are in single precision, whatever precision a device keeps them in: a checkpoint goes on
//! with `--optimize-memory` and without, on a GPU and on the processor. Models pass to the file and
//! back in chunks of rows; the host holds one chunk.

mod appearance;
mod bound;
mod columns;
mod faces;
mod keeper;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::io;
use std::path::{Path, PathBuf};

pub(super) use faces::FACE_BYTES;
pub use faces::FaceState;
pub(super) use keeper::{BesideRows, CheckpointKeeper, row_bytes};
pub use read::{StoredCheckpoint, is_checkpoint, is_timed};

use crate::config::{Config, ConfigError};
use crate::files::numbered;
use crate::memory::TrainingScale;
use crate::train::passed::{Paced, Passed};

/// What the files call themselves.
const FORMAT: &str = "splat checkpoint";

/// Raised when the meaning of a tensor or a metadata key changes.
const VERSION: &str = "1";

/// Metadata of a checkpoint that was written because of the time.
const BY_TIME: (&str, &str) = ("written", "by time");

/// Metadata of a checkpoint whose run draws views smaller than they are: how often by 0.9.
const TRAINING_SCALE: &str = "training_scale";

/// Metadata of [`Paced`]: images, iterations before the last step, and seconds of training.
const IMAGES: &str = "images";
const ITERATION_BEFORE: &str = "iteration_before";
const TRAINING_SECONDS: &str = "training_seconds";

/// Why a checkpoint was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Occasion {
    /// The run's options name its iteration, or the run ended there.
    #[default]
    Asked,
    /// The time since the one before: when newer ones are there, it is removed.
    Time,
}

/// A run that stopped, or could have, without its model.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Finished iterations.
    pub iteration: u32,
    /// Everything resolved.
    pub config: Config,
    /// Names of the views that were trained on, in their order.
    pub train_views: Vec<String>,
    /// Why it was written.
    pub occasion: Occasion,
    /// The size at which views were drawn, where memory was short.
    pub training_scale: TrainingScale,
    /// How far a run had come whose iterations do not pass with its images.
    pub paced: Option<Paced>,
}

impl Checkpoint {
    /// How far the run had come.
    pub fn progress(&self) -> Passed {
        let iteration = self.iteration;
        let Some(Paced { images, seconds, .. }) = self.paced else {
            return Passed { iteration, images: iteration, seconds: 0.0 };
        };
        Passed { iteration, images, seconds: seconds.unwrap_or(0.0) }
    }
}

/// A checkpoint that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be opened or read.
    #[error("{path}: the checkpoint cannot be read: {source}. Check its permissions")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is truncated or garbage.
    #[error("{path}: the checkpoint is damaged: {problem}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Another version of the program wrote it.
    #[error(
        "{path}: the checkpoint has version {found}, this program reads version {VERSION}. Resume \
         it with the program that wrote it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
    },
    /// It holds fewer harmonics than were asked for.
    #[error(
        "{path}: has SH degree {found}, below --sh-degree {wanted}. Resume with --sh-degree {found} or less, or \
         train from the start"
    )]
    ShDegree {
        /// The file.
        path: PathBuf,
        /// Its degree.
        found: u32,
        /// The degree asked for.
        wanted: u32,
    },
    /// The configuration inside cannot be read.
    #[error("{path}: the configuration in the checkpoint cannot be used: {source}")]
    Config {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<ConfigError>,
    },
}

/// Where the checkpoint of `iteration` lies.
pub fn path(model_path: &Path, iteration: u32) -> PathBuf {
    model_path.join("checkpoints").join(format!("chkpnt_{iteration}.safetensors"))
}

/// The checkpoints of a model folder, newest first.
pub fn list(model_path: &Path) -> Vec<PathBuf> {
    let number =
        |name: &str| name.strip_prefix("chkpnt_")?.strip_suffix(".safetensors")?.parse().ok();
    let found = numbered(&model_path.join("checkpoints"), number);
    found.into_iter().rev().map(|(_, path)| path).collect()
}
