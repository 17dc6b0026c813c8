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
mod device_lines;
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
#[cfg(kernels)]
mod device_residency;
#[cfg(kernels)]
mod device_sugar;
#[cfg(kernels)]
mod device_telemetry;
#[cfg(kernels)]
mod device_work;
mod distances;
mod filters;
#[cfg(kernels)]
mod full_card;
mod math_parity;
mod normals;
#[cfg(kernels)]
mod parity_bands;
mod parity_bind;
mod parity_broken;
mod parity_budget;
mod parity_checkpoint;
#[cfg(kernels)]
mod parity_compact;
mod parity_densify;
mod parity_depth;
mod parity_distances;
mod parity_distortion;
mod parity_fuse;
#[cfg(kernels)]
mod parity_half;
mod parity_hard;
mod parity_late;
mod parity_lpips;
mod parity_median;
mod parity_memory;
mod parity_neighbours;
mod parity_normal_map;
mod parity_normals;
mod parity_palette;
mod parity_patches;
mod parity_quantile;
mod parity_rates;
mod parity_relocate;
mod parity_render;
mod parity_shrink;
mod parity_sizes;
mod parity_step;
mod parity_surface;
mod parity_surfels;
mod parity_triangles;
mod parity_views;
mod parity_weights;
mod parity_worth;
mod patches;
mod primitive;
mod primitive_rows;
mod stages;
#[cfg(kernels)]
mod triangle_bands;
