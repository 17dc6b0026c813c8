//! All memory of the GPU: regions that live as long as the model, scratch for an iteration,
//! page-locked memory of the host, which regions may lie in, too. The ledger is asked for every byte
//! before it is taken.

mod arena;
mod buffer;
mod dry;
#[cfg(test)]
mod fake;
#[cfg(test)]
pub(in crate::backend::cuda) mod host_tests;
mod memory;
mod pinned;
mod region;
mod scratch;
#[cfg(test)]
mod sharing_tests;
mod span;
#[cfg(test)]
pub(crate) mod tests;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

pub use buffer::{Buffer, DeviceRange};
pub use pinned::Pinned;
pub use region::Region;
pub use scratch::{Block, Carve, Piece};
pub(crate) use span::host_len;

use self::arena::Arena;
use self::dry::DryMemory;
use self::memory::{GpuMemory, MemoryDriver};
use self::span::Accounts;
use crate::backend::DeviceError;
use crate::backend::cuda::device::driver::CudaDevice;
use crate::layout::{CONTEXT, Library, MemoryPlace, Scratch, ScratchLog};
use crate::memory::{Allowance, Bytes, Entry, HostAllowance, Kind, Ledger, Limit};

/// A handle to the memory of one GPU.
#[derive(Clone)]
pub struct Heap {
    accounts: Rc<Accounts>,
    arena: Rc<RefCell<Arena>>,
}

impl Heap {
    /// A heap within the allowance, which at first ignores other programs on the GPU.
    /// `SPLAT_NO_VMM=1` turns virtual memory off, as on GPUs without it.
    pub fn open(device: &Rc<CudaDevice>, allowance: Allowance) -> Result<Self, DeviceError> {
        let is_unwanted = std::env::var_os("SPLAT_NO_VMM").is_some_and(|value| value == "1");
        if is_unwanted || !device.has_virtual_memory() {
            return Self::open_plain(device, allowance);
        }
        Self::over(Box::new(GpuMemory::new(device, true)?), allowance)
    }

    /// The same without virtual memory: what grows is copied.
    pub fn open_plain(device: &Rc<CudaDevice>, allowance: Allowance) -> Result<Self, DeviceError> {
        Self::over(Box::new(GpuMemory::new(device, false)?), allowance)
    }

    /// A heap without memory, for a dry run.
    pub(crate) fn dry() -> Result<Self, DeviceError> {
        let memory = DryMemory::default();
        let all = Allowance::new(None, 1.0, memory.capacity());
        Self::over(Box::new(memory), all)
    }

    fn over(memory: Box<dyn MemoryDriver>, allowance: Allowance) -> Result<Self, DeviceError> {
        let budget = allowance.beside(Bytes(0)).min(memory.capacity());
        let ledger = RefCell::new(Ledger::new(budget));
        let (allowance, cub_scratch) = (Cell::new(allowance), OnceCell::new());
        let accounts = Rc::new(Accounts {
            memory,
            ledger,
            allowance,
            host_allowance: Cell::default(),
            cub_scratch,
            log: RefCell::default(),
        });
        let arena = Rc::new(RefCell::new(Arena::new(&accounts)));
        Ok(Self { accounts, arena })
    }

    /// Writes down what context and code have taken, or have taken more.
    pub fn charge_fixed(&self, bytes: Bytes) -> Result<(), DeviceError> {
        self.accounts.update_foreign_use(bytes)?;
        let mut ledger = self.accounts.ledger.borrow_mut();
        ledger.charge(CONTEXT.label, Kind::Fixed, bytes)?;
        ledger.set_used(CONTEXT.label, Kind::Fixed, Bytes(0), bytes);
        Ok(())
    }

    /// Gives back the arena's memory that no block uses.
    pub fn trim_scratch(&self) -> Result<(), DeviceError> {
        self.arena.borrow_mut().trim()
    }

    /// Gives back what no iteration since the call before the last needed of the arena.
    pub fn trim_slack(&self) -> Result<(), DeviceError> {
        self.arena.borrow_mut().trim_to_recent()
    }

    /// Bytes up to the last live block.
    pub fn live_scratch(&self) -> Bytes {
        Bytes(self.arena.borrow().live())
    }

    /// Bytes that the arena has taken from the device.
    pub fn mapped_scratch(&self) -> Bytes {
        Bytes(self.arena.borrow().mapped())
    }

    /// The most that blocks took together since the call of [`Self::trim_slack`] before the last.
    pub fn recent_scratch(&self) -> Bytes {
        Bytes(self.arena.borrow().recent())
    }

    /// Bytes that blocks can take before a rung is given up.
    pub fn available_bytes(&self) -> Bytes {
        let left = self.accounts.ledger.borrow().left();
        Bytes(left.0 + self.arena.borrow().idle())
    }

    /// The same, whatever is aimed at; a granule is lost to rounding.
    pub fn obtainable_bytes(&self) -> Bytes {
        let left = self.budget().0.saturating_sub(self.total().0);
        Bytes((left + self.arena.borrow().idle()).saturating_sub(self.granule().0))
    }

    /// Sets what is not to be exceeded where less will do: views are drawn in bands, and blocks take no
    /// spare room. Nothing is refused for it.
    ///
    /// What could not be done with less goes back where no aim is set any more.
    pub fn set_aim(&self, aim: Option<Bytes>) -> Result<(), DeviceError> {
        if aim.is_none() {
            self.make_room(Bytes(0))?;
        }
        self.accounts.ledger.borrow_mut().set_aim(aim);
        Ok(())
    }

    /// Before a region takes so many bytes: gives back the arena's idle memory where what is aimed at
    /// would be exceeded with it.
    pub fn make_room(&self, wanted: Bytes) -> Result<(), DeviceError> {
        let is_too_much = self.accounts.ledger.borrow().exceeds_aim(wanted);
        if is_too_much { self.trim_scratch() } else { Ok(()) }
    }

    /// Reads how much of the GPU other programs use, and lowers the budget to what they leave. Whatever takes memory
    /// does so by itself.
    pub fn update_foreign_use(&self) -> Result<(), DeviceError> {
        self.accounts.update_foreign_use(Bytes(0))
    }

    /// Bytes that are held beyond what may be taken, since others took some in the meantime.
    pub fn excess(&self) -> Bytes {
        Bytes(self.total().0.saturating_sub(self.budget().0))
    }

    /// The ledger's entries.
    pub fn ledger(&self) -> Vec<Entry> {
        self.accounts.ledger.borrow().entries().to_vec()
    }

    /// Bytes that hold something of regions that go by this label.
    pub fn used_by(&self, label: &'static str) -> Bytes {
        let ledger = self.accounts.ledger.borrow();
        let of_label = |entry: &&Entry| entry.label == label && entry.kind == Kind::Region;
        ledger.entries().iter().filter(of_label).map(|entry| entry.used).sum()
    }

    /// Bytes taken from the device, context and code included.
    pub fn total(&self) -> Bytes {
        self.accounts.ledger.borrow().total()
    }

    /// The most that was taken at once.
    pub fn peak(&self) -> Bytes {
        self.accounts.ledger.borrow().peak()
    }

    /// The most that was taken at once since this was called last.
    pub fn take_phase_peak(&self) -> Bytes {
        self.accounts.ledger.borrow_mut().take_phase_peak()
    }

    /// Resets all peaks to what is held now, but for that of [`Self::take_phase_peak`].
    pub fn reset_peak(&self) {
        self.accounts.ledger.borrow_mut().reset_peak();
    }

    /// What may be taken.
    pub fn budget(&self) -> Bytes {
        self.accounts.ledger.borrow().budget()
    }

    /// Changes the budget, whatever other programs use; held memory stays.
    pub fn set_budget(&self, budget: Bytes) {
        let capacity = self.accounts.memory.capacity();
        let allowance = Allowance::new(Some(Limit::Bytes(budget)), 1.0, capacity);
        self.accounts.allowance.set(allowance);
        self.accounts.ledger.borrow_mut().set_budget(budget.min(capacity), None);
    }

    /// Does some work, and returns the blocks of the arena that it takes.
    pub(crate) fn logged(
        &self,
        work: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<Scratch, DeviceError> {
        *self.accounts.log.borrow_mut() = Some(ScratchLog::default());
        let done = work();
        let log = self.accounts.log.borrow_mut().take();
        done.map(|()| log.map_or_else(Scratch::default, ScratchLog::into_scratch))
    }

    /// Scratch of CUB's calls on this GPU.
    pub fn cub_scratch(&self) -> &Library {
        self.accounts.cub_scratch.get_or_init(Library::default)
    }

    /// Sets what CUB's calls take on this GPU, once and before it is read.
    pub(crate) fn set_cub_scratch(&self, library: Library) {
        // A second call changes nothing: sizes that were read stay true.
        let _ = self.accounts.cub_scratch.set(library);
    }

    /// Free memory of the GPU.
    pub fn driver_free(&self) -> Result<Bytes, DeviceError> {
        self.accounts.memory.free()
    }

    /// Smallest unit in which memory is taken.
    pub fn granule(&self) -> Bytes {
        self.granule_in(MemoryPlace::Device)
    }

    /// The same of memory of this place.
    pub(crate) fn granule_in(&self, place: MemoryPlace) -> Bytes {
        Bytes(self.accounts.memory.granule(place))
    }

    /// Whether regions grow in place.
    pub fn is_virtual(&self) -> bool {
        self.is_virtual_in(MemoryPlace::Device)
    }

    /// The same of regions of this place.
    pub(crate) fn is_virtual_in(&self, place: MemoryPlace) -> bool {
        self.accounts.memory.is_virtual(place)
    }

    /// What may be page-locked of the host from now on; before, all that it can spare.
    pub(crate) fn set_host_allowance(&self, allowance: HostAllowance) {
        let state = self.accounts.memory.host();
        let shared = state.map_or(allowance, |state| allowance.shared(state));
        self.accounts.host_allowance.set(shared);
    }

    /// Bytes that regions of the host may take now.
    pub fn left_on_host(&self) -> Bytes {
        self.accounts.left_on_host()
    }

    /// Page-locked bytes of the host.
    pub fn on_host(&self) -> Bytes {
        self.accounts.ledger.borrow().on_host()
    }

    /// Runs an allocation; if memory is short, runs it once more after trimming the arena. If other
    /// programs have taken this program's share, the arena keeps its memory, since it could not get
    /// it again.
    fn with_trim_retry<R>(
        &self,
        mut take: impl FnMut() -> Result<R, DeviceError>,
    ) -> Result<R, DeviceError> {
        match take() {
            Err(error) if error.is_out_of_memory() && self.excess() == Bytes(0) => {
                self.trim_scratch()?;
                take()
            }
            other => other,
        }
    }
}
