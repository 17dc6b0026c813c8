//! The memory of the GPU, and what runs on plain buffers: sorts, sums and the device's report.

pub mod heap;
pub(crate) mod list_room;
pub mod sort;
pub(crate) mod status;
pub(crate) mod view_size;
