//! Exit codes, and the one place where an error becomes text.

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

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// Everything is done.
    Done,
    /// Something failed that is neither of the below; as a rule an output that cannot be written, or
    /// quality that was lost.
    Error,
    /// Flags, values, configuration files.
    Usage,
    /// Scene, images, checkpoint, PLY.
    Data,
    /// The plan does not fit the memory budget.
    Memory,
    /// Device or driver.
    Device,
    /// SIGINT or SIGTERM, after a checkpoint.
    Interrupted,
}

/// A wrong command line that only shows once other things are known.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct UsageError(pub(super) String);

/// A run that is resumed has done all that is asked for. It is left as it is, and the program ends as after
/// a run that trained.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NothingToTrain(pub(super) String);

/// Input that is there but does not serve.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct DataError(pub(super) String);

/// A run that was asked to stop.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; the checkpoint is written{}", continuation(.command.as_deref()))]
pub(super) struct Interrupted {
    /// The command that continues the run, unless the closing block names the command.
    pub(super) command: Option<String>,
}

fn continuation(command: Option<&str>) -> String {
    command.map_or(String::new(), |command| format!(". Continue with: {command}"))
}

/// The run ran out of GPU memory and ended after writing a checkpoint.
#[derive(Debug, thiserror::Error)]
#[error(
    "{stopped}\n{}continue with less memory: {command} {}",
    table(&self.stopped),
    self.less
)]
pub(super) struct OutOfMemory {
    #[source]
    pub(super) stopped: TrainError,
    /// The command that continues the run.
    pub(super) command: String,
    /// Flags with which the run takes less memory.
    pub(super) less: String,
}

/// The run met a full disk and ended.
#[derive(Debug, thiserror::Error)]
#[error("{stopped}\nFree space on this disk, then: {command}")]
pub(super) struct OutOfSpace {
    #[source]
    pub(super) stopped: TrainError,
    /// The command that continues the run.
    pub(super) command: String,
}

/// A plan that was printed does not fit the budget.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct DoesNotFit(pub(super) String);

/// A run that is compared is worse than its baseline.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct QualityLost(pub(super) String);

/// The entries that hold most, a line each.
fn table(stopped: &TrainError) -> String {
    let TrainError::OutOfMemory { source, .. } = stopped else { return String::new() };
    let line = |entry: &Entry| format!("{:>12.1} MiB  {}\n", entry.mapped.mib(), entry.label);
    source.largest().iter().map(line).collect()
}

impl Exit {
    /// The number that a shell sees.
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

    /// That ranks do not come together: what differs says whose fault it is.
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

    /// What a code says of another process of the run.
    fn of_code(code: u8) -> Self {
        let all = [Self::Usage, Self::Data, Self::Memory, Self::Device, Self::Interrupted];
        all.into_iter().find(|exit| exit.code() == code).unwrap_or(Self::Error)
    }

    /// The code of an error, by the first of its causes that has one.
    pub(super) fn of(error: &anyhow::Error) -> Self {
        error.chain().find_map(Self::of_cause).unwrap_or(Self::Error)
    }

    fn of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Self> {
        if cause.is::<OutOfMemory>() || cause.is::<DoesNotFit>() {
            return Some(Self::Memory);
        }
        if let Some(EndedRank(code)) = cause.downcast_ref() {
            return Some(Self::of_code(*code));
        }
        if let Some(JoinFailed { source }) = cause.downcast_ref() {
            return Some(Self::of_join(source));
        }
        if cause.is::<DeadRank>() {
            return Some(Self::Device);
        }
        if cause.is::<ConfigError>() || cause.is::<UsageError>() {
            return Some(Self::Usage);
        }
        if cause.is::<DatasetError>()
            || cause.is::<ImageError>()
            || cause.is::<Arc<ImageError>>()
            || cause.is::<PlyError>()
            || cause.is::<OffsetError>()
            || cause.is::<LpipsError>()
            || cause.is::<CheckpointError>()
            || cause.is::<MeshFileError>()
            || cause.is::<ExposureFileError>()
            || cause.is::<DataError>()
        {
            return Some(Self::Data);
        }
        match cause.downcast_ref::<SplatFileError>() {
            Some(SplatFileError::Unwritable { .. }) => return Some(Self::Error),
            Some(_) => return Some(Self::Data),
            None => {}
        }
        if let Some(error) = cause.downcast_ref::<DeviceError>() {
            return Some(Self::of_device(error));
        }
        if cause.is::<Interrupted>() || cause.is::<StoppedJoin>() {
            return Some(Self::Interrupted);
        }
        match cause.downcast_ref::<TrainError>() {
            Some(TrainError::Device(error)) => return Some(Self::of_device(error)),
            Some(TrainError::OutOfMemory { .. }) => return Some(Self::Memory),
            Some(TrainError::NoImages { .. } | TrainError::Checkpoint(_)) => {
                return Some(Self::Data);
            }
            Some(
                TrainError::Output(_) | TrainError::NoSpace { .. } | TrainError::Emptied { .. },
            ) => return Some(Self::Error),
            None => {}
        }
        if let Some(error) = cause.downcast_ref::<ExtractionError>() {
            return Some(Self::of_extraction(error));
        }
        match cause.downcast_ref::<CompareError>() {
            Some(CompareError::Threshold { .. }) => return Some(Self::Usage),
            Some(CompareError::Mesh { .. } | CompareError::NoArea { .. }) => {
                return Some(Self::Data);
            }
            None => {}
        }
        match cause.downcast_ref::<SynthError>() {
            Some(SynthError::OutOfRange { .. }) => Some(Self::Usage),
            _ => None,
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

    /// That an optimisation diverged is no fault of the device.
    fn of_device(error: &DeviceError) -> Self {
        match error {
            DeviceError::Unavailable(_)
            | DeviceError::NoDriver
            | DeviceError::DriverTooOld { .. }
            | DeviceError::NoGpu { .. }
            | DeviceError::NoCode { .. }
            | DeviceError::Exchange(_)
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
            | DeviceError::StaleNeighbours { .. } => Self::Error,
            DeviceError::NotFinite { .. }
            | DeviceError::OfRank { .. }
            | DeviceError::LossNotFinite { .. }
            | DeviceError::TooManyViews { .. }
            | DeviceError::TooSmallForLpips { .. }
            | DeviceError::TargetSize { .. }
            | DeviceError::Unsupported { .. } => Self::Error,
            DeviceError::RankDevice { .. } => Self::Device,
            DeviceError::OtherScene { .. } => Self::Data,
            DeviceError::Fusion(error) => Self::of_fusion(error),
        }
    }
}

/// The device's error, where that is what an error comes from.
pub(super) fn device_error(error: &anyhow::Error) -> Option<&DeviceError> {
    error.chain().find_map(|cause| match cause.downcast_ref::<TrainError>() {
        Some(TrainError::Device(error)) => Some(error),
        Some(TrainError::OutOfMemory { source, .. }) => Some(source),
        _ => cause.downcast_ref::<DeviceError>(),
    })
}

/// The error and those of its causes that it does not quote already. Lines are ended by errors that show
/// a table or a place in a file, not by the names in the others.
pub(super) fn message(error: &anyhow::Error) -> String {
    let has_lines = |cause: &(dyn std::error::Error + 'static)| {
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

// Errors of runs of several processes.

/// A rank of the run ended, and has said why.
#[derive(Debug, thiserror::Error)]
#[error("a process of the run ended with exit code {0}, as it says above")]
pub(super) struct EndedRank(pub(super) u8);

/// The ranks do not come together.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub(super) struct JoinFailed {
    #[source]
    pub(super) source: JoinError,
}

/// A rank died.
#[derive(Debug, thiserror::Error)]
#[error(
    "{lost}. The other ranks are ended. The last checkpoint, if there is one, resumes the run: {command}"
)]
pub(super) struct DeadRank {
    pub(super) lost: LostRank,
    /// What continues the run.
    pub(super) command: String,
}

/// The user did not want to wait for the other ranks any longer.
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
    fn a_refusal_of_the_device_is_found_wherever_it_is_wrapped() {
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
