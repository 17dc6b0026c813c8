//! Refusals of a device and their reasons; abilities that not all primitives have.

use splat_mesh::tsdf::FusionError;
use splat_ranks::exchange::ExchangeError;

use crate::abi::MOST_NEIGHBOURS;
use crate::memory::{Bytes, Entry, HostDemand, HostRefusal, Refusal, held_most};
use crate::model::Primitive;

/// What a device cannot do.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The photograph and the render differ in size.
    #[error("the target is {target_px:?} px but the view renders {view_px:?} px")]
    TargetSize {
        /// Size of the photograph.
        target_px: [u32; 2],
        /// Size of the render.
        view_px: [u32; 2],
    },
    /// A parameter became NaN or infinite.
    #[error(
        "{primitive} {index}: its {group}, or a moment of it, is {value}: the optimisation diverged. \
         Lower the learning rates, or resume from an earlier checkpoint"
    )]
    NotFinite {
        /// What one row is called.
        primitive: &'static str,
        /// Which row.
        index: usize,
        /// Which parameter.
        group: &'static str,
        /// Its value.
        value: f64,
    },
    /// The loss became NaN or infinite although the parameters are finite.
    #[error(
        "the loss is {value}: the optimisation diverged. Lower the learning rates, or resume from \
         an earlier checkpoint"
    )]
    LossNotFinite {
        /// The loss.
        value: f64,
    },
    /// More views than a step takes.
    #[error("a step takes at most {most} views, and its gradients hold as many")]
    TooManyViews {
        /// The most that a step takes.
        most: usize,
    },
    /// Another process of the run has failed, or sends what it should not.
    #[error("rank {rank}: {message}")]
    OfRank {
        /// Which.
        rank: u32,
        /// What is wrong.
        message: String,
    },
    /// A process of the run cannot use its device.
    #[error("rank {rank}: {problem}")]
    RankDevice {
        /// Which.
        rank: u32,
        /// The fault in its device, or with what it needs beside it.
        problem: String,
    },
    /// Another process of the run has not the scene that rank 0 trains.
    #[error("rank {rank}: {problem}")]
    OtherScene {
        /// Which.
        rank: u32,
        /// The fault in its scene.
        problem: String,
    },
    /// The processes of the run have lost each other.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// A primitive that has no kernels for what is asked for.
    #[error("{primitives} have no {what} on this device")]
    Unsupported {
        /// What its rows are called.
        primitives: &'static str,
        /// What was asked for.
        what: &'static str,
    },
    /// Something is asked for that is drawn of surfels alone.
    #[error("{what} are drawn of surfels alone: train with --primitive surfels")]
    NeedsSurfels {
        /// What was asked for.
        what: &'static str,
    },
    /// A step before a view.
    #[error("a step needs the gradients of a view: call backward before it")]
    NoView,
    /// A term of the loss needs what the frame or the call does not have.
    #[error(
        "the {term} term needs {input}, and there are none: ask for them when the view is drawn"
    )]
    MissingInput {
        /// The term.
        term: &'static str,
        /// What it needs.
        input: &'static str,
    },
    /// Colours are to be changed in a frame that has no room for them.
    #[error("the frame has no room for changed colours: ask for it when the view is drawn")]
    NoRoomForColors,
    /// Depths are to be fused of a frame that has none.
    #[error("the frame has no median depths: ask for them when the view is drawn")]
    NoMedianDepths,
    /// Depths that cannot be fused.
    #[error(transparent)]
    Fusion(#[from] FusionError),
    /// An image that a network of LPIPS sees nothing of.
    #[error(
        "LPIPS needs images of at least {least} x {least} px, and the view has {} x {}", size[0], size[1]
    )]
    TooSmallForLpips {
        /// Width and height in px.
        size: [u32; 2],
        /// What either has to be, px.
        least: u32,
    },
    /// An image that kernels cannot number the pixels of.
    #[error(
        "the view is {} x {} px, but a GPU draws at most 65535 px a side and 1431 Mpx in all. Choose a \
         lower --resolution",
        size[0], size[1]
    )]
    ImageTooLarge {
        /// Width and height in px.
        size: [u32; 2],
    },
    /// More pairs of a splat and a tile than kernels can number.
    #[error(
        "the view needs {count} pairs of a splat and a tile, but kernels number at most {most}: \
         lower the --resolution, or cap the Gaussians with --max-points"
    )]
    TooManyInstances {
        /// How many.
        count: u64,
        /// The most there may be.
        most: u32,
    },
    /// More Gaussians than kernels can number.
    #[error(
        "{wanted} Gaussians are wanted, but a device numbers at most {most}; cap them with \
         --max-points", most = u32::MAX
    )]
    TooManyGaussians {
        /// How many.
        wanted: usize,
    },
    /// A row behind the last was asked for.
    #[error("row {row} was asked for, but the model has {len} Gaussians")]
    NoSuchRow {
        /// The row.
        row: usize,
        /// Number of Gaussians.
        len: usize,
    },
    /// Statistics of other triangles than the model's.
    #[error("{found} statistics of triangles were given, but the model has {faces} triangles")]
    OtherFaces {
        /// How many there are of one kind.
        found: usize,
        /// Triangles of the model.
        faces: usize,
    },
    /// Vertices that are to stay in an order that would change.
    #[error("vertices that stay have to be given in ascending order, each once")]
    KeptNotAscending,
    /// The colours of a view that there is no table for.
    #[error("the colour table of training view {view} was asked for, but there are {views}")]
    NoSuchTable {
        /// The view, by its place among those trained on.
        view: usize,
        /// Number of tables.
        views: usize,
    },
    /// Candidates of a model that changed since.
    #[error("{counted} candidates were counted, and the model has {found} now: score it again")]
    StaleCandidates {
        /// How many were counted.
        counted: usize,
        /// Their number.
        found: usize,
    },
    /// A selection of rows that are not the model's, or no longer.
    #[error(
        "Gaussians of the model came, went or changed places since some were selected: select again"
    )]
    StaleSelection,
    /// A way to select that does not suit the candidates, or an edit that does not suit the selection.
    #[error(
        "the edit does not suit its candidates: by gradient they are picked as the best and grow, by \
         opacity they are picked with replacement and share"
    )]
    UnsuitedEdit,
    /// Lists of neighbours of a length that devices do not make.
    #[error(
        "lists of {count} neighbours were asked for, but a device makes such of 1 to {most}",
        most = MOST_NEIGHBOURS
    )]
    NeighbourCount {
        /// What was asked for.
        count: u32,
    },
    /// Neighbours of a model that has other rows by now, or of another model.
    #[error(
        "the neighbours were found among {found} Gaussians, and since then Gaussians of the model, \
         which has {len}, came, went or changed places: find them again"
    )]
    StaleNeighbours {
        /// Gaussians that there were.
        found: usize,
        /// Gaussians that there are.
        len: usize,
    },
    /// The user asked for a device that this program or machine does not have.
    #[error("{0}")]
    Unavailable(String),
    /// There is no NVIDIA driver.
    #[error(
        "there is no NVIDIA driver on this machine (libcuda.so.1 is not found). Install the driver, \
         580 or newer, or train with --device cpu"
    )]
    NoDriver,
    /// The driver is older than the kernels.
    #[error(
        "the NVIDIA driver supports CUDA {}.{}, but CUDA {}.{} is needed. Update the driver to 580 \
         or newer, or train with --device cpu",
        found / 1000, found % 1000 / 10, needed / 1000, needed % 1000 / 10
    )]
    DriverTooOld {
        /// What the driver supports, as 1000 major + 10 minor.
        found: i32,
        /// What the kernels need.
        needed: i32,
    },
    /// The driver shows no GPU.
    #[error(
        "the NVIDIA driver finds no GPU{}. `nvidia-smi` should list one; or train with --device cpu",
        match visible { Some(list) => format!(" (CUDA_VISIBLE_DEVICES={list})"), None => String::new() }
    )]
    NoGpu {
        /// `CUDA_VISIBLE_DEVICES` where it is set.
        visible: Option<String>,
    },
    /// The kernels were not compiled for this GPU.
    #[error(
        "{name} has compute capability {}.{}, and this program was built for {built:?}. Build it again \
         with SPLAT_CUDA_ARCHS={arch}, or train with --device cpu",
        arch / 10, arch % 10
    )]
    NoCode {
        /// The GPU.
        name: String,
        /// Its compute capability, as 10 major + minor.
        arch: u32,
        /// What there is code for.
        built: Vec<u32>,
    },
    /// The budget has no room.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The budget has room but the GPU has none, as when others use it, too.
    #[error(
        "`{label}` needs {:.1} MiB of the GPU, and {:.1} are free; this program holds {:.1}{}. End other \
         programs that use the GPU, or lower --vram-limit",
        wanted.mib(), free.mib(), held.mib(), held_most(largest)
    )]
    OutOfMemory {
        /// What the memory was for.
        label: &'static str,
        /// How much was asked for.
        wanted: Bytes,
        /// How much this program holds.
        held: Bytes,
        /// How much the driver has left.
        free: Bytes,
        /// The entries that hold most.
        largest: Vec<Entry>,
    },
    /// The GPU has no memory left for what the driver itself takes: a context, code, queues.
    #[error(
        "the GPU's memory is full: the driver has none left for its own part of {call}. End other \
         programs that use the GPU"
    )]
    DriverOutOfMemory {
        /// The call.
        call: &'static str,
    },
    /// The host has no page-locked memory left.
    #[error(
        "`{label}` needs {:.1} MiB of page-locked RAM, and the system gives no more. End other programs, \
         give the container more RAM{}",
        wanted.mib(), demand.map_or(", or lower --host-limit", HostDemand::remedy)
    )]
    OutOfHostMemory {
        /// What the memory was for.
        label: &'static str,
        /// How much was asked for.
        wanted: Bytes,
        /// For what of a model, if for any.
        demand: Option<HostDemand>,
    },
    /// The host has no room for a part of the model.
    #[error(transparent)]
    HostRefused(Box<HostRefusal>),
    /// The driver or a library refused a call.
    #[error("{call} failed: {reason}. Check the GPU: splat doctor")]
    Driver {
        /// The call.
        call: &'static str,
        /// What was said.
        reason: String,
    },
}

impl DeviceError {
    /// True if there is too little of the device's memory, or of the host's.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::OutOfMemory { .. }) || self.is_out_of_host_memory()
    }

    /// True if there is too little of the host's memory.
    pub fn is_out_of_host_memory(&self) -> bool {
        matches!(self, Self::OutOfHostMemory { .. } | Self::HostRefused(_))
    }

    /// True if the memory that is missing is held by other programs, at least in part.
    pub fn is_short_beside_others(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.sharing.is_some(),
            Self::OutOfMemory { .. } | Self::DriverOutOfMemory { .. } => true,
            _ => false,
        }
    }

    /// The entries that hold most, where there is too little memory.
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

/// What not all primitives can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Be drawn through a 3D filter.
    Filter3d,
    /// Move at random after a step.
    Noise,
    /// Be drawn to opacity and scale by weights on their means.
    Regularisers,
    /// Move centres at rates that follow sizes.
    SizedRates,
    /// Show depths and normals, and be compared at samples.
    Surfaces,
}

impl Capability {
    /// As messages call it.
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

/// The error of a primitive that has it not, whatever it is.
pub(crate) fn unsupported<P: Primitive>(what: &'static str) -> DeviceError {
    DeviceError::Unsupported { primitives: P::SCHEMA.many(), what }
}
