//! Owners of device memory.

use crate::memory::Bytes;

/// An owner of memory of a device, or of the host on the device's behalf.
pub trait Held {
    /// Returns the number of bytes.
    fn bytes(&self) -> Bytes;
}
