//! What holds memory of a device.

use crate::memory::Bytes;

/// What holds memory of a device, or of the host for it.
pub trait Held {
    /// How much.
    fn bytes(&self) -> Bytes;
}
