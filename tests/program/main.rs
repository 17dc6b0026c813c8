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

mod bad_input;
mod clean;
mod cli;
#[cfg(unix)]
mod coarse;
mod compare;
mod coordinates;
mod depths;
mod ends;
mod ensemble;
mod export;
#[cfg(unix)]
mod faults;
#[cfg(target_os = "linux")]
mod host_limit;
mod init;
mod lpips;
mod mesh;
mod multi_view;
mod plan;
mod profile;
#[cfg(target_os = "linux")]
mod ranks;
#[cfg(unix)]
mod readme;
mod refine;
mod resolution_schedule;
#[cfg(unix)]
mod resume;
#[cfg(unix)]
mod stranger_scenes;
mod strategies;
mod sugar;
mod synthetic_scenes;
#[cfg(target_os = "linux")]
mod terminal;
mod texture;
#[cfg(unix)]
mod trained_views;
mod training_background;
mod triangles;
mod typed;
#[cfg(unix)]
mod video;
#[cfg(unix)]
mod view;
