//! The driver, and what is asked of it: streams, events and launches. It knows nothing of Gaussians.

pub mod driver;
#[cfg(test)]
pub(crate) mod dry;
pub(crate) mod error;
pub(crate) mod fatbins;
pub(crate) mod launch;
pub mod stream;
pub mod timers;
