//! The training loop.

pub mod event;
