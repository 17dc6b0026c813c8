//! What one iteration costs in the steady state: milliseconds, by stage and beside the least that
//! they could be, and bytes.
//!
//! The instruments of the hidden command `splat bench`. Only the command line uses this module, and
//! it exists with the feature `bench` alone. What a device measures of itself is behind
//! [`Profiler`](crate::backend::Profiler).

mod costs;
mod denser;
mod floor;
mod report;
mod result;
mod run;
mod steady_state;

pub use costs::{Pairs, StageCost, Traffic};
pub use report::BenchReport;
pub use result::{Bench, Peak};
pub use run::{BenchSetup, measure};
