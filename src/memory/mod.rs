//! Memory as a quantity: sizes, limits, host memory, the ledger of a device, fallbacks and forecasts.

mod bytes;
mod fallback;
mod host;
mod host_allowance;
mod ledger;
mod limit;
pub mod plan;

pub use bytes::{Bytes, ParseBytesError, as_text};
pub use fallback::{Fallback, FallbackChange, FallbackPolicy, Gain, Holder, TrainingScale};
pub use host::{
    HostMemory, HostState, host_memory, host_state, images_budget, keep_little_freed_memory,
    peak_resident_memory, release_freed_memory, resident_memory,
};
pub use host_allowance::{HostAllowance, HostDemand, HostRefusal};
pub use ledger::{Entry, Kind, Ledger, Refusal, held_most};
pub use limit::{Allowance, CardSharing, Limit, ParseLimitError};
