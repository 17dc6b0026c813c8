//! A queue that does no work. Reads return the numbers that its owner answers.

use std::cell::Cell;
use std::ffi::c_void;
use std::rc::Rc;

use cudarc::driver::sys::CUstream;

use super::stream::{Launch, Queue};
use crate::backend::DeviceError;

/// Writes what the device would have in the buffer of a label. The bytes are zero before.
pub(crate) type Answer = Rc<dyn Fn(&'static str, &mut [u8])>;

/// A queue that does no work.
#[derive(Clone)]
pub(crate) struct DryQueue {
    answer: Answer,
    /// Copies and fills of this queue and its clones.
    transfers: Rc<Cell<usize>>,
}

impl DryQueue {
    pub(crate) fn new(answer: Answer) -> Self {
        Self { answer, transfers: Rc::default() }
    }

    /// Copies and fills so far.
    #[cfg(test)]
    pub(crate) fn transfers(&self) -> usize {
        self.transfers.get()
    }

    fn transfer(&self) -> Result<(), DeviceError> {
        self.transfers.set(self.transfers.get() + 1);
        Ok(())
    }
}

impl Queue for DryQueue {
    unsafe fn launch(&self, launch: &Launch, arguments: *mut c_void) -> Result<(), DeviceError> {
        debug_assert!(launch.grid > 0 && launch.block > 0 && !arguments.is_null());
        Ok(())
    }

    unsafe fn fill(&self, to: u64, _byte: u8, bytes: usize) -> Result<(), DeviceError> {
        debug_assert!(to > 0 && bytes > 0);
        self.transfer()
    }

    unsafe fn fill_words(&self, to: u64, _word: u32, words: usize) -> Result<(), DeviceError> {
        debug_assert!(to > 0 && words > 0);
        self.transfer()
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), DeviceError> {
        debug_assert!(to > 0 && from > 0 && bytes > 0);
        self.transfer()
    }

    unsafe fn upload(&self, to: u64, from: *const c_void, bytes: usize) -> Result<(), DeviceError> {
        debug_assert!(to > 0 && !from.is_null() && bytes > 0);
        self.transfer()
    }

    unsafe fn download(
        &self,
        to: *mut c_void,
        label: &'static str,
        from: u64,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        debug_assert!(from > 0);
        // SAFETY: the caller has so many bytes there.
        unsafe { to.cast::<u8>().write_bytes(0, bytes) };
        // SAFETY: the caller has so many bytes there, all of them written above.
        let host = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes) };
        (self.answer)(label, host);
        self.transfer()
    }

    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn raw(&self) -> Option<CUstream> {
        None
    }
}
