//! A GPU made ready: context, code, streams and memory, with what they take written down.

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
use crate::backend::DeviceError;
use crate::memory::plan::Storage;
use crate::memory::{Allowance, Bytes, Limit};
use crate::model::Gaussians;

/// When a view is drawn in bands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BandPolicy {
    /// Never: a view that does not fit is refused.
    Never,
    /// Where it does not fit.
    #[default]
    WhenNeeded,
    /// Always, in so many bands or more: one for each row of tiles at most.
    AtLeast(u32),
    /// Always, in bands of at most this number of rows of tiles.
    Rows(u32),
}

/// What all work on the GPU needs.
pub struct Session {
    /// The memory.
    pub heap: Heap,
    /// Where work is put.
    pub stream: Stream,
    /// Where copies run beside it, and what finds out what to copy.
    pub copies: Stream,
    /// The place in the stream behind the latest projection of a model.
    pub(super) seen: CudaEvent,
    /// The place in the copies behind the latest lines that were filled.
    pub(super) filled: CudaEvent,
    pub(super) kernels: Kernels,
    /// Those of the primitives in use.
    of_primitives: HashMap<TypeId, Rc<LoadedKernels>>,
    code: Box<dyn Find>,
    /// What kernels report in.
    pub(super) status: Status,
    /// How long the stages take; off unless asked for.
    pub(super) timers: Timers,
    /// Splats of the view that room for splats was last raised for.
    pub(super) most_visible: usize,
    /// How models that are made from now on keep their state.
    pub storage: Storage,
    /// Seed of the random numbers that a compact model rounds with.
    pub seed: u64,
    /// When views are drawn in bands.
    pub bands: BandPolicy,
    /// The most scratch that a view which was drawn in bands would have taken at once.
    pub(super) banded_need: Bytes,
    /// How long lists of neighbours may be.
    pub(super) list_room: ListRoom,
    /// How large training views may be.
    pub(super) view_size: TrainingViewSize,
    /// The GPU.
    pub device: Rc<CudaDevice>,
}

impl Session {
    /// True if memory will be free when the trainer has followed what was given up.
    pub(super) fn is_waiting(&self) -> bool {
        self.list_room.is_waiting() || self.view_size.is_waiting()
    }

    /// Opens the GPU, loads all code and gives out at most `budget` of its memory, context and
    /// code included; without a budget, all of it.
    pub fn open(budget: Option<Bytes>) -> Result<Self, DeviceError> {
        Self::within(0, |card| Allowance::new(budget.map(Limit::Bytes), 1.0, card))
    }

    /// The same of the GPU of this number within a share of a limit, or of the card.
    pub fn open_limited(
        ordinal: u32,
        limit: Option<Limit>,
        threshold: f64,
    ) -> Result<Self, DeviceError> {
        Self::within(ordinal, |card| Allowance::new(limit, threshold, card))
    }

    fn within(
        ordinal: u32,
        allowance_on: impl FnOnce(Bytes) -> Allowance,
    ) -> Result<Self, DeviceError> {
        let device = CudaDevice::open(ordinal)?;
        let code = LoadedCode::load(Box::new(Loader::default()))?;
        let stream = Stream::new()?;
        let copies = Stream::hasty()?;
        let heap = Heap::open(&device, allowance_on(device.memory()))?;
        // Before anything else is taken: what is not in the books counts as held by other programs.
        let opened = device.taken_since_opened()?;
        heap.charge_fixed(opened)?;
        sort::warm_up(&heap, &stream)?;
        heap.set_cub_scratch(sort::library(device.arch())?);
        heap.trim_scratch()?;
        heap.charge_fixed(Bytes(device.taken_since_opened()?.0.saturating_sub(opened.0)))?;
        heap.update_foreign_use()?;
        Self::over(device, heap, code, [stream, copies])
    }

    /// A session whose streams do no work.
    pub(super) fn dry(heap: Heap, queues: [DryQueue; 2]) -> Result<Self, DeviceError> {
        let device = CudaDevice::dry(heap.budget());
        Self::over(device, heap, LoadedCode::load(Box::new(Nothing))?, queues.map(Stream::over))
    }

    fn over(
        device: Rc<CudaDevice>,
        heap: Heap,
        LoadedCode { kernels, of_primitives, code }: LoadedCode,
        [stream, copies]: [Stream; 2],
    ) -> Result<Self, DeviceError> {
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

    /// Writes down what a library takes of the GPU's memory for itself while `work` is done.
    pub(super) fn charge_library<T>(
        &self,
        work: impl FnOnce() -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let (free, held) = (self.device.free()?, self.heap.total());
        let done = work()?;
        self.device.synchronize()?;
        let taken = free.0.saturating_sub(self.device.free()?.0);
        // What of it the heap has taken is in its books.
        let own = self.heap.total().0.saturating_sub(held.0);
        self.heap.charge_fixed(Bytes(taken.saturating_sub(own)))?;
        Ok(done)
    }

    /// The kernels of a primitive, which are loaded once. Code of others than Gaussians is not among what
    /// was charged when the GPU was opened.
    pub(super) fn kernels_of<P: CudaPrimitive>(
        &mut self,
    ) -> Result<Rc<LoadedKernels>, DeviceError> {
        if let Some(known) = self.of_primitives.get(&TypeId::of::<P>()) {
            return Ok(Rc::clone(known));
        }
        let loaded = Rc::new(LoadedKernels::of::<P>(self.code.as_mut())?);
        self.of_primitives.insert(TypeId::of::<P>(), Rc::clone(&loaded));
        Ok(loaded)
    }

    /// Fails where a parameter is no longer finite. Waits for the GPU.
    pub(super) fn check_faults(&mut self) -> Result<(), DeviceError> {
        self.status.report(&self.heap, &self.stream)?.read().map(drop)
    }

    /// Forgets that a parameter was not finite: a new model begins. Waits for the GPU.
    pub(super) fn forget_faults(&mut self) -> Result<(), DeviceError> {
        self.status.clear_fault(&self.stream)
    }
}

/// All code that every run needs.
struct LoadedCode {
    kernels: Kernels,
    of_primitives: HashMap<TypeId, Rc<LoadedKernels>>,
    code: Box<dyn Find>,
}

impl LoadedCode {
    /// Loads it. A context must be current.
    fn load(mut code: Box<dyn Find>) -> Result<Self, DeviceError> {
        let kernels = Kernels::load(code.as_mut())?;
        let gaussians = Rc::new(LoadedKernels::of::<Gaussians>(code.as_mut())?);
        let of_primitives = HashMap::from([(TypeId::of::<Gaussians>(), gaussians)]);
        Ok(Self { kernels, of_primitives, code })
    }
}
