//! Cost of one iteration in the steady state: milliseconds by stage, beside lower bounds, and bytes.
//!
//! Used by the hidden command `splat bench`, which needs the feature `bench`. [`Profiler`](crate::backend::Profiler)
//! has the measurements of a device.

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
