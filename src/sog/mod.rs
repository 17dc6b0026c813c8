//! What a device does for a SOG: it searches for the palette of harmonics, knows by drawing from where
//! Gaussians are seen, and fits their colours to photographs.

mod looks;
mod refit;
mod search;

pub use looks::{drawn_looks, footprint_of};
pub use refit::{RefitError, RefitScene};
pub use search::{DeviceTools, with_device};
