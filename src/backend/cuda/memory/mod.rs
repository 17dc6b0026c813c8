//! The memory of the GPU, and what runs on plain buffers: sorts, sums and the device's report.

pub mod heap;
pub mod sort;
pub(crate) mod status;
