//! Streams, which run work in the order of the calls, and events, which mark positions in a stream.

use std::cell::Cell;
use std::ffi::c_void;
use std::rc::Rc;

use cudarc::driver::result;
use cudarc::driver::sys::{self, CUstream};

use super::driver::failed;
use crate::backend::Result;

/// A queue of work on the GPU.
pub struct Stream {
    queue: Box<dyn Queue>,
}

/// Executes the work of a stream: the driver, or in dry runs a queue that does nothing.
pub(crate) trait Queue {
    /// Runs a kernel.
    ///
    /// # Safety
    /// `arguments` is the struct that the function takes, and the memory that it points to stays valid until the
    /// device has finished.
    unsafe fn launch(&self, launch: &Launch, arguments: *mut c_void) -> Result;

    /// Fills memory of the device with one byte.
    ///
    /// # Safety
    /// The caller owns the range until the device has finished, and any bits are a valid value there.
    unsafe fn fill(&self, to: u64, byte: u8, bytes: usize) -> Result;

    /// Fills memory of the device with one 32-bit word.
    ///
    /// # Safety
    /// Requirements as for [`Self::fill`].
    unsafe fn fill_words(&self, to: u64, word: u32, words: usize) -> Result;

    /// Copies between addresses that kernels can use, in the memory of the device or the host.
    ///
    /// # Safety
    /// The caller owns both ranges until the device has finished, and the ranges do not overlap.
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result;

    /// Copies from the host without waiting.
    ///
    /// # Safety
    /// The caller owns both ranges until the device has finished, and no one writes to the host's.
    unsafe fn upload(&self, to: u64, from: *const c_void, bytes: usize) -> Result;

    /// Copies to the host without waiting; `label` names the buffer that holds `from`.
    ///
    /// # Safety
    /// The caller owns both ranges until the device has finished, no one reads the host's before, and any bits are
    /// a valid value there.
    unsafe fn download(
        &self,
        to: *mut c_void,
        label: &'static str,
        from: u64,
        bytes: usize,
    ) -> Result;

    fn wait(&self) -> Result;

    /// Returns the driver's handle for libraries; `None` in a dry run.
    fn raw(&self) -> Option<CUstream>;
}

pub(crate) struct Launch {
    pub(crate) function: sys::CUfunction,
    pub(crate) grid: u32,
    pub(crate) block: u32,
}

impl Stream {
    /// Creates a stream of the lowest priority that waits for no other. A device must be open.
    pub fn new() -> Result<Self> {
        Ok(Self { queue: Box::new(DriverQueue::new(false)?) })
    }

    /// Creates a stream of the highest priority, for urgent work beside long-running work.
    pub fn hasty() -> Result<Self> {
        Ok(Self { queue: Box::new(DriverQueue::new(true)?) })
    }

    /// Creates a stream over a queue other than the driver's.
    pub(crate) fn over(queue: impl Queue + 'static) -> Self {
        Self { queue: Box::new(queue) }
    }

    /// Waits for all queued work. Kernel faults are reported here at the latest.
    pub fn synchronize(&self) -> Result {
        self.queue.wait()
    }

    /// Makes later work on the stream wait for the event.
    pub fn wait(&self, event: &CudaEvent) -> Result {
        let (Some(stream), Some(event)) = (self.raw(), event.raw) else { return Ok(()) };
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: stream and event live as long as their owners.
        unsafe { result::stream::wait_event(stream, event, flags) }
            .map_err(failed("cuStreamWaitEvent"))
    }

    /// Creates an event without a time stamp.
    pub fn event(&self) -> Result<CudaEvent> {
        match self.raw() {
            Some(_) => CudaEvent::with(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING),
            None => Ok(CudaEvent { raw: None }),
        }
    }

    pub(crate) fn queue(&self) -> &dyn Queue {
        &*self.queue
    }

    pub(crate) fn raw(&self) -> Option<CUstream> {
        self.queue.raw()
    }
}

struct DriverQueue {
    raw: CUstream,
}

impl DriverQueue {
    fn new(is_urgent: bool) -> Result<Self> {
        let (mut last, mut first) = (0, 0);
        // SAFETY: a context is current, and the call writes two numbers.
        unsafe { sys::cuCtxGetStreamPriorityRange(&raw mut last, &raw mut first) }
            .result()
            .map_err(failed("cuCtxGetStreamPriorityRange"))?;
        let priority = if is_urgent { first } else { last };
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a context is current, and the call writes the stream.
        unsafe { sys::cuStreamCreateWithPriority(&raw mut raw, flags, priority) }
            .result()
            .map_err(failed("cuStreamCreateWithPriority"))?;
        Ok(Self { raw })
    }
}

impl Queue for DriverQueue {
    unsafe fn launch(&self, launch: &Launch, arguments: *mut c_void) -> Result {
        let Launch { function, grid, block } = *launch;
        // SAFETY: the caller passes what the function takes, in its only argument.
        unsafe {
            result::launch_kernel(
                function,
                (grid, 1, 1),
                (block, 1, 1),
                0,
                self.raw,
                &mut [arguments],
            )
        }
        .map_err(failed("cuLaunchKernel"))
    }

    unsafe fn fill(&self, to: u64, byte: u8, bytes: usize) -> Result {
        // SAFETY: the range is the caller's.
        unsafe { result::memset_d8_async(to, byte, bytes, self.raw) }
            .map_err(failed("cuMemsetD8Async"))
    }

    unsafe fn fill_words(&self, to: u64, word: u32, words: usize) -> Result {
        // SAFETY: the range is the caller's.
        unsafe { sys::cuMemsetD32Async(to, word, words, self.raw) }
            .result()
            .map_err(failed("cuMemsetD32Async"))
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result {
        // SAFETY: both ranges are the caller's.
        unsafe { sys::cuMemcpyAsync(to, from, bytes, self.raw) }
            .result()
            .map_err(failed("cuMemcpyAsync"))
    }

    unsafe fn upload(&self, to: u64, from: *const c_void, bytes: usize) -> Result {
        // SAFETY: both ranges are the caller's.
        unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, bytes, self.raw) }
            .result()
            .map_err(failed("cuMemcpyHtoDAsync"))
    }

    unsafe fn download(
        &self,
        to: *mut c_void,
        _label: &'static str,
        from: u64,
        bytes: usize,
    ) -> Result {
        // SAFETY: both ranges are the caller's.
        unsafe { sys::cuMemcpyDtoHAsync_v2(to, from, bytes, self.raw) }
            .result()
            .map_err(failed("cuMemcpyDtoHAsync"))
    }

    fn wait(&self) -> Result {
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::synchronize(self.raw) }.map_err(failed("cuStreamSynchronize"))
    }

    fn raw(&self) -> Option<CUstream> {
        Some(self.raw)
    }
}

impl Drop for DriverQueue {
    fn drop(&mut self) {
        // SAFETY: nobody else destroys it, and the driver lets what is on it finish first.
        if let Err(error) = unsafe { result::stream::destroy(self.raw) } {
            tracing::debug!("cuStreamDestroy: {error}");
        }
    }
}

/// A position in a stream.
pub struct CudaEvent {
    /// `None` on a stream that does no work: the event counts as reached.
    raw: Option<sys::CUevent>,
}

impl CudaEvent {
    /// Creates an event with a time stamp. A device must be open.
    pub fn timed() -> Result<Self> {
        Self::with(sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn with(flags: sys::CUevent_flags) -> Result<Self> {
        let raw = result::event::create(flags).map_err(failed("cuEventCreate"))?;
        Ok(Self { raw: Some(raw) })
    }

    /// Marks the end of the work that is queued on the stream.
    pub fn record(&self, stream: &Stream) -> Result {
        let (Some(event), Some(stream)) = (self.raw, stream.raw()) else { return Ok(()) };
        // SAFETY: event and stream live as long as their owners.
        unsafe { result::event::record(event, stream) }.map_err(failed("cuEventRecord"))
    }

    /// Waits until the stream has reached the event.
    pub fn synchronize(&self) -> Result {
        let Some(event) = self.raw else { return Ok(()) };
        // SAFETY: the event lives as long as `self`.
        unsafe { result::event::synchronize(event) }.map_err(failed("cuEventSynchronize"))
    }

    /// True if the stream has reached the event.
    pub fn is_reached(&self) -> Result<bool> {
        let Some(event) = self.raw else { return Ok(true) };
        // SAFETY: the event lives as long as `self`.
        match unsafe { result::event::query(event) } {
            Ok(()) => Ok(true),
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            Err(error) => Err(failed("cuEventQuery")(error)),
        }
    }

    /// Returns the milliseconds from an earlier event to this one. Both must be timed and reached.
    pub fn ms_since(&self, earlier: &Self) -> Result<f64> {
        let (Some(earlier), Some(event)) = (earlier.raw, self.raw) else { return Ok(0.0) };
        // SAFETY: both events live as long as their owners.
        let ms = unsafe { result::event::elapsed(earlier, event) };
        ms.map(f64::from).map_err(failed("cuEventElapsedTime"))
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        let Some(event) = self.raw else { return };
        // SAFETY: nobody else destroys it.
        if let Err(error) = unsafe { result::event::destroy(event) } {
            tracing::debug!("cuEventDestroy: {error}");
        }
    }
}

/// Writes the content of the buffer with this label. All bytes are zero before.
pub(crate) type Answer = Rc<dyn Fn(&'static str, &mut [u8])>;

/// A queue that does no work. `answer` provides the numbers that are read from it.
#[derive(Clone)]
pub(crate) struct DryQueue {
    answer: Answer,
    /// Number of copies and fills of this queue and its clones.
    transfers: Rc<Cell<usize>>,
}

impl DryQueue {
    pub(crate) fn new(answer: Answer) -> Self {
        Self { answer, transfers: Rc::default() }
    }

    #[cfg(test)]
    pub(crate) fn transfers(&self) -> usize {
        self.transfers.get()
    }

    fn transfer(&self) -> Result {
        self.transfers.set(self.transfers.get() + 1);
        Ok(())
    }
}

impl Queue for DryQueue {
    unsafe fn launch(&self, launch: &Launch, arguments: *mut c_void) -> Result {
        debug_assert!(launch.grid > 0 && launch.block > 0 && !arguments.is_null());
        Ok(())
    }

    unsafe fn fill(&self, to: u64, _byte: u8, bytes: usize) -> Result {
        debug_assert!(to > 0 && bytes > 0);
        self.transfer()
    }

    unsafe fn fill_words(&self, to: u64, _word: u32, words: usize) -> Result {
        debug_assert!(to > 0 && words > 0);
        self.transfer()
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result {
        debug_assert!(to > 0 && from > 0 && bytes > 0);
        self.transfer()
    }

    unsafe fn upload(&self, to: u64, from: *const c_void, bytes: usize) -> Result {
        debug_assert!(to > 0 && !from.is_null() && bytes > 0);
        self.transfer()
    }

    unsafe fn download(
        &self,
        to: *mut c_void,
        label: &'static str,
        from: u64,
        bytes: usize,
    ) -> Result {
        debug_assert!(from > 0);
        // SAFETY: the caller has `bytes` bytes there.
        unsafe { to.cast::<u8>().write_bytes(0, bytes) };
        // SAFETY: the caller has `bytes` bytes there, all of them written above.
        let host = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes) };
        (self.answer)(label, host);
        self.transfer()
    }

    fn wait(&self) -> Result {
        Ok(())
    }

    fn raw(&self) -> Option<CUstream> {
        None
    }
}
