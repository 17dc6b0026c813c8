//! The training loop.

pub mod event;
pub mod pictures;
