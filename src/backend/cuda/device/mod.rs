//! The CUDA driver: streams, events and launches. Nothing here knows of Gaussians.

pub mod driver;
pub(crate) mod launch;
pub mod stream;
pub mod timers;
