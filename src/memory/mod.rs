//! Memory as a quantity: bytes with units, limits, and what the process holds.

mod bytes;
mod host;
mod limit;

pub use bytes::{Bytes, ParseBytesError, as_text};
pub use host::{HostMemory, host_memory};
pub use limit::{Limit, ParseLimitError, budget};
