//! All memory of the GPU: regions that live as long as the model, scratch for an iteration,
//! page-locked memory of the host. The ledger is asked for every byte before it is taken.

mod arena;
mod buffer;
#[cfg(test)]
mod fake;
mod memory;
mod pinned;
mod region;
mod scratch;
mod span;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;

pub use buffer::Buffer;
pub use pinned::Pinned;
pub use region::Region;
pub use scratch::{Block, Carve, Piece};

use self::arena::Arena;
use self::memory::{DeviceMemory, GpuMemory};
use self::span::Books;
use super::driver::Device;
use crate::abi::Plain;
use crate::backend::DeviceError;
use crate::memory::{Bytes, Entry, Kind, Ledger};

/// Bytes of address that blocks and pieces begin at multiples of.
const ALIGNMENT: u64 = 256;

/// Label of what the driver needs for itself.
const FIXED: &str = "context and code";

/// A handle to the memory of one GPU.
#[derive(Clone)]
pub struct Heap {
    books: Rc<Books>,
    arena: Rc<RefCell<Arena>>,
}

impl Heap {
    /// Hands out at most `budget` of the GPU's memory. `SPLAT_NO_VMM=1` does without virtual
    /// memory, as GPUs that have none.
    pub fn open(device: &Rc<Device>, budget: Bytes) -> Result<Self, DeviceError> {
        let is_unwanted = std::env::var_os("SPLAT_NO_VMM").is_some_and(|value| value == "1");
        if is_unwanted || !device.has_virtual_memory() {
            return Self::open_plain(device, budget);
        }
        Self::over(Box::new(GpuMemory::new(device, true)?), budget)
    }

    /// The same without virtual memory: what grows is copied.
    pub fn open_plain(device: &Rc<Device>, budget: Bytes) -> Result<Self, DeviceError> {
        Self::over(Box::new(GpuMemory::new(device, false)?), budget)
    }

    fn over(memory: Box<dyn DeviceMemory>, budget: Bytes) -> Result<Self, DeviceError> {
        let budget = Bytes(budget.0.min(memory.capacity().0));
        let books = Rc::new(Books { memory, ledger: RefCell::new(Ledger::new(budget)) });
        let arena = Rc::new(RefCell::new(Arena::new(&books)));
        Ok(Self { books, arena })
    }

    /// An empty region.
    pub fn region<T: Plain>(&self, label: &'static str) -> Result<Region<T>, DeviceError> {
        Region::new(self, label)
    }

    /// Scratch for `len` values, holding anything. Blocks are given back in any order; a later
    /// block may lie where an earlier one lay, so all of them belong on one stream.
    pub fn scratch<T: Plain>(
        &self,
        label: &'static str,
        len: usize,
    ) -> Result<Block<T>, DeviceError> {
        Block::new(self, label, len)
    }

    /// Page-locked memory of the host for `len` values, all bits zero.
    pub fn pinned<T: Plain>(
        &self,
        label: &'static str,
        len: usize,
    ) -> Result<Pinned<T>, DeviceError> {
        Pinned::new(&self.books, label, len)
    }

    /// Writes down what context and code take.
    pub fn charge_fixed(&self, bytes: Bytes) -> Result<(), DeviceError> {
        let mut ledger = self.books.ledger.borrow_mut();
        ledger.charge(FIXED, Kind::Fixed, bytes)?;
        ledger.set_used(FIXED, Kind::Fixed, Bytes(0), bytes);
        Ok(())
    }

    /// Gives back what the scratch arena holds and no block uses.
    pub fn trim_scratch(&self) -> Result<(), DeviceError> {
        self.arena.borrow_mut().trim()
    }

    /// Who holds how much.
    pub fn ledger(&self) -> Vec<Entry> {
        self.books.ledger.borrow().entries().to_vec()
    }

    /// Bytes taken from the device, context and code included.
    pub fn total(&self) -> Bytes {
        self.books.ledger.borrow().total()
    }

    /// The most that was taken at once.
    pub fn peak(&self) -> Bytes {
        self.books.ledger.borrow().peak()
    }

    /// Forgets all peaks: what is held now is the most so far.
    pub fn reset_peak(&self) {
        self.books.ledger.borrow_mut().reset_peak();
    }

    /// What may be taken.
    pub fn budget(&self) -> Bytes {
        self.books.ledger.borrow().budget()
    }

    /// Changes what may be taken; what is held already stays.
    pub fn set_budget(&self, budget: Bytes) {
        let capacity = self.books.memory.capacity();
        self.books.ledger.borrow_mut().set_budget(budget.min(capacity));
    }

    /// Memory of the GPU that nobody uses.
    pub fn driver_free(&self) -> Result<Bytes, DeviceError> {
        self.books.memory.free()
    }

    /// Smallest unit in which memory is taken.
    pub fn granule(&self) -> Bytes {
        Bytes(self.books.memory.granule())
    }

    /// Whether regions grow in place.
    pub fn is_virtual(&self) -> bool {
        self.books.memory.is_virtual()
    }

    /// Does something that takes memory; where there is none left, once more after giving back
    /// what the arena does not use.
    fn with_slack<R>(
        &self,
        mut take: impl FnMut() -> Result<R, DeviceError>,
    ) -> Result<R, DeviceError> {
        match take() {
            Err(DeviceError::Refused(_) | DeviceError::OutOfMemory { .. }) => {
                self.trim_scratch()?;
                take()
            }
            other => other,
        }
    }
}

/// Bytes of `len` values; more than any device has where they cannot be counted.
fn bytes_of<T>(len: usize) -> u64 {
    (len as u64).saturating_mul(size_of::<T>() as u64)
}
