//! Exit codes and the text of errors.

use std::sync::Arc;

use splat_formats::SplatFileError;
use splat_mesh::atlas::AtlasError;
use splat_mesh::compare::CompareError;
use splat_mesh::delaunay::DelaunayError;
use splat_mesh::file::MeshFileError;
use splat_mesh::poisson::PoissonError;
use splat_mesh::tsdf::FusionError;
use splat_ranks::join::{ClaimKind, JoinError};
use splat_ranks::link::LostRank;

use crate::backend::DeviceError;
use crate::config::ConfigError;
use crate::dataset::{DatasetError, ImageError};
use crate::export::{OffsetError, PlyError};
use crate::memory::Entry;
use crate::mesh::{ExposureFileError, ExtractionError};
use crate::perceptual::LpipsError;
use crate::synth::SynthError;
use crate::telemetry::{Newlines, escape_controls};
use crate::train::TrainError;
use crate::train::checkpoint::CheckpointError;

/// Outcome of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Done,
    /// Any other failure, such as an output that cannot be written or lost quality.
    Error,
    /// Wrong flag, value or configuration file.
    Usage,
    /// Unusable scene, image, checkpoint or PLY.
    Data,
    /// Too little memory.
    Memory,
    /// Failure of the device or driver.
    Device,
    /// SIGINT or SIGTERM, after a checkpoint.
    Interrupted,
}

/// Error of the command line that is found after parsing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct UsageError(pub(super) String);

impl UsageError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Notice that a resumed run is already complete. The program ends with success.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NothingToTrain(pub(super) String);

/// Unusable input.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct DataError(pub(super) String);

/// Interruption by the user.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; the checkpoint is written{}", continuation(.command.as_deref()))]
pub(super) struct Interrupted {
    /// Command that continues the run, unless the closing block shows it.
    pub(super) command: Option<String>,
}

/// Interruption by the user before the run has a checkpoint.
#[derive(Debug, thiserror::Error)]
#[error("interrupted while the ensemble trains, without a checkpoint. Start again with: {command}")]
pub(super) struct EnsembleInterrupted {
    /// Command that starts again.
    pub(super) command: String,
}

fn continuation(command: Option<&str>) -> String {
    command.map_or(String::new(), |command| format!(". Continue with: {command}"))
}

/// Lack of memory. The run wrote a checkpoint before it ended.
#[derive(Debug, thiserror::Error)]
#[error(
    "{stopped}\n{}continue with less memory: {command} {}",
    table(&self.stopped),
    self.less
)]
pub(super) struct OutOfMemory {
    #[source]
    pub(super) stopped: TrainError,
    /// Command that continues the run.
    pub(super) command: String,
    /// Flags that reduce the run's memory.
    pub(super) less: String,
}

/// Full disk.
#[derive(Debug, thiserror::Error)]
#[error("{stopped}\nFree space on this disk, then: {command}")]
pub(super) struct OutOfSpace {
    #[source]
    pub(super) stopped: TrainError,
    /// Command that continues the run.
    pub(super) command: String,
}

/// Work that does not fit the memory budget.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct DoesNotFit(pub(super) String);

/// Loss of quality against the baseline.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct QualityLost(pub(super) String);

/// Formats the largest memory entries, one per line.
fn table(stopped: &TrainError) -> String {
    let TrainError::OutOfMemory { source, .. } = stopped else { return String::new() };
    let line = |entry: &Entry| format!("{:>12.1} MiB  {}\n", entry.mapped.mib(), entry.label);
    source.largest().iter().map(line).collect()
}

type Cause = dyn std::error::Error + 'static;

/// Test for the type of a cause.
type IsType = fn(&Cause) -> bool;

/// Outcomes of causes whose type alone decides.
const BY_TYPE: [(IsType, Exit); 18] = [
    (<Cause>::is::<OutOfMemory>, Exit::Memory),
    (<Cause>::is::<DoesNotFit>, Exit::Memory),
    (<Cause>::is::<DeadRank>, Exit::Device),
    (<Cause>::is::<ConfigError>, Exit::Usage),
    (<Cause>::is::<UsageError>, Exit::Usage),
    (<Cause>::is::<DatasetError>, Exit::Data),
    (<Cause>::is::<ImageError>, Exit::Data),
    (<Cause>::is::<Arc<ImageError>>, Exit::Data),
    (<Cause>::is::<PlyError>, Exit::Data),
    (<Cause>::is::<OffsetError>, Exit::Data),
    (<Cause>::is::<LpipsError>, Exit::Data),
    (<Cause>::is::<CheckpointError>, Exit::Data),
    (<Cause>::is::<MeshFileError>, Exit::Data),
    (<Cause>::is::<ExposureFileError>, Exit::Data),
    (<Cause>::is::<DataError>, Exit::Data),
    (<Cause>::is::<Interrupted>, Exit::Interrupted),
    (<Cause>::is::<EnsembleInterrupted>, Exit::Interrupted),
    (<Cause>::is::<StoppedJoin>, Exit::Interrupted),
];

/// Returns the outcome of a cause of this type.
fn outcome<E: std::error::Error + 'static>(
    cause: &Cause,
    of: impl FnOnce(&E) -> Exit,
) -> Option<Exit> {
    cause.downcast_ref().map(of)
}

impl Exit {
    /// Returns the process exit code.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Error => 1,
            Self::Usage => 2,
            Self::Data => 3,
            Self::Memory => 4,
            Self::Device => 5,
            Self::Interrupted => 130,
        }
    }

    /// Returns the outcome of ranks that cannot join: the difference between them decides.
    fn of_join(error: &JoinError) -> Self {
        match error {
            JoinError::Refused(refusal) => match refusal.kind {
                ClaimKind::Options => Self::Usage,
                ClaimKind::Scene => Self::Data,
                ClaimKind::Version => Self::Device,
            },
            JoinError::NoHome { .. } | JoinError::NoSecret { .. } | JoinError::OnlyLocal { .. } => {
                Self::Usage
            }
            _ => Self::Device,
        }
    }

    /// Returns the outcome of another process by its exit code.
    fn of_code(code: u8) -> Self {
        let all = [Self::Usage, Self::Data, Self::Memory, Self::Device, Self::Interrupted];
        all.into_iter().find(|exit| exit.code() == code).unwrap_or(Self::Error)
    }

    /// Returns the outcome of an error, decided by its outermost cause that has one.
    pub(super) fn of(error: &anyhow::Error) -> Self {
        error.chain().find_map(Self::of_cause).unwrap_or(Self::Error)
    }

    fn of_cause(cause: &Cause) -> Option<Self> {
        let by_type = BY_TYPE.iter().find(|(is, _)| is(cause)).map(|(_, exit)| *exit);
        by_type
            .or_else(|| outcome(cause, |EndedRank(code)| Self::of_code(*code)))
            .or_else(|| outcome(cause, Self::of_join))
            .or_else(|| outcome(cause, Self::of_device))
            .or_else(|| outcome(cause, Self::of_extraction))
            .or_else(|| outcome(cause, Self::of_training))
            .or_else(|| {
                outcome(cause, |error| match error {
                    SplatFileError::Unwritable { .. } => Self::Error,
                    _ => Self::Data,
                })
            })
            .or_else(|| {
                outcome(cause, |error| match error {
                    CompareError::Threshold { .. } => Self::Usage,
                    CompareError::Mesh { .. } | CompareError::NoArea { .. } => Self::Data,
                })
            })
            .or_else(|| match cause.downcast_ref() {
                Some(SynthError::OutOfRange { .. }) => Some(Self::Usage),
                _ => None,
            })
    }

    fn of_training(error: &TrainError) -> Self {
        match error {
            TrainError::Device(error) => Self::of_device(error),
            TrainError::OutOfMemory { .. } => Self::Memory,
            TrainError::NoImages { .. } | TrainError::Checkpoint(_) | TrainError::Render(_) => {
                Self::Data
            }
            TrainError::Output(_) | TrainError::NoSpace { .. } | TrainError::Emptied { .. } => {
                Self::Error
            }
        }
    }

    fn of_extraction(error: &ExtractionError) -> Self {
        match error {
            ExtractionError::EmptyBox { .. }
            | ExtractionError::HalfBox { .. }
            | ExtractionError::OutOfRange { .. }
            | ExtractionError::NoTexturedFormat
            | ExtractionError::Atlas(
                AtlasError::TooLarge { .. }
                | AtlasError::TooSmall { .. }
                | AtlasError::Square { .. },
            )
            | ExtractionError::Poisson(PoissonError::Depth { .. }) => Self::Usage,
            ExtractionError::TooManyPoints { .. }
            | ExtractionError::SurfacePoints { .. }
            | ExtractionError::Delaunay(DelaunayError::Memory { .. })
            | ExtractionError::Poisson(PoissonError::TooManyBricks { .. })
            | ExtractionError::TextureMemory { .. } => Self::Memory,
            ExtractionError::Fusion(error) => Self::of_fusion(error),
            ExtractionError::Device(error) => Self::of_device(error),
            ExtractionError::Output(_) => Self::Error,
            ExtractionError::NoGaussians { .. }
            | ExtractionError::NoViews { .. }
            | ExtractionError::TooManyGaussians { .. }
            | ExtractionError::Delaunay(_)
            | ExtractionError::Cut(_)
            | ExtractionError::Points(_)
            | ExtractionError::Atlas(_)
            | ExtractionError::Poisson(_)
            | ExtractionError::Trim(_)
            | ExtractionError::NothingLeft { .. }
            | ExtractionError::DecimatedAway { .. }
            | ExtractionError::PeeledAway { .. }
            | ExtractionError::Clean(_) => Self::Data,
        }
    }

    fn of_fusion(error: &FusionError) -> Self {
        match error {
            FusionError::NoSize { .. } | FusionError::TooFine { .. } => Self::Usage,
            FusionError::TooManyBricks { .. } => Self::Memory,
            _ => Self::Data,
        }
    }

    /// Returns the outcome of a device error. A diverged optimisation is no failure of the device.
    fn of_device(error: &DeviceError) -> Self {
        match error {
            DeviceError::Unavailable(_)
            | DeviceError::NoDriver
            | DeviceError::DriverTooOld { .. }
            | DeviceError::NoGpu { .. }
            | DeviceError::NoCode { .. }
            | DeviceError::Exchange(_)
            | DeviceError::RankDevice { .. }
            | DeviceError::Driver { .. } => Self::Device,
            DeviceError::Refused(_)
            | DeviceError::OutOfMemory { .. }
            | DeviceError::HostRefused(_)
            | DeviceError::OutOfHostMemory { .. }
            | DeviceError::DriverOutOfMemory { .. } => Self::Memory,
            DeviceError::TooManyGaussians { .. }
            | DeviceError::TooManyInstances { .. }
            | DeviceError::ImageTooLarge { .. }
            | DeviceError::NoView
            | DeviceError::MissingInput { .. }
            | DeviceError::NeedsSurfels { .. }
            | DeviceError::NoRoomForColors
            | DeviceError::NoMedianDepths
            | DeviceError::NoSuchTable { .. }
            | DeviceError::NoSuchRow { .. }
            | DeviceError::OtherFaces { .. }
            | DeviceError::KeptNotAscending
            | DeviceError::NeighbourCount { .. }
            | DeviceError::StaleCandidates { .. }
            | DeviceError::StaleSelection
            | DeviceError::UnsuitedEdit
            | DeviceError::StaleNeighbours { .. }
            | DeviceError::NotFinite { .. }
            | DeviceError::OfRank { .. }
            | DeviceError::LossNotFinite { .. }
            | DeviceError::TooManyViews { .. }
            | DeviceError::TooSmallForLpips { .. }
            | DeviceError::TargetSize { .. }
            | DeviceError::Unsupported { .. } => Self::Error,
            DeviceError::OtherScene { .. } => Self::Data,
            DeviceError::Fusion(error) => Self::of_fusion(error),
        }
    }
}

/// Returns the device error that caused an error, if any.
pub(super) fn device_error(error: &anyhow::Error) -> Option<&DeviceError> {
    error.chain().find_map(|cause| match cause.downcast_ref::<TrainError>() {
        Some(TrainError::Device(error)) => Some(error),
        Some(TrainError::OutOfMemory { source, .. }) => Some(source),
        _ => cause.downcast_ref::<DeviceError>(),
    })
}

/// Joins the messages of an error and its causes without repetition. Newlines are kept only for errors that show a
/// table or a position in a file, not for names in other errors.
pub(super) fn message(error: &anyhow::Error) -> String {
    let has_lines = |cause: &Cause| {
        cause.is::<OutOfMemory>()
            || cause.is::<OutOfSpace>()
            || cause.is::<DoesNotFit>()
            || cause.is::<ConfigError>()
            || matches!(cause.downcast_ref(), Some(TrainError::OutOfMemory { .. }))
    };
    let newlines = if error.chain().any(has_lines) { Newlines::Kept } else { Newlines::Escaped };
    let mut message = String::new();
    for cause in error.chain() {
        let text = escape_controls(&cause.to_string(), newlines);
        if message.is_empty() {
            message = text;
        } else if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
    }
    message
}

// Errors of runs with several processes.

/// Failure of another process, which has already printed its reason.
#[derive(Debug, thiserror::Error)]
#[error("a process of the run ended with exit code {0}, as it says above")]
pub(super) struct EndedRank(pub(super) u8);

/// Death of a rank.
#[derive(Debug, thiserror::Error)]
#[error(
    "{lost}. The other ranks are ended. The last checkpoint, if there is one, resumes the run: {command}"
)]
pub(super) struct DeadRank {
    pub(super) lost: LostRank,
    /// Command that continues the run.
    pub(super) command: String,
}

/// Interruption while waiting for other ranks.
#[derive(Debug, thiserror::Error)]
#[error("interrupted before all ranks had come together; nothing is trained")]
pub(super) struct StoppedJoin;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Bytes, CardSharing, Refusal};

    fn refusal() -> DeviceError {
        let sharing =
            Some(CardSharing { card: Bytes(140), foreign: Bytes(135), reserve: Bytes(4) });
        let (wanted, held, budget) = (Bytes(2), Bytes(0), Bytes(1));
        Refusal { label: "sort", wanted, held, budget, largest: Vec::new(), sharing }.into()
    }

    #[test]
    fn a_device_error_is_found_in_any_wrapper() {
        let stopped =
            TrainError::OutOfMemory { source: Box::new(refusal()), checkpoint: "a".into() };
        let (command, less) = ("splat train".to_owned(), "-r 4".to_owned());
        for error in [
            anyhow::Error::from(refusal()),
            anyhow::Error::from(TrainError::Device(refusal())).context("rendering"),
            OutOfMemory { stopped, command, less }.into(),
        ] {
            let found = device_error(&error).unwrap();
            assert!(found.is_short_beside_others(), "{found}");
            assert_eq!(Exit::of(&error), Exit::Memory, "{error:#}");
            assert!(!message(&error).contains("most in"), "{error:#}");
        }
        assert!(device_error(&anyhow::anyhow!("another")).is_none());
    }
}
