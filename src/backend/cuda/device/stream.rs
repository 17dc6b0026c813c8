//! Streams, on which work is done in the order of the calls, and events, which mark a place there.

use cudarc::driver::{result, sys};

use super::driver::failed;
use crate::backend::DeviceError;

/// A queue of work on the GPU.
pub struct Stream {
    raw: sys::CUstream,
}

impl Stream {
    /// A queue that waits for no other. A device must be open.
    pub fn new() -> Result<Self, DeviceError> {
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(failed("cuStreamCreate"))?;
        Ok(Self { raw })
    }

    /// Waits for all that was put on it; faults of kernels show here at the latest.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::synchronize(self.raw) }.map_err(failed("cuStreamSynchronize"))
    }

    /// What comes next on it waits for the event.
    pub fn wait(&self, event: &Event) -> Result<(), DeviceError> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: stream and event live as long as their owners.
        unsafe { result::stream::wait_event(self.raw, event.raw, flags) }
            .map_err(failed("cuStreamWaitEvent"))
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.raw
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: nobody else destroys it, and the driver lets what is on it finish first.
        if let Err(error) = unsafe { result::stream::destroy(self.raw) } {
            tracing::debug!("cuStreamDestroy: {error}");
        }
    }
}

/// A place in a stream.
pub struct Event {
    raw: sys::CUevent,
}

impl Event {
    /// One that only tells whether it was reached. A device must be open.
    pub fn new() -> Result<Self, DeviceError> {
        Self::with(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// One that knows the time, too.
    pub fn timed() -> Result<Self, DeviceError> {
        Self::with(sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn with(flags: sys::CUevent_flags) -> Result<Self, DeviceError> {
        let raw = result::event::create(flags).map_err(failed("cuEventCreate"))?;
        Ok(Self { raw })
    }

    /// Marks the end of what was put on the stream up to now.
    pub fn record(&self, stream: &Stream) -> Result<(), DeviceError> {
        // SAFETY: event and stream live as long as their owners.
        unsafe { result::event::record(self.raw, stream.raw) }.map_err(failed("cuEventRecord"))
    }

    /// Waits until the stream has come here.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        // SAFETY: the event lives as long as `self`.
        unsafe { result::event::synchronize(self.raw) }.map_err(failed("cuEventSynchronize"))
    }

    /// Whether the stream has come here.
    pub fn is_reached(&self) -> Result<bool, DeviceError> {
        // SAFETY: the event lives as long as `self`.
        match unsafe { result::event::query(self.raw) } {
            Ok(()) => Ok(true),
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            Err(error) => Err(failed("cuEventQuery")(error)),
        }
    }

    /// Milliseconds from an earlier event to this one; both timed and reached.
    pub fn ms_since(&self, earlier: &Self) -> Result<f64, DeviceError> {
        // SAFETY: both events live as long as their owners.
        let ms = unsafe { result::event::elapsed(earlier.raw, self.raw) };
        ms.map(f64::from).map_err(failed("cuEventElapsedTime"))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: nobody else destroys it.
        if let Err(error) = unsafe { result::event::destroy(self.raw) } {
            tracing::debug!("cuEventDestroy: {error}");
        }
    }
}
