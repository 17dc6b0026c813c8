//! Memory as a quantity: bytes with units, and what the process holds.

mod bytes;
mod host;

pub use bytes::{Bytes, ParseBytesError, as_text};
pub use host::{HostMemory, host_memory};
