//! Memory as a quantity: bytes with units, limits, what the process holds, and the books of a
//! device's.

mod bytes;
mod host;
mod ledger;
mod limit;

pub use bytes::{Bytes, ParseBytesError, as_text};
pub use host::{HostMemory, host_memory};
pub use ledger::{Entry, Kind, Ledger, Refusal, list};
pub use limit::{Limit, ParseLimitError, budget};
