//! CPU backend of one of several ranks that train one model together.
//!
//! Sums run in the order of views and of the rows' numbers, so that the results equal those of one process with the
//! same number of views per step.

mod density;
mod share;
mod views;

pub use share::CpuShard;

#[cfg(test)]
mod tests;
