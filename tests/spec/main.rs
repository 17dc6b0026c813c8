//! Behaviour of the library on the CPU.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot continue says so and stops"
)]

#[path = "../common/mod.rs"]
mod common;

mod dataset;
mod fuzz;
mod gradients;
mod images;
mod outputs;
mod primitive;
mod residency;
mod shortage;
mod streaming;
mod surface;
mod surfels;
mod telemetry;
mod triangles;
