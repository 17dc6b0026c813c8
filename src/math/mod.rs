//! The mathematics of splatting, generic over precision; every backward stands under its forward.
//!
//! At `f64` these functions are the oracle that the gradients are proven with; at `f32` they are
//! the CPU backend.

pub mod linalg;
pub mod random;
mod real;

pub use real::{Real, inverse_sigmoid, sigmoid, sigmoid_bwd};
