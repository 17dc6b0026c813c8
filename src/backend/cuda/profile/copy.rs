//! How fast the GPU copies its own memory.

use crate::backend::cuda::device::stream::CudaEvent;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::session::Session;
use crate::backend::{CopySpeed, DeviceError};
use crate::layout::{COPY_TEST, Source as _};

/// Bytes of a copy: many times what caches hold.
const COPY_BYTES: usize = 1 << 30;

/// Below this, caches would be measured.
const COPY_BYTES_MIN: usize = 1 << 28;

/// Copies before the clock starts: at first memory runs slower.
const WARM_UP: u32 = 3;

/// Copies that are timed.
const COPIES: u32 = 10;

/// Copies as much as there is room for, up to 1 GiB at a time. Waits for the GPU.
pub(super) fn speed(session: &Session) -> Result<Option<CopySpeed>, DeviceError> {
    let mut bytes = COPY_BYTES;
    while bytes >= COPY_BYTES_MIN {
        match room(session, bytes) {
            Ok([from, to]) => return time(session, &from, to).map(Some),
            Err(DeviceError::Refused(_) | DeviceError::OutOfMemory { .. }) => bytes /= 2,
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn room(session: &Session, bytes: usize) -> Result<[Block<u8>; 2], DeviceError> {
    session.heap.take_two(&COPY_TEST, &(bytes as u64))
}

fn time(session: &Session, from: &Block<u8>, mut to: Block<u8>) -> Result<CopySpeed, DeviceError> {
    let stream = &session.stream;
    let [start, end] = [CudaEvent::timed()?, CudaEvent::timed()?];
    for _ in 0..WARM_UP {
        to.copy_from(stream, 0, from, 0..from.len())?;
    }
    start.record(stream)?;
    for _ in 0..COPIES {
        to.copy_from(stream, 0, from, 0..from.len())?;
    }
    end.record(stream)?;
    end.synchronize()?;
    // Each byte is read and written.
    let gigabytes = 2.0 * f64::from(COPIES) * from.len() as f64 * 1e-9;
    let seconds = end.ms_since(&start)? * 1e-3;
    Ok(CopySpeed { bytes: from.bytes(), gb_per_s: gigabytes / seconds })
}
