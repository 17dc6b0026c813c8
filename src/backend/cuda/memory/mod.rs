//! The memory of the GPU, sorts and sums, and the device's report.

pub mod heap;
pub mod sort;
pub(crate) mod status;
