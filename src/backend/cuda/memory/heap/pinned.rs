//! Page-locked memory of the host, whose copies run asynchronously.

use std::cell::RefCell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;

use super::Heap;
use super::memory::Fault;
use super::span::{Accounts, bytes_of, host_len};
use crate::abi::Plain;
use crate::backend::DeviceError;
use crate::backend::cuda::device::stream::{CudaEvent, Stream};
use crate::layout::{Count, Slot};
use crate::memory::{Bytes, Kind};

/// Values that the device can reach. Whoever looks at them waits for the last copy.
pub struct Pinned<T> {
    accounts: Rc<Accounts>,
    label: &'static str,
    address: *mut T,
    len: usize,
    /// Marks the last copy, once there was one.
    copied: RefCell<Option<CudaEvent>>,
    values: PhantomData<T>,
}

impl Heap {
    /// Page-locked memory of the host of a slot for these sizes, all bits zero.
    pub fn pinned<T: Plain, C: Count>(
        &self,
        slot: &Slot<T, C>,
        sizes: &C::Sizes,
    ) -> Result<Pinned<T>, DeviceError> {
        Pinned::new(&self.accounts, slot.label, host_len(slot.len(sizes)))
    }
}

impl<T: Plain> Pinned<T> {
    pub(super) fn new(
        accounts: &Rc<Accounts>,
        label: &'static str,
        len: usize,
    ) -> Result<Self, DeviceError> {
        let bytes = bytes_of::<T>(len);
        // An allocation of no bytes is an error of the driver.
        let taken = usize::try_from(bytes.max(1)).unwrap_or(usize::MAX);
        let address = match accounts.memory.allocate_pinned(taken) {
            Ok(address) => address.cast::<T>(),
            Err(Fault::Failed(error)) => return Err(error),
            Err(Fault::Exhausted) => {
                let wanted = Bytes(taken as u64);
                return Err(DeviceError::OutOfHostMemory { label, wanted, demand: None });
            }
        };
        // SAFETY: the allocation holds `len` values and is aligned to pages.
        unsafe { address.write_bytes(0, len) };
        let mut ledger = accounts.ledger.borrow_mut();
        ledger.charge(label, Kind::Pinned, Bytes(bytes))?;
        ledger.set_used(label, Kind::Pinned, Bytes(0), Bytes(bytes));
        drop(ledger);
        Ok(Self {
            accounts: Rc::clone(accounts),
            label,
            address,
            len,
            copied: RefCell::new(None),
            values: PhantomData,
        })
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The values, after the last copy to or from them.
    pub fn as_slice(&self) -> Result<&[T], DeviceError> {
        self.wait()?;
        // SAFETY: no copy runs; one that writes needs `&mut self`, which outlives this borrow.
        Ok(unsafe { std::slice::from_raw_parts(self.address, self.len) })
    }

    /// The values for writing, after the last copy to or from them.
    pub fn as_mut_slice(&mut self) -> Result<&mut [T], DeviceError> {
        self.wait()?;
        // SAFETY: no copy runs, and the next one needs a borrow that this one excludes.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.address, self.len) })
    }

    /// Whether a look at the values would not have to wait.
    pub fn is_ready(&self) -> Result<bool, DeviceError> {
        self.copied.borrow().as_ref().map_or(Ok(true), CudaEvent::is_reached)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        self.copied.borrow().as_ref().map_or(Ok(()), CudaEvent::synchronize)
    }

    /// Where a range of the values lies.
    pub(super) fn part(&self, range: &Range<usize>) -> Result<*mut c_void, DeviceError> {
        if range.start > range.end || range.end > self.len {
            return Err(DeviceError::Driver {
                call: "copy",
                reason: format!(
                    "`{}` holds {} values, but {range:?} were requested",
                    self.label, self.len
                ),
            });
        }
        // SAFETY: the range lies within the allocation, as checked above.
        Ok(unsafe { self.address.add(range.start) }.cast())
    }

    /// A copy was put on this stream. An earlier one on another stream must be over by then.
    pub(super) fn busy_until_now(&self, stream: &Stream) -> Result<(), DeviceError> {
        let mut copied = self.copied.borrow_mut();
        if copied.is_none() {
            *copied = Some(stream.event()?);
        }
        copied.as_ref().map_or(Ok(()), |event| event.record(stream))
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.copied.borrow().as_ref().map(CudaEvent::synchronize) {
            tracing::debug!("{error}");
        }
        self.accounts.memory.free_pinned(self.address.cast());
        let bytes = Bytes(bytes_of::<T>(self.len));
        let mut ledger = self.accounts.ledger.borrow_mut();
        ledger.set_used(self.label, Kind::Pinned, bytes, Bytes(0));
        ledger.release(self.label, Kind::Pinned, bytes);
    }
}
