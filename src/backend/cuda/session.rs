//! A session on a GPU: context, code, streams and memory.

use std::any::TypeId;
use std::collections::HashMap;
use std::rc::Rc;

use super::device::driver::CudaDevice;
use super::device::launch::{Find, Kernels, Loader, Nothing};
use super::device::stream::{CudaEvent, DryQueue, Stream};
use super::device::timers::Timers;
use super::memory::heap::Heap;
use super::memory::sort;
use super::memory::status::{ListRoom, Status, TrainingViewSize};
use super::primitive::{CudaPrimitive, LoadedKernels};
use crate::backend::Result;
use crate::memory::plan::Storage;
use crate::memory::{Allowance, Bytes, Limit};
use crate::model::Gaussians;

/// Rule for drawing a view in bands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BandPolicy {
    /// Never: a view that does not fit is refused.
    Never,
    /// If the view does not fit.
    #[default]
    WhenNeeded,
    /// Always, in at least this number of bands, at most one per row of tiles.
    AtLeast(u32),
    /// Always, in bands of at most this number of tile rows.
    Rows(u32),
}

/// The state that all work on the GPU shares.
pub struct Session {
    /// Memory of the GPU.
    pub heap: Heap,
    /// Stream of all kernels.
    pub stream: Stream,
    /// Stream of uploads and of prefetching, beside the main one.
    pub copies: Stream,
    /// Event in the main stream behind the latest projection of a model.
    pub(super) seen: CudaEvent,
    /// Event in the copy stream behind the latest filled cache lines.
    pub(super) filled: CudaEvent,
    pub(super) kernels: Kernels,
    of_primitives: HashMap<TypeId, Rc<LoadedKernels>>,
    code: Box<dyn Find>,
    pub(super) status: Status,
    /// Timers of the stages, off by default.
    pub(super) timers: Timers,
    /// Number of splats that projections allocate for.
    pub(super) most_visible: usize,
    /// Storage of new models.
    pub storage: Storage,
    /// Seed of the rounding of compact models.
    pub seed: u64,
    /// Rule for drawing views in bands.
    pub bands: BandPolicy,
    /// Largest scratch that a view in bands would have taken at once.
    pub(super) banded_need: Bytes,
    pub(super) list_room: ListRoom,
    pub(super) view_size: TrainingViewSize,
    /// The GPU.
    pub device: Rc<CudaDevice>,
}

impl Session {
    /// True if memory will be free once the trainer has followed the fallbacks.
    pub(super) fn is_waiting(&self) -> bool {
        self.list_room.is_waiting() || self.view_size.is_waiting()
    }

    /// Opens the first GPU with a budget of its memory, including context and code; without a budget, all of it.
    pub fn open(budget: Option<Bytes>) -> Result<Self> {
        Self::within(0, |card| Allowance::new(budget.map(Limit::Bytes), 1.0, card))
    }

    /// Opens a GPU within a share of a limit, or of the card.
    pub fn open_limited(ordinal: u32, limit: Option<Limit>, threshold: f64) -> Result<Self> {
        Self::within(ordinal, |card| Allowance::new(limit, threshold, card))
    }

    fn within(ordinal: u32, allowance_on: impl FnOnce(Bytes) -> Allowance) -> Result<Self> {
        let device = CudaDevice::open(ordinal)?;
        let code = LoadedCode::load(Box::new(Loader::default()))?;
        let stream = Stream::new()?;
        let copies = Stream::hasty()?;
        let heap = Heap::open(&device, allowance_on(device.memory()))?;
        // Before other allocations, because uncharged memory counts as other programs'.
        let opened = device.taken_since_opened()?;
        heap.charge_fixed(opened)?;
        sort::warm_up(&heap, &stream)?;
        heap.set_cub_scratch(sort::library(device.arch())?);
        heap.trim_scratch()?;
        heap.charge_fixed(Bytes(device.taken_since_opened()?.0.saturating_sub(opened.0)))?;
        heap.update_foreign_use()?;
        Self::over(device, heap, code, [stream, copies])
    }

    /// Creates a session whose streams do no work.
    pub(super) fn dry(heap: Heap, queues: [DryQueue; 2]) -> Result<Self> {
        let device = CudaDevice::dry(heap.budget());
        Self::over(device, heap, LoadedCode::load(Box::new(Nothing))?, queues.map(Stream::over))
    }

    fn over(
        device: Rc<CudaDevice>,
        heap: Heap,
        LoadedCode { kernels, of_primitives, code }: LoadedCode,
        [stream, copies]: [Stream; 2],
    ) -> Result<Self> {
        let status = Status::new(&heap, &stream)?;
        let (seen, filled) = (stream.event()?, copies.event()?);
        Ok(Self {
            heap,
            stream,
            copies,
            seen,
            filled,
            kernels,
            of_primitives,
            code,
            status,
            timers: Timers::off(),
            most_visible: 0,
            storage: Storage::default(),
            seed: 0,
            bands: BandPolicy::default(),
            banded_need: Bytes(0),
            list_room: ListRoom::default(),
            view_size: TrainingViewSize::default(),
            device,
        })
    }

    /// Charges the memory that a library takes for itself during `work`.
    pub(super) fn charge_library<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let (free, held) = (self.device.free()?, self.heap.total());
        let done = work()?;
        self.device.synchronize()?;
        let taken = free.0.saturating_sub(self.device.free()?.0);
        // The ledger has the heap's own part already.
        let own = self.heap.total().0.saturating_sub(held.0);
        self.heap.charge_fixed(Bytes(taken.saturating_sub(own)))?;
        Ok(done)
    }

    /// Returns the kernels of a primitive and loads them once. Only the code of Gaussians is charged.
    pub(super) fn kernels_of<P: CudaPrimitive>(&mut self) -> Result<Rc<LoadedKernels>> {
        if let Some(known) = self.of_primitives.get(&TypeId::of::<P>()) {
            return Ok(Rc::clone(known));
        }
        let loaded = Rc::new(LoadedKernels::of::<P>(self.code.as_mut())?);
        self.of_primitives.insert(TypeId::of::<P>(), Rc::clone(&loaded));
        Ok(loaded)
    }

    /// Fails if a parameter is no longer finite. Waits for the GPU.
    pub(super) fn check_faults(&mut self) -> Result {
        self.status.report(&self.heap, &self.stream)?.read().map(drop)
    }

    /// Clears a fault before a new model. Waits for the GPU.
    pub(super) fn forget_faults(&mut self) -> Result {
        self.status.clear_fault(&self.stream)
    }
}

struct LoadedCode {
    kernels: Kernels,
    of_primitives: HashMap<TypeId, Rc<LoadedKernels>>,
    code: Box<dyn Find>,
}

impl LoadedCode {
    /// Loads the code. A context must be current.
    fn load(mut code: Box<dyn Find>) -> Result<Self> {
        let kernels = Kernels::load(code.as_mut())?;
        let gaussians = Rc::new(LoadedKernels::of::<Gaussians>(code.as_mut())?);
        let of_primitives = HashMap::from([(TypeId::of::<Gaussians>(), gaussians)]);
        Ok(Self { kernels, of_primitives, code })
    }
}
