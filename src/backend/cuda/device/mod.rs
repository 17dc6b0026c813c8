//! The CUDA driver: streams, events and launches. Nothing here knows of Gaussians.

pub(crate) mod code;
pub mod driver;
pub(crate) mod dry;
pub(crate) mod error;
pub(crate) mod fatbins;
pub(crate) mod footprints;
pub(crate) mod launch;
pub mod stream;
pub mod timers;
