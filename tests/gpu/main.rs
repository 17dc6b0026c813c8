//! Every stage on every backend, held against the CPU backend in double precision, and what only a GPU
//! has. Tests that need a GPU are ignored unless they are asked for: `cargo test --test gpu -- --ignored`.
//! The CPU's part of the rest runs everywhere.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot continue says so and stops"
)]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod appearance;
#[cfg(kernels)]
mod device_evaluation;
#[cfg(kernels)]
mod device_govern;
#[cfg(kernels)]
mod device_memory;
#[cfg(kernels)]
mod device_model;
#[cfg(kernels)]
mod device_offload;
#[cfg(kernels)]
mod device_plan;
#[cfg(kernels)]
mod device_ranks;
mod distances;
mod filters;
mod math_parity;
mod normals;
#[cfg(kernels)]
mod parity_bands;
mod parity_bind;
#[cfg(kernels)]
mod parity_compact;
mod parity_contribution;
mod parity_densify;
mod parity_depth;
mod parity_distortion;
mod parity_fuse;
mod parity_hard;
mod parity_lpips;
mod parity_neighbours;
mod parity_render;
mod parity_step;
mod parity_surface;
mod parity_surfels;
mod parity_triangles;
mod patches;
mod prelude;
mod primitive;
mod stages;
mod support;
