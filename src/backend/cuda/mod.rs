//! Training on an NVIDIA GPU.
//!
//! Work is put on one stream in the order of the calls, so that buffers may be used again without
//! waiting. The module exists where nvcc compiled the kernels.

pub mod driver;
pub mod heap;
mod launch;
pub mod session;
pub mod sort;
pub mod stream;
pub mod timers;

pub(super) use launch::{ARCHS, NVCC};
