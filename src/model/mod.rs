//! What is trained.

mod gaussians;

pub use gaussians::{Gaussians, sh_rest_count};
