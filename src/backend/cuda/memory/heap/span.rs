//! A range of device addresses that memory is mapped into as it is needed: the device's, or the host's.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use super::memory::{Fault, MemoryDriver};
use crate::backend::DeviceError;
use crate::layout::{Library, MemoryPlace, ScratchLog, block_beside};
use crate::memory::{Allowance, Bytes, HostAllowance, HostDemand, Kind, Ledger};

/// Memory and the books of it.
pub(super) struct Accounts {
    pub(super) memory: Box<dyn MemoryDriver>,
    pub(super) ledger: RefCell<Ledger>,
    pub(super) allowance: Cell<Allowance>,
    pub(super) host_allowance: Cell<HostAllowance>,
    pub(super) cub_scratch: OnceCell<Library>,
    /// Blocks of the arena, while they are logged.
    pub(super) log: RefCell<Option<ScratchLog>>,
}

impl Accounts {
    /// Reads how much of the device other programs use, and lowers the budget to what they leave. `own` bytes of
    /// the use are this program's and not in the ledger.
    pub(super) fn update_foreign_use(&self, own: Bytes) -> Result<(), DeviceError> {
        let used = self.memory.capacity().0.saturating_sub(self.memory.free()?.0);
        let mut ledger = self.ledger.borrow_mut();
        let foreign = used.saturating_sub(ledger.total().0 + own.0);
        let allowance = self.allowance.get();
        ledger.set_budget(allowance.beside(Bytes(foreign)), allowance.sharing(Bytes(foreign)));
        Ok(())
    }

    /// Whether so much may be taken, as things stand now: others may have come or gone.
    fn check(
        &self,
        place: MemoryPlace,
        label: &'static str,
        wanted: Bytes,
        demand: HostDemand,
    ) -> Result<(), DeviceError> {
        match place {
            MemoryPlace::Device => {
                self.update_foreign_use(Bytes(0))?;
                Ok(self.ledger.borrow().check(label, wanted)?)
            }
            MemoryPlace::Host => {
                let Some(state) = self.memory.host() else { return Ok(()) };
                let held = self.ledger.borrow().on_host();
                Ok(self.host_allowance.get().check(state, held, label, wanted, demand)?)
            }
        }
    }

    /// Bytes of the host that may be page-locked, as things stand now.
    pub(super) fn left_on_host(&self) -> Bytes {
        let held = self.ledger.borrow().on_host();
        let left = |state| self.host_allowance.get().left(state, held);
        self.memory.host().map_or(Bytes(u64::MAX), left)
    }

    /// The most that a span of this place can come to.
    fn reach(&self, place: MemoryPlace) -> u64 {
        let all = match place {
            MemoryPlace::Device => self.memory.capacity(),
            // Where the system does not tell, more than hosts have.
            MemoryPlace::Host => self
                .memory
                .host()
                .map_or(Bytes(MOST_OF_HOST), |state| self.host_allowance.get().most(state.total)),
        };
        self.whole_granules(place, all.0.max(1))
    }

    /// Rounds up to whole granules.
    pub(super) fn whole_granules(&self, place: MemoryPlace, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.memory.granule(place)).unwrap_or(u64::MAX)
    }
}

/// Addresses that are reserved for memory of a host whose size is not known.
const MOST_OF_HOST: u64 = 1 << 40;

/// One part in so many of a range in the host's memory is worth a copy of it.
const WORTH_A_COPY: u64 = 8;

/// A block of memory, mapped right after the one before it.
struct Mapped {
    handle: u64,
    bytes: u64,
}

/// Addresses with memory at their beginning.
///
/// With virtual memory the addresses stay the same for life. Without, growing takes a larger range
/// and copies.
pub(super) struct Span {
    accounts: Rc<Accounts>,
    label: &'static str,
    kind: Kind,
    address: u64,
    /// Reserved address space; 0 without virtual memory.
    reserved: u64,
    blocks: Vec<Mapped>,
    mapped: u64,
    used: u64,
}

impl Span {
    /// Addresses without memory.
    pub(super) fn new(
        accounts: &Rc<Accounts>,
        label: &'static str,
        kind: Kind,
    ) -> Result<Self, DeviceError> {
        let mut span = Self {
            accounts: Rc::clone(accounts),
            label,
            kind,
            address: 0,
            reserved: 0,
            blocks: Vec::new(),
            mapped: 0,
            used: 0,
        };
        if accounts.memory.is_virtual(kind.place()) {
            let reach = accounts.reach(kind.place());
            span.address =
                accounts.memory.reserve(reach).map_err(|fault| span.error(fault, reach))?;
            span.reserved = reach;
        }
        Ok(span)
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    pub(super) fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Bytes from this address, which is mapped, to the end of its block.
    pub(super) fn left_of_block(&self, address: u64) -> u64 {
        let at = address - self.address;
        let ends = self.blocks.iter().scan(0, |end, block| {
            *end += block.bytes;
            Some(*end)
        });
        let end = ends.into_iter().find(|&end| end > at);
        // Without virtual memory there are no blocks.
        end.map_or(u64::MAX, |end| end - at)
    }

    /// Notes how many bytes hold something.
    pub(super) fn set_used(&mut self, used: u64) {
        let mut ledger = self.accounts.ledger.borrow_mut();
        ledger.set_used(self.label, self.kind, Bytes(self.used), Bytes(used));
        self.used = used;
    }

    /// Maps memory for at least the first `bytes`. Contents stay; new memory is uninitialised.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), DeviceError> {
        if bytes <= self.mapped {
            return Ok(());
        }
        let target = self.whole_granules(bytes);
        if self.is_virtual() { self.map_more(target) } else { self.replace(target) }
    }

    /// Gives back the whole blocks after the first `bytes`.
    pub(super) fn trim(&mut self, bytes: u64) -> Result<(), DeviceError> {
        if !self.is_virtual() {
            return self.trim_plain(bytes);
        }
        if self.blocks.last().is_none_or(|last| self.mapped - last.bytes < bytes) {
            return Ok(());
        }
        self.accounts.memory.wait()?;
        while let Some(last) = self.blocks.pop_if(|last| self.mapped - last.bytes >= bytes) {
            self.mapped -= last.bytes;
            self.accounts.memory.unmap(self.address + self.mapped, last.bytes)?;
            self.accounts.memory.release(last.handle)?;
            self.strike_out(last.bytes);
        }
        Ok(())
    }

    /// Whether it grows in place.
    fn is_virtual(&self) -> bool {
        self.accounts.memory.is_virtual(self.kind.place())
    }

    fn whole_granules(&self, bytes: u64) -> u64 {
        self.accounts.whole_granules(self.kind.place(), bytes)
    }

    fn check(&self, bytes: u64) -> Result<(), DeviceError> {
        self.accounts.check(self.kind.place(), self.label, Bytes(bytes), self.demand())
    }

    fn demand(&self) -> HostDemand {
        if self.mapped == 0 { HostDemand::Model } else { HostDemand::Growth }
    }

    fn charge(&self, bytes: u64) -> Result<(), DeviceError> {
        let mut ledger = self.accounts.ledger.borrow_mut();
        Ok(ledger.charge(self.label, self.kind, Bytes(bytes))?)
    }

    fn strike_out(&self, bytes: u64) {
        self.accounts.ledger.borrow_mut().release(self.label, self.kind, Bytes(bytes));
    }

    fn error(&self, fault: Fault, wanted: u64) -> DeviceError {
        match fault {
            Fault::Failed(error) => error,
            Fault::Exhausted if self.kind.place() == MemoryPlace::Host => {
                let (label, wanted, demand) = (self.label, Bytes(wanted), Some(self.demand()));
                DeviceError::OutOfHostMemory { label, wanted, demand }
            }
            Fault::Exhausted => {
                let ledger = self.accounts.ledger.borrow();
                DeviceError::OutOfMemory {
                    label: self.label,
                    wanted: Bytes(wanted),
                    held: ledger.total(),
                    free: self.accounts.memory.free().unwrap_or_default(),
                    largest: ledger.largest(),
                }
            }
        }
    }

    fn map_more(&mut self, target: u64) -> Result<(), DeviceError> {
        let (before, more) = (self.mapped, target - self.mapped);
        self.check(more)?;
        if target > self.reserved {
            // No budget is larger than the device, so that the check should have failed.
            return Err(self.error(Fault::Exhausted, more));
        }
        let done = self.map_blocks(target).and_then(|()| {
            let (memory, place) = (&self.accounts.memory, self.kind.place());
            Ok(memory.allow(place, self.address + before, target - before)?)
        });
        if let Err(fault) = done {
            self.unmap_behind(before);
            return Err(self.error(fault, more));
        }
        self.charge(more)
    }

    fn map_blocks(&mut self, target: u64) -> Result<(), Fault> {
        let memory = &self.accounts.memory;
        while self.mapped < target {
            let fair = self.whole_granules(block_beside(self.mapped));
            let bytes = fair.min(target - self.mapped);
            let handle = memory.create(self.kind.place(), bytes)?;
            if let Err(fault) = memory.map(self.address + self.mapped, bytes, handle) {
                memory.release(handle)?;
                return Err(fault);
            }
            self.blocks.push(Mapped { handle, bytes });
            self.mapped += bytes;
        }
        Ok(())
    }

    /// Takes blocks away without a look at the books.
    fn unmap_behind(&mut self, bytes: u64) {
        let memory = &self.accounts.memory;
        while let Some(last) = self.blocks.pop_if(|_last| self.mapped > bytes) {
            self.mapped -= last.bytes;
            let unmapped = memory.unmap(self.address + self.mapped, last.bytes);
            log(unmapped.and_then(|()| memory.release(last.handle)));
        }
    }

    /// Without virtual memory: a range of another size with the same contents.
    fn replace(&mut self, target: u64) -> Result<(), DeviceError> {
        self.check(target)?;
        let memory = &self.accounts.memory;
        let kept = self.mapped.min(target);
        let place = self.kind.place();
        let copied = memory.allocate(place, target).and_then(|address| {
            if kept > 0
                && let Err(error) = memory.copy(address, self.address, kept)
            {
                log(memory.deallocate(place, address));
                return Err(Fault::Failed(error));
            }
            Ok(address)
        });
        let address = copied.map_err(|fault| self.error(fault, target))?;
        // Both at once, as the device had to hold them.
        self.charge(target)?;
        self.give_back_range();
        self.address = address;
        self.mapped = target;
        Ok(())
    }

    /// A smaller range only where both fit at once; otherwise the larger one stays. So does one in the host's
    /// memory of which little would be gained: a copy of it would cross the bus.
    fn trim_plain(&mut self, bytes: u64) -> Result<(), DeviceError> {
        let target = self.whole_granules(bytes);
        if target >= self.mapped {
            return Ok(());
        }
        if target == 0 {
            self.give_back_range();
            return Ok(());
        }
        let is_little = self.mapped - target < self.mapped / WORTH_A_COPY;
        if is_little && self.kind.place() == MemoryPlace::Host {
            return Ok(());
        }
        match self.replace(target) {
            Err(error) if error.is_out_of_memory() => Ok(()),
            other => other,
        }
    }

    fn give_back_range(&mut self) {
        if self.mapped == 0 {
            return;
        }
        log(self.accounts.memory.wait());
        log(self.accounts.memory.deallocate(self.kind.place(), self.address));
        self.strike_out(self.mapped);
        self.address = 0;
        self.mapped = 0;
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.set_used(0);
        if !self.is_virtual() {
            self.give_back_range();
            return;
        }
        let mapped = self.mapped;
        if mapped > 0 {
            log(self.accounts.memory.wait());
            self.unmap_behind(0);
            self.strike_out(mapped);
        }
        if self.reserved > 0 {
            log(self.accounts.memory.unreserve(self.address, self.reserved));
        }
    }
}

/// A failure to give back leaves nothing to do: the context's end frees all.
fn log(result: Result<(), DeviceError>) {
    if let Err(error) = result {
        tracing::debug!("{error}");
    }
}

/// A length as the host counts; more than any device has where it cannot.
pub(crate) fn host_len(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

/// Bytes of `len` values; more than any device has if the product overflows.
pub(super) fn bytes_of<T>(len: usize) -> u64 {
    (len as u64).saturating_mul(size_of::<T>() as u64)
}
