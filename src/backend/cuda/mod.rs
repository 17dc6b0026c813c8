//! Training on an NVIDIA GPU, on one stream in the order of the calls. Without kernels, only [`dry_run`] works.

mod dry;
#[cfg(test)]
mod dry_tests;
mod edit;
mod frame;
mod govern;
mod photos;
mod prelude;
pub mod primitive;
#[cfg(feature = "bench")]
mod profile;
pub mod ranks;
pub mod session;
mod traits;

/// The CUDA driver: streams, events and launches. Nothing here knows of Gaussians.
mod device {
    pub mod driver;
    pub(crate) mod launch;
    pub mod stream;
    pub mod timers;
}

/// The memory of the GPU, sorts and sums, and the device's report.
mod memory {
    pub mod heap;
    pub mod sort;
    pub(crate) mod status;
}

/// Models on the GPU: tables, storage, and transfers to the host.
mod model {
    pub(crate) mod color_cache;
    pub(crate) mod lanes;
    pub(crate) mod lazy_adam;
    pub(crate) mod tables;
    pub(crate) mod transfer;
}

/// The stages. Each file is the twin of a kernel in `kernels/` and of a stage of the CPU, or a part of a twin.
mod stage {
    pub(crate) mod adam;
    pub(crate) mod appearance;
    pub(crate) mod bands;
    pub(crate) mod bin;
    pub(crate) mod bind;
    pub(crate) mod blend;
    pub(crate) mod contribution;
    pub(crate) mod densify;
    pub(crate) mod depth;
    pub(crate) mod fuse;
    pub(crate) mod loss;
    pub(crate) mod lpips;
    pub(crate) mod neighbours;
    pub(crate) mod normals;
    pub(crate) mod patches;
    pub mod probe;
    pub(crate) mod project;
    pub(crate) mod rays;
    pub(crate) mod relocate;
    pub(crate) mod reorder;
    pub(crate) mod smooth;
    pub(crate) mod surface;
}

#[cfg(kernels)]
pub(super) use device::driver::{ARCHS, NVCC};
pub use device::launch::{Code, KernelName};
pub use device::{driver, stream, timers};
pub use dry::scratch as dry_run;
pub use edit::Selection;
pub use frame::{Frame, Gradients};
pub use memory::{heap, sort};
pub use model::tables::Model;
pub use photos::Target;
pub use primitive::CudaPrimitive;
pub use session::BandPolicy;
pub use stage::appearance::ColorTables;
pub use stage::loss::PendingLosses;
pub use stage::lpips::LpipsModel;
pub use stage::neighbours::NearestLists;
pub use stage::probe;

use govern::{Parts, ScratchHighWater};
use model::tables::{self, catch_up};
use photos::PhotoStore;
use primitive::{is_compactable, is_offloadable};
use session::Session;

use super::{DeviceError, DrawSettings, Inputs, RenderRequest, RenderSettings, Result};
use crate::config::MemoryOptions;
use crate::dataset::View;
use crate::memory::plan::{PlannedCoarse, Storage};
use crate::memory::{Bytes, Fallback, FallbackPolicy, HostAllowance, Limit};
use crate::model::Primitive;

/// Options of a GPU.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// Ordinal of the GPU among those that the driver shows.
    pub ordinal: u32,
    /// Limit of the card's memory; `None`: all of it.
    pub vram_limit: Option<Limit>,
    /// Share of the limit that is never exceeded.
    pub vram_threshold: f64,
    /// Limit of the host's memory.
    pub host_limit: Limit,
    /// Number of processes of the run on this host.
    pub ranks_here: u32,
    /// Fallbacks when memory is short, in order.
    pub give_up: Vec<Fallback>,
    /// Iterations between two trims of unused memory.
    pub trim_interval: u32,
    /// Storage of models.
    pub storage: Storage,
    /// Seed of the rounding of compact models.
    pub seed: u64,
    /// Number of Gaussians after pruning at the end of density control. Density control leaves memory for it.
    pub target: Option<u64>,
    /// SuGaR's coarse stage, if one follows. Density control leaves memory for it.
    pub coarse: Option<PlannedCoarse>,
    /// Inputs of all terms, now or later. Density control leaves memory for them.
    pub inputs: Inputs,
}

impl Default for CudaOptions {
    fn default() -> Self {
        let options = MemoryOptions::default();
        Self {
            ordinal: 0,
            vram_limit: options.vram_limit,
            vram_threshold: options.vram_threshold,
            host_limit: options.host_limit,
            ranks_here: 1,
            give_up: options.give_up,
            trim_interval: options.fragmentation.interval(),
            storage: Storage::default(),
            seed: 0,
            target: None,
            coarse: None,
            inputs: Inputs::NONE,
        }
    }
}

/// An NVIDIA GPU.
pub struct Cuda {
    images: PhotoStore,
    session: Session,
    policy: FallbackPolicy,
    trim_interval: u32,
    /// Iteration after which memory was trimmed last.
    governed_at: Option<u32>,
    high_water: ScratchHighWater,
    /// True if a soft limit is set.
    has_aim: bool,
}

impl Cuda {
    /// Opens a GPU.
    pub fn open(options: &CudaOptions) -> Result<Self> {
        let &CudaOptions { ordinal, vram_limit, vram_threshold, .. } = options;
        Self::over(Session::open_limited(ordinal, vram_limit, vram_threshold)?, options)
    }

    fn over(mut session: Session, options: &CudaOptions) -> Result<Self> {
        (session.storage, session.seed) = (options.storage, options.seed);
        let allowance = HostAllowance::new(options.host_limit, options.ranks_here);
        session.heap.set_host_allowance(allowance);
        // Until `Fallback::Bands` is taken or an aim allows bands.
        session.bands = BandPolicy::Never;
        Ok(Self {
            images: PhotoStore::new(&session)?,
            session,
            policy: FallbackPolicy::new(&options.give_up),
            trim_interval: options.trim_interval.max(1),
            governed_at: None,
            high_water: ScratchHighWater::of_run(options.target, options.coarse, options.inputs),
            has_aim: false,
        })
    }

    /// Sets when views are drawn in bands.
    pub fn set_bands(&mut self, bands: BandPolicy) {
        self.session.bands = bands;
    }

    /// Frees the memory that is kept for the next iteration.
    pub fn trim_memory(&mut self) -> Result {
        self.session.heap.trim_scratch()
    }

    /// Returns the heap of the GPU.
    pub fn heap(&self) -> &heap::Heap {
        &self.session.heap
    }

    /// Brings the model's tables up to dense Adam. Fails if a parameter is not finite.
    fn bring_up_to_date<P: Primitive>(&mut self, model: &mut Model<P>) -> Result {
        self.session.check_faults()?;
        catch_up(&self.session, model)
    }

    /// Creates a model of zeros: compact, then offloaded, if memory is short and the policy allows it.
    fn room_for_model<P: CudaPrimitive>(
        &mut self,
        sh_degree: u32,
        count: usize,
    ) -> Result<Model<P>> {
        let mut made = self.with_room(|session| tables::zeros(session, sh_degree, count));
        for fallback in self.policy.in_order(&[Fallback::Compact, Fallback::Offload]) {
            if !made.as_ref().is_err_and(DeviceError::is_out_of_memory) {
                break;
            }
            let now = self.session.storage;
            self.session.storage = match fallback {
                Fallback::Compact if is_compactable::<P>() && !now.is_compact() => Storage::Compact,
                Fallback::Offload if is_offloadable::<P>() && now != Storage::Offloaded => {
                    Storage::Offloaded
                }
                _ => continue,
            };
            made = self.with_room(|session| tables::zeros(session, sh_degree, count));
            match &made {
                Ok(_) => self.policy.record(fallback, Bytes(0)),
                // The next fallback may not need the host.
                Err(error) if error.is_out_of_host_memory() => self.session.storage = now,
                Err(_) => {}
            }
        }
        made
    }

    /// Runs work that needs memory, and gives up one holding after the other if there is too little.
    fn with_room<R>(&mut self, mut work: impl FnMut(&mut Session) -> Result<R>) -> Result<R> {
        self.with_images(|_, session| work(session))
    }

    /// Like [`Self::with_room`], for work that uploads photographs.
    fn with_images<R>(
        &mut self,
        mut work: impl FnMut(&mut PhotoStore, &mut Session) -> Result<R>,
    ) -> Result<R> {
        let Self { images, session, policy, .. } = self;
        let parts: Parts<'_> = Parts { images, session, model: None };
        govern::with_room(policy, parts, |parts| work(parts.images, parts.session))
    }

    /// Makes a model's state compact. Returns the bytes freed.
    pub fn compact<P: CudaPrimitive>(&mut self, model: &mut Model<P>) -> Result<Bytes> {
        model.compact(&self.session)
    }

    /// Makes a model compact and moves its colours to the host. Returns the bytes freed on the GPU.
    pub fn offload<P: CudaPrimitive>(&mut self, model: &mut Model<P>) -> Result<Bytes> {
        model.offload(&self.session)
    }

    /// Converts a model's state to full precision.
    pub fn expand<P: CudaPrimitive>(&mut self, model: &mut Model<P>) -> Result {
        model.expand(&self.session)
    }

    /// Calls a function of the device's mathematics once per row of inputs, [n, inputs]; returns [n, outputs].
    pub fn probe(
        &mut self,
        call: probe::ProbeFunction,
        view: &View,
        settings: &RenderSettings,
        inputs: &[f32],
    ) -> Result<Vec<f32>> {
        let drawing = DrawSettings::shown(settings, RenderRequest::IMAGE);
        probe::probe(&self.session, call, view, &drawing, inputs)
    }
}
