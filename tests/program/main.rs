//! The program as a user runs it.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot continue says so and stops"
)]

#[path = "../common/mod.rs"]
mod common;

#[cfg(target_os = "linux")]
mod background_files;
mod bad_input;
mod batches;
mod clean;
mod cli;
#[cfg(unix)]
mod coarse;
mod compact;
mod compare;
mod completions;
mod coordinates;
mod depths;
#[cfg(unix)]
mod depths_and_normals;
mod empty_backgrounds;
mod ends;
mod export;
#[cfg(unix)]
mod faults;
mod fixtures;
mod foreign_files;
#[cfg(target_os = "linux")]
mod full_disk;
mod gltf_viewers;
#[cfg(all(target_os = "linux", not(kernels)))]
mod gpu_machine;
mod hidden_views;
#[cfg(target_os = "linux")]
mod host_limit;
mod impossible_numbers;
mod init;
#[cfg(unix)]
mod live;
mod lpips;
mod mesh;
mod mesh_figures;
mod multi_view;
mod normal_maps;
mod offload;
mod plan;
mod presets;
#[cfg(target_os = "linux")]
mod printed;
mod profile;
#[cfg(target_os = "linux")]
mod ranks;
#[cfg(unix)]
mod readme;
mod refine;
mod remedies;
mod resolution_schedule;
#[cfg(unix)]
mod resume;
#[cfg(unix)]
mod shared_folder;
mod splits;
#[cfg(unix)]
mod stranger_scenes;
mod strategies;
mod sugar;
mod sugar_stages;
mod surfels;
mod synthetic_scenes;
mod target_gaussians;
#[cfg(target_os = "linux")]
mod terminal;
mod texture;
mod timed_checkpoints;
mod train_triangles;
#[cfg(unix)]
mod trained_views;
mod training_background;
mod training_options;
mod triangles;
mod typed;
mod unusual_input;
#[cfg(unix)]
mod video;
#[cfg(unix)]
mod view;
mod weights;
