//! Errors of a device, and capabilities that only some primitives have.

use splat_mesh::tsdf::FusionError;
use splat_ranks::exchange::ExchangeError;

use crate::abi::MOST_NEIGHBOURS;
use crate::memory::{Bytes, Entry, HostDemand, HostRefusal, Refusal, held_most};
use crate::model::Primitive;

/// A result whose error is a device's by default.
pub type Result<T = (), E = DeviceError> = std::result::Result<T, E>;

/// An error of a device.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum DeviceError {
    #[error("the target is {target_px:?} px but the view renders {view_px:?} px")]
    TargetSize { target_px: [u32; 2], view_px: [u32; 2] },
    #[error(
        "{primitive} {index}: its {group}, or a moment of it, is {value}: the optimisation diverged. \
         Lower the learning rates, or resume from an earlier checkpoint"
    )]
    NotFinite {
        /// Name of one row.
        primitive: &'static str,
        index: usize,
        group: &'static str,
        value: f64,
    },
    /// The loss became NaN or infinite although the parameters are finite.
    #[error(
        "the loss is {value}: the optimisation diverged. Lower the learning rates, or resume from \
         an earlier checkpoint"
    )]
    LossNotFinite { value: f64 },
    #[error("a step takes at most {most} views, and its gradients hold as many")]
    TooManyViews { most: usize },
    /// Another process of the run has failed or sent an invalid message.
    #[error("rank {rank}: {message}")]
    OfRank { rank: u32, message: String },
    /// A process of the run cannot use its device.
    #[error("rank {rank}: {problem}")]
    RankDevice { rank: u32, problem: String },
    /// Another process of the run does not have the scene that rank 0 trains.
    #[error("rank {rank}: {problem}")]
    OtherScene { rank: u32, problem: String },
    /// The processes of the run have lost each other.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The primitive has no kernels for the request.
    #[error("{primitives} have no {what} on this device")]
    Unsupported { primitives: &'static str, what: &'static str },
    #[error("{what} are drawn of surfels alone: train with --primitive surfels")]
    NeedsSurfels { what: &'static str },
    #[error("a step needs the gradients of a view: call backward before it")]
    NoView,
    #[error(
        "the {term} term needs {input}, and there are none: ask for them when the view is drawn"
    )]
    MissingInput { term: &'static str, input: &'static str },
    #[error("the frame has no room for changed colours: ask for it when the view is drawn")]
    NoRoomForColors,
    #[error("the frame has no median depths: ask for them when the view is drawn")]
    NoMedianDepths,
    /// The depths cannot be fused.
    #[error(transparent)]
    Fusion(#[from] FusionError),
    #[error(
        "LPIPS needs images of at least {least} x {least} px, and the view has {} x {}", size[0], size[1]
    )]
    TooSmallForLpips { size: [u32; 2], least: u32 },
    #[error(
        "the view is {} x {} px, but a GPU draws at most 65535 px a side and 1431 Mpx in all. Choose a \
         lower --resolution",
        size[0], size[1]
    )]
    ImageTooLarge { size: [u32; 2] },
    #[error(
        "the view needs {count} pairs of a splat and a tile, but kernels number at most {most}: \
         lower the --resolution, or cap the Gaussians with --max-points"
    )]
    TooManyInstances { count: u64, most: u32 },
    #[error(
        "{wanted} Gaussians are wanted, but a device numbers at most {most}; cap them with \
         --max-points", most = u32::MAX
    )]
    TooManyGaussians { wanted: usize },
    #[error("row {row} was asked for, but the model has {len} Gaussians")]
    NoSuchRow { row: usize, len: usize },
    #[error("{found} statistics of triangles were given, but the model has {faces} triangles")]
    OtherFaces {
        /// Length of one of the columns.
        found: usize,
        faces: usize,
    },
    #[error("vertices that stay have to be given in ascending order, each once")]
    KeptNotAscending,
    #[error("the colour table of training view {view} was asked for, but there are {views}")]
    NoSuchTable { view: usize, views: usize },
    #[error("{counted} candidates were counted, and the model has {found} now: score it again")]
    StaleCandidates { counted: usize, found: usize },
    #[error(
        "Gaussians of the model came, went or changed places since some were selected: select again"
    )]
    StaleSelection,
    #[error(
        "the edit does not suit its candidates: by gradient they are picked as the best and grow, by \
         opacity they are picked with replacement and share"
    )]
    UnsuitedEdit,
    #[error(
        "lists of {count} neighbours were asked for, but a device makes such of 1 to {most}",
        most = MOST_NEIGHBOURS
    )]
    NeighbourCount { count: u32 },
    #[error(
        "the neighbours were found among {found} Gaussians, and since then Gaussians of the model, \
         which has {len}, came, went or changed places: find them again"
    )]
    StaleNeighbours { found: usize, len: usize },
    /// The user asked for a device that this program or machine does not have.
    #[error("{0}")]
    Unavailable(String),
    #[error(
        "there is no NVIDIA driver on this machine (libcuda.so.1 is not found). Install the driver, \
         580 or newer, or train with --device cpu"
    )]
    NoDriver,
    #[error(
        "the NVIDIA driver supports CUDA {}.{}, but CUDA {}.{} is needed. Update the driver to 580 \
         or newer, or train with --device cpu",
        found / 1000, found % 1000 / 10, needed / 1000, needed % 1000 / 10
    )]
    DriverTooOld {
        /// CUDA version of the driver, as 1000 major + 10 minor.
        found: i32,
        /// CUDA version of the kernels.
        needed: i32,
    },
    #[error(
        "the NVIDIA driver finds no GPU{}. `nvidia-smi` should list one; or train with --device cpu",
        match visible { Some(list) => format!(" (CUDA_VISIBLE_DEVICES={list})"), None => String::new() }
    )]
    NoGpu {
        /// `CUDA_VISIBLE_DEVICES` if it is set.
        visible: Option<String>,
    },
    #[error(
        "{name} has compute capability {}.{}, and this program was built for {built:?}. Build it again \
         with SPLAT_CUDA_ARCHS={arch}, or train with --device cpu",
        arch / 10, arch % 10
    )]
    NoCode {
        name: String,
        /// Its compute capability, as 10 major + minor.
        arch: u32,
        built: Vec<u32>,
    },
    /// The request exceeds the budget.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The budget suffices but the GPU is full, for example if other programs use it.
    #[error(
        "`{label}` needs {:.1} MiB of the GPU, and {:.1} are free; this program holds {:.1}{}. End other \
         programs that use the GPU, or lower --vram-limit",
        wanted.mib(), free.mib(), held.mib(), held_most(largest)
    )]
    OutOfMemory {
        label: &'static str,
        wanted: Bytes,
        held: Bytes,
        free: Bytes,
        /// The largest entries.
        largest: Vec<Entry>,
    },
    #[error(
        "the GPU's memory is full: the driver has none left for its own part of {call}. End other \
         programs that use the GPU"
    )]
    DriverOutOfMemory { call: &'static str },
    #[error(
        "`{label}` needs {:.1} MiB of page-locked RAM, and the system gives no more. End other programs, \
         give the container more RAM{}",
        wanted.mib(), demand.map_or(", or lower --host-limit", HostDemand::remedy)
    )]
    OutOfHostMemory {
        label: &'static str,
        wanted: Bytes,
        /// Part of the model that needs the memory, if any.
        demand: Option<HostDemand>,
    },
    /// The host has too little memory for a part of the model.
    #[error(transparent)]
    HostRefused(Box<HostRefusal>),
    /// The driver or a library refused a call.
    #[error("{call} failed: {reason}. Check the GPU: splat doctor")]
    Driver { call: &'static str, reason: String },
}

impl DeviceError {
    /// Creates an error of another process of the run.
    pub(crate) fn of_rank(rank: u32, message: impl Into<String>) -> Self {
        Self::OfRank { rank, message: message.into() }
    }

    /// Returns true if a fallback may help: the memory of the device or of the host is too small for an allocation of
    /// this program.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::OutOfMemory { .. }) || self.is_out_of_host_memory()
    }

    /// Returns true if the memory of the host is too small.
    pub fn is_out_of_host_memory(&self) -> bool {
        matches!(self, Self::OutOfHostMemory { .. } | Self::HostRefused(_))
    }

    /// Returns true if other programs hold at least a part of the missing memory.
    pub fn is_short_beside_others(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.sharing.is_some(),
            Self::OutOfMemory { .. } | Self::DriverOutOfMemory { .. } => true,
            _ => false,
        }
    }

    /// Returns the largest entries if the device's memory is exhausted.
    pub fn largest(&self) -> &[Entry] {
        match self {
            Self::Refused(refusal) => &refusal.largest,
            Self::OutOfMemory { largest, .. } => largest,
            _ => &[],
        }
    }
}

impl From<Refusal> for DeviceError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl From<HostRefusal> for DeviceError {
    fn from(refusal: HostRefusal) -> Self {
        Self::HostRefused(Box::new(refusal))
    }
}

/// An operation that only some primitives support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Drawing through a 3D filter.
    Filter3d,
    /// Random motion after a step.
    Noise,
    /// Weights on the mean opacity and the mean scale.
    Regularisers,
    /// Learning rates of the centres that follow the sizes.
    SizedRates,
    /// Maps of depths and normals, and terms at samples.
    Surfaces,
}

impl Capability {
    /// Returns the name in messages.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Filter3d => "3D filter",
            Self::Noise => "random motion",
            Self::Regularisers => "weights on opacity and scale",
            Self::SizedRates => "learning rates that follow sizes",
            Self::Surfaces => "surface maps or terms at samples",
        }
    }
}

pub(crate) fn unsupported<P: Primitive>(what: &'static str) -> DeviceError {
    DeviceError::Unsupported { primitives: P::SCHEMA.many(), what }
}

/// Default of operations on which several ranks cannot work together. The command line refuses such a run before it
/// begins.
pub(super) fn refused<T>(what: &'static str) -> Result<T, DeviceError> {
    Err(DeviceError::Unsupported { primitives: "Gaussians of several ranks", what })
}
