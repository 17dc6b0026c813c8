//! The processor as one of several ranks, which train one model together.
//!
//! Sums run in the order of views and of the rows' numbers, so that ranks get the numbers of one process with as many
//! views a step.

mod density;
mod share;
mod views;

pub use share::CpuShard;

#[cfg(test)]
mod tests;
