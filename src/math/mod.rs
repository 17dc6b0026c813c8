//! The mathematics of splatting, generic over precision. Each backward function follows its forward function.
//!
//! At `f64` these functions are the reference that tests check gradients against. At `f32` they are the CPU backend.

pub mod adam;
pub mod appearance;
pub mod blend;
pub mod bound;
pub mod compact;
#[cfg(test)]
pub(crate) mod differences;
pub mod distortion;
mod divisor;
pub mod field;
pub mod filter;
pub mod linalg;
pub mod morton;
pub mod normals;
pub mod patches;
pub mod quantile;
pub use splat_mesh::random;
mod real;
pub mod relocate;
pub mod sh;
pub mod splat;
pub mod ssim;
pub mod transmittance;

pub use divisor::Divisor;
pub use real::{Real, inverse_sigmoid, sigmoid, sigmoid_bwd};
