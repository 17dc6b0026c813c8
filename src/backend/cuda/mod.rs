//! Training on an NVIDIA GPU.
//!
//! Work is put on one stream in the order of the calls, so that buffers may be used again without
//! waiting. A program without kernels has the module all the same: plans run the stages dry ([`dry_run`]).

mod device;
mod dry;
#[cfg(test)]
mod dry_tests;
mod edit;
mod frame;
mod govern;
mod memory;
mod model;
mod photos;
pub mod primitive;
#[cfg(feature = "bench")]
mod profile;
pub mod ranks;
pub mod session;
mod stage;
mod traits;

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

use super::{DeviceError, Drawing, Inputs, Look, RenderSettings};
use crate::config::MemoryOptions;
use crate::dataset::View;
use crate::memory::plan::{PlannedCoarse, Storage};
use crate::memory::{Bytes, HostAllowance, Ladder, Limit, Rung};
use crate::model::Primitive;

/// What a GPU is opened with.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// The number of the GPU among those that the driver shows.
    pub ordinal: u32,
    /// What the program may take of the card's memory; without it, all.
    pub vram_limit: Option<Limit>,
    /// Share of that limit that is never exceeded.
    pub vram_threshold: f64,
    /// What the program may take of the host's memory.
    pub host_limit: Limit,
    /// Processes of the run on this host.
    pub ranks_here: u32,
    /// What may be given up where memory is short, the first first.
    pub give_up: Vec<Rung>,
    /// Iterations between two times that memory which is not in use goes back to the driver.
    pub trim_interval: u32,
    /// How models keep their state.
    pub storage: Storage,
    /// Seed of the random numbers that a compact model rounds with.
    pub seed: u64,
    /// Gaussians to which a run is pruned when density control ends: births leave that its memory.
    pub target: Option<u64>,
    /// SuGaR's coarse stage, where it will follow: births leave it its memory.
    pub coarse: Option<PlannedCoarse>,
    /// What terms will need of views later, if not now: births leave that its memory.
    pub inputs: Inputs,
}

impl Default for CudaOptions {
    /// As the options of a run are by default.
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
    ladder: Ladder,
    trim_interval: u32,
    /// The iteration after which memory was last looked at.
    governed_at: Option<u32>,
    high_water: ScratchHighWater,
    /// Less is taken than may be, where less will do.
    has_aim: bool,
}

impl Cuda {
    /// Opens a GPU.
    pub fn open(options: &CudaOptions) -> Result<Self, DeviceError> {
        let &CudaOptions { ordinal, vram_limit, vram_threshold, .. } = options;
        Self::over(Session::open_limited(ordinal, vram_limit, vram_threshold)?, options)
    }

    fn over(mut session: Session, options: &CudaOptions) -> Result<Self, DeviceError> {
        (session.storage, session.seed) = (options.storage, options.seed);
        let allowance = HostAllowance::new(options.host_limit, options.ranks_here);
        session.heap.set_host_allowance(allowance);
        // Until the ladder says otherwise.
        session.bands = BandPolicy::Never;
        Ok(Self {
            images: PhotoStore::new(&session)?,
            session,
            ladder: Ladder::new(&options.give_up),
            trim_interval: options.trim_interval.max(1),
            governed_at: None,
            high_water: ScratchHighWater::of_run(options.target, options.coarse, options.inputs),
            has_aim: false,
        })
    }

    /// When views are drawn in bands from now on.
    pub fn set_bands(&mut self, bands: BandPolicy) {
        self.session.bands = bands;
    }

    /// Gives back the memory that is kept for the next iteration.
    pub fn trim_memory(&mut self) -> Result<(), DeviceError> {
        self.session.heap.trim_scratch()
    }

    /// Its memory.
    pub fn heap(&self) -> &heap::Heap {
        &self.session.heap
    }

    /// Has the model's tables hold what dense Adam would; fails where a parameter is not finite.
    fn bring_up_to_date<P: Primitive>(&mut self, model: &mut Model<P>) -> Result<(), DeviceError> {
        self.session.check_faults()?;
        catch_up(&self.session, model)
    }

    /// A model of so many Gaussians, all zero: compact, and with its colours on the host, where there is no
    /// room otherwise and the ladder allows it, as that of a run which has gone over to it and is taken up
    /// again.
    fn room_for_model<P: CudaPrimitive>(
        &mut self,
        sh_degree: u32,
        count: usize,
    ) -> Result<Model<P>, DeviceError> {
        let mut made = self.with_room(|session| tables::zeros(session, sh_degree, count));
        for rung in self.ladder.in_order(&[Rung::Compact, Rung::Offload]) {
            if !made.as_ref().is_err_and(DeviceError::is_out_of_memory) {
                break;
            }
            let now = self.session.storage;
            self.session.storage = match rung {
                Rung::Compact if is_compactable::<P>() && !now.is_compact() => Storage::Compact,
                Rung::Offload if is_offloadable::<P>() && now != Storage::Offloaded => {
                    Storage::Offloaded
                }
                _ => continue,
            };
            made = self.with_room(|session| tables::zeros(session, sh_degree, count));
            match &made {
                Ok(_) => self.ladder.record(rung, Bytes(0)),
                // The other rung may do without the host.
                Err(error) if error.is_out_of_host_memory() => self.session.storage = now,
                Err(_) => {}
            }
        }
        made
    }

    /// Does what needs memory; where there is too little, gives up one thing after the other.
    fn with_room<R>(
        &mut self,
        mut work: impl FnMut(&mut Session) -> Result<R, DeviceError>,
    ) -> Result<R, DeviceError> {
        self.with_images(|_, session| work(session))
    }

    /// The same for what sends photographs.
    fn with_images<R>(
        &mut self,
        mut work: impl FnMut(&mut PhotoStore, &mut Session) -> Result<R, DeviceError>,
    ) -> Result<R, DeviceError> {
        let Self { images, session, ladder, .. } = self;
        let parts: Parts<'_> = Parts { images, session, model: None };
        govern::with_room(ladder, parts, |parts| work(parts.images, parts.session))
    }

    /// Has a model keep its state compact from now on; gives the bytes that this frees.
    pub fn compact<P: CudaPrimitive>(
        &mut self,
        model: &mut Model<P>,
    ) -> Result<Bytes, DeviceError> {
        model.compact(&self.session)
    }

    /// Has a model keep its state compact, and its colours with their moments in the host's memory, from now
    /// on; gives the bytes that this frees of the GPU's.
    pub fn offload<P: CudaPrimitive>(
        &mut self,
        model: &mut Model<P>,
    ) -> Result<Bytes, DeviceError> {
        model.offload(&self.session)
    }

    /// Has a model keep its state in full precision from now on.
    pub fn expand<P: CudaPrimitive>(&mut self, model: &mut Model<P>) -> Result<(), DeviceError> {
        model.expand(&self.session)
    }

    /// Calls a function of the device's mathematics once per row of inputs, `[n, call.inputs]`; gives
    /// `[n, call.outputs]`. Functions that project take this view, drawn with these settings.
    pub fn probe(
        &mut self,
        call: probe::ProbeFunction,
        view: &View,
        settings: &RenderSettings,
        inputs: &[f32],
    ) -> Result<Vec<f32>, DeviceError> {
        let drawing = Drawing::shown(settings, Look::IMAGE);
        probe::probe(&self.session, call, view, &drawing, inputs)
    }
}
